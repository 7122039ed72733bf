"""Batches whose records have times all over the calendar: how many files they make, where what is beyond that lies, and
who finds it.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import duckdb
import pytest
from compat_server import Bmq
from confluent_kafka import Producer
from deltalake import DeltaTable
from parquet_jobs import arguments, rows, topic_of
from pyspark.sql import SparkSession
from test_parquet_faults import run_with
from test_parquet_job import HOUR_MS

from bmq_spark.errors import JobStopped
from bmq_spark.jobs import parquet_sink
from bmq_spark.jobs.parquet import parse, run
from bmq_spark.jobs.parquet_sink import ParquetSink
from bmq_spark.table import dataset, read
from bmq_spark.table.__main__ import main as table_command

NOON_MS = 1_772_366_400_000
"""2026-03-01T12:00Z."""
APART = "date=__HIVE_DEFAULT_PARTITION__/hour=__HIVE_DEFAULT_PARTITION__"
FULL = ["date=2026-03-01/hour=12", "date=2026-03-01/hour=13"]


def scattered(ordinary: int = 20, others: int = 60) -> Iterator[tuple[bytes, int]]:
    """Values and times: two hours with many records, and one record in each of many hours before; every third is no
    UTF-8.
    """
    for number in range(ordinary + others):
        value = b"\xff%d" % number if number % 3 == 0 else b"%d" % number
        hours = number % 2 if number < ordinary else -number * 1000
        yield value, NOON_MS + hours * HOUR_MS + number


def produce_at(servers: str, topic: str, records: Sequence[tuple[bytes, int]], *, partitions: int = 1) -> None:
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 5})
    said: list[Any] = []
    for number, (value, timestamp) in enumerate(records):
        producer.produce(
            topic,
            value,
            timestamp=timestamp,
            partition=number % partitions,
            on_delivery=lambda error, _: said.append(error),
        )
    assert producer.flush(60) == 0
    assert said == [None] * len(records)


def folders(table: Path) -> list[str]:
    return sorted({str(file.parent.relative_to(table)) for file in table.glob("date=*/**/*.parquet")})


def stored(table: Path) -> int:
    return len(list(table.glob("date=*/**/*.parquet")))


def found(table: Path) -> list[tuple[Any, int]]:
    """Every value with its time, of rows and dead letters."""
    both = [
        row
        for folder in (table, table / "_dead_letters")
        if folder.exists()
        for row in rows(folder, "value, epoch_ms(timestamp)")
    ]
    return sorted((value.encode() if isinstance(value, str) else value, timestamp) for value, timestamp in both)


@pytest.mark.parametrize("tasks", [1, 2])
def test_the_fullest_hours_have_folders_and_all_others_one_and_no_record_is_missed(
    bmq: Bmq, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tasks: int
) -> None:
    monkeypatch.setattr(parquet_sink, "TASK_RECORDS", 1_000 if tasks == 1 else 1)
    topic, table, made = topic_of(bmq.servers, partitions=2), tmp_path / "t", list(scattered())
    produce_at(bmq.servers, topic, made, partitions=2)
    total = run(
        parse([*arguments(bmq.servers, table, topic), "--format", "string", "--max-partitions-per-batch", "2"]), spark
    )
    assert (total.rows, total.dead_letters) == (53, 27)
    assert found(table) == sorted(made)
    for folder, least in ((table, 13), (table / "_dead_letters", 7)):
        assert folders(folder) == [*FULL, APART]
        assert stored(folder) <= 2 + tasks
        assert rows(folder, "count(*)", "1") == [(least + (40 if folder == table else 20),)]
        assert table_command(["check", str(folder)]) == 0
    assert total.files == stored(table)


def test_who_asks_for_a_time_finds_what_lies_in_no_folder_of_it_and_who_asks_for_a_date_does_not(
    bmq: Bmq, spark: SparkSession, tmp_path: Path
) -> None:
    topic, table, made = topic_of(bmq.servers, partitions=1), tmp_path / "t", list(scattered())
    produce_at(bmq.servers, topic, made)
    run(parse([*arguments(bmq.servers, table, topic), "--max-partitions-per-batch", "2"]), spark)
    of_one, where = made[40], "timestamp >= TIMESTAMPTZ '{0}' AND timestamp < TIMESTAMPTZ '{0}' + INTERVAL 1 HOUR"
    hour = duckdb.sql(
        f"SELECT strftime(make_timestamp({of_one[1] // HOUR_MS * HOUR_MS} * 1000), '%Y-%m-%d %H:%M:%S+00')"
    ).fetchall()[0][0]
    orders = dataset(str(table))
    assert orders.schema.names[-1] == "lane"
    assert duckdb.sql(f"SELECT value FROM orders WHERE {where.format(hour)}").fetchall() == [(of_one[0],)]
    by_spark = read(spark, str(table)).where(
        f"timestamp >= '{hour}' AND timestamp < timestamp '{hour}' + interval 1 hour"
    )
    assert [bytes(row.value) for row in by_spark.collect()] == [of_one[0]]
    delta = DeltaTable(str(table)).to_pyarrow_dataset()
    assert delta.count_rows() == len(made)
    assert duckdb.sql(f"SELECT value, date, hour FROM delta WHERE {where.format(hour)}").fetchall() == [
        (of_one[0], None, None)
    ]
    assert duckdb.sql(
        "SELECT hour, count(*) FROM delta WHERE date = '2026-03-01' GROUP BY ALL ORDER BY ALL"
    ).fetchall() == [(12, 10), (13, 10)]
    hive = duckdb.sql(
        f"SELECT date IS NULL AS apart, count(*) FROM read_parquet('{table}/date=*/**/*.parquet', "
        "hive_partitioning=true) GROUP BY ALL"
    )
    assert sorted(hive.fetchall()) == [(False, 20), (True, 60)]


def test_a_batch_that_comes_again_longer_and_with_other_hours_doubles_and_misses_nothing(
    bmq: Bmq, spark: SparkSession, tmp_path: Path
) -> None:
    """Killed between its two commits; then other hours are the fullest."""
    topic, table, made = topic_of(bmq.servers, partitions=1), tmp_path / "t", list(scattered())
    produce_at(bmq.servers, topic, made)
    given = [*arguments(bmq.servers, table, topic), "--format", "string", "--max-partitions-per-batch", "2"]

    class Killed(ParquetSink):
        def __init__(self, *told: Any, **how: Any) -> None:
            super().__init__(*told, **how | {"folders_max": 2})

        def _commit_letters(self, *told: Any) -> None:
            super()._commit_letters(*told)
            raise JobStopped("killed")

    with pytest.raises(JobStopped, match="killed"):
        run_with(Killed, given, spark)
    assert (rows(table), folders(table / "_dead_letters")) == ([], [*FULL, APART])
    later = [(value, NOON_MS - (10 + number % 2) * HOUR_MS) for number, (value, _) in enumerate(made)]
    produce_at(bmq.servers, topic, later)
    run(parse(given), spark)
    assert found(table) == sorted([*made, *later])
    assert folders(table) == ["date=2026-03-01/hour=01", "date=2026-03-01/hour=02", APART]


@pytest.mark.parametrize(
    ("by", "kept"), [("date", ["date=2026-03-01", "date=__HIVE_DEFAULT_PARTITION__"]), ("none", [])]
)
def test_days_are_bounded_as_hours_are_and_a_table_without_folders_has_none(
    bmq: Bmq, spark: SparkSession, tmp_path: Path, by: str, kept: list[str]
) -> None:
    topic, table, made = topic_of(bmq.servers, partitions=1), tmp_path / "t", list(scattered())
    produce_at(bmq.servers, topic, made)
    run(parse([*arguments(bmq.servers, table, topic), "--partition-by", by, "--max-partitions-per-batch", "1"]), spark)
    assert folders(table) == kept
    assert found(table) == sorted(made)

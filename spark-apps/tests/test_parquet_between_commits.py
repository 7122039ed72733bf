"""A job that is killed between the commits of its dead letters and its rows goes on, with inferred columns and with
retention.
"""

import datetime
from pathlib import Path

import pytest
from compat_server import Bmq
from parquet_jobs import arguments, produce, rows, topic_of
from pyspark.sql import SparkSession
from test_parquet_faults import run_with

from bmq_spark.errors import JobStopped
from bmq_spark.jobs.parquet import parse, run
from bmq_spark.jobs.parquet_sink import ParquetSink
from bmq_spark.jobs.sinks import Batch
from bmq_spark.table import DataFile


class KilledBetween(ParquetSink):
    def _commit_letters(self, batch: Batch, letters: list[DataFile]) -> None:  # type: ignore[override]
        super()._commit_letters(batch, letters)
        raise JobStopped("killed")


def letters(table: Path) -> list[tuple[object, ...]]:
    return rows(table / "_dead_letters", 'value, "offset"')


def test_columns_that_were_lost_with_their_first_batch_are_found_again(
    bmq: Bmq, spark: SparkSession, tmp_path: Path
) -> None:
    topic = topic_of(bmq.servers, partitions=1)
    options = [*arguments(bmq.servers, tmp_path / "t", topic), "--format", "json"]
    produce(bmq.servers, topic, [b'{"id": 1}', b"not JSON", b'{"id": 2, "a": {"b": true}}'])
    with pytest.raises(JobStopped, match="killed"):
        run_with(KilledBetween, options, spark)
    produce(bmq.servers, topic, [b'{"id": 3, "later": "x"}', b"[]"])
    assert run(parse(options), spark).rows == 3
    assert [value["id"] for (value,) in rows(tmp_path / "t")] == [1, 2, 3]
    assert letters(tmp_path / "t") == [(b"not JSON", 1), (b"[]", 4)]


def test_new_columns_that_were_lost_with_a_later_batch_are_found_again(
    bmq: Bmq, spark: SparkSession, tmp_path: Path
) -> None:
    topic = topic_of(bmq.servers, partitions=1)
    options = [*arguments(bmq.servers, tmp_path / "t", topic), "--format", "json"]
    produce(bmq.servers, topic, [b'{"id": 1}'])
    run(parse(options), spark)
    produce(bmq.servers, topic, [b'{"id": 2, "more": 1}', b'{"id": 2.5}'])
    with pytest.raises(JobStopped, match="killed"):
        run_with(KilledBetween, options, spark)
    run(parse(options), spark)
    assert [(value["id"], value["more"]) for (value,) in rows(tmp_path / "t")] == [(1, None), (2, 1)]
    assert letters(tmp_path / "t") == [(b'{"id": 2.5}', 2)]


def test_columns_that_a_batch_brought_are_there_when_it_comes_again_with_fewer_records(
    bmq: Bmq, spark: SparkSession, tmp_path: Path
) -> None:
    topic = topic_of(bmq.servers, partitions=1)
    options = [*arguments(bmq.servers, tmp_path / "t", topic), "--format", "json", "--max-records-per-batch"]
    produce(bmq.servers, topic, [b'{"price": 1}', b"not JSON", b'{"price": 1.5}', b'{"price": 2, "at": "x"}'])
    with pytest.raises(JobStopped, match="killed"):
        run_with(KilledBetween, [*options, "4"], spark)
    assert rows(tmp_path / "t") == []
    assert run(parse([*options, "1"]), spark).rows == 3
    assert rows(tmp_path / "t", "value.price, value.at") == [(1.0, None), (1.5, None), (2.0, "x")]
    assert letters(tmp_path / "t") == [(b"not JSON", 1)]


def test_dead_letters_past_retention_stay_until_their_batch_is_whole(
    bmq: Bmq, spark: SparkSession, tmp_path: Path
) -> None:
    topic = topic_of(bmq.servers, partitions=1)
    (tmp_path / "x.ddl").write_text("id int")
    options = [
        *arguments(bmq.servers, tmp_path / "t", topic),
        "--format",
        "json",
        "--schema",
        str(tmp_path / "x.ddl"),
        "--retention",
        "2d",
    ]
    old_ms = int((datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=4)).timestamp() * 1000)
    produce(bmq.servers, topic, [b"old letter", b'{"id": 0}'], timestamp=old_ms)
    produce(bmq.servers, topic, [b'{"id": 1}', b"new letter"])
    with pytest.raises(JobStopped, match="killed"):
        run_with(KilledBetween, options, spark)
    run(parse(options), spark)
    assert rows(tmp_path / "t", 'value.id, "offset"')[-1] == (1, 2)
    assert (b"old letter", 0) in letters(tmp_path / "t")
    run(parse(options), spark)
    assert rows(tmp_path / "t", 'value.id, "offset"') == [(1, 2)]
    assert letters(tmp_path / "t") == [(b"new letter", 3)], "its batch is whole now: retention takes what is old"

import time
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from unittest.mock import ANY

import duckdb
import pytest
from compat_server import Bmq
from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource
from parquet_jobs import arguments, produce, rows, topic_of
from pyspark.sql import SparkSession

from bmq_spark.jobs.parquet import parse, run
from bmq_spark.jobs.sinks import FILES_MANY, Total

HOUR_MS = 3_600_000


def test_a_topic_becomes_a_table_and_a_second_run_adds_what_is_new(
    bmq: Bmq, spark: SparkSession, tmp_path: Path
) -> None:
    topic = topic_of(bmq.servers)
    produce(bmq.servers, topic, [b"%d" % number for number in range(1000)])
    options = parse(arguments(bmq.servers, tmp_path / "t", topic))
    assert run(options, spark).rows == 1000
    assert run(options, spark).rows == 0
    produce(bmq.servers, topic, [b"%d" % number for number in range(1000, 1100)])
    assert run(options, spark).rows == 100
    assert sorted(int(value) for (value,) in rows(tmp_path / "t")) == list(range(1100))
    plain = (
        duckdb.connect()
        .execute(f"SELECT count(*), count(DISTINCT (partition, \"offset\")) FROM '{tmp_path}/t/date=*/**/*.parquet'")
        .fetchall()
    )
    assert plain == [(1100, 1100)]


def test_every_part_of_a_record_arrives_and_late_ones_go_to_their_hour(
    bmq: Bmq, spark: SparkSession, tmp_path: Path
) -> None:
    topic = topic_of(bmq.servers, partitions=1)
    noon = 1_772_366_400_000  # 2026-03-01T12:00Z
    produce(bmq.servers, topic, [b"now"], key=b"k", headers=[("h", b"1"), ("h", None)], timestamp=noon)
    produce(bmq.servers, topic, [None], key=b"gone", timestamp=noon + 1)
    produce(bmq.servers, topic, [b"late"], timestamp=noon - 26 * HOUR_MS)
    run(parse(arguments(bmq.servers, tmp_path / "t", topic)), spark)
    found = rows(tmp_path / "t", 'key, value, headers, topic, partition, "offset", epoch_ms(timestamp), lane')
    assert found == [
        (b"k", b"now", [{"key": "h", "value": b"1"}, {"key": "h", "value": None}], topic, 0, 0, noon, ""),
        (b"gone", None, [], topic, 0, 1, noon + 1, ""),
        (None, b"late", [], topic, 0, 2, noon - 26 * HOUR_MS, ""),
    ]
    folders = {str(file.parent.relative_to(tmp_path / "t")) for file in (tmp_path / "t").glob("date=*/**/*.parquet")}
    assert folders == {"date=2026-03-01/hour=12", "date=2026-02-28/hour=10"}


def test_times_all_over_the_calendar_are_told_of_and_a_topics_settings_keep_them_out(
    bmq: Bmq, spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    topic, now = topic_of(bmq.servers, partitions=1), round(time.time() * 1000)
    assert set(refusals(bmq.servers, topic, (now - hours * HOUR_MS for hours in range(FILES_MANY + 1)))) == {None}
    for most, files, what in (
        (2000, FILES_MANY + 1, "1001 files in one batch"),
        (500, 501, "501 records of one batch are in a folder without a time"),
    ):
        given = [*arguments(bmq.servers, tmp_path / f"{most}", topic), "--max-partitions-per-batch", f"{most}"]
        assert run(parse(given), spark) == Total(batches=1, rows=FILES_MANY + 1, files=files, size_bytes=ANY)
        said = [line for line in capsys.readouterr().err.splitlines() if line.startswith("warning")]
        assert len(said) == 1
        assert what in said[0]
        assert "message.timestamp.before.max.ms" in said[0]
    settings = {
        "bmq.validation": "records",
        "message.timestamp.before.max.ms": str(HOUR_MS),
        "message.timestamp.after.max.ms": str(HOUR_MS),
    }
    alter_topic(bmq.servers, topic, settings)
    for times, wrong in (((now, now - 2 * HOUR_MS), 1), ((now - 2 * HOUR_MS, now), 0), ((now, now + 2 * HOUR_MS), 1)):
        assert refusals(bmq.servers, topic, times)[wrong] == "INVALID_TIMESTAMP"
    assert refusals(bmq.servers, topic, (now, now - HOUR_MS // 2)) == [None, None]


def alter_topic(servers: str, topic: str, settings: Mapping[str, str]) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    entries = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in settings.items()
    ]
    for answer in admin.incremental_alter_configs(
        [ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=entries)]
    ).values():
        answer.result(timeout=30)


def refusals(servers: str, topic: str, times: Iterable[int]) -> list[str | None]:
    """What is said to each record. They are of one batch, or of two where the first was sent when the second came: a
    batch is refused as a whole.
    """
    said: dict[int, str | None] = {}

    def tell(number: int, error: KafkaError | None, _: Message) -> None:
        said[number] = None if error is None else error.name()

    producer = Producer({"bootstrap.servers": servers, "linger.ms": 1000})
    for number, timestamp in enumerate(times):
        producer.produce(topic, b"v", timestamp=timestamp, on_delivery=partial(tell, number))
    assert producer.flush(60) == 0
    return [said[number] for number in sorted(said)]


def test_columns_of_json_are_inferred_and_grow_and_what_does_not_fit_is_a_dead_letter(
    bmq: Bmq, spark: SparkSession, tmp_path: Path
) -> None:
    topic = topic_of(bmq.servers, partitions=1)
    options = parse([*arguments(bmq.servers, tmp_path / "t", topic), "--format", "json"])
    produce(bmq.servers, topic, [b'{"id": 1, "name": "a"}', b"no json", b'{"id": 2}', None])
    assert run(options, spark) == Total(batches=1, rows=3, files=1, size_bytes=ANY, dead_letters=1)
    produce(bmq.servers, topic, [b'{"id": 3, "city": {"zip": "x"}}', b'{"id": "text"}'])
    run(options, spark)
    assert rows(tmp_path / "t") == [
        ({"id": 1, "name": "a", "city": None},),
        ({"id": 2, "name": None, "city": None},),
        (None,),
        ({"id": 3, "name": None, "city": {"zip": "x"}},),
    ]
    letters = rows(tmp_path / "t" / "_dead_letters", '"offset", value, reason')
    assert [(offset, value) for offset, value, _ in letters] == [(1, b"no json"), (5, b'{"id": "text"}')]
    assert all("not the JSON of the columns" in reason for *_, reason in letters)
    assert run(options, spark).rows == 0
    assert len(rows(tmp_path / "t" / "_dead_letters")) == 2


def test_retention_takes_old_folders_out_of_the_table_and_of_its_dead_letters(
    bmq: Bmq, spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    topic = topic_of(bmq.servers, partitions=1)
    table = tmp_path / "t"
    given = [*arguments(bmq.servers, table, topic), "--format", "string"]
    produce(bmq.servers, topic, [b"old", b"\xff old"], timestamp=round(time.time() * 1000) - 72 * HOUR_MS)
    produce(bmq.servers, topic, [b"new", b"\xff new"])
    run(parse(given), spark)
    assert [len(rows(table)), len(rows(table / "_dead_letters"))] == [2, 2]
    produce(bmq.servers, topic, [b"newer"])
    assert run(parse([*given, "--retention", "2d"]), spark).rows == 1
    assert rows(table) == [("new",), ("newer",)]
    assert rows(table / "_dead_letters") == [(b"\xff new",)]
    said = [line for line in capsys.readouterr().err.splitlines() if line.startswith("retention")]
    assert said == [f"retention took 1 rows in 1 files out of {folder}" for folder in (table, table / "_dead_letters")]


def test_the_bucket_source_gives_the_same_table_as_the_brokers(bmq: Bmq, spark: SparkSession, tmp_path: Path) -> None:
    topic = topic_of(bmq.servers)
    produce(bmq.servers, topic, [b"%d" % number for number in range(500)], key=b"k", headers=[("h", b"1")])
    by_brokers, by_bucket = tmp_path / "kafka", tmp_path / "bmq"
    run(parse(arguments(bmq.servers, by_brokers, topic)), spark)
    store = ["--source", "bmq", "--store", (bmq.log.parent / "data").as_uri(), "--max-records-per-batch", "200"]
    total = run(parse([*arguments(bmq.servers, by_bucket, topic), *store]), spark)
    assert total.rows == 500
    assert run(parse([*arguments(bmq.servers, by_bucket, topic), *store]), spark).rows == 0
    columns = 'key, value, headers, topic, partition, "offset", epoch_us(timestamp), lane'
    assert rows(by_bucket, columns) == rows(by_brokers, columns)

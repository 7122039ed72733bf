"""Partitions that are added while a query begins: each is read from its first record."""

from pathlib import Path
from typing import Any

import pytest
from compat_server import Bmq
from confluent_kafka.admin import AdminClient, NewPartitions
from parquet_jobs import arguments, produce, rows, topic_of
from pyspark.sql import SparkSession

from bmq_spark.errors import JobStopped
from bmq_spark.jobs import streaming
from bmq_spark.jobs.parquet import parse, run


def add_partition(bmq: Bmq, topic: str, count: int) -> None:
    admin = AdminClient({"bootstrap.servers": bmq.servers})
    admin.create_partitions([NewPartitions(topic, count)])[topic].result(timeout=30)


@pytest.mark.parametrize("then", ["earliest", "latest"])
def test_a_partition_that_is_added_before_spark_began_a_query_is_read_from_its_first_record(
    bmq: Bmq, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, then: str
) -> None:
    """The first run ended when it had noted where the query begins. `then`: what the next one says of new topics."""
    topic = topic_of(bmq.servers, partitions=1)
    given = arguments(bmq.servers, tmp_path / "t", topic)
    produce(bmq.servers, topic, [b"1", b"2"])

    def ends(*_: Any) -> None:
        raise JobStopped("ended early")

    with monkeypatch.context() as patched:
        patched.setattr(streaming, "records_stream", ends)
        with pytest.raises(JobStopped, match="ended early"):
            run(parse(given), spark)
    add_partition(bmq, topic, 2)
    produce(bmq.servers, topic, [b"3"], partition=1)
    run(parse([*given, "--starting-offsets", then]), spark)
    assert [value for (value,) in rows(tmp_path / "t")] == [b"1", b"2", b"3"]
    produce(bmq.servers, topic, [b"4"], partition=1)
    run(parse(given), spark)
    assert [value for (value,) in rows(tmp_path / "t")] == [b"1", b"2", b"3", b"4"]


def test_a_partition_that_is_added_between_the_look_for_partitions_and_sparks_stops_no_run(
    bmq: Bmq, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = topic_of(bmq.servers, partitions=1)
    produce(bmq.servers, topic, [b"1"])
    begins, counts = streaming.records_stream, []

    def begins_late(*given: Any) -> Any:
        counts.append(len(counts) + 2)
        if len(counts) <= 2:
            add_partition(bmq, topic, counts[-1])
            produce(bmq.servers, topic, [b"%d" % counts[-1]], partition=counts[-1] - 1)
        return begins(*given)

    monkeypatch.setattr(streaming, "records_stream", begins_late)
    run(parse(arguments(bmq.servers, tmp_path / "t", topic)), spark)
    assert [value for (value,) in rows(tmp_path / "t")] == [b"1", b"2", b"3"] and len(counts) == 3

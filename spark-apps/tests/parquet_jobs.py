"""What tests of the Parquet job do again and again: topics with records, a run, and what DuckDB finds in a table."""

import itertools
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import duckdb
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from bmq_spark.table import files

_names = itertools.count(1)


def topic_of(servers: str, *, partitions: int = 3, name: str | None = None) -> str:
    """A new topic, which keeps records that have times of long ago."""
    made = name or f"parquet-{next(_names)}"
    admin = AdminClient({"bootstrap.servers": servers})
    for answer in admin.create_topics([NewTopic(made, partitions, config={"retention.ms": "-1"})]).values():
        answer.result(timeout=30)
    return made


def produce(
    servers: str, topic: str, values: Iterable[bytes | None], *, settings: Mapping[str, Any] | None = None, **more: Any
) -> None:
    """One record for each value; `more` goes to Producer.produce."""
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 5} | dict(settings or {}))
    for value in values:
        producer.produce(topic, value, **more)
        producer.poll(0)
    assert producer.flush(60) == 0


def rows(
    output: str | Path, columns: str = "value", order: str = 'topic, partition, "offset"'
) -> list[tuple[Any, ...]]:
    """What DuckDB finds in the table's files, by the log."""
    found = files(str(output))
    if not found:
        return []
    return (
        duckdb.connect()
        .execute(
            f"SET TimeZone='UTC'; SELECT {columns} FROM read_parquet({found}, union_by_name=true, "
            f"hive_partitioning=false) ORDER BY {order}"
        )
        .fetchall()
    )


def arguments(servers: str, output: str | Path, *topics: str, once: bool = True) -> list[str]:
    """The command line of a run."""
    named = [part for topic in topics for part in ("--topic", topic)]
    return ["--bootstrap-servers", servers, "--output", str(output), *named, *(["--once"] if once else [])]

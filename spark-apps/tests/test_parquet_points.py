"""A stream into a Parquet table, killed at every point of a batch, while another process merges, vacuums, and
writes.
"""

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from compat_server import Bmq
from deltalake import DeltaTable
from killed_jobs import job_at
from parquet_jobs import arguments, produce, rows, topic_of
from pyspark.sql import SparkSession
from test_iceberg_kills import values

from bmq_spark.jobs import compact
from bmq_spark.jobs.parquet import parse, run
from bmq_spark.locations import Location
from bmq_spark.table import Table

POINTS = {"parquet: written": 2, "parquet: letters": 2, "parquet: committed": 3, "parquet: added": 2}
"""How often each is passed before the job dies there: in its second batch. What is committed is published once more
when a run begins."""
DAY_MS = 24 * 3_600_000


def merged_and_vacuumed(table: Path) -> None:
    """As if it were tomorrow: every hour is over, and every file old."""
    options = compact.parse(["--output", str(table), "--min-files", "2", "--vacuum-older-than", "1ms"])
    compact.run(options, at_ms=time.time_ns() // 1_000_000 + DAY_MS)


def compaction_of(table: Path) -> Callable[[], None]:
    """Called again and again, it merges and vacuums after each commit of the job."""
    seen = [0]

    def compaction() -> None:
        location = Location.parse(str(table))
        if Table.exists(location) and Table.open(location).snapshot().version > seen[0]:
            merged_and_vacuumed(table)
            seen[0] = Table.open(location).snapshot().version

    return compaction


def offsets(table: Path) -> list[int]:
    return [offset for (offset,) in rows(table, '"offset"')]


@pytest.mark.timeout(900)
def test_a_stream_that_dies_at_every_point_beside_merges_and_vacuums_has_every_record_once(
    bmq: Bmq, spark: SparkSession, tmp_path: Path
) -> None:
    topic = topic_of(bmq.servers, partitions=1)
    table = tmp_path / "t"
    given = [*arguments(bmq.servers, table, topic, once=False), "--format", "string", "--max-records-per-batch", "20"]
    compaction = compaction_of(table)
    made = 0
    for point, number in POINTS.items():
        produce(bmq.servers, topic, values(made, 60))
        made += 60
        with job_at(point, number, [*given, "--trigger", "200ms"], tmp_path / point.replace(": ", "-")) as job:
            job.die(compaction)
        assert len(offsets(table)) == len(set(offsets(table)))
    # One that sleeps with its files written, while another job takes its records and all that is unnamed is deleted, is
    # refused.
    produce(bmq.servers, topic, values(made, 60))
    made += 60
    with job_at("parquet: written", -1, [*given, "--once"], tmp_path / "sleeper") as job:
        job.wait(lambda: None)
        run(parse([*given, "--once", "--checkpoint", str(tmp_path / "other")]), spark)
        merged_and_vacuumed(table)
        assert job.go_on() == 1, job.said()[-3000:]
        assert "does another job write to it? Let one of them go on alone" in job.said()
    assert run(parse([*given, "--once"]), spark).rows == 0
    assert offsets(table) == [number for number in range(made) if number % 10]
    assert offsets(table / "_dead_letters") == [number for number in range(made) if number % 10 == 0]
    for folder in (table, table / "_dead_letters"):
        merged_and_vacuumed(folder)
        assert sorted(
            DeltaTable(str(folder)).to_pyarrow_table(columns=["offset"]).column("offset").to_pylist()
        ) == offsets(folder)

"""A stream into an Iceberg table, killed at every point of a batch, while another process maintains it as the job would
and as anybody would.
"""

from collections.abc import Callable
from pathlib import Path

import pytest
from compat_server import Bmq
from iceberg_catalogs import Opened, opened_in
from killed_jobs import job_at
from parquet_jobs import produce, topic_of
from pyspark.sql import SparkSession
from test_iceberg_races import MAINTENANCE, compact_as_anybody_would, expire_as_anybody_would, offsets

from bmq_spark.iceberg.catalogs import Catalog, TableName
from bmq_spark.iceberg.maintenance import maintain
from bmq_spark.iceberg.tables import IcebergTable
from bmq_spark.jobs import iceberg

POINTS = {"iceberg: letters": 2, "iceberg: staged": 4, "iceberg: stepped": 4, "iceberg: added": 2}
"""How often each is passed before the job dies there: in its second batch. Letters and rows are staged and stepped
each."""


def values(first: int, count: int) -> list[bytes]:
    return [b"\xff%d" % number if number % 10 == 0 else b"%d" % number for number in range(first, first + count)]


def maintenance_of(spark: SparkSession, name: TableName) -> Callable[[], None]:
    """Called again and again, it maintains the table after each batch, in turns as the job and as anybody."""
    seen: list[int | None] = [None]

    def maintenance() -> None:
        table = IcebergTable.open(spark, name)
        if table is None or table.newest_id() == seen[-1]:
            return
        if len(seen) % 2:
            maintain(spark, table, MAINTENANCE)
        else:
            compact_as_anybody_would(spark, name)
            expire_as_anybody_would(spark, name)
        seen.append(table.newest_id())

    return maintenance


@pytest.mark.timeout(900)
def test_a_stream_that_dies_at_every_point_beside_maintenance_has_every_record_once(
    bmq: Bmq, spark: SparkSession, tmp_path: Path
) -> None:
    topic = topic_of(bmq.servers, partitions=1)
    opened: Opened = opened_in(
        spark, Catalog(name="killed", kind="hadoop", warehouse=str(tmp_path / "warehouse"), uri=None), {}
    )
    name = opened.table("orders")
    given = [
        "--bootstrap-servers",
        bmq.servers,
        "--topic",
        topic,
        "--table",
        str(name),
        "--catalog-type",
        "hadoop",
        "--format",
        "string",
    ]
    given += ["--warehouse", str(tmp_path / "warehouse"), "--max-records-per-batch", "20"]
    maintenance = maintenance_of(spark, name)
    made = 0
    for point, number in POINTS.items():
        produce(bmq.servers, topic, values(made, 60))
        made += 60
        with job_at(point, number, [*given, "--trigger", "200ms"], tmp_path / point.replace(": ", "-")) as job:
            job.die(maintenance)
    # One that sleeps with its rows staged, while others compact and expire all that no reader sees, goes on by itself.
    produce(bmq.servers, topic, values(made, 60))
    made += 60
    with job_at("iceberg: staged", -2, [*given, "--once"], tmp_path / "sleeper") as job:
        job.wait(lambda: None)
        for _ in range(2):
            compact_as_anybody_would(spark, name)
            expire_as_anybody_would(spark, name)
        assert job.go_on() == 0, job.said()[-3000:]
    options = iceberg.parse([*given, "--once"])
    assert isinstance(options, iceberg.IcebergOptions)
    assert iceberg.run(options, spark).rows == 0
    assert offsets(opened, name) == [number for number in range(made) if number % 10]
    assert offsets(opened, name.dead_letters) == [number for number in range(made) if number % 10 == 0]

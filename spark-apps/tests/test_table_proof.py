"""A store on which two writers could commit the same version of a table is refused before anything is written to the
table.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest
from conftest import Buckets
from gateway_without_conditions import Gateway
from pyspark.sql import SparkSession

from bmq.errors import StoreUnusable
from bmq_spark.jobs import compact
from bmq_spark.jobs.parquet import parse
from bmq_spark.jobs.parquet_sink import ParquetSink
from bmq_spark.locations import Location
from bmq_spark.table import PartitionBy, Table
from bmq_spark.table.proof import prove

NEVER_ASKED = cast("SparkSession", None)


@pytest.fixture
def gateway() -> Iterator[Gateway]:
    server = Gateway()
    yield server
    server.stop()


def location_at(gateway: Gateway) -> Location:
    return Location.parse(f"s3a://b/table?endpoint=http://127.0.0.1:{gateway.server_port}")


def test_a_job_does_not_write_to_a_bucket_that_ignores_conditions(gateway: Gateway) -> None:
    location = location_at(gateway)
    options = parse(["--topic", "orders", "--output", location.uri])
    with pytest.raises(StoreUnusable, match=r"second create of one key succeed: .*use another store"):
        ParquetSink.open(
            NEVER_ASKED, location, options, partition_by=PartitionBy.HOUR, target_bytes=1 << 20, retention_ms=None
        )
    assert gateway.objects == {}


def test_small_files_are_not_merged_in_a_bucket_that_ignores_conditions(gateway: Gateway) -> None:
    location = location_at(gateway)
    Table.create(location, {"id": "made while the bucket was another's"})
    before = dict(gateway.objects)
    with pytest.raises(StoreUnusable, match="use another store"):
        compact.run(compact.parse(["--output", location.uri]))
    assert gateway.objects == before


def test_a_folder_and_minio_are_proven_and_nothing_is_left_of_it(tmp_path: Path, minio: Buckets) -> None:
    for location in (Location.parse(str(tmp_path / "table")), minio.location("proven")):
        prove(location)
        assert not list(location.list())

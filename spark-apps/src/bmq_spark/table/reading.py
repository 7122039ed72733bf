"""A committed version of a table, for those who read Parquet: as a list of files, an Arrow dataset, a Spark
DataFrame.
"""

import os
import re
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyarrow import fs

from bmq.runtime.store_url import StoreKind, parse_store_url
from bmq_spark.errors import ConfigurationError
from bmq_spark.locations import Location
from bmq_spark.table.log import Table
from bmq_spark.table.state import Snapshot

if TYPE_CHECKING:
    import pyarrow.dataset as ds
    from pyspark.sql import DataFrame, SparkSession

_PATTERN: Final = re.compile(r"[\\{}\[\]*?]")
"""By any of these Spark takes a path for a pattern."""


def files(uri: str, version: int | None = None) -> list[str]:
    """Paths of the files of the newest version (or that one): of a folder as they are, of a bucket as
    `s3://BUCKET/KEY`.

    Raises ConfigurationError, Corrupt, FormatTooNew, TableBroken, StoreError.
    """
    location = Location.parse(uri)
    snapshot = Table(location).snapshot(version)
    return [location.hadoop(key).replace("s3a://", "s3://", 1) for key in snapshot.by_key]


def read(spark: "SparkSession", uri: str, version: int | None = None) -> "DataFrame":
    """The table by Spark, with the schema of that version: columns that a file is older than are null.

    Raises ConfigurationError, Corrupt, FormatTooNew, TableBroken, StoreError.
    """
    location = Location.parse(uri)
    return frame(spark, location, Table(location).snapshot(version))


def frame(spark: "SparkSession", location: Location, snapshot: Snapshot) -> "DataFrame":
    """A snapshot's records, by Spark."""
    from pyspark.sql.pandas.types import from_arrow_schema

    if snapshot.schema is None:
        raise ConfigurationError(f"table {location.uri}: nothing was committed to it yet")
    schema = from_arrow_schema(snapshot.schema, prefer_timestamp_ntz=True)
    if not snapshot.by_key:
        return spark.createDataFrame([], schema)
    return spark.read.schema(schema).parquet(*(_literal(location.hadoop(key)) for key in snapshot.by_key))


def dataset(uri: str, version: int | None = None) -> "ds.Dataset":
    """The table as an Arrow dataset, which DuckDB and Polars query with filters pushed down; folders and S3 (others:
    `read`).

    Raises ConfigurationError, Corrupt, FormatTooNew, TableBroken, StoreError.
    """
    location = Location.parse(uri)
    snapshot = Table(location).snapshot(version)
    if snapshot.schema is None:
        raise ConfigurationError(f"table {uri}: nothing was committed to it yet")
    source, root = file_system(location)
    import pyarrow.dataset as ds  # brings pandas, which workers that write need not wait for

    return ds.dataset(
        [f"{root}{key}" for key in snapshot.by_key], schema=snapshot.schema, format="parquet", filesystem=source
    )


def arrow(uri: str, version: int | None = None) -> pa.Table:
    """The whole table in memory. Raises what `dataset` does."""
    return dataset(uri, version).to_table()


def file_system(location: Location) -> tuple[Any, str]:
    """Arrow's file system for a location, and what comes before a key there. Raises ConfigurationError (neither a
    folder nor S3).
    """
    if location.folder is not None:
        return fs.LocalFileSystem(), f"{location.folder}/"
    url = parse_store_url(location.uri)
    if url.kind is not StoreKind.S3:
        raise ConfigurationError(
            f"table {location.uri}: read this bucket by Spark, or open the paths of files() with a file system of "
            "your own"
        )
    options: dict[str, Any] = {"region": url.region or os.environ.get("AWS_REGION") or "us-east-1"}
    if url.endpoint is not None:
        options |= {
            "endpoint_override": url.endpoint,
            "scheme": url.endpoint.partition(":")[0],
            "force_virtual_addressing": False,
        }
    return fs.S3FileSystem(**options), f"{url.bucket}/{url.prefix}"


def _literal(path: str) -> str:
    """The pattern that this path alone fits. Without patterns (`__globPaths__`) Spark reads all paths for each that
    looks like one.
    """
    return _PATTERN.sub(r"\\\g<0>", path)

"""Avro in a registry's wire format, and sinks of both kinds of table whose columns follow the registry."""

import io
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import fastavro
from iceberg_batches import Record, batch
from iceberg_catalogs import Opened
from pyspark.sql import SparkSession
from value_registry import RegistryServer

from bmq_spark.jobs import iceberg, parquet
from bmq_spark.jobs.iceberg_sink import IcebergSink
from bmq_spark.jobs.parquet_sink import ParquetSink
from bmq_spark.jobs.sinks import Added, Batch
from bmq_spark.locations import Location
from bmq_spark.table import PartitionBy, dataset

SUBJECT = "orders-value"


def order(**fields: Any) -> dict[str, Any]:
    """An Avro schema; a field that is not `id` may be left out by a writer of another version."""
    more = [{"name": name, "type": ["null", kind], "default": None} for name, kind in fields.items()]
    return {"type": "record", "name": "shop.Order", "fields": [{"name": "id", "type": "int"}, *more]}


def framed(number: int, schema: Any, record: Any) -> bytes:
    content = io.BytesIO()
    fastavro.schemaless_writer(content, fastavro.parse_schema(schema), record)
    return b"\x00" + number.to_bytes(4, "big") + content.getvalue()


class Followed:
    """A table of one kind, and the job's sink, as a run makes it."""

    def __init__(self, spark: SparkSession, open_sink: Callable[[], Any], rows: Callable[[], list[Any]]) -> None:
        self._spark = spark
        self._open = open_sink
        self._rows = rows
        self._sink = open_sink()
        self._offset = 0
        self._number = 0

    def restart(self) -> None:
        """A new run on the same table."""
        self._sink = self._open()

    def add(self, *values: bytes) -> Added:
        """A batch of these."""
        return self.add_batch(self.batch(*values))

    def add_batch(self, made: Batch) -> Added:
        return self._sink.add(made)  # type: ignore[no-any-return]

    def batch(self, *values: bytes) -> Batch:
        records = [Record(offset=self._offset + at, value=value, key=b"k%d" % at) for at, value in enumerate(values)]
        self._offset += len(values)
        self._number += 1
        return batch(self._spark, self._number - 1, records)

    def values(self) -> list[Any]:
        """Of all rows, by offset."""
        return self._rows()


def parquet_table(spark: SparkSession, folder: Path, registry: RegistryServer, *more: str) -> Followed:
    given = ["--topic", "orders", "--output", str(folder / "t"), *_format(registry, more)]

    def opened() -> ParquetSink:
        options = parquet.parse(given)
        return ParquetSink.open(
            spark, Location.parse(options.output), options, partition_by=PartitionBy.HOUR, target_bytes=1 << 20, retention_ms=None
        )  # fmt: skip

    def rows() -> list[Any]:
        found = dataset(str(folder / "t")).to_table(columns=["offset", "value"]).sort_by("offset")
        return list(found.column("value").to_pylist())

    return Followed(spark, opened, rows)


def iceberg_table(spark: SparkSession, sql: Opened, name: str, registry: RegistryServer, *more: str) -> Followed:
    table = sql.table(name)
    given = ["--topic", "orders", "--table", str(table), "--catalog-type", "sql", "--catalog-uri", "jdbc:sqlite:x"]
    options = iceberg.parse([*given, "--warehouse", "x", *_format(registry, more)])
    assert isinstance(options, iceberg.IcebergOptions)

    def opened() -> IcebergSink:
        return iceberg.open_sink(options, spark)

    def rows() -> list[Any]:
        return list(sql.load(table).scan().to_arrow().sort_by("offset").column("value").to_pylist())

    return Followed(spark, opened, rows)


def _format(registry: RegistryServer, more: Sequence[str]) -> list[str]:
    return ["--registry", registry.url, *(more or ("--format", "avro"))]


def register(registry: RegistryServer, schema: dict[str, Any], subject: str = SUBJECT) -> int:
    return registry.register(subject, json.dumps(schema))

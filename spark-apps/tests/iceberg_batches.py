"""Batches of records as a stream hands them to a sink, made by hand."""

import datetime
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import SparkSession

from bmq_spark.batches.places import Range
from bmq_spark.batches.records import HEADERS, Typing
from bmq_spark.iceberg.maintenance import Maintenance
from bmq_spark.jobs.decoders import NO_COLUMNS
from bmq_spark.jobs.iceberg_sink import TableSettings
from bmq_spark.jobs.sinks import Batch
from bmq_spark.values import SchemaFile, decoder

MIDNIGHT = datetime.datetime(2026, 3, 1, tzinfo=datetime.UTC)
RECORDS = pa.schema(
    [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", HEADERS),
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", pa.timestamp("us", tz="UTC")),
        pa.field("timestampType", pa.int32()),
        pa.field("lane", pa.string()),
    ]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """What a test says of a record; times are minutes of one day."""

    offset: int
    value: bytes | None
    key: bytes | None = None
    partition: int = 0
    minute: int = 0
    headers: tuple[tuple[str, bytes], ...] = ()
    topic: str = "orders"

    @property
    def timestamp(self) -> datetime.datetime:
        return MIDNIGHT + datetime.timedelta(minutes=self.minute)


def batch(
    spark: SparkSession,
    number: int,
    records: Sequence[Record],
    *,
    verify: Callable[[], None] = lambda: None,
    start: int | None = None,
    dense: Collection[str] = (),
) -> Batch:
    """A batch of these records; it begins with the first of each partition, or with `start`."""
    rows = [
        {
            "key": record.key,
            "value": record.value,
            "headers": [{"key": key, "value": value} for key, value in record.headers],
            "topic": record.topic,
            "partition": record.partition,
            "offset": record.offset,
            "timestamp": record.timestamp,
            "timestampType": 0,
            "lane": "",
        }
        for record in records
    ]
    ranges = []
    for topic, partition in sorted({(record.topic, record.partition) for record in records}):
        offsets = [record.offset for record in records if (record.topic, record.partition) == (topic, partition)]
        first = min(offsets) if start is None else start
        ranges.append(Range(topic=topic, partition=partition, start=first, end=max(offsets) + 1))
    ends: dict[str, dict[int, int]] = {}
    for part in ranges:
        ends.setdefault(part.topic, {})[part.partition] = part.end
    frame = spark.createDataFrame(pa.Table.from_pylist(rows, schema=RECORDS))
    return Batch(records=frame, ranges=ranges, ends=ends, query_id="query", batch_id=number, verify=verify, dense=dense)


def typing(value_format: str = "string", schema: str | None = None) -> Typing:
    """Keys are strings; `schema` is DDL."""
    found = SchemaFile(name="test.ddl", content=schema.encode()) if schema else None
    value = decoder(
        value_format, schema=found, columns=NO_COLUMNS if value_format == "json" and found is None else None
    )
    return Typing(key=decoder("string"), value=value, columns=value.arrow_type)


def settings(
    *, partition_by: str = "hour", upsert_key: str = "", maintenance: Maintenance | None = None
) -> TableSettings:
    return TableSettings(
        partition_by=partition_by,
        upsert_key=upsert_key,
        target_file_size_bytes=128 << 20,
        maintenance=maintenance,
        maintenance_every_ms=3_600_000,
    )

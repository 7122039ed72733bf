"""Records for tables in tests, and tables with few records a file."""

from collections.abc import Iterable, Mapping
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa

from bmq_spark.locations import Location
from bmq_spark.table import (
    Covered,
    DataFile,
    FileName,
    Layout,
    PartitionBy,
    Snapshot,
    Table,
    data_files,
    dataset,
    record_schema,
    write_batches,
)

HOUR_MS = 3_600_000
START_MS = 1_767_225_600_000
"""2026-01-01T00:00:00Z."""


def records(
    topic: str,
    partition: int,
    first: int,
    count: int,
    *,
    start_ms: int = START_MS,
    step_ms: int = 1000,
    value_bytes: int = 20,
) -> pa.RecordBatch:
    """`count` records of one partition from offset `first` on, `step_ms` apart."""
    offsets = np.arange(first, first + count, dtype=np.int64)
    timestamps = (start_ms + step_ms * (offsets - first)) * 1000
    values = [
        None if offset % 7 == 3 else f"value-{topic}-{partition}-{offset}".encode().ljust(value_bytes, b".")
        for offset in offsets
    ]
    headers = [[("trace", b"\x00\xff"), ("empty", None)] if offset % 5 == 0 else [] for offset in offsets]
    columns = {
        "key": pa.array(
            [None if offset % 4 == 1 else f"key-{offset % 50}".encode() for offset in offsets], pa.binary()
        ),
        "value": pa.array(values, pa.binary()),
        "headers": pa.array(
            [[{"key": k, "value": v} for k, v in one] for one in headers], record_schema().field("headers").type
        ),
        "topic": pa.array([topic] * count, pa.string()),
        "partition": pa.array([partition] * count, pa.int32()),
        "offset": pa.array(offsets),
        "timestamp": pa.array(timestamps, pa.timestamp("us", tz="UTC")),
        "timestampType": pa.array([0] * count, pa.int32()),
        "lane": pa.array([""] * count, pa.string()),
    }
    return pa.RecordBatch.from_pydict(columns)


def layout_of(location: Location, **changes: object) -> Layout:
    """Hours, bytes."""
    changes["partition_by"] = PartitionBy(changes.get("partition_by", "hour"))
    return Layout(**({"location": location, "schema": record_schema()} | changes))  # type: ignore[arg-type]


def write(
    table: Table, query_id: str, batch_id: int, batches: Iterable[pa.RecordBatch], *, task: int = 0, **layout: object
) -> list[DataFile]:
    """The files of one task, not committed."""
    name = FileName(query_id=query_id, batch_id=batch_id, task=task)
    rows = list(write_batches(batches, layout_of(table.location, **layout), name))
    return data_files(pa.Table.from_batches(rows)) if rows else []


def covered_by(batches: Iterable[pa.RecordBatch]) -> list[Covered]:
    """What these batches take from each partition, without holes."""
    ends: dict[tuple[str, int], tuple[int, int]] = {}
    for batch in batches:
        for topic, partition, offset in zip(
            *(batch.column(name).to_pylist() for name in ("topic", "partition", "offset")), strict=True
        ):
            low, high = ends.get((topic, partition), (offset, offset + 1))
            ends[topic, partition] = (min(low, offset), max(high, offset + 1))
    return [
        Covered(topic=topic, partition=partition, first=first, next=end)
        for (topic, partition), (first, end) in ends.items()
    ]


def add_batch(
    table: Table, query_id: str, batch_id: int, batches: list[pa.RecordBatch], *, task: int = 0, **layout: object
) -> Snapshot:
    """Writes and commits one batch."""
    added = write(table, query_id, batch_id, batches, task=task, **layout)
    return table.commit_batch((query_id, batch_id), added=added, offsets=covered_by(batches), schema=record_schema())


def rows_of(uri: str, columns: str = 'topic, partition, "offset"') -> list[tuple[object, ...]]:
    """What DuckDB reads of the newest version, in order of topic, partition, offset."""
    connection = duckdb.connect()
    connection.register("newest", dataset(uri))
    return connection.execute(f'SELECT {columns} FROM newest ORDER BY topic, partition, "offset"').fetchall()


def globbed_rows(folder: Path) -> int:
    """How many records a reader sees who does not know of the log."""
    ((count,),) = duckdb.connect().execute(f"SELECT count(*) FROM read_parquet('{folder}/**/*.parquet')").fetchall()
    return int(count)


def expected(batches: Iterable[pa.RecordBatch]) -> list[tuple[object, ...]]:
    """What `rows_of` gives of a table with these records."""
    rows = [
        row
        for batch in batches
        for row in zip(*(batch.column(name).to_pylist() for name in ("topic", "partition", "offset")), strict=True)
    ]
    return sorted(rows)


def offsets_of(snapshot: Snapshot) -> Mapping[str, Mapping[int, int]]:
    """The next offsets as plain values."""
    return {topic: dict(partitions) for topic, partitions in snapshot.offsets.items()}

"""What a Spark task does with its records: data files of a table, sorted, of the target size, each uploaded as a whole.

Memory does not grow with the task: records beyond `Layout.buffer_bytes` go to a temporary folder, and one file is
written at a time, however many hours the records are of. Nothing here is committed: the rows that come back name the
files, for the driver's commit.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Protocol, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from bmq_spark.table.layout import MIB, SORTED_BY, FileName, Layout, encoding, folder_name, folder_numbers
from bmq_spark.table.spill import Spill, room_in, temporary_folder
from bmq_spark.table.state import DataFile, TopicPartition

ROW_GROUP_BYTES: Final = 32 * MIB
"""A row group is made of about so many bytes of records in memory: what a reader decodes at once."""
_RANGE: Final = pa.struct(
    [("topic", pa.string()), ("partition", pa.int32()), ("first", pa.int64()), ("last", pa.int64())]
)
FILE_SCHEMA: Final = pa.schema(
    [
        ("key", pa.string()),
        ("rows", pa.int64()),
        ("bytes", pa.int64()),
        ("ranges", pa.list_(_RANGE)),
        ("min_timestamp_ms", pa.int64()),
        ("max_timestamp_ms", pa.int64()),
    ]
)
FILE_COLUMNS: Final = (
    "key string, rows bigint, bytes bigint, ranges array<struct<topic string, partition int, first bigint, last "
    "bigint>>, min_timestamp_ms bigint, max_timestamp_ms bigint"
)
"""FILE_SCHEMA as Spark writes it, for mapInArrow."""


class Naming(Protocol):
    """Gives files their names."""

    def name(self, number: int, digest: str) -> str:
        """The name of file number `number`, whose bytes have this hex SHA-256."""
        ...


def write_batches(batches: Iterable[pa.RecordBatch], layout: Layout, name: FileName) -> Iterator[pa.RecordBatch]:
    """Writes the records to files of the layout's table; yields a row of FILE_SCHEMA for each file.

    The batches have the columns of the layout's schema, in any order, and maybe more. Raises JobStopped (the temporary
    folder is full), StoreError.
    """
    with BatchWriter(layout, name) as writer:
        for batch in batches:
            writer.add(batch)
        yield from writer.files()


class BatchWriter:
    """The same for records that come one by one; a context, with which its temporary folder goes. Raises what
    `write_batches` does.
    """

    def __init__(self, layout: Layout, name: FileName) -> None:
        self._layout = layout
        self._name = name
        self._open = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as opening:
            self._folder = opening.enter_context(temporary_folder())
            opening.enter_context(room_in(self._folder))
            self._records = _Records(self._layout, self._folder)
            self._open = opening.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.__exit__(kind, error, trace)

    def add(self, batch: pa.RecordBatch) -> None:
        """Keeps the records until `files`."""
        self._records.add(batch)

    def files(self) -> Iterator[pa.RecordBatch]:
        """Writes all of them, once; each folder's records come together, so that it has one file, or several of the
        target size.
        """
        writer = FileWriter(
            self._layout,
            self._folder,
            self._name,
            {"bmq.query": self._name.query_id, "bmq.batch": str(self._name.batch_id)},
        )
        for number, pieces in self._records.by_folder():
            writer.write(folder_name(number, self._layout.partition_by), pieces)
            if (rows := writer.take_rows()) is not None:
                yield rows


def data_files(rows: "pa.Table | Iterable[Mapping[str, Any]]") -> list[DataFile]:
    """The files of rows of FILE_SCHEMA: an Arrow table (`DataFrame.toArrow()`), or mappings."""
    return [
        DataFile(
            key=row["key"],
            rows=row["rows"],
            bytes=row["bytes"],
            topic_partitions={(one["topic"], one["partition"]): (one["first"], one["last"]) for one in row["ranges"]},
            min_timestamp_ms=row["min_timestamp_ms"],
            max_timestamp_ms=row["max_timestamp_ms"],
        )
        for row in (rows.to_pylist() if isinstance(rows, pa.Table) else rows)
    ]


def conform(batch: "pa.RecordBatch | pa.Table", schema: pa.Schema) -> pa.Table:
    """Its columns as the schema has them; a column that it does not have is null."""
    columns = [_column(batch, field) for field in schema]
    return pa.Table.from_arrays(columns, schema=schema)


def _column(batch: "pa.RecordBatch | pa.Table", field: pa.Field) -> "pa.Array | pa.ChunkedArray":
    index = batch.schema.get_field_index(field.name)
    if index < 0:
        return pa.nulls(batch.num_rows, field.type)
    column = batch.column(index)
    return column if column.type == field.type else column.cast(field.type)


def sorted_by_folder(table: pa.Table, numbers: npt.NDArray[np.int64]) -> tuple[pa.Table, npt.NDArray[np.int64]]:
    """The table and its folder numbers, by folder, topic, partition, offset."""
    topics = table.column("topic").combine_chunks().dictionary_encode()
    names = topics.dictionary.to_numpy(zero_copy_only=False).astype(str)
    ranks = np.argsort(np.argsort(names))
    codes = (
        ranks[topics.indices.fill_null(0).to_numpy(zero_copy_only=False)]
        if len(names)
        else np.zeros(table.num_rows, dtype=np.int64)
    )
    partitions, offsets = (table.column(column).fill_null(0).to_numpy() for column in SORTED_BY[1:])
    order = np.lexsort((offsets, partitions, codes, numbers))
    if np.array_equal(order, np.arange(len(order))):
        return table, numbers
    return table.take(pa.array(order)), numbers[order]


class _Records:
    """A task's records until they are written: in memory up to the layout's measure, then in its temporary folder."""

    def __init__(self, layout: Layout, folder: Path) -> None:
        self._layout = layout
        self._spill = Spill(folder, layout.schema)
        self._held: list[pa.Table] = []
        self._held_bytes = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Raises OSError where the temporary folder is full."""
        if batch.num_rows == 0:
            return
        table = conform(batch, self._layout.schema)
        self._held.append(table)
        self._held_bytes += table.nbytes
        if self._held_bytes >= self._layout.buffer_bytes:
            for number, piece in self._pieces():
                self._spill.add(number, piece)

    def by_folder(self) -> Iterator[tuple[int, Iterator[pa.Table]]]:
        """Each folder's number and its records in sorted pieces."""
        if not self._spill.folders:
            for number, piece in self._pieces():
                yield number, iter((piece,))
            return
        for number, piece in self._pieces():
            self._spill.add(number, piece)
        for number in self._spill.folders:
            yield number, merged_pieces(self._spill.read(number), self._layout.buffer_bytes)
        self._spill.close()

    def _pieces(self) -> Iterator[tuple[int, pa.Table]]:
        """What is held, sorted, by folder; afterwards nothing is held."""
        held, self._held, self._held_bytes = self._held, [], 0
        if not held:
            return
        table = pa.concat_tables(held)
        del held
        table, numbers = sorted_by_folder(
            table, folder_numbers(table.column("timestamp"), self._layout.partition_by, self._layout.only)
        )
        starts = np.concatenate(([0], np.flatnonzero(np.diff(numbers)) + 1, [len(numbers)]))
        for start, end in pairwise(starts):
            yield int(numbers[start]), table.slice(start, end - start)


def merged_pieces(pieces: Iterable[pa.Table], buffer_bytes: int) -> Iterator[pa.Table]:
    """Pieces of one folder, small ones joined up to the buffer and sorted again."""
    held: list[pa.Table] = []
    for piece in pieces:
        if held and sum(one.nbytes for one in held) + piece.nbytes > buffer_bytes:
            yield _joined(held)
            held = []
        held.append(piece)
    if held:
        yield _joined(held)


def _joined(pieces: list[pa.Table]) -> pa.Table:
    table = pa.concat_tables(pieces)
    return sorted_by_folder(table, np.zeros(table.num_rows, dtype=np.int64))[0]


class FileWriter:
    """Writes sorted pieces as files of about the target size, one at a time. A piece that belongs before what was
    written begins a new file.
    """

    def __init__(self, layout: Layout, folder: Path, naming: Naming, metadata: Mapping[str, str]) -> None:
        self._layout = layout
        self._local = folder / "writing.parquet"
        self._naming = naming
        self._metadata = {"bmq.version": version("bmq-core"), **metadata}
        self._number = 0
        self._files: list[dict[str, Any]] = []

    def write(self, folder: str, pieces: Iterable[pa.Table]) -> None:
        """The records of one folder of the table. Raises OSError, StoreError."""
        open_file: _OpenFile | None = None
        for piece in pieces:
            if open_file is not None and open_file.is_after(piece):
                self._finish(folder, open_file)
                open_file = None
            for group in _row_groups(piece):
                open_file = open_file or _OpenFile(self._local, self._layout.schema, self._metadata)
                if open_file.write(group) >= self._layout.target_bytes:
                    self._finish(folder, open_file)
                    open_file = None
        if open_file is not None:
            self._finish(folder, open_file)

    def take_rows(self) -> pa.RecordBatch | None:
        """What was finished since the last call, in FILE_SCHEMA."""
        files, self._files = self._files, []
        return pa.RecordBatch.from_pylist(files, schema=FILE_SCHEMA) if files else None

    def _finish(self, folder: str, open_file: "_OpenFile") -> None:
        row = open_file.close()
        with self._local.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        name = self._naming.name(self._number, digest)
        key = f"{folder}/{name}" if folder else name
        row |= {"key": key, "bytes": self._local.stat().st_size}
        self._layout.location.upload(key, self._local)
        self._local.unlink()
        self._number += 1
        self._files.append(row)


class _OpenFile:
    """A Parquet file that is being written, and what its row will say."""

    def __init__(self, path: Path, schema: pa.Schema, metadata: Mapping[str, str]) -> None:
        columns = encoding(schema)
        self._sink = path.open("wb")
        self._metadata = metadata
        self._rows = self._group_bytes = 0
        self._last: tuple[Any, ...] | None = None
        self._ranges: dict[TopicPartition, tuple[int, int]] = {}
        self._timestamps: tuple[int, int] | None = None
        self._writer = pq.ParquetWriter(
            self._sink,
            schema,
            compression="zstd",
            compression_level=3,
            use_dictionary=columns.dictionary,
            column_encoding=columns.delta,
            write_statistics=columns.statistics,
            sorting_columns=[pq.SortingColumn(leaf) for leaf in columns.sorted_leaves],
        )

    def is_after(self, piece: pa.Table) -> bool:
        """Whether the first record of `piece` belongs before the last that was written."""
        return self._last is not None and _place(piece, 0) < self._last

    def write(self, group: pa.Table) -> int:
        """Writes one row group; returns how large the file will be with half of another, so that files come out about
        as large as they should.
        """
        start = self._sink.tell()
        self._writer.write_table(group, row_group_size=group.num_rows)
        self._group_bytes = self._sink.tell() - start
        self._rows += group.num_rows
        self._last = _place(group, group.num_rows - 1)
        self._note_bounds(group)
        return self._sink.tell() + self._group_bytes // 2

    def close(self) -> dict[str, Any]:
        """The file's row but for key and size."""
        ranges = [
            {"topic": topic, "partition": partition, "first": a, "last": b}
            for (topic, partition), (a, b) in sorted(self._ranges.items())
        ]
        self._writer.add_key_value_metadata({**self._metadata, "bmq.offsets": json.dumps(ranges)})
        self._writer.close()
        self._sink.close()
        low, high = self._timestamps or (0, 0)
        return {"rows": self._rows, "ranges": ranges, "min_timestamp_ms": low, "max_timestamp_ms": high}

    def _note_bounds(self, group: pa.Table) -> None:
        bounds = (
            group.select(SORTED_BY).group_by(["topic", "partition"]).aggregate([("offset", "min"), ("offset", "max")])
        )
        for row in bounds.to_pylist():
            where = (row["topic"], row["partition"])
            low, high = self._ranges.get(where, (row["offset_min"], row["offset_max"]))
            self._ranges[where] = (min(low, row["offset_min"]), max(high, row["offset_max"]))
        times = pc.min_max(group.column("timestamp").cast(pa.timestamp("us", tz="UTC"), safe=False).cast(pa.int64()))
        if times["min"].is_valid:
            low_ms, high_ms = times["min"].as_py() // 1000, times["max"].as_py() // 1000
            low, high = self._timestamps or (low_ms, high_ms)
            self._timestamps = (min(low, low_ms), max(high, high_ms))


def _row_groups(piece: pa.Table) -> Iterator[pa.Table]:
    rows = max(1, piece.num_rows * ROW_GROUP_BYTES // max(1, piece.nbytes))
    for start in range(0, piece.num_rows, rows):
        yield piece.slice(start, rows)


def _place(table: pa.Table, row: int) -> tuple[Any, ...]:
    return tuple(table.column(column)[row].as_py() for column in SORTED_BY)

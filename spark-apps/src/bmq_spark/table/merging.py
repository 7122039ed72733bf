"""Small files of a folder as few of the target size: what is merged with what, and the merge itself. The commit is
`compaction`'s.

A merge reads one row group at a time and writes one file at a time, so its memory does not grow with what is merged.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from bmq.errors import ObjectMissing
from bmq_spark.locations import Location
from bmq_spark.table.layout import Layout, folder_end_ms, merged_name
from bmq_spark.table.spill import room_in, temporary_folder
from bmq_spark.table.state import DataFile, Snapshot, TopicPartition
from bmq_spark.table.writing import ROW_GROUP_BYTES, FileWriter, conform, merged_pieces

SMALL: Final = 0.75
"""Below this part of the target size a file is small."""
UNIT_TARGETS: Final = 8
"""How many files of the target size one unit of work makes at most: what a task reads, and what a killed one
repeats."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """Files of one folder that become fewer; a task's work. A value."""

    folder: str
    files: Sequence[DataFile]
    base: int
    """The version at which the work began."""
    nonce: str

    def name(self, number: int, digest: str) -> str:
        """The name of file number `number`: a unit's files are the same whoever writes them, so that its nonce is
        enough.
        """
        return merged_name(self.base, self.nonce, number)


def plan(snapshot: Snapshot, *, target_bytes: int, min_files: int, before_ms: int, nonce: str) -> list[Unit]:
    """What is worth merging: folders with `min_files` small files or more, whose time ended before `before_ms`. Pure.

    A folder without a time of its own (a table that is not partitioned) is always looked at. `nonce` is 12 hex digits.
    """
    small_by_folder: dict[str, list[DataFile]] = {}
    for file in snapshot.by_key.values():
        if file.bytes < target_bytes * SMALL:
            small_by_folder.setdefault(file.folder, []).append(file)
    units: list[Unit] = []
    for folder, small in sorted(small_by_folder.items()):
        end_ms = folder_end_ms(dict(small[0].partition_values))
        if len(small) < max(2, min_files) or (end_ms is not None and end_ms > before_ms):
            continue
        for files in _cut(sorted(small, key=_place), target_bytes * UNIT_TARGETS):
            units.append(Unit(folder=folder, files=files, base=snapshot.version, nonce=f"{nonce}{len(units):04x}"))
    return units


def _cut(files: Sequence[DataFile], bytes_max: int) -> Iterator[list[DataFile]]:
    """Runs of neighbours of about that size; one alone is left as it is."""
    held: list[DataFile] = []
    held_bytes = 0
    for file in files:
        if len(held) > 1 and held_bytes + file.bytes > bytes_max:
            yield held
            held, held_bytes = [], 0
        held.append(file)
        held_bytes += file.bytes
    if len(held) > 1:
        yield held


def _place(file: DataFile) -> tuple[str, int, int]:
    return min((topic, partition, first) for (topic, partition), (first, _) in file.topic_partitions.items())


def merge(unit: Unit, layout: Layout) -> list[pa.RecordBatch]:
    """Writes what the unit's files hold as files of the layout; returns their rows in FILE_SCHEMA. Nothing is
    committed.

    No rows where a file is gone: another writer has replaced it. Raises JobStopped (the temporary folder is full),
    StoreError.
    """
    with temporary_folder() as folder, room_in(folder):
        writer = FileWriter(layout, folder, unit, {"bmq.merged": str(len(unit.files)), "bmq.base": str(unit.base)})
        try:
            writer.write(unit.folder, merged_pieces(_pieces(unit.files, layout, folder), ROW_GROUP_BYTES))
        except (ObjectMissing, FileNotFoundError):
            return []
        rows = writer.take_rows()
        return [] if rows is None else [rows]


def _pieces(files: Sequence[DataFile], layout: Layout, folder: Path) -> Iterator[pa.Table]:
    """All records, one partition after the other, by offset: batches of a partition follow each other, so that whole
    files do.
    """
    ranges = sorted((where, first, file.key) for file in files for where, (first, _) in file.topic_partitions.items())
    uses = {file.key: len(file.topic_partitions) for file in files}
    for where, _, key in ranges:
        local = _fetched(layout.location, key, folder)
        with pq.ParquetFile(local, memory_map=True) as opened:
            yield from _of_partition(opened, where, layout.schema)
        uses[key] -= 1
        if uses[key] == 0 and layout.location.folder is None:
            local.unlink()


def _fetched(location: Location, key: str, folder: Path) -> Path:
    """The file on this machine: a bucket's is copied until it is used up."""
    if location.folder is not None:
        return location.folder / key
    local = folder / key.rpartition("/")[2]
    if not local.exists():
        local.write_bytes(location.read(key))
    return local


def _of_partition(opened: pq.ParquetFile, where: TopicPartition, schema: pa.Schema) -> Iterator[pa.Table]:
    topic, partition = where
    for number in range(opened.num_row_groups):
        if not _may_have(opened.metadata.row_group(number), where):
            continue
        group = opened.read_row_group(number)
        mask = pc.and_(pc.equal(group.column("topic"), topic), pc.equal(group.column("partition"), partition))
        if pc.all(mask).as_py():
            yield conform(group, schema)
        elif (found := group.filter(mask)).num_rows:
            yield conform(found, schema)


def _may_have(group: pq.RowGroupMetaData, where: TopicPartition) -> bool:
    wanted = dict(zip(("topic", "partition"), where, strict=True))
    for index in range(group.num_columns):
        column = group.column(index)
        value = wanted.get(column.path_in_schema)
        statistics = column.statistics
        if (
            value is not None
            and statistics is not None
            and statistics.has_min_max
            and not statistics.min <= value <= statistics.max
        ):
            return False
    return True

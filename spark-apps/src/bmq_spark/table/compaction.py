"""Merges small files by one commit that adds the merged and removes the small ones.

The merges go on while others commit. At the end, units of which a file is gone meanwhile (another compaction,
retention) are left out, and the rest is committed on the newest version; until then nobody sees anything of it.
"""

import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

import pyarrow as pa

from bmq_spark.errors import CommitRace, CommitRefused
from bmq_spark.locations import Location
from bmq_spark.table.layout import TARGET_BYTES, Layout
from bmq_spark.table.log import Table
from bmq_spark.table.merging import Unit, merge, plan
from bmq_spark.table.state import Commit, DataFile, Snapshot
from bmq_spark.table.writing import FILE_COLUMNS, FILE_SCHEMA, data_files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MIN_FILES: Final = 4
_UNIT: Final = "unit"
MERGED_COLUMNS: Final = f"{FILE_COLUMNS}, {_UNIT} bigint"


class Progress(Protocol):
    """Is told after each unit that this process merged."""

    def __call__(self, done: int, of: int, folder: str) -> None:
        """`done` of `of` units, the last in that folder."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Compacted:
    """What a compaction did."""

    version: int
    folders: int
    files_before: int
    files_after: int
    bytes_before: int
    bytes_after: int
    rows: int
    given_up: int
    """Units that others were faster at."""


def compact(
    table: Table,
    *,
    target_bytes: int = TARGET_BYTES,
    min_files: int = MIN_FILES,
    before_ms: int,
    spark: "SparkSession | None" = None,
    progress: Progress | None = None,
) -> Compacted:
    """Merges small files of folders whose time ended before `before_ms`, in this process or by Spark's tasks, and
    commits.

    Raises CommitRace (after 100 races), JobStopped, CommitRefused (a vacuum passed by: do it again), StoreError.
    """
    snapshot = table.snapshot()
    units = plan(
        snapshot, target_bytes=target_bytes, min_files=min_files, before_ms=before_ms, nonce=secrets.token_hex(6)
    )
    merged = _merge_all(table.location, snapshot, units, target_bytes=target_bytes, spark=spark, progress=progress)
    return _commit(table, snapshot, units, merged)


def _merge_all(
    location: Location,
    snapshot: Snapshot,
    units: Sequence[Unit],
    *,
    target_bytes: int,
    spark: "SparkSession | None",
    progress: Progress | None,
) -> list[list[DataFile]]:
    """What became of each unit; nothing where others were faster."""
    if not units or snapshot.schema is None:
        return []
    layout = Layout(location=location, schema=snapshot.schema, target_bytes=target_bytes)
    merged: list[list[DataFile]] = []
    if spark is None:
        for unit in units:
            merged.append(data_files(pa.Table.from_batches(merge(unit, layout), schema=FILE_SCHEMA)))
            if progress is not None:
                progress(len(merged), len(units), unit.folder)
        return merged
    numbers = spark.range(len(units), numPartitions=len(units))
    found = numbers.mapInArrow(partial(merge_task, units=units, layout=layout), MERGED_COLUMNS).toArrow()
    merged = [[] for _ in units]
    for row in found.to_pylist():
        merged[row[_UNIT]] += data_files([row])
    return merged


def merge_task(numbers: Iterator[pa.RecordBatch], *, units: Sequence[Unit], layout: Layout) -> Iterator[pa.RecordBatch]:
    """A Spark task: merges the units of these numbers; gives their files' rows, each with its unit's number."""
    schema = FILE_SCHEMA.append(pa.field(_UNIT, pa.int64()))
    for batch in numbers:
        for number in batch.column(0).to_pylist():
            for rows in merge(units[number], layout):
                yield pa.RecordBatch.from_arrays(
                    [*rows.columns, pa.array([number] * rows.num_rows, pa.int64())], schema=schema
                )


def _commit(table: Table, before: Snapshot, units: Sequence[Unit], merged: Sequence[list[DataFile]]) -> Compacted:
    """One commit of all units whose files are still there."""
    taken: list[int] = []

    def decide(newest: Snapshot) -> Commit | None:
        taken[:] = [
            number
            for number, files in enumerate(merged)
            if files and all(file.key in newest.by_key for file in units[number].files)
        ]
        if not taken:
            return None
        return table.commit_after(
            newest,
            added=tuple(file for number in taken for file in merged[number]),
            removed=tuple(file.key for number in taken for file in units[number].files),
            base=before.version,
            notes={"operation": "compact"},
        )

    try:
        after = table.commit_on_newest(decide)
    except (CommitRace, CommitRefused):  # certainly not committed
        _delete(table.location, [file for files in merged for file in files])
        raise
    _delete(table.location, [file for number, files in enumerate(merged) if number not in set(taken) for file in files])
    had, has = (
        [file for number in taken for file in units[number].files],
        [file for number in taken for file in merged[number]],
    )
    return Compacted(
        version=after.version,
        folders=len({file.folder for file in had}),
        files_before=len(had),
        files_after=len(has),
        bytes_before=sum(file.bytes for file in had),
        bytes_after=sum(file.bytes for file in has),
        rows=sum(file.rows for file in has),
        given_up=len(units) - len(taken),
    )


def _delete(location: Location, files: Sequence[DataFile]) -> None:
    for file in files:
        location.delete(file.key)

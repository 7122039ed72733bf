"""Whether a table is what its log says: versions without holes, files that are there with their rows, every record
once.

What is wrong is a finding; nothing is mended here. Offsets without a record are no finding: those of dead letters, of
records that retention took out of the table or that went to lanes, and of losses that were accepted are such, too.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from bmq.errors import StoreError
from bmq_spark.errors import ConfigurationError
from bmq_spark.locations import Location
from bmq_spark.table.log import LOG, Table, commit_key
from bmq_spark.table.orphans import data_objects
from bmq_spark.table.reading import file_system
from bmq_spark.table.state import DataFile, Snapshot, TopicPartition

FINDINGS_MAX: Final = 100
_COMMIT_KEY: Final = re.compile(rf"{LOG}/([0-9]{{20}})\.json")


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """What was looked at, and what is wrong with it."""

    version: int
    files: int
    rows: int
    bytes: int
    without_record: int
    """Offsets between a partition's first and its next that no row has."""
    unnamed: int
    """Objects beside the table's: replaced ones that wait for vacuum, unfinished batches."""
    findings: list[str]


def check(location: Location, *, quick: bool = False) -> Checked:
    """Checks the newest version; `quick` reads no data file. Memory: the offsets of one partition at a time, 8 bytes
    each.

    Raises ConfigurationError (no table), Corrupt, FormatTooNew, TableBroken, StoreError.
    """
    table = Table.open(location)
    snapshot = table.snapshot()
    findings: list[str] = []
    for finding in _findings(table, snapshot, quick=quick):
        findings.append(finding)
        if len(findings) == FINDINGS_MAX:
            findings.append("there is more: mend these first")
            break
    rows = sum(file.rows for file in snapshot.files)
    spans = sum(end - first for end, first in _spans(snapshot))
    unnamed = sum(found.key not in snapshot.by_key for found in data_objects(location))
    return Checked(
        version=snapshot.version,
        files=len(snapshot.files),
        rows=rows,
        bytes=sum(file.bytes for file in snapshot.files),
        without_record=max(0, spans - rows),
        unnamed=unnamed,
        findings=findings,
    )


def _findings(table: Table, snapshot: Snapshot, *, quick: bool) -> Iterator[str]:
    yield from _of_the_log(table, snapshot)
    missing: set[str] = set()
    sizes = {found.key: found.size_bytes for found in data_objects(table.location)}
    for file in snapshot.files:
        size = sizes.get(file.key)
        if size != file.bytes:
            missing.add(file.key)
            yield f"file {file.key}: {'not there' if size is None else f'{size} bytes, and the log says {file.bytes}'}"
    yield from _of_offsets(snapshot)
    if not quick:
        yield from _of_records(table.location, [file for file in snapshot.files if file.key not in missing])


def _of_the_log(table: Table, snapshot: Snapshot) -> Iterator[str]:
    versions = {int(match[1]) for found in table.location.list(LOG) if (match := _COMMIT_KEY.fullmatch(found.key))}
    for version in sorted(set(range(1, max(versions, default=0) + 1)) - versions):
        yield f"log: {commit_key(version)} is missing"
    if versions and max(versions) > snapshot.version:
        yield f"log: version {max(versions)} is there, and it can be read up to {snapshot.version} only"
    if snapshot.checkpoint and set(range(1, snapshot.version + 1)) <= versions:
        replayed = Table(table.location).replayed(snapshot.version)
        if (replayed.by_key, replayed.offsets, replayed.last_batch) != (
            snapshot.by_key,
            snapshot.offsets,
            snapshot.last_batch,
        ):
            yield f"log: the stored snapshot {snapshot.checkpoint} says something else than the commits: delete it"


def _of_offsets(snapshot: Snapshot) -> Iterator[str]:
    for file in snapshot.files:
        for (topic, partition), (_, last) in file.topic_partitions.items():
            end = snapshot.offsets.get(topic, {}).get(partition, 0)
            if last >= end:
                yield f"file {file.key}: offset {last} of {topic}-{partition}, and the table ends at {end}"


def _of_records(location: Location, files: list[DataFile]) -> Iterator[str]:
    """One partition after the other: its offsets in all files, each once and where the file's entry says."""
    by_partition: dict[TopicPartition, list[DataFile]] = {}
    for file in files:
        for where in file.topic_partitions:
            by_partition.setdefault(where, []).append(file)
    rows: dict[str, int] = {}
    for where, having in sorted(by_partition.items()):
        parts = []
        for file in having:
            try:
                offsets = _offsets(location, file, where)
            except (pa.ArrowException, OSError, StoreError, KeyError) as error:
                yield f"file {file.key}: it cannot be read: {str(error).splitlines()[0][:200]}"
                continue
            rows[file.key] = rows.get(file.key, 0) + len(offsets)
            if not len(offsets) or (int(offsets.min()), int(offsets.max())) != file.topic_partitions[where]:
                yield f"file {file.key}: it has other offsets of {where[0]}-{where[1]} than the log says"
            parts.append(offsets)
        yield from _doubled(where, parts)
    for file in files:
        if file.key in rows and rows[file.key] != file.rows:
            yield (
                f"file {file.key}: {rows[file.key]} rows of the partitions that the log names, and it says {file.rows}"
            )


def _doubled(where: TopicPartition, parts: list[npt.NDArray[np.int64]]) -> Iterator[str]:
    everything = np.sort(np.concatenate(parts)) if parts else np.zeros(0, dtype=np.int64)
    doubled = everything[1:][np.diff(everything) == 0]
    if len(doubled):
        yield f"{where[0]}-{where[1]}: {len(doubled)} records are there twice, the first with offset {doubled[0]}"


def _offsets(location: Location, file: DataFile, where: TopicPartition) -> npt.NDArray[np.int64]:
    source, root = file_system(location)
    table = pq.read_table(
        f"{root}{file.key}", columns=["topic", "partition", "offset"], filesystem=source, partitioning=None
    )
    mask = pc.and_(pc.equal(table.column("topic"), where[0]), pc.equal(table.column("partition"), where[1]))
    found: npt.NDArray[np.int64] = table.filter(mask).column("offset").to_numpy()
    return found


def _spans(snapshot: Snapshot) -> Iterator[tuple[int, int]]:
    """(next, first) of each partition that has files."""
    firsts: dict[TopicPartition, int] = {}
    for file in snapshot.files:
        for where, (first, _) in file.topic_partitions.items():
            firsts[where] = min(first, firsts.get(where, first))
    for (topic, partition), first in firsts.items():
        yield snapshot.offsets.get(topic, {}).get(partition, first), first


def described(location: Location) -> Iterator[str]:
    """What a person wants to know of a table, line by line. Raises what `check` does."""
    snapshot = Table.open(location).snapshot()
    if snapshot.version == 0:
        raise ConfigurationError(f"table {location.uri}: there is none")
    files = snapshot.files
    yield f"table       {location.hadoop()}"
    yield f"version     {snapshot.version} of {np.datetime64(snapshot.time_ms, 'ms')}Z"
    yield (
        f"files       {len(files)} in {len({file.folder for file in files})} folders, "
        f"{sum(file.bytes for file in files):,} bytes"
    )
    yield f"rows        {sum(file.rows for file in files):,}"
    for name, value in sorted(snapshot.properties.items()):
        yield f"property    {name} = {value}"
    for query, batch in sorted(snapshot.last_batch.items()):
        yield f"query       {query}: batch {batch}"
    for topic, partitions in sorted(snapshot.offsets.items()):
        yield f"offsets     {topic}: " + ", ".join(
            f"{partition}: {end}" for partition, end in sorted(partitions.items())
        )
    for field in snapshot.schema or ():
        yield f"column      {field.name} {field.type}"

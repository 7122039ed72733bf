"""What leaves a table: files that no version of the last while names (vacuum), and folders that are older than their
retention (a commit).

Vacuum deletes only what no commit can name any more, whoever sleeps and wakes: files of batches that are committed, and
files of merges that began below the horizon which it commits first
(`invariants.a_rewrite_began_after_the_last_vacuum`). Times decide only how long readers of older versions have. Files
of a batch above its query's last one are the query's own to remove (`orphans`).
"""

import contextlib
from collections.abc import Mapping, Set
from dataclasses import dataclass

from bmq_spark.locations import Location
from bmq_spark.table.layout import base_of_name, batch_of_name, folder_end_ms, is_own_folder, query_mark
from bmq_spark.table.log import LOG, Table, commit_key
from bmq_spark.table.orphans import data_objects
from bmq_spark.table.state import Commit, DataFile, Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class Vacuumed:
    """What a vacuum did."""

    files: int
    bytes: int
    unfinished: int
    """Files of batches that are not committed: the next run of their query removes or names them."""
    unknown: int
    """Objects that no program of bmq's has named: left alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expired:
    """What retention took out of the newest version."""

    version: int
    files: int
    rows: int
    bytes: int


def vacuum(table: Table, *, before_ms: int, now_ms: int | None = None) -> Vacuumed:
    """Deletes files that no version named since `before_ms`. Versions that were replaced before then can no longer be
    read whole.

    `now_ms`: commits that say a later time, by a clock that was ahead, are as old as the store says.

    Raises CommitRace (after 100 races), StoreError.
    """
    newest = table.snapshot()
    since, kept = _named_since(table, newest, before_ms, now_ms)
    if since == 0:
        return Vacuumed(files=0, bytes=0, unfinished=0, unknown=0)
    found = list(data_objects(table.location))
    if any(key.key not in kept and _began_below(key.key, newest.horizon, since) for key in found):
        newest = table.commit_on_newest(
            lambda latest: (
                table.commit_after(latest, horizon=since, notes={"operation": "vacuum"})
                if latest.horizon < since
                else None
            )
        )
        kept |= newest.by_key.keys()
    last = {query_mark(query): batch for query, batch in newest.last_batch.items()}
    files = size_bytes = unfinished = unknown = 0
    for one in found:
        if one.key in kept:
            continue
        batch, base = batch_of_name(one.key), base_of_name(one.key)
        if batch is not None and batch.batch_id > last.get(batch.query_mark, -1):
            unfinished += 1
        elif batch is None and base is None:
            unknown += 1
        elif one.modified_ms < before_ms and (base is None or base < newest.horizon):
            table.location.delete(one.key)
            files, size_bytes = files + 1, size_bytes + one.size_bytes
    _sweep_half_written(table.location, before_ms)
    return Vacuumed(files=files, bytes=size_bytes, unfinished=unfinished, unknown=unknown)


def expire(table: Table, *, before_ms: int, below: Mapping[str, Mapping[int, int]] | None = None) -> Expired:
    """Takes files whose folder's time ended before `before_ms` out of the table by one commit; where there are no
    folders, files whose records are all older. Vacuum deletes them later. Raises CommitRace (after 100 races),
    StoreError.

    `below`, of dead letters: up to where the table of the rows has each partition. A file that goes further stays,
    however old: a batch that was killed between the two commits comes again, and has to find what it has buried.
    """
    gone: list[DataFile] = []

    def decide(newest: Snapshot) -> Commit | None:
        gone[:] = [
            file
            for file in newest.by_key.values()
            if _end_ms(file) <= before_ms and (below is None or _is_below(file, below))
        ]
        return (
            table.commit_after(newest, removed=tuple(file.key for file in gone), notes={"operation": "retention"})
            if gone
            else None
        )

    after = table.commit_on_newest(decide)
    return Expired(
        version=after.version,
        files=len(gone),
        rows=sum(file.rows for file in gone),
        bytes=sum(file.bytes for file in gone),
    )


def _is_below(file: DataFile, places: Mapping[str, Mapping[int, int]]) -> bool:
    return all(
        last < places.get(topic, {}).get(partition, 0)
        for (topic, partition), (_, last) in file.topic_partitions.items()
    )


def _end_ms(file: DataFile) -> int:
    end_ms = folder_end_ms(dict(file.partition_values))
    return file.max_timestamp_ms + 1 if end_ms is None else end_ms


def _named_since(table: Table, newest: Snapshot, before_ms: int, now_ms: int | None) -> tuple[int, Set[str]]:
    """The version that was the newest at `before_ms` (0: there was none), and every file that it or a later one
    names.
    """
    kept = set(newest.by_key)
    version = newest.version
    is_ahead = now_ms is not None and newest.time_ms > now_ms
    stored_ms = {found.key: found.modified_ms for found in table.location.list(LOG)} if is_ahead else {}
    while version > 0:
        commit = table.read_commit(version)
        time_ms = (
            commit.time_ms
            if now_ms is None or commit.time_ms <= now_ms
            else stored_ms.get(commit_key(version), commit.time_ms)
        )
        if time_ms <= before_ms:
            break
        kept.update(commit.removed)
        version -= 1
    return version, kept


def _began_below(key: str, horizon: int, version: int) -> bool:
    base = base_of_name(key)
    return base is not None and horizon <= base < version


def _sweep_half_written(location: Location, before_ms: int) -> None:
    """What killed processes left in a folder under names that no listing shows."""
    if location.folder is None:
        return
    from bmq_spark.durable_files import is_half_written

    for path in location.folder.rglob(".*.tmp"):
        folder = path.parent.relative_to(location.folder).as_posix()
        with contextlib.suppress(FileNotFoundError):
            if (
                is_half_written(path.name)
                and is_own_folder("" if folder == "." else folder)
                and path.stat().st_mtime * 1000 < before_ms
            ):
                path.unlink()

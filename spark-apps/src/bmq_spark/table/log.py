"""The log of a table: one object for each version, created once; stored snapshots, so that a reader need not start from
the first.

`LOCATION/_bmq/log/VERSION.json` are the commits. They are never deleted: a version's number is never free again, so who
creates it is first, however long it slept. `LOCATION/_bmq/snapshots/VERSION` are derived from them; the newest few are
kept, and one that cannot be read is passed over.
"""

import re
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

import pyarrow as pa

from bmq.errors import ObjectMissing
from bmq_spark.errors import CommitRace, CommitRefused, ConfigurationError, Corrupt, TableBroken
from bmq_spark.locations import Location
from bmq_spark.table import log_format
from bmq_spark.table.invariants import check
from bmq_spark.table.log_format import Kind
from bmq_spark.table.orphans import remove_orphans
from bmq_spark.table.replaying import replay
from bmq_spark.table.state import (
    NOTHING,
    Batch,
    Commit,
    Covered,
    DataFile,
    Gap,
    Snapshot,
    commit_fields,
    commit_of,
    format_of,
    snapshot_fields,
    snapshot_of,
)

LOG: Final = "_bmq/log"
SNAPSHOTS: Final = "_bmq/snapshots"
SNAPSHOT_INTERVAL: Final = 20
"""Commits between two stored snapshots: no more (and at most one interval more, after a kill) are read one by one."""
SNAPSHOTS_KEPT: Final = 8
_SNAPSHOT_KEY: Final = re.compile(rf"{SNAPSHOTS}/([0-9]{{20}})")
_RACES_MAX: Final = 100


def commit_key(version: int) -> str:
    """The key of a version's commit."""
    return f"{LOG}/{version:020}.json"


def snapshot_key(version: int) -> str:
    """The key of a version's stored snapshot."""
    return f"{SNAPSHOTS}/{version:020}"


def now_ms() -> int:
    """Milliseconds since 1970 UTC. A commit's time is for people and for the age of what is removed: no commit is
    judged by it.
    """
    return time.time_ns() // 1_000_000


def is_of_rows(table: "Table") -> bool:
    """Whether a job made it for rows, which have a format; dead letters have none. Raises what `Table.snapshot`
    does.
    """
    return "format" in table.snapshot().properties


class Table:
    """A table at a location, as one process sees it. Each `Table` is a run of its own: what it commits carries its
    nonce.
    """

    def __init__(self, location: Location, *, clock_ms: Callable[[], int] = now_ms, run: str | None = None) -> None:
        """Reads nothing yet; `open` and `create` do."""
        self.location = location
        self.run = run or secrets.token_hex(8)
        self._clock_ms = clock_ms
        self._begun: set[str] = set()
        self._newest = NOTHING

    @classmethod
    def open(cls, location: Location, *, clock_ms: Callable[[], int] = now_ms) -> "Table":
        """Raises ConfigurationError where there is no table, Corrupt, FormatTooNew, TableBroken, StoreError."""
        table = cls(location, clock_ms=clock_ms)
        table.snapshot()
        return table

    @classmethod
    def create(
        cls,
        location: Location,
        properties: Mapping[str, str] | None = None,
        *,
        schema: pa.Schema | None = None,
        clock_ms: Callable[[], int] = now_ms,
    ) -> "Table":
        """The table at that location, made with these properties and this schema unless there is one: then it is left
        as it is.

        Raises Corrupt, FormatTooNew, TableBroken, StoreError.
        """
        table = cls(location, clock_ms=clock_ms)
        if table._refreshed().version == 0:
            first = table.commit_after(
                NOTHING, properties=dict(properties or {}), schema=schema, notes={"operation": "create"}
            )
            location.create(commit_key(1), log_format.encode(Kind.COMMIT, commit_fields(first)))
        table.snapshot()
        return table

    @classmethod
    def exists(cls, location: Location) -> bool:
        """Whether there is a table. Raises Corrupt, FormatTooNew, TableBroken, StoreError."""
        return cls(location)._refreshed().version > 0

    def snapshot(self, version: int | None = None) -> Snapshot:
        """The newest version, or that one. Raises ConfigurationError (no such version, no table), Corrupt,
        FormatTooNew, TableBroken, StoreError.
        """
        if version is None:
            newest = self._refreshed()
            if newest.version == 0:
                raise ConfigurationError(
                    f"table {self.location.uri}: there is none: name the folder that a job writes to (its --output)"
                )
            return newest
        found = self._read_from(self._stored_snapshot(at_most=version), last=version)
        if found.version != version or version == 0:
            raise ConfigurationError(
                f"version {version}: table {self.location.uri} is at version {found.version}: name one from 1 to that"
            )
        return found

    def begin(self, query_id: str) -> Snapshot:
        """Begins a run of a streaming query: from here on, batches of earlier runs are refused, and those that this
        `Table` commits are not.

        To be called once before the first batch. Also removes the files that killed runs of this query have left
        (`orphans`). Raises StoreError, and what `snapshot` does.
        """
        self._begun.add(query_id)
        snapshot = self.commit_on_newest(
            lambda newest: self.commit_after(newest, run=(query_id, self.run), notes={"operation": "begin"})
        )
        last = snapshot.batch_versions.get(query_id)
        named = set() if last is None else {file.key for file in self.read_commit(last).added}
        remove_orphans(self.location, snapshot, query_id, named=named)
        return snapshot

    def commit(
        self,
        snapshot: Snapshot,
        *,
        added: Sequence[DataFile] = (),
        removed: Sequence[str] = (),
        batch: Batch | None = None,
        offsets: Sequence[Covered] = (),
        gaps: Sequence[Gap] = (),
        schema: pa.Schema | None = None,
        properties: Mapping[str, str] | None = None,
        base: int | None = None,
        horizon: int | None = None,
        notes: Mapping[str, str] | None = None,
    ) -> Snapshot:
        """Makes the version after `snapshot`, as one object: all of it or nothing. Returns the table at that version.

        `offsets` is what the batch took from each partition, with its records or without; `gaps` names what it could
        not take; `properties` are added to those that are there. A batch that is in the table already changes nothing:
        the newest snapshot is returned. Raises CommitRace (another version came meanwhile: take a new snapshot and
        decide anew), CommitRefused (`invariants`; or the table has a batch of this number, of other offsets), and
        StoreError; after an UnknownOutcome the commit may still come, so that nothing that it names is to be deleted.
        """
        if batch is not None and _has_batch(snapshot, batch, offsets):
            return snapshot
        commit = self.commit_after(
            snapshot,
            added=tuple(added),
            removed=tuple(removed),
            batch=batch,
            run=self._run_of(batch),
            base=base,
            horizon=horizon,
            covered=tuple(offsets),
            gaps=tuple(gaps),
            schema=None if schema is None or _has(snapshot, schema) else schema,
            properties=properties,
            notes=dict(notes or {}),
        )
        try:
            return self._create(snapshot, commit)
        except CommitRace:
            newest = self._refreshed()
            if batch is not None and _has_batch(newest, batch, offsets):
                return newest
            raise

    def commit_batch(
        self,
        batch: Batch,
        *,
        added: Sequence[DataFile],
        offsets: Sequence[Covered],
        gaps: Sequence[Gap] = (),
        schema: pa.Schema | None = None,
        properties: Mapping[str, str] | None = None,
        notes: Mapping[str, str] | None = None,
    ) -> Snapshot:
        """`commit` of a batch on the newest version, again after each race. Raises CommitRefused, StoreError."""
        for _ in range(_RACES_MAX):
            try:
                return self.commit(
                    self._refreshed(),
                    added=added,
                    batch=batch,
                    offsets=offsets,
                    gaps=gaps,
                    schema=schema,
                    properties=properties,
                    notes=notes,
                )
            except CommitRace:
                continue
        raise CommitRace(f"table {self.location.uri}: {_RACES_MAX} times another writer was faster: run fewer of them")

    def commit_columns(self, batch: Batch, *, offsets: Sequence[Covered], schema: pa.Schema) -> Snapshot:
        """Commits the columns that a batch needs, before its rows are: nothing where the table has them, or the batch.

        They are committed on a version alone on which the batch could be: whoever is refused changes no columns. Raises
        CommitRefused, StoreError.
        """

        def decide(newest: Snapshot) -> Commit | None:
            if _has_batch(newest, batch, offsets) or _has(newest, schema):
                return None
            rows = self.commit_after(
                newest, batch=batch, run=self._run_of(batch), covered=tuple(offsets), schema=schema
            )
            check(newest, rows)
            return self.commit_after(newest, schema=schema, notes={"operation": "columns"})

        return self.commit_on_newest(decide)

    def commit_on_newest(self, decide: Callable[[Snapshot], Commit | None]) -> Snapshot:
        """Creates what `decide` makes of the newest version (None: nothing), again after each race. Raises CommitRace
        after 100 of them.
        """
        for _ in range(_RACES_MAX):
            newest = self.snapshot()
            commit = decide(newest)
            if commit is None:
                return newest
            try:
                return self._create(newest, commit)
            except CommitRace:
                continue
        raise CommitRace(f"table {self.location.uri}: {_RACES_MAX} times another writer was faster: run fewer of them")

    def replayed(self, version: int) -> Snapshot:
        """That version from the commits alone. Raises Corrupt, FormatTooNew, TableBroken, StoreError."""
        return self._read_from(NOTHING, last=version)

    def commits(self, *, after: int = 0, last: int | None = None) -> Iterator[Commit]:
        """The commits above version `after`, in order, up to `last` or the newest. Raises Corrupt, FormatTooNew,
        StoreError.
        """
        version = after + 1
        while last is None or version <= last:
            try:
                yield self.read_commit(version)
            except ObjectMissing:
                return
            version += 1

    def read_commit(self, version: int) -> Commit:
        """Raises ObjectMissing, Corrupt, FormatTooNew, StoreError."""
        name = f"{self.location.uri} {commit_key(version)}"
        commit = commit_of(
            log_format.decode(Kind.COMMIT, self.location.read(commit_key(version)), name=name), name=name
        )
        if commit.version != version:
            raise Corrupt(f"{name}: it says that it is version {commit.version}")
        return commit

    def commit_after(self, snapshot: Snapshot, **changes: object) -> Commit:
        """A commit for the version after `snapshot`, with these fields; not created."""
        return Commit(
            version=snapshot.version + 1,
            nonce=secrets.token_hex(8),
            time_ms=max(self._clock_ms(), snapshot.time_ms),
            **changes,  # type: ignore[arg-type]
        )

    def _run_of(self, batch: Batch | None) -> tuple[str, str] | None:
        return (batch[0], self.run) if batch is not None and batch[0] in self._begun else None

    def _create(self, snapshot: Snapshot, commit: Commit) -> Snapshot:
        after = replay(snapshot, (commit,))
        self._require_there(snapshot)
        if not self.location.create(
            commit_key(commit.version),
            log_format.encode(Kind.COMMIT, commit_fields(commit), version=format_of(commit.added)),
        ):
            raise CommitRace(f"table {self.location.uri}: version {commit.version} is another writer's")
        if after.version - after.checkpoint >= SNAPSHOT_INTERVAL:
            after = self._store(after)
        self._newest = after
        return after

    def _require_there(self, snapshot: Snapshot) -> None:
        """Raises TableBroken where the log does not have that version any more: a version after it would break the
        table that is made there next.
        """
        if snapshot.version == 0:
            return
        try:
            if self.read_commit(snapshot.version).time_ms == snapshot.time_ms:
                return
        except ObjectMissing:
            pass
        raise TableBroken(
            f"table {self.location.uri}: its log is another's, or gone: was the table deleted while the job ran? "
            "Run the job again: it makes a new one, or goes on with what is there"
        )

    def _store(self, snapshot: Snapshot) -> Snapshot:
        """Stores a snapshot and drops the oldest stored ones. What goes wrong here is the next writer's: the commit
        stands.
        """
        from bmq.errors import StoreError

        try:
            content = log_format.encode(
                Kind.SNAPSHOT, snapshot_fields(snapshot), version=format_of(snapshot.by_key.values())
            )
            self.location.create(snapshot_key(snapshot.version), content)
            for version in self._stored_versions()[SNAPSHOTS_KEPT:]:
                self.location.delete(snapshot_key(version))
        except StoreError:
            return snapshot
        return replace(snapshot, checkpoint=snapshot.version)

    def _refreshed(self) -> Snapshot:
        """The newest version; version 0 where there is no table."""
        if self._newest.version == 0:
            self._newest = self._stored_snapshot(at_most=None)
        self._newest = self._read_from(self._newest, last=None)
        return self._newest

    def _read_from(self, snapshot: Snapshot, *, last: int | None) -> Snapshot:
        try:
            return replay(snapshot, self.commits(after=snapshot.version, last=last))
        except CommitRefused as error:
            raise TableBroken(f"table {self.location.uri}: its log does not hold together: {error}") from error

    def _stored_snapshot(self, *, at_most: int | None) -> Snapshot:
        """The newest stored snapshot up to that version; nothing where there is none."""
        for version in self._stored_versions():
            if at_most is not None and version > at_most:
                continue
            name = f"{self.location.uri} {snapshot_key(version)}"
            try:
                found = snapshot_of(
                    log_format.decode(Kind.SNAPSHOT, self.location.read(snapshot_key(version)), name=name), name=name
                )
            except (Corrupt, ObjectMissing):  # derived from the commits, which are all there; or dropped meanwhile
                continue
            if found.version == version:
                return found
        return NOTHING

    def _stored_versions(self) -> list[int]:
        """Newest first."""
        found = (_SNAPSHOT_KEY.fullmatch(found.key) for found in self.location.list(SNAPSHOTS))
        return sorted((int(match[1]) for match in found if match is not None), reverse=True)


def _has_batch(snapshot: Snapshot, batch: Batch, offsets: Sequence[Covered]) -> bool:
    """Whether the table has it, up to where it covers. A number alone says little: Spark counts on from what its
    checkpoint has, which may be an older copy.

    Raises CommitRefused where a batch of this number, or one behind it, is there, and these offsets are not.
    """
    if not snapshot.has_batch(*batch):
        return False
    for one in offsets:
        if one.next > snapshot.offsets.get(one.topic, {}).get(one.partition, 0):
            raise CommitRefused(
                f"batch {batch[1]} of query {batch[0]}: the table has one of that number, and not offsets {one.first} "
                f"to {one.next} of {one.topic}-{one.partition}"
            )
    return True


def _has(snapshot: Snapshot, schema: pa.Schema) -> bool:
    return snapshot.schema is not None and schema.equals(snapshot.schema, check_metadata=True)

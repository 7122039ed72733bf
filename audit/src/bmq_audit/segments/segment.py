"""Audits one segment object: header, footer, directory, and of each run the index, every batch and the producer
snapshot.

What the object says of itself is put together as manifest entries, to be compared with those that name it, or to name
it anew.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from bmq.errors import BmqError, Corrupt, FormatError, FormatTooNew, StoreUnavailable
from bmq.storage.leader_epochs import EpochHistory
from bmq.storage.segment import (
    SEGMENT_FOOTER_SIZE_BYTES,
    SEGMENT_HEADER_SIZE_BYTES,
    DirectoryEntry,
    SegmentEntry,
    SegmentFooter,
    decode_directory,
    decode_footer,
    decode_header,
    decode_producer_snapshot,
)
from bmq.storage.segment_index import SegmentIndex, decode_index
from bmq.values import LeaderEpoch, Nonce, Offset, TopicPartition
from bmq_audit.findings import Kind
from bmq_audit.reading import CHUNK_BYTES, Reader
from bmq_audit.segments.run_walk import RunFacts, RunWalk

DIRECTORY_BYTES_MAX: Final = 16 << 20
SECTION_BYTES_MAX: Final = 1 << 30
END_BYTES: Final = 128 << 10
"""Holds footer and directory, and mostly index and producer snapshot."""

DecodeProducers = Callable[[bytes], object]
"""Opens a producer snapshot; raises FormatError where it cannot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Something wrong with an object. `run`: the position of the run that it concerns; None: the object."""

    kind: Kind
    text: str
    run: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditedRun:
    """A run of the directory. `entry` is how a manifest has to name it; None where that cannot be told.

    `usable`: its index and its producer snapshot are whole, so it can be served (but for damaged batches).
    """

    tp: TopicPartition
    position: int
    leader_epoch: int
    base_offset: int
    entry: SegmentEntry | None
    epochs: EpochHistory
    usable: bool
    damaged: bool
    batches: int
    records: int


@dataclass(slots=True, kw_only=True)
class AuditedSegment:
    """An object that was looked at."""

    key: str
    runs: list[AuditedRun] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    unopenable: list[Problem] = field(default_factory=list)
    """Batches that are whole and that no reader can open. They are no damage: a repair takes the run as it is."""
    directory: bool = False
    """Whether its directory is readable: then `runs` has all of them."""

    def add(self, kind: Kind, text: str, *, run: int | None = None) -> None:
        """One more problem."""
        self.problems.append(Problem(kind=kind, text=text, run=run))

    @property
    def is_unreadable(self) -> bool:
        """Whether something of it cannot be read, which is not known to be damaged; `runs` may lack some."""
        return any(problem.kind is Kind.UNREADABLE for problem in self.problems)

    def run_at(self, position: int) -> AuditedRun | None:
        """The run whose batches begin at a byte of the object."""
        return next((run for run in self.runs if run.position == position), None)


class SegmentAudit:
    """Looks at segment objects, in chunks; several may be looked at at a time."""

    def __init__(self, reader: Reader, *, cluster_id: str, decode_producers: DecodeProducers) -> None:
        self._reader = reader
        self._cluster_id = cluster_id
        self._decode_producers = decode_producers
        self._places = asyncio.Semaphore(reader.at_once)
        # each has a chunk or two in memory

    async def run(
        self,
        key: str,
        size_bytes: int,
        *,
        dense: bool = True,
        named: Sequence[tuple[TopicPartition, SegmentEntry]] = (),
    ) -> AuditedSegment:
        """`named`: how manifests name its runs, for where its own directory cannot be read. Raises ObjectMissing,
        StoreLost.
        """
        audited = AuditedSegment(key=key)
        async with self._places:
            try:
                source = await _Source.open(self._reader, key, size_bytes)
                nonce = await self._check_header(source, audited)
                directory = await self._directory(source, audited, nonce)
                entries = (
                    directory if directory is not None else [_as_directory_entry(tp, entry) for tp, entry in named]
                )
                for entry in entries:
                    audited.runs.append(await self._run(source, audited, entry, nonce, dense=dense))
            except StoreUnavailable as error:
                audited.add(Kind.UNREADABLE, str(error))
        return audited

    async def _check_header(self, source: "_Source", audited: AuditedSegment) -> Nonce | None:
        try:
            nonce, cluster_id, key_id = decode_header(await source.read(0, SEGMENT_HEADER_SIZE_BYTES))
        except FormatError as error:
            audited.add(_kind_of(error), f"{error} (readers do without its header)")
            return None
        if self._cluster_id and cluster_id != self._cluster_id:
            audited.add(Kind.DISAGREES, f"it is of cluster {cluster_id!r}, this is {self._cluster_id!r}")
        if key_id:
            audited.add(Kind.UNREADABLE, f"it is encrypted with key {key_id}, which this bmq does not know")
        return nonce

    async def _directory(
        self, source: "_Source", audited: AuditedSegment, nonce: Nonce | None
    ) -> list[DirectoryEntry] | None:
        try:
            footer = decode_footer(
                await source.read(max(0, source.size_bytes - SEGMENT_FOOTER_SIZE_BYTES), SEGMENT_FOOTER_SIZE_BYTES)
            )
            _check_footer(footer, source.size_bytes, nonce)
            entries = decode_directory(footer, await source.read(footer.directory_position, footer.directory_length))
        except FormatError as error:
            audited.add(_kind_of(error), f"{error} (readers do without its directory; bmq could not collect it)")
            return None
        audited.directory = True
        return list(entries)

    async def _run(
        self, source: "_Source", audited: AuditedSegment, entry: DirectoryEntry, nonce: Nonce | None, *, dense: bool
    ) -> AuditedRun:
        index = await self._index(source, audited, entry, nonce)
        usable = await self._check_producers(source, audited, entry) and index is not None
        walk = RunWalk(
            base_offset=entry.base_offset,
            last_offset=entry.last_offset,
            length=entry.length,
            leader_epoch=entry.leader_epoch,
            index=index,
            dense=dense,
        )
        for start in range(entry.position, entry.position + entry.length, CHUNK_BYTES):
            chunk = await source.read(start, min(CHUNK_BYTES, entry.position + entry.length - start))
            await self._reader.in_thread(partial(walk.feed, chunk))
        facts = walk.finish()
        for text in facts.problems:
            audited.add(Kind.DAMAGED, text, run=entry.position)
        for text in facts.unopenable:
            audited.unopenable.append(Problem(kind=Kind.UNOPENABLE, text=text, run=entry.position))
        if facts.problem_count > len(facts.problems):
            audited.add(
                Kind.DAMAGED, f"and {facts.problem_count - len(facts.problems)} more such faults", run=entry.position
            )
        return AuditedRun(
            tp=entry.tp,
            position=entry.position,
            leader_epoch=entry.leader_epoch,
            base_offset=entry.base_offset,
            entry=_entry_of(audited.key, entry, index, facts)
            if index is not None and not facts.problem_count
            else None,
            epochs=facts.epochs,
            usable=usable,
            damaged=facts.problem_count > 0,
            batches=facts.batch_count,
            records=facts.record_count,
        )

    async def _index(
        self, source: "_Source", audited: AuditedSegment, entry: DirectoryEntry, nonce: Nonce | None
    ) -> SegmentIndex | None:
        try:
            index = decode_index(await source.read(entry.position + entry.length, entry.index_length))
            found = (index.tp, index.leader_epoch, index.base_offset, index.last_offset, index.length)
            if found != (*entry[:4], entry.length) or nonce not in (None, index.nonce):
                raise Corrupt(f"the index of {entry.tp} at {entry.base_offset} is another run's")
        except FormatError as error:
            audited.add(_kind_of(error), f"{error}. Without it the run cannot be read by offset", run=entry.position)
            return None
        return index

    async def _check_producers(self, source: "_Source", audited: AuditedSegment, entry: DirectoryEntry) -> bool:
        try:
            stored = await source.read(entry.position + entry.length + entry.index_length, entry.snapshot_length)
            self._decode_producers(bytes(decode_producer_snapshot(stored)))
        except FormatError as error:
            audited.add(
                _kind_of(error),
                f"{error}. Where this is the partition's newest segment, the partition does not open",
                run=entry.position,
            )
            return False
        return True


class _Source:
    """An object's bytes by range. Its end, or a small one whole, is read once."""

    def __init__(self, reader: Reader, key: str, size_bytes: int, end: bytes) -> None:
        self._reader = reader
        self._key = key
        self._end = end
        self._end_at = size_bytes - len(end)
        self.size_bytes = size_bytes

    @classmethod
    async def open(cls, reader: Reader, key: str, size_bytes: int) -> "_Source":
        """Raises ObjectMissing, StoreUnavailable."""
        if size_bytes > CHUNK_BYTES:
            return cls(reader, key, size_bytes, await reader.get(key, start=size_bytes - END_BYTES, length=END_BYTES))
        whole = await reader.get(key)
        return cls(reader, key, len(whole), whole)

    async def read(self, start: int, length: int) -> bytes:
        """Fewer bytes than asked for where the object ends. Raises Corrupt for a length that no object has."""
        if length < 0 or start < 0 or length > SECTION_BYTES_MAX:
            raise Corrupt(f"{length} bytes from {start} are promised, the object has {self.size_bytes}")
        if start >= self.size_bytes or length == 0:
            return b""
        if start >= self._end_at:
            return self._end[start - self._end_at : start - self._end_at + length]
        return await self._reader.get(self._key, start=start, length=length)


def difference(named: SegmentEntry, found: SegmentEntry) -> str | None:
    """In words, what a manifest's entry says otherwise than the object; None where they agree."""
    fields = [
        name
        for name in SegmentEntry.__struct_fields__
        if name not in ("key", "store_id") and getattr(named, name) != getattr(found, name)
    ]
    if not fields:
        return None
    return ", ".join(
        f"{name.replace('_', ' ')} {getattr(named, name)} instead of {getattr(found, name)}" for name in fields
    )


def _check_footer(footer: SegmentFooter, size_bytes: int, nonce: Nonce | None) -> None:
    fits = footer.directory_position + footer.directory_length + SEGMENT_FOOTER_SIZE_BYTES == size_bytes
    if not fits or footer.directory_length > DIRECTORY_BYTES_MAX or nonce not in (None, footer.nonce):
        raise Corrupt(f"segment: its footer is not that of an object of {size_bytes} bytes")


def _as_directory_entry(tp: TopicPartition, entry: SegmentEntry) -> DirectoryEntry:
    return DirectoryEntry(
        tp,
        LeaderEpoch(entry.leader_epoch),
        Offset(entry.base_offset),
        Offset(entry.last_offset),
        entry.position,
        entry.length,
        entry.index_length,
        entry.snapshot_length,
    )


def _entry_of(key: str, entry: DirectoryEntry, index: SegmentIndex, facts: RunFacts) -> SegmentEntry:
    index_position = entry.position + entry.length
    return SegmentEntry(
        key=key,
        position=entry.position,
        length=entry.length,
        leader_epoch=entry.leader_epoch,
        base_offset=entry.base_offset,
        last_offset=entry.last_offset,
        record_count=facts.record_count,
        min_timestamp_ms=facts.min_timestamp_ms,
        max_timestamp_ms=facts.max_timestamp_ms,
        index_position=index_position,
        index_length=entry.index_length,
        snapshot_position=index_position + entry.index_length,
        snapshot_length=entry.snapshot_length,
        aborted_first_offset=min((txn.first_offset for txn in index.aborted), default=-1),
    )


def _kind_of(error: BmqError) -> Kind:
    return Kind.UNREADABLE if isinstance(error, FormatTooNew) else Kind.DAMAGED

"""A partition's manifest: which segments hold which offsets. Immutable; every edit gives a new one, and holds the
invariants named below.

Which version it is, in which epoch and after which predecessor, stands in the flat-log entry around it
(storage/flatlog.py); which ranges of WAL streams an heir must read besides it stands in the metadata image. Its bytes
are storage/manifest_format.py's.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final, Literal, NamedTuple

import msgspec

from bmq.errors import BmqError
from bmq.storage import leader_epochs
from bmq.storage.leader_epochs import EpochHistory
from bmq.storage.segment import SegmentEntry

ENTRIES_MAX: Final = 1024
"""How many entries a manifest or a page holds at most."""

Kind = Literal["dense", "mirrored"]
"""dense: every offset from the log start to the end exists. mirrored: offsets come from elsewhere, with gaps."""


class InvalidEdit(BmqError):
    """The manifest cannot be edited so; the message names the invariant that would break. Nothing has changed."""


class PageRef(msgspec.Struct, frozen=True, array_like=True, kw_only=True, forbid_unknown_fields=True):
    """A page of older entries, and what they are in sum. Offsets, timestamps and aborted transactions as in
    SegmentEntry.
    """

    key: str
    base_offset: int
    last_offset: int
    entry_count: int
    size_bytes: int
    min_timestamp_ms: int
    max_timestamp_ms: int
    aborted_first_offset: int = -1


class CoordinatorSnapshotRef(NamedTuple):
    """The object that holds the effect of every record below `offset`."""

    key: str
    offset: int


class ProducerSnapshotRef(NamedTuple):
    """Where the producers' state as of the manifest's end is, while no entry is there to say so."""

    key: str
    position: int
    length: int


Part = SegmentEntry | PageRef
"""What covers a stretch of offsets: an entry, or a page that has to be loaded first."""


class Manifest(msgspec.Struct, frozen=True, array_like=True, kw_only=True, forbid_unknown_fields=True):
    """One version of it.

    `log_start` may be above `next_offset`, the end of the newest segment: records in the owner's memory were deleted,
    too. `last_stable_offset` is that of the log as far as `next_offset`. Pages come before entries; both ascend.
    `producer_snapshot` is kept of the last segment where no entry is left: an idempotent producer outlives its records.
    """

    kind: Kind = "dense"
    log_start: int = 0
    next_offset: int = 0
    last_stable_offset: int = 0
    leader_epochs: EpochHistory = ()
    coordinator_snapshot: CoordinatorSnapshotRef | None = None
    pages: tuple[PageRef, ...] = ()
    entries: tuple[SegmentEntry, ...] = ()
    producer_snapshot: ProducerSnapshotRef | None = None

    @classmethod
    def beginning_at(cls, offset: int) -> "Manifest":
        """What stands for the manifest of a partition that has none yet."""
        return cls(log_start=offset, next_offset=offset, last_stable_offset=offset)

    @property
    def parts(self) -> tuple[Part, ...]:
        """Pages and entries, by offset."""
        return (*self.pages, *self.entries)

    @property
    def size_bytes(self) -> int:
        """Bytes of batches in segments, those below a log start that cuts a segment included."""
        return sum(map(part_size_bytes, self.parts))

    @property
    def segment_count(self) -> int:
        """Entries, those on pages included."""
        return len(self.entries) + sum(page.entry_count for page in self.pages)

    def keys(self) -> frozenset[str]:
        """Every object that it names itself; what its pages name comes on top."""
        named = {part.key for part in self.parts}
        if self.coordinator_snapshot is not None:
            named.add(self.coordinator_snapshot.key)
        if self.producer_snapshot is not None:
            named.add(self.producer_snapshot.key)
        return frozenset(named)

    def newest_producer_snapshot(self) -> ProducerSnapshotRef | None:
        """Where the producers' state as of `next_offset` is; None where nothing was ever written."""
        return _producers_of(self.entries[-1]) if self.entries else self.producer_snapshot

    def entry_for_offset(self, offset: int) -> Part | None:
        """The part that holds `offset`, or in a gap the next one. None where nothing named ends at or above it."""
        if self.pages and offset <= self.pages[-1].last_offset:
            return part_at(self.pages, offset)
        return part_at(self.entries, offset)

    def entries_for_time(self, timestamp_ms: int) -> Iterator[Part]:
        """By offset, the parts with a batch whose largest timestamp is at or above `timestamp_ms`."""
        return (part for part in self.parts if part.max_timestamp_ms >= timestamp_ms)

    def entries_with_aborted(self, from_offset: int, below: int) -> Iterator[Part]:
        """By offset, the parts whose aborted-transaction indexes may have one that wrote below `below` and ended at or
        above `from_offset`.
        """
        return (
            part for part in self.parts if part.last_offset >= from_offset and 0 <= part.aborted_first_offset < below
        )

    def epoch_end(self, epoch: int, *, log_end: int | None = None) -> tuple[int, int]:
        """leader_epochs.epoch_end with the segments' end, or a `log_end` that its caller knows better."""
        return leader_epochs.epoch_end(
            self.leader_epochs, epoch, log_end=self.next_offset if log_end is None else log_end
        )

    def retained_from(
        self, *, before_ms: int | None = None, size_bytes_max: int | None = None
    ) -> tuple[int, PageRef | None]:
        """(the log start that retention allows, the page in whose middle it may be).

        The oldest parts go while all their timestamps are below `before_ms` or the rest still has `size_bytes_max`.
        Where that ends at a page, its entries are to be asked on their own (`retained_among`). A part without
        timestamps (-1) does not go by time.
        """
        excess_bytes = None if size_bytes_max is None else self.size_bytes - size_bytes_max
        kept = retained_among(self.parts, before_ms=before_ms, excess_bytes=excess_bytes)
        if kept == len(self.parts):
            return max(self.log_start, self.next_offset), None
        part = self.parts[kept]
        return max(self.log_start, part.base_offset if kept else self.log_start), part if isinstance(
            part, PageRef
        ) else None

    def add_segment(self, entry: SegmentEntry, *, last_stable_offset: int) -> "Manifest":
        """Names a segment that was rolled, and moves the end behind it.

        Of one that a log start raised meanwhile leaves behind only the producer snapshot is named, and the end moves
        on. Raises InvalidEdit.
        """
        _require(entry.base_offset >= self.next_offset, "segments ascend")
        deleted_gap = not self.parts and entry.base_offset <= self.log_start
        _require(
            self.kind == "mirrored" or entry.base_offset == self.next_offset or deleted_gap, "dense offsets have no gap"
        )
        _require(last_stable_offset >= self.last_stable_offset, "the last stable offset never goes back")
        is_named = entry.last_offset >= self.log_start
        return self._edited(
            entries=(*self.entries, entry) if is_named else self.entries,
            producer_snapshot=None if is_named else _producers_of(entry),
            next_offset=entry.last_offset + 1,
            last_stable_offset=last_stable_offset,
        )

    def skip_to(self, next_offset: int) -> "Manifest":
        """Moves the end, at most to the log start: what lies before was deleted before it was rolled. Raises
        InvalidEdit.
        """
        _require(self.next_offset <= next_offset <= self.log_start, "only deleted records are skipped")
        return self._edited(next_offset=next_offset)

    def raise_log_start(self, log_start: int) -> "Manifest":
        """Drops pages and entries wholly below it; `cut_page` tells whether a page wants to be rewritten. Never lowers:
        then unchanged.
        """
        if log_start <= self.log_start:
            return self
        return self._edited(
            log_start=log_start,
            leader_epochs=leader_epochs.cut_below(self.leader_epochs, log_start),
            pages=tuple(page for page in self.pages if page.last_offset >= log_start),
            entries=tuple(entry for entry in self.entries if entry.last_offset >= log_start),
        )

    def replace(self, old: Sequence[SegmentEntry], merged: SegmentEntry) -> "Manifest":
        """Names a merged segment instead of consecutive old ones. Raises InvalidEdit where it does not hold exactly the
        same.
        """
        _require(len(old) > 0, "a merge replaces something")
        start = bisect_left(self.entries, old[0].base_offset, key=_base_offset_of)
        _require(
            self.entries[start : start + len(old)] == tuple(old), "a merge replaces consecutive entries of the manifest"
        )
        same = (old[0].base_offset, old[-1].last_offset, sum(entry.record_count for entry in old))
        _require(
            (merged.base_offset, merged.last_offset, merged.record_count) == same, "a merge holds what it replaces"
        )
        return self._edited(entries=(*self.entries[:start], merged, *self.entries[start + len(old) :]))

    def note_leader_epoch(self, epoch: int, start_offset: int) -> "Manifest":
        """The first record of a new epoch has `start_offset`; unchanged where the epoch is the newest already. Raises
        InvalidEdit.
        """
        _require(not self.leader_epochs or epoch >= self.leader_epochs[-1].epoch, "leader epochs never go back")
        return self._edited(leader_epochs=leader_epochs.with_epoch(self.leader_epochs, epoch, start_offset))

    def name_coordinator_snapshot(self, key: str, offset: int, *, log_end: int | None = None) -> "Manifest":
        """Names a newer snapshot of the coordinator whose log this is. Raises InvalidEdit.

        `log_end`: where the log ends, for who has found the snapshot before above that, and names the same state as of
        the end.
        """
        before = self.coordinator_snapshot
        _require(before is None or offset >= before.offset or offset == log_end, "coordinator snapshots never go back")
        return self._edited(coordinator_snapshot=CoordinatorSnapshotRef(key, offset))

    def overflow(self, entries_max: int = ENTRIES_MAX) -> tuple[SegmentEntry, ...]:
        """The oldest entries, that are to be written as a page now; none while there are at most `entries_max`.

        Half of what is kept at most: the others stay within reach of merges.
        """
        return self.entries[: (entries_max + 1) // 2] if len(self.entries) > entries_max else ()

    def move_to_page(self, page: PageRef) -> "Manifest":
        """Names a page instead of the oldest entries, which it holds. Raises InvalidEdit."""
        moved = self.entries[: page.entry_count]
        _require(bool(moved) and page_ref(page.key, moved) == page, "a page holds the oldest entries")
        return self._edited(pages=(*self.pages, page), entries=self.entries[len(moved) :])

    def cut_page(self) -> PageRef | None:
        """The page in whose middle the log start is: it may name segments that are wholly below it and want to be
        collected.
        """
        return self.pages[0] if self.pages and self.pages[0].base_offset < self.log_start else None

    def kept_of_page(self, entries: Sequence[SegmentEntry]) -> tuple[SegmentEntry, ...]:
        """Those of a page's entries that are not wholly below the log start."""
        return tuple(entry for entry in entries if entry.last_offset >= self.log_start)

    def replace_page(self, old_entries: Sequence[SegmentEntry], new: PageRef) -> "Manifest":
        """Names a page with what is kept of the cut page's entries instead of that page. Raises InvalidEdit."""
        old = self.cut_page()
        _require(
            old is not None and page_ref(old.key, old_entries) == old,
            "only the page that the log start cuts is rewritten",
        )
        kept = self.kept_of_page(old_entries)
        _require(
            bool(kept) and page_ref(new.key, kept) == new, "a rewritten page holds what is not below the log start"
        )
        return self._edited(pages=(new, *self.pages[1:]))

    def _edited(self, **changes: object) -> "Manifest":
        edited = msgspec.structs.replace(self, **changes)
        if self.entries and not edited.entries:
            edited = msgspec.structs.replace(edited, producer_snapshot=_producers_of(self.entries[-1]))
        broken = broken_invariant(edited)
        _require(broken is None, broken or "")
        return edited


def broken_invariant(manifest: Manifest) -> str | None:
    """The name of the first invariant that does not hold. Checked after each edit and each read."""
    parts = manifest.parts
    if manifest.log_start < 0 or not 0 <= manifest.last_stable_offset <= manifest.next_offset:
        return "the last stable offset is between 0 and the end"
    if any(part.base_offset < 0 or part.last_offset < part.base_offset or part_size_bytes(part) <= 0 for part in parts):
        return "every part holds something"
    if any(a.last_offset >= b.base_offset for a, b in pairwise(parts)):
        return "segments ascend"
    if manifest.kind == "dense" and any(a.last_offset + 1 != b.base_offset for a, b in pairwise(parts)):
        return "dense offsets have no gap"
    if parts and parts[0].last_offset < manifest.log_start:
        return "nothing named is wholly below the log start"
    if parts and parts[-1].last_offset >= manifest.next_offset:
        return "the end is behind the newest segment"
    if parts and manifest.kind == "dense" and parts[-1].last_offset + 1 != manifest.next_offset:
        return "the end is right behind the newest segment"
    if parts and manifest.kind == "dense" and parts[0].base_offset > manifest.log_start:
        return "dense offsets begin at the log start"
    if manifest.entries and manifest.producer_snapshot is not None:
        return "a producer snapshot is named only where no entry is left"
    if not leader_epochs.ascends(manifest.leader_epochs):
        return "leader epochs ascend"
    return None


def page_ref(key: str, entries: Sequence[SegmentEntry]) -> PageRef:
    """What a manifest says of a page that holds these entries (at least one)."""
    aborted = [entry.aborted_first_offset for entry in entries if entry.aborted_first_offset >= 0]
    return PageRef(
        key=key,
        base_offset=entries[0].base_offset,
        last_offset=entries[-1].last_offset,
        entry_count=len(entries),
        size_bytes=sum(entry.length for entry in entries),
        min_timestamp_ms=min(entry.min_timestamp_ms for entry in entries),
        max_timestamp_ms=max(entry.max_timestamp_ms for entry in entries),
        aborted_first_offset=min(aborted, default=-1),
    )


def part_at(parts: Sequence[Part], offset: int) -> Part | None:
    """Among parts by offset: the first that ends at or above `offset`."""
    found = bisect_left(parts, offset, key=_last_offset_of)
    return parts[found] if found < len(parts) else None


def part_size_bytes(part: Part) -> int:
    """Bytes of batches in it."""
    return part.size_bytes if isinstance(part, PageRef) else part.length


def retained_among(parts: Sequence[Part], *, before_ms: int | None, excess_bytes: int | None) -> int:
    """The index of the first part that retention keeps: see Manifest.retained_from; `excess_bytes` may go by size."""
    for index, part in enumerate(parts):
        size_bytes = part_size_bytes(part)
        by_time = before_ms is not None and 0 <= part.max_timestamp_ms < before_ms
        by_size = excess_bytes is not None and excess_bytes >= size_bytes
        if not by_time and not by_size:
            return index
        if excess_bytes is not None:
            excess_bytes -= size_bytes
    return len(parts)


def _producers_of(entry: SegmentEntry) -> ProducerSnapshotRef:
    return ProducerSnapshotRef(entry.key, entry.snapshot_position, entry.snapshot_length)


def _require(holds: bool, invariant: str) -> None:
    if not holds:
        raise InvalidEdit(f"manifest: {invariant}")


def _base_offset_of(part: Part) -> int:
    return part.base_offset


def _last_offset_of(part: Part) -> int:
    return part.last_offset

"""How a manifest is repaired: a new version that names what is readable, and only that. Pure.

Segments that no manifest names take the place of what is lost where they hold those offsets: what an owner put into a
segment was durable, so it is what was there. What stays lost is filled with a segment that has these offsets and no
records: offsets stay dense, and nothing else is given up. At the beginning the log start rises instead.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import msgspec

from bmq.storage import leader_epochs
from bmq.storage.leader_epochs import EpochHistory
from bmq.storage.manifest import CoordinatorSnapshotRef, Manifest
from bmq.storage.segment import SegmentEntry
from bmq.values import TopicPartition
from bmq_audit.held import Span, joined


class Spare(NamedTuple):
    """A whole segment that nothing names, as a manifest would name it, with the leader epochs of its batches."""

    entry: SegmentEntry
    epochs: EpochHistory


class UnnamedRun(NamedTuple):
    """A run of a segment, of one partition's own or of a shared one. `spare`: None where the run is not whole.

    `unreadable`: why it, or its object, cannot be read, which is not known to be damaged.
    """

    tp: TopicPartition
    key: str
    position: int
    base_offset: int
    spare: Spare | None
    unreadable: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """What a manifest names: of each page its entries, None where it cannot be read; then the manifest's own."""

    manifest: Manifest
    pages: tuple[tuple[SegmentEntry, ...] | None, ...]


class Gap(NamedTuple):
    """Offsets for which nothing is left, to be filled. `timestamp_ms` is that of what comes before, `leader_epoch` that
    of the history.
    """

    span: Span
    timestamp_ms: int
    leader_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairedManifest:
    """The new manifest's fields, what is named anew, and which offsets are given up.

    `manifest` has the pages that stay, and no entries: `entries` come behind them.
    """

    manifest: Manifest
    entries: tuple[SegmentEntry, ...]
    adopted: tuple[SegmentEntry, ...]
    gaps: tuple[Gap, ...]
    given_up: tuple[Span, ...]


def repaired_manifest(
    named: Named,
    *,
    lost: Collection[SegmentEntry],
    spares: Sequence[Spare],
    forward_to: int | None,
    snapshot: CoordinatorSnapshotRef | None,
    producers_usable: bool,
    skip_to: int | None = None,
    jump: bool = False,
) -> RepairedManifest:
    """`lost`: entries that cannot be read. `forward_to`: the end may move on over spares, up to that offset; None: as
    far as they reach. `skip_to`: where the end moves in any case, because what follows in the WAL begins there. `jump`:
    what is missing between spares above the end is in no WAL either, and they are named all the same.

    `snapshot`: the coordinator snapshot to name. `producers_usable`: whether the producer snapshot that the manifest
    itself names is.
    """
    old = named.manifest
    whole = sorted((entry for entry in _entries(named) if entry not in lost), key=_base)
    adopted = _fill(
        _lost_spans(named, lost), whole, [spare for spare in spares if spare.entry.base_offset < old.next_offset]
    )
    end = max([old.next_offset, *(_end(spare.entry) for spare in adopted)])
    end, further = _go_on(end, spares, forward_to, jump=jump)
    adopted += further
    end = max(end, skip_to or 0)
    kept = sorted([*_not_below(whole, adopted), *(spare.entry for spare in adopted)], key=_base)
    kept = [entry for entry in kept if entry.last_offset >= old.log_start]
    log_start = max(old.log_start, kept[0].base_offset) if kept else max(old.log_start, end)
    history = _epochs(old.leader_epochs, [spare for spare in adopted if spare.entry.last_offset >= old.next_offset])
    gaps = [_gap(a, b.base_offset, history) for a, b in pairwise(kept) if a.last_offset + 1 < b.base_offset]
    if kept and kept[-1].last_offset + 1 < end:
        gaps.append(_gap(kept[-1], end, history))
    given_up = [Span(old.log_start, log_start)] if log_start > old.log_start else []
    given_up += [gap.span for gap in gaps]
    kept_pages = _kept_pages(named, set(lost), adopted, log_start)
    on_pages = {entry for entries in named.pages[:kept_pages] for entry in entries or ()}
    manifest = msgspec.structs.replace(
        old,
        log_start=log_start,
        next_offset=end,
        last_stable_offset=end if old.last_stable_offset == old.next_offset else old.last_stable_offset,
        leader_epochs=leader_epochs.cut_below(history, log_start),
        coordinator_snapshot=snapshot,
        pages=old.pages[:kept_pages],
        entries=(),
        producer_snapshot=old.producer_snapshot if not kept and producers_usable else None,
    )
    return RepairedManifest(
        manifest=manifest,
        entries=tuple(entry for entry in kept if entry not in on_pages),
        adopted=tuple(spare.entry for spare in adopted),
        gaps=tuple(gaps),
        given_up=tuple(given_up),
    )


def _gap(before: SegmentEntry, end: int, history: EpochHistory) -> Gap:
    base = before.last_offset + 1
    epochs = [each.epoch for each in history if each.start_offset <= base]
    return Gap(Span(base, end), before.max_timestamp_ms, epochs[-1] if epochs else 0)


def _entries(named: Named) -> list[SegmentEntry]:
    return [entry for entries in (*named.pages, named.manifest.entries) for entry in entries or ()]


def _lost_spans(named: Named, lost: Collection[SegmentEntry]) -> list[Span]:
    """What cannot be read, neighbours as one: a merged segment may stand in for several."""
    spans = [Span(entry.base_offset, entry.last_offset + 1) for entry in _entries(named) if entry in lost]
    spans += [
        Span(ref.base_offset, ref.last_offset + 1)
        for ref, entries in zip(named.manifest.pages, named.pages, strict=True)
        if entries is None
    ]
    return joined(spans)


def _base(entry: SegmentEntry) -> int:
    return entry.base_offset


def _end(entry: SegmentEntry) -> int:
    return entry.last_offset + 1


def _overlapping(entries: Sequence[SegmentEntry], base: int, end: int) -> Sequence[SegmentEntry]:
    """Which of these entries, given in their order, have any of these offsets."""
    return entries[bisect_right(entries, base, key=_end) : bisect_left(entries, end, key=_base)]


class _Choice(NamedTuple):
    """What choosing a spare, or several, is worth: the more records, then offsets, and the fewer segments replaced and
    named anew the better.
    """

    records: int
    offsets: int
    replaced: int
    named: int

    def with_(self, other: "_Choice") -> "_Choice":
        return _Choice(*(a + b for a, b in zip(self, other, strict=True)))


def _fill(lost: Sequence[Span], whole: Sequence[SegmentEntry], spares: Sequence[Spare]) -> list[Spare]:
    """Spares that have something of what is lost, none over another, which together bring back the most.

    What is named and whole is replaced by one that has all of it: a merge put lost and whole segments into one. It
    never loses a part.
    """
    found: list[tuple[int, _Choice, Spare]] = []
    for spare in spares:
        base, end = spare.entry.base_offset, _end(spare.entry)
        first = bisect_right(lost, base, key=lambda span: span.end)
        offsets = sum(
            min(end, span.end) - max(base, span.base)
            for span in lost[first : bisect_left(lost, end, key=lambda span: span.base)]
        )
        replaced = _overlapping(whole, base, end)
        records = spare.entry.record_count - sum(entry.record_count for entry in replaced)
        if (
            offsets
            and records >= 0
            and (not replaced or (base <= replaced[0].base_offset and replaced[-1].last_offset < end))
        ):
            found.append((end, _Choice(records, offsets, -len(replaced), -1), spare))
    found.sort(key=lambda each: each[0])
    best: list[tuple[_Choice, int]] = [(_Choice(0, 0, 0, 0), -1)]
    """For the first so many that were found: what they are worth at best, and which of them is the last chosen, -1:
    none."""
    for number, (_, choice, spare) in enumerate(found):
        before = bisect_right(found, spare.entry.base_offset, hi=number, key=lambda each: each[0])
        best.append(max((best[-1][0], best[-1][1]), (best[before][0].with_(choice), number), key=lambda each: each[0]))
    chosen: list[Spare] = []
    number = best[-1][1]
    while number >= 0:
        spare = found[number][2]
        chosen.append(spare)
        number = best[bisect_right(found, spare.entry.base_offset, hi=number, key=lambda each: each[0])][1]
    return chosen[::-1]


def _not_below(whole: Sequence[SegmentEntry], adopted: Sequence[Spare]) -> list[SegmentEntry]:
    """What is named and whole, without what a spare replaces."""
    replaced = {entry for spare in adopted for entry in _overlapping(whole, spare.entry.base_offset, _end(spare.entry))}
    return [entry for entry in whole if entry not in replaced]


def _go_on(end: int, spares: Sequence[Spare], forward_to: int | None, *, jump: bool) -> tuple[int, list[Spare]]:
    """(the new end, spares that follow each other from the old one on, as far as any of them lead)."""
    ordered = sorted(spares, key=lambda spare: (spare.entry.base_offset, -spare.entry.last_offset))
    chosen: list[Spare] = []
    while True:
        ordered = [
            spare
            for spare in ordered
            if spare.entry.base_offset >= end and (forward_to is None or spare.entry.base_offset < forward_to)
        ]
        if jump and ordered:
            end = ordered[0].entry.base_offset
        led: dict[int, Spare | None] = {end: None}
        for spare in ordered:
            if spare.entry.base_offset in led:
                led.setdefault(_end(spare.entry), spare)
        if len(led) == 1:
            return end, chosen
        at = end = max(led)
        back: list[Spare] = []
        while (last := led[at]) is not None:
            back.append(last)
            at = last.entry.base_offset
        chosen += reversed(back)


def _kept_pages(named: Named, lost: set[SegmentEntry], adopted: Sequence[Spare], log_start: int) -> int:
    """How many of the first pages stay as they are."""
    kept = 0
    below = min((spare.entry.base_offset for spare in adopted), default=None)
    for ref, entries in zip(named.manifest.pages, named.pages, strict=True):
        changed = entries is None or not lost.isdisjoint(entries) or entries[0].last_offset < log_start
        if changed or (below is not None and below <= ref.last_offset):
            break
        kept += 1
    return kept


def _epochs(history: EpochHistory, adopted: Sequence[Spare]) -> EpochHistory:
    for spare in adopted:
        for each in spare.epochs:
            if not history or each.epoch > history[-1].epoch:
                history = leader_epochs.with_epoch(history, each.epoch, each.start_offset)
    return history

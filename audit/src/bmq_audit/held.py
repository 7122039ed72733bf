"""Which offsets of which partition the WAL holds that an owner, or an heir, would read. Pure."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from bmq.metadata.image import Image, stream_of
from bmq.storage.numbered import wal_key
from bmq.storage.wal import WalEntry
from bmq.values import StreamId, TopicPartition

SPANS_MAX: Final = 64
"""So many are kept of a partition before they are looked through for neighbours."""


class Span(NamedTuple):
    """Offsets from `base` on and below `end`."""

    base: int
    end: int


class CutOff(NamedTuple):
    """A run, and the object that holds it, below a missing one."""

    span: Span
    key: str


@dataclass(slots=True)
class Held:
    """What the WAL holds of one partition: spans, and the newest manifest version that it, or else the metadata, names.

    Runs that were carried forward overlap older ones.
    """

    spans: list[Span] = field(default_factory=list)
    manifest_version: int = 0
    cut_off: dict[str, list[CutOff]] = field(default_factory=dict)
    """By key of a missing WAL object, what lies below it: nobody reads that. As a rule it is in segments, and about to
    be deleted."""

    def add(self, entry: WalEntry) -> None:
        """One more run."""
        self.manifest_version = max(self.manifest_version, entry.manifest_version)
        self.spans.append(Span(entry.base_offset, entry.last_offset + 1))
        if len(self.spans) >= 2 and (
            len(self.spans) >= SPANS_MAX or self.spans[-2].base <= self.spans[-1].base <= self.spans[-2].end
        ):
            self.spans = joined(self.spans)


def joined(spans: Iterable[Span]) -> list[Span]:
    """The same offsets in as few spans as possible, ascending."""
    found: list[Span] = []
    for span in sorted(spans):
        if found and span.base <= found[-1].end:
            found[-1] = Span(found[-1].base, max(found[-1].end, span.end))
        else:
            found.append(span)
    return found


class HeldInWal:
    """Filled stream by stream; `wanted` tells which runs of a stream count."""

    def __init__(self, image: Image) -> None:
        self._image = image
        self._held: dict[TopicPartition, Held] = defaultdict(Held)

    def of(self, tp: TopicPartition) -> Held:
        """What there is of a partition."""
        return self._held.get(tp) or Held()

    def partitions(self) -> set[TopicPartition]:
        """Those of which there is anything."""
        return set(self._held)

    def take(self, stream: StreamId, number: int, entries: Iterable[WalEntry]) -> None:
        """The runs of object `number`. Objects come in the order of their numbers, below the stream's end."""
        for entry in entries:
            if self.is_wanted(stream, number, entry):
                self._held[entry.tp].add(entry)

    def cut_off(self, stream: StreamId, number: int, entries: Iterable[WalEntry], *, missing: int) -> None:
        """The runs of an object below the number of a missing one."""
        lost, key = wal_key(stream, missing), wal_key(stream, number)
        for entry in entries:
            if self.is_wanted(stream, number, entry):
                span = Span(entry.base_offset, entry.last_offset + 1)
                self._held[entry.tp].cut_off.setdefault(lost, []).append(CutOff(span, key))

    def is_wanted(self, stream: StreamId, number: int, entry: WalEntry) -> bool:
        """Whether the partition's owner, or the next one, reads the run where the manifest does not cover it."""
        meta = self._image.partition(entry.tp)
        if meta is None:
            return False
        if (meta.node_id, meta.broker_epoch) == stream and meta.leader_epoch == entry.leader_epoch:
            return True
        return any(
            stream_of(found) == stream
            and found.leader_epoch == entry.leader_epoch
            and found.start <= number < found.end
            for found in meta.ranges
        )


def holes(held: Held, next_offset: int) -> list[Span]:
    """Offsets at and above a manifest's end that are missing below others that the WAL holds."""
    missing = []
    expected = next_offset
    for span in joined(held.spans):
        if span.base > expected:
            missing.append(Span(expected, span.base))
        expected = max(expected, span.end)
    return missing


def cut_off(held: Held, next_offset: int) -> dict[str, list[CutOff]]:
    """By key of the missing WAL object, runs below it that are nowhere else: it was not its owner's to delete, who
    deletes from below.
    """
    covered = joined([Span(0, next_offset), *held.spans])
    found = {}
    for key, runs in held.cut_off.items():
        lonely = [
            run for run in runs if not any(each.base <= run.span.base and run.span.end <= each.end for each in covered)
        ]
        if lonely:
            found[key] = sorted(lonely)
    return found

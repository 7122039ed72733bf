"""How a log is cut for Spark: from offsets and segments to slices, and from slices to tasks of about the same size. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

from bmq.storage.segment import SegmentEntry
from bmq.values import TopicPartition
from bmq_spark.source.topics import SourceTopic

TASK_BYTES_MIN: Final = 4 << 20
"""However many cores there are: a task costs some milliseconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """A stretch of one partition, from an offset and below another, in consecutive segments. `segments` are manifest entries.

    Records whose batches are wholly before `min_timestamp_ms` may be left out.
    """

    topic: SourceTopic
    partition: int
    from_offset: int
    below_offset: int
    segments: tuple[SegmentEntry, ...]
    min_timestamp_ms: int | None = None

    @property
    def tp(self) -> TopicPartition:
        """The partition by its topic's id."""
        return TopicPartition(self.topic.topic_id, self.partition)

    @property
    def size_bytes(self) -> int:
        """About how much is to be read."""
        return sum(_bytes_within(entry, self.from_offset, self.below_offset) for entry in self.segments)


@dataclass(frozen=True, slots=True, kw_only=True)
class TailSlice:
    """A stretch of one partition that was in no segment when it was planned."""

    topic: SourceTopic
    partition: int
    from_offset: int
    below_offset: int


def slice_of(
    topic: SourceTopic, partition: int, entries: Iterable[SegmentEntry], *, from_offset: int, below_offset: int, min_timestamp_ms: int | None = None
) -> Slice:
    """The whole stretch as one slice, without the segments that are outside or too old."""
    return Slice(
        topic=topic,
        partition=partition,
        from_offset=from_offset,
        below_offset=below_offset,
        segments=tuple(entry for entry in entries if _is_wanted(entry, from_offset, below_offset, min_timestamp_ms)),
        min_timestamp_ms=min_timestamp_ms,
    )


def cut(slices: Sequence[Slice], *, target_bytes: int, tasks_min: int) -> list[tuple[Slice, ...]]:
    """Tasks of about `target_bytes`, less where they were fewer than `tasks_min`. Large segments are cut by offsets, small slices share a task."""
    total = sum(each.size_bytes for each in slices)
    target = min(target_bytes, max(TASK_BYTES_MIN, -(-total // tasks_min)))
    tasks: list[tuple[Slice, ...]] = []
    filling: list[Slice] = []
    filled = 0
    for piece in (piece for each in slices for piece in _pieces(each, target)):
        size = piece.size_bytes
        if filling and filled + size > target:
            tasks.append(tuple(filling))
            filling, filled = [], 0
        filling.append(piece)
        filled += size
    if filling:
        tasks.append(tuple(filling))
    return tasks


def _pieces(whole: Slice, target: int) -> Iterable[Slice]:
    """Of at most about `target` bytes. What lies between two of them is in neither: their segments were left out."""
    held: list[SegmentEntry] = []
    held_bytes = 0
    for entry in whole.segments:
        size = _bytes_within(entry, whole.from_offset, whole.below_offset)
        if held and held_bytes + size > target:
            yield _narrowed(whole, held)
            held, held_bytes = [], 0
        if size > target:
            yield from _split(_narrowed(whole, [entry]), -(-size // target))
            continue
        held.append(entry)
        held_bytes += size
    if held:
        yield _narrowed(whole, held)


def _narrowed(whole: Slice, entries: Sequence[SegmentEntry]) -> Slice:
    from_offset = max(whole.from_offset, entries[0].base_offset)
    below_offset = min(whole.below_offset, entries[-1].last_offset + 1)
    return replace(whole, from_offset=from_offset, below_offset=below_offset, segments=tuple(entries))


def _split(piece: Slice, parts: int) -> Iterable[Slice]:
    span = piece.below_offset - piece.from_offset
    parts = min(parts, span)
    bounds = [piece.from_offset + span * index // parts for index in range(parts + 1)]
    for start, end in pairwise(bounds):
        yield replace(piece, from_offset=start, below_offset=end)


def _is_wanted(entry: SegmentEntry, from_offset: int, below_offset: int, min_timestamp_ms: int | None) -> bool:
    # The least timestamp says nothing here: it is that of the batches' first records, and others may be older.
    is_old = min_timestamp_ms is not None and entry.max_timestamp_ms < min_timestamp_ms
    return entry.last_offset >= from_offset and entry.base_offset < below_offset and not is_old


def _bytes_within(entry: SegmentEntry, from_offset: int, below_offset: int) -> int:
    offsets = entry.last_offset + 1 - entry.base_offset
    inside = min(below_offset, entry.last_offset + 1) - max(from_offset, entry.base_offset)
    return max(1, entry.length * inside // offsets) if inside > 0 else 0

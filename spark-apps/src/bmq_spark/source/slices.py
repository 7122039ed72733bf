"""How a log is cut for Spark: from offsets and segments to slices, and from slices to tasks of about the same size.
Pure.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from bmq.storage.segment import SegmentEntry
from bmq.values import TopicId, TopicPartition

TASK_BYTES_MIN: Final = 4 << 20
"""However many cores there are: a task costs some milliseconds."""
_SLACK: Final = 8
"""A task may be larger or smaller than the others by this part of it, where that saves reading a segment in two."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceTopic:
    """A topic as it is read: `name` as its clients call it, the lane that its records are in ("": none), id and number
    of partitions.

    `first_offset`: where its partitions began.
    """

    name: str
    lane: str
    topic_id: TopicId
    partition_count: int
    first_offset: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Narrowing:
    """What a query's filters leave. None: all."""

    topics: frozenset[str] | None = None
    partitions: frozenset[int] | None = None
    from_offset: int = 0
    below_offset: int = 1 << 63
    min_timestamp_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """A stretch of one partition, from an offset and below another, in consecutive segments. `segments` are manifest
    entries.

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


Piece: TypeAlias = Slice | TailSlice


def slice_of(
    topic: SourceTopic,
    partition: int,
    entries: Iterable[SegmentEntry],
    *,
    from_offset: int,
    below_offset: int,
    min_timestamp_ms: int | None = None,
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
    """Tasks of about the same size, at most about `target_bytes`: `tasks_min` or a multiple of it, less where they were
    tiny then.

    The bytes of all slices are cut at even distances. A segment on such a cut is read by two tasks, unless nearly all
    of it is on one side.
    """
    total = sum(each.size_bytes for each in slices)
    target = min(target_bytes, max(TASK_BYTES_MIN, -(-total // tasks_min)))
    count = -(-total // target)
    if count > tasks_min:
        count = -(-count // tasks_min) * tasks_min  # as many on one core as on another
    slack = target // _SLACK
    tasks: list[list[Slice]] = [[]]
    cuts = done = 0
    for piece in (_narrowed(each, [entry]) for each in slices for entry in each.segments):
        rest: Slice | None = piece
        while rest is not None:
            while (room := total * (cuts + 1) // count - done) <= slack and cuts + 1 < count:
                cuts += 1
                if tasks[-1]:
                    tasks.append([])
            head, rest = _split(rest, room) if rest.size_bytes > room + slack and cuts + 1 < count else (rest, None)
            done += head.size_bytes
            _add(tasks[-1], head)
    return [tuple(task) for task in tasks if task]


def _add(task: list[Slice], piece: Slice) -> None:
    """Puts a piece behind the others: into the last one where both are of one stretch. What lies between them is in no
    segment that is wanted.
    """
    last = task[-1] if task else None
    if (
        last is not None
        and (last.topic, last.partition) == (piece.topic, piece.partition)
        and last.below_offset <= piece.from_offset
    ):
        further = tuple(entry for entry in piece.segments if entry != last.segments[-1])
        task[-1] = replace(last, below_offset=piece.below_offset, segments=last.segments + further)
    else:
        task.append(piece)


def _narrowed(whole: Slice, entries: Sequence[SegmentEntry]) -> Slice:
    from_offset = max(whole.from_offset, entries[0].base_offset)
    below_offset = min(whole.below_offset, entries[-1].last_offset + 1)
    return replace(whole, from_offset=from_offset, below_offset=below_offset, segments=tuple(entries))


def _split(piece: Slice, size_bytes: int) -> tuple[Slice, Slice | None]:
    """About so many bytes, by offsets, and the rest."""
    span = piece.below_offset - piece.from_offset
    at = piece.from_offset + min(span, max(1, round(span * size_bytes / piece.size_bytes)))
    return replace(piece, below_offset=at), replace(piece, from_offset=at) if at < piece.below_offset else None


def _is_wanted(entry: SegmentEntry, from_offset: int, below_offset: int, min_timestamp_ms: int | None) -> bool:
    # The least timestamp says nothing here: it is that of the batches' first records, and others may be older.
    is_old = min_timestamp_ms is not None and entry.max_timestamp_ms < min_timestamp_ms
    return entry.last_offset >= from_offset and entry.base_offset < below_offset and not is_old


def _bytes_within(entry: SegmentEntry, from_offset: int, below_offset: int) -> int:
    offsets = entry.last_offset + 1 - entry.base_offset
    inside = min(below_offset, entry.last_offset + 1) - max(from_offset, entry.base_offset)
    return max(1, entry.length * inside // offsets) if inside > 0 else 0

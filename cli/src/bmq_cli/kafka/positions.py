"""From a position to offsets, and when a reader without --follow is done. Pure."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import assert_never

from bmq_cli.terminal.times import AtOffset, AtTime, BeforeEnd, Beginning, End, Position

PartitionKey = tuple[str, int]
"""Topic and partition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Where a partition begins (log start) and ends (high watermark)."""

    start: int
    end: int

    def clamp(self, offset: int) -> int:
        """The nearest offset that can be read from."""
        return max(self.start, min(offset, self.end))


def resolve(
    position: Position,
    bounds: Mapping[PartitionKey, Bounds],
    at_time: Callable[[int], Mapping[PartitionKey, int]],
) -> dict[PartitionKey, int]:
    """The offset that `position` means in each partition, always within its bounds.

    `at_time` looks up the first offset at or after a timestamp, −1 where there is none: that is the end.
    """
    match position:
        case Beginning():
            return {key: bound.start for key, bound in bounds.items()}
        case End():
            return {key: bound.end for key, bound in bounds.items()}
        case AtOffset(offset):
            return {key: bound.clamp(offset) for key, bound in bounds.items()}
        case BeforeEnd(count):
            return {key: bound.clamp(bound.end - count) for key, bound in bounds.items()}
        case AtTime(timestamp_ms):
            found = at_time(timestamp_ms)
            return {key: bound.clamp(found[key]) if found[key] >= 0 else bound.end for key, bound in bounds.items()}
        case _:
            assert_never(position)


class Ends:
    """Where each partition ended at the start, and which of the assigned ones have been read up to there."""

    def __init__(self, ends: Mapping[PartitionKey, int]) -> None:
        self._ends = dict(ends)
        self._open: set[PartitionKey] | None = None

    @property
    def reached(self) -> bool:
        """Whether partitions were assigned and all of them are read."""
        return self._open is not None and not self._open

    def assigned(self, starts: Iterable[tuple[PartitionKey, int]]) -> None:
        """These partitions are read from these offsets now."""
        self._open = {key for key, start in starts if start < self._ends.get(key, 0)}

    def revoked(self, keys: Iterable[PartitionKey]) -> None:
        """These are somebody else's; the next assignment says what is left."""
        self._open = None

    def wanted(self, topic: str, partition: int, offset: int) -> bool:
        """Whether the record was there at the start."""
        return offset < self._ends.get((topic, partition), 0)

    def read(self, topic: str, partition: int, offset: int) -> None:
        """The record at `offset` was read."""
        if offset + 1 >= self._ends.get((topic, partition), 0):
            self.at_end(topic, partition)

    def at_end(self, topic: str, partition: int) -> None:
        """The partition's end was met: what is missing below the old end are not records (markers, or compacted
        away).
        """
        if self._open is not None:
            self._open.discard((topic, partition))

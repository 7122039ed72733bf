"""What may be wrong with the records of a partition between those who sent them, the log, and those who read it: lost,
doubled, reordered, invented, passed over, or told of too late. Pure, and the same for the simulator and for chaos on
real processes, which differ in what they remember of a run.

A record is told from all others by something that can be hashed: its bytes, or a number of its sender and its own.
Times are whatever grows: turns, or seconds.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator
from itertools import accumulate
from typing import Final, TypeVar

Record = TypeVar("Record", bound=Hashable)
Where = TypeVar("Where")
_MARKS_AT_ONCE: Final = 4096


def not_there(
    acknowledged: Iterable[tuple[Where, Record]], at: Callable[[Where], Record | None]
) -> Iterator[tuple[Where, Record, Record | None]]:
    """Lost or changed: (where, what was acknowledged there, what the log has there)."""
    for where, record in acknowledged:
        found = at(where)
        if found != record:
            yield where, record, found


def doubled(found: Iterable[Record]) -> dict[Record, int]:
    """How often those are in a log that are in it more than once."""
    return {record: count for record, count in Counter(found).items() if count > 1}


def reordered(found: Iterable[int]) -> Iterator[tuple[int, int]]:
    """For records that were sent in the order of their numbers: (the greatest before it, it) for each that a log has
    behind a later one. The same one again is doubled, not reordered.
    """
    newest = -1
    for number in found:
        if number < newest:
            yield newest, number
        newest = max(newest, number)


def missing_before(found: Iterable[int]) -> list[int]:
    """Which of the records that were sent in the order of their numbers, from 0, a log does not have although it has a
    later one.
    """
    there = set(found)
    return [number for number in range(max(there, default=0)) if number not in there]


def invented(found: Iterable[tuple[int, Record]], sent: Collection[Record]) -> Iterator[tuple[int, Record]]:
    """(offset, record) of those in a log that nobody sent to it."""
    return ((offset, record) for offset, record in found if record not in sent)


class Following:
    """The offsets that one reader gets, by partition, as they come."""

    def __init__(self) -> None:
        self._due: dict[Hashable, int] = {}

    def begins(self, partition: Hashable, offset: int | None = None) -> None:
        """There, or, without an offset, wherever its next one is."""
        if offset is None:
            self._due.pop(partition, None)
        else:
            self._due[partition] = offset

    def due(self, partition: Hashable) -> int:
        """The next one; 0 where it has got none."""
        return self._due.get(partition, 0)

    def breaks(self, partition: Hashable, offset: int) -> int | None:
        """Takes the next one. The one that was due, where this is another: smaller, it went back; greater, it passed
        some over.
        """
        due = self._due.get(partition, offset)
        self._due[partition] = offset + 1
        return due if offset != due else None


class Given:
    """Which offsets of a partition were given to somebody. A byte for each."""

    def __init__(self) -> None:
        self._marks = bytearray()

    def add(self, offset: int) -> None:
        """It was."""
        if len(self._marks) <= offset:
            self._marks.extend(bytes(max(offset + 1 - len(self._marks), _MARKS_AT_ONCE)))
        self._marks[offset] = 1

    def passed_over(self, start: int, end: int) -> list[int]:
        """Those from `start` on and below `end` that were given to nobody."""
        marks = bytes(self._marks[:end]).ljust(end, b"\0")
        return [offset for offset in range(start, end) if not marks[offset]]


class Reached:
    """How far something was known to have come, and when that was told: (time, offset) each."""

    def __init__(self, told: Iterable[tuple[float, int]]) -> None:
        known = sorted(told)
        self._times = [time for time, _ in known]
        self._offsets = list(accumulate((offset for _, offset in known), max))

    def before(self, time: float, default: int = 0) -> int:
        """The greatest offset that was told before: whoever is asked then must not say less."""
        index = bisect_left(self._times, time)
        return self._offsets[index - 1] if index else default

    def in_the_end(self, default: int = 0) -> int:
        """The greatest of all."""
        return self._offsets[-1] if self._offsets else default


def runs(offsets: Iterable[int]) -> str:
    """For people: `0-4, 7, 9-10`."""
    found: list[list[int]] = []
    for offset in offsets:
        if found and offset == found[-1][1] + 1:
            found[-1][1] = offset
        else:
            found.append([offset, offset])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in found) or "none"

"""Places in topics, and what a batch may add to a table that has some of it already. Pure.

A place is the next offset of a partition: everything below it is done. The table's own places win over whatever Spark's
checkpoint says: a batch adds what lies between the table's place and the batch's end, so nothing is added twice, and
nothing is passed over unseen.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from bmq_spark.errors import BmqError

Places = Mapping[str, Mapping[int, int]]
Counts = Mapping[tuple[str, int], int]
"""How many records, by topic and partition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """Offsets of a partition from `start` up to, without, `end`."""

    topic: str
    partition: int
    start: int
    end: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition} {self.start}–{self.end - 1}"

    @property
    def count(self) -> int:
        """How many offsets that is; of a log with gaps records are fewer."""
        return max(0, self.end - self.start)


def each(places: Places) -> Iterator[tuple[str, int, int]]:
    """Topic, partition, offset, in order."""
    for topic in sorted(places):
        for partition in sorted(places[topic]):
            yield topic, partition, places[topic][partition]


def place(places: Places, topic: str, partition: int) -> int | None:
    """None where the partition is not in it."""
    return places.get(topic, {}).get(partition)


def merged(first: Places, over: Places) -> dict[str, dict[int, int]]:
    """Both; where both have a partition, the second's."""
    result = {topic: dict(partitions) for topic, partitions in first.items()}
    for topic, partitions in over.items():
        result.setdefault(topic, {}).update(partitions)
    return result


def ahead(have: Places, ends: Places) -> dict[str, dict[int, int]]:
    """`ends`, but where `have` is further it stays there: a place never goes back."""
    return {
        topic: {number: max(end, place(have, topic, number) or 0) for number, end in partitions.items()}
        for topic, partitions in ends.items()
    }


def ends_of(ranges: Iterable[Range]) -> dict[str, dict[int, int]]:
    """Where the ranges end."""
    result: dict[str, dict[int, int]] = {}
    for part in ranges:
        result.setdefault(part.topic, {})[part.partition] = part.end
    return result


def to_json(places: Places) -> str:
    """As Spark's Kafka connector writes it."""
    return json.dumps(
        {
            topic: {str(number): offset for number, offset in sorted(found.items())}
            for topic, found in sorted(places.items())
        }
    )


def from_json(text: str) -> dict[str, dict[int, int]]:
    """Either source's way of writing them. Raises BmqError where it is something else."""
    try:
        partitions = {str(topic): found.get("partitions", found) for topic, found in json.loads(text).items()}
        return {
            topic: {int(number): int(offset) for number, offset in found.items()} for topic, found in partitions.items()
        }
    except (ValueError, AttributeError, TypeError) as error:
        raise BmqError(f"places {text[:100]!r}: not what a job wrote") from error


def to_add(*, start: Places, end: Places, table: Places) -> tuple[list[Range], list[Range]]:
    """What a batch from `start` to `end` adds to a table at `table`, and the holes that it would leave.

    A hole is what lies between the table's place and the batch's start: somebody has to have said that it may be lost.
    """
    adds, holes = [], []
    for topic, partition, stop in each(end):
        begin = place(start, topic, partition)
        have = place(table, topic, partition)
        begin = begin if begin is not None else (have if have is not None else 0)
        if have is not None and begin > have:
            holes.append(Range(topic=topic, partition=partition, start=have, end=begin))
        first = begin if have is None else max(begin, have)
        if stop > first:
            adds.append(Range(topic=topic, partition=partition, start=first, end=stop))
    return adds, holes

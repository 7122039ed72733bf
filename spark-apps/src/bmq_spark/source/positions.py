"""A stream's offsets, as its checkpoint keeps them, and how far a trigger goes. Pure.

{topic: {"id": topic id, "partitions": {partition: the offset of the next record to be read}}}
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias
from uuid import UUID

from bmq.storage.segment import SegmentEntry
from bmq_spark.source.failures import TopicGone
from bmq_spark.source.slices import SourceTopic

Positions: TypeAlias = dict[str, dict[str, object]]
"""What Spark keeps as JSON."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """What there is to read of one partition: from where on, and up to where. `segments` hold it as far as it is in
    any.
    """

    topic: str
    partition: int
    from_offset: int
    end: int
    segments: Sequence[SegmentEntry] = ()


def positions_of(topics: Sequence[SourceTopic], offsets: Mapping[tuple[str, int], int]) -> Positions:
    """The JSON of these offsets, by topic's name and partition."""
    return {
        topic.name: {
            "id": str(topic.topic_id),
            "partitions": {str(p): offsets[topic.name, p] for p in range(topic.partition_count)},
        }
        for topic in topics
    }


def offset_in(positions: Positions, topic: str, partition: int) -> int | None:
    """None where there is no such partition."""
    inner = positions.get(topic, {}).get("partitions", {})
    assert isinstance(inner, dict)
    found = inner.get(str(partition))
    return None if found is None else int(found)


def reached(positions: Positions, end: Positions) -> bool:
    """Whether a stream has read everything below `end`."""
    for topic, found in end.items():
        inner = found["partitions"]
        assert isinstance(inner, dict)
        if any((offset_in(positions, topic, int(number)) or 0) < int(offset) for number, offset in inner.items()):
            return False
    return True


def check_ids(positions: Positions, topics: Sequence[SourceTopic]) -> None:
    """Raises TopicGone where a topic is not the one that the positions are of."""
    for topic in topics:
        if topic.name in positions and UUID(str(positions[topic.name]["id"])) != topic.topic_id:
            raise TopicGone(
                f"topic {topic.name}: it was deleted and made again: the checkpoint is of "
                f"{positions[topic.name]['id']}, now it is {topic.topic_id}: start with a new checkpoint, and a "
                "new table"
            )
    known = {topic.name for topic in topics}
    for name in positions:
        if name not in known:
            raise TopicGone(
                f"topic {name}: the checkpoint has it and the option topic does not, or it is gone: name the "
                "topics it was begun with"
            )


def limited(
    backlogs: Sequence[Backlog], *, bytes_max: int | None, records_max: int | None
) -> dict[tuple[str, int], int]:
    """Up to where one trigger reads, by topic's name and partition: each partition gets a share of the limits by what
    waits in it.

    Each in which something waits gets on by one record at least, however much waits in others: these may never be done.
    What is in no segment yet comes when all that is in segments fits.
    """
    ends = {(each.topic, each.partition): each.end for each in backlogs}
    if records_max is not None and sum(each.end - each.from_offset for each in backlogs) > records_max:
        ends = _shared(backlogs, ends, records_max, [each.end - each.from_offset for each in backlogs], by_bytes=False)
    if bytes_max is not None:
        sizes = [sum(_weight(entry, each.from_offset, each.end) for entry in each.segments) for each in backlogs]
        if sum(sizes) > bytes_max:
            ends = _shared(backlogs, ends, bytes_max, sizes, by_bytes=True)
    return ends


def _shared(
    backlogs: Sequence[Backlog],
    ends: Mapping[tuple[str, int], int],
    budget: int,
    sizes: Sequence[int],
    *,
    by_bytes: bool,
) -> dict[tuple[str, int], int]:
    total = sum(sizes)
    found = {}
    for each, size in zip(backlogs, sizes, strict=True):
        share = budget * size // total
        end = _end_by_bytes(each, share) if by_bytes else each.from_offset + share
        if size:
            end = max(end, each.from_offset + 1)
        found[each.topic, each.partition] = min(end, ends[each.topic, each.partition])
    return found


def _end_by_bytes(backlog: Backlog, share: int) -> int:
    end = backlog.from_offset
    for entry in backlog.segments:
        first = max(entry.base_offset, backlog.from_offset)
        below = min(entry.last_offset + 1, backlog.end)
        size = _weight(entry, backlog.from_offset, backlog.end)
        if below <= first:
            continue
        if size > share:
            return first + (below - first) * share // size
        share -= size
        end = below
    return end


def _weight(entry: SegmentEntry, from_offset: int, end: int) -> int:
    """About how many bytes of the run are between two offsets."""
    inside = min(end, entry.last_offset + 1) - max(from_offset, entry.base_offset)
    return entry.length * max(0, inside) // (entry.last_offset + 1 - entry.base_offset)

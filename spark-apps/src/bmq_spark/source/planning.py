"""From options to slices: which topics, which offsets of them, and which segments these are in. Reads metadata and
manifests, never a broker.

Requests: two to five for the metadata, two for each partition, one for each manifest page in range, and for a time one
index and one block for each partition. A segment costs none, however many there are.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from bmq.values import TopicPartition
from bmq.wire.special_timestamps import EARLIEST, LATEST
from bmq_spark.source.failures import SourceFailed
from bmq_spark.source.logs import LogPart, read_logs
from bmq_spark.source.opening import OpenedStore, opened
from bmq_spark.source.options import Bound, SourceOptions
from bmq_spark.source.reading import lost
from bmq_spark.source.slices import Narrowing, Piece, SourceTopic, TailSlice, slice_of
from bmq_spark.source.times import offset_at
from bmq_spark.source.topics import Topics, check_cluster, find_topics

OFFSETS_END: Final = 1 << 63


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionEnd:
    """A partition's log, and where it ends for this query: with its segments, or with what the brokers have besides."""

    log: LogPart
    end: int


class Planner:
    """Plans what one query reads. Remembers the metadata between calls."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self.store: OpenedStore = opened(options.store)
        self._topics = Topics(self.store)
        self._brokers_checked = self._named_checked = False

    def topics(self) -> list[SourceTopic]:
        """The topics as they are now. Raises SourceFailed, also where offsets are given of what is not read."""
        image = self._topics.image()
        check_cluster(image, self._options.cluster_id, url=self.store.url)
        if self._options.tail == "protocol" and not self._brokers_checked:
            self._options.brokers.check_cluster(image.cluster_id)
            self._brokers_checked = True
        topics = find_topics(image, self._options.topics, lane=self._options.lane)
        if not self._named_checked:
            _check_named(self._options.starting, self._options.topics, topics, "startingOffsets")
            _check_named(self._options.ending, self._options.topics, topics, "endingOffsets")
            self._named_checked = True
        return topics

    def logs(
        self, topics: Sequence[SourceTopic], *, after: Mapping[tuple[str, int], int] | None = None
    ) -> dict[tuple[str, int], PartitionEnd]:
        """Every partition's log as it is now, by topic's name and partition; of its entries those from `after` on.
        Raises SourceFailed.
        """
        places = [(topic, number) for topic in topics for number in range(topic.partition_count)]
        begin = after or {}
        wanted = {
            TopicPartition(topic.topic_id, number): (begin.get((topic.name, number), 0), OFFSETS_END)
            for topic, number in places
        }
        # Watermarks first: a log is rolled meanwhile, and never shrinks.
        marks = self._options.brokers.ends(places) if self._options.tail == "protocol" else {}
        found = read_logs(self.store, wanted, {topic.topic_id: topic.first_offset for topic in topics})
        logs = {(topic.name, number): found[TopicPartition(topic.topic_id, number)] for topic, number in places}
        return {place: PartitionEnd(log=log, end=max(log.end, marks.get(place, 0))) for place, log in logs.items()}

    def slices(self, narrowing: Narrowing) -> list[Piece]:
        """What a batch query reads. Raises SourceFailed."""
        topics = [topic for topic in self.topics() if narrowing.topics is None or topic.name in narrowing.topics]
        logs = self.logs(topics)
        pieces: list[Piece] = []
        for topic in topics:
            for number in range(topic.partition_count):
                if narrowing.partitions is not None and number not in narrowing.partitions:
                    continue
                log = logs[topic.name, number]
                start = max(self.start_of(topic, number, log), narrowing.from_offset)
                below = min(self.end_of(topic, number, log), narrowing.below_offset)
                pieces += self.pieces(topic, number, log.log, start, below, min_timestamp_ms=narrowing.min_timestamp_ms)
        return pieces

    def pieces(
        self,
        topic: SourceTopic,
        partition: int,
        log: LogPart,
        from_offset: int,
        below: int,
        *,
        min_timestamp_ms: int | None = None,
    ) -> list[Piece]:
        """What is in segments, and what is not yet. Raises RecordsGone where the beginning was deleted."""
        if from_offset < log.log_start and from_offset < below:
            place = f"topic {topic.name}, partition {partition}"
            lost(
                place,
                from_offset,
                min(log.log_start, below),
                log.log_start,
                fail_on_data_loss=self._options.fail_on_data_loss,
            )
            from_offset = log.log_start
        stored_below = min(below, log.end)
        pieces: list[Piece] = []
        if from_offset < stored_below:
            piece = slice_of(
                topic,
                partition,
                log.entries,
                from_offset=from_offset,
                below_offset=stored_below,
                min_timestamp_ms=min_timestamp_ms,
            )
            pieces += [piece] if piece.segments else []
        if (tail_from := max(from_offset, log.end)) < below:
            pieces.append(TailSlice(topic=topic, partition=partition, from_offset=tail_from, below_offset=below))
        return pieces

    def start_of(self, topic: SourceTopic, partition: int, log: PartitionEnd) -> int:
        """Where a new query begins in a partition. Raises SourceFailed."""
        if self._options.starting_ms is not None:
            return self._at_time(topic, partition, log, self._options.starting_ms)
        offset = _named(self._options.starting, topic.name, partition, EARLIEST)
        if offset > log.end:
            raise SourceFailed(
                f"option startingOffsets: topic {topic.name}, partition {partition} begins at {offset}, "
                f"{self._ends} {log.end}: name an offset that there is, or latest"
            )
        return {EARLIEST: log.log.log_start, LATEST: log.end}.get(offset, offset)

    def end_of(self, topic: SourceTopic, partition: int, log: PartitionEnd) -> int:
        """Where a query ends in a partition. Raises SourceFailed."""
        if self._options.ending_ms is not None:
            return self._at_time(topic, partition, log, self._options.ending_ms)
        offset = _named(self._options.ending, topic.name, partition, LATEST)
        if offset > log.end:
            remedy = (
                "read later"
                if self._options.tail == "protocol"
                else "newer records are still with the broker: set tail=protocol, or read later"
            )
            raise SourceFailed(
                f"option endingOffsets: topic {topic.name}, partition {partition} ends before {offset}, "
                f"{self._ends} {log.end}: {remedy}"
            )
        return {EARLIEST: log.log.log_start, LATEST: log.end}.get(offset, offset)

    @property
    def _ends(self) -> str:
        return "it ends at" if self._options.tail == "protocol" else "its segments end at"

    def _at_time(self, topic: SourceTopic, partition: int, log: PartitionEnd, timestamp_ms: int) -> int:
        found = self.store.run(offset_at(self.store, TopicPartition(topic.topic_id, partition), log.log, timestamp_ms))
        if found is None and log.end > log.log.end:
            found = self._options.brokers.offset_at(topic.name, partition, timestamp_ms)
        return log.end if found is None else min(found, log.end)


def _named(bound: Bound, topic: str, partition: int, default: int) -> int:
    """What the option says of a partition; the default where it names others alone."""
    return bound if isinstance(bound, int) else bound.get(topic, {}).get(partition, default)


def _check_named(bound: Bound, read: Sequence[str], topics: Sequence[SourceTopic], name: str) -> None:
    """`topics`: those of `read` that have records; of the others, which a lane has not written to yet, nothing is
    known.
    """
    if isinstance(bound, int):
        return
    by_name = {topic.name: topic for topic in topics}
    for topic, partitions in bound.items():
        if topic not in read:
            raise SourceFailed(
                f"option {name}: topic {topic} is not among those that are read: {', '.join(read)}: name one of these"
            )
        if topic in by_name and (
            unknown := [number for number in partitions if number >= by_name[topic].partition_count]
        ):
            raise SourceFailed(
                f"option {name}: topic {topic} has no partition {unknown[0]}: it has 0 to "
                f"{by_name[topic].partition_count - 1}"
            )

"""From options to slices: which topics, which offsets of them, and which segments these are in. Reads metadata and manifests, never a broker.

Requests: two to five for the metadata, two for each partition, one for each manifest page in range, and for a time one index and one block
for each partition. A segment costs none, however many there are.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from bmq.storage.manifest import Manifest
from bmq.values import TopicPartition
from bmq_spark.source.failures import SourceFailed
from bmq_spark.source.logs import LogPart, read_logs
from bmq_spark.source.opening import OpenedStore, opened
from bmq_spark.source.options import EARLIEST, LATEST, Bound, SourceOptions
from bmq_spark.source.reading import lost
from bmq_spark.source.slices import Slice, slice_of
from bmq_spark.source.times import offset_at
from bmq_spark.source.topics import SourceTopic, Topics, check_cluster, find_topics

EVERY_OFFSET = (0, 1 << 63)


@dataclass(frozen=True, slots=True, kw_only=True)
class Narrowing:
    """What a query's filters leave. None: all."""

    topics: frozenset[str] | None = None
    partitions: frozenset[int] | None = None
    from_offset: int = 0
    below_offset: int = 1 << 63
    min_timestamp_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """From an offset and below another, of one partition."""

    topic: SourceTopic
    partition: int
    from_offset: int
    below_offset: int
    log: LogPart = field(default=LogPart(manifest=Manifest(), entries=()))

    @property
    def tp(self) -> TopicPartition:
        """The partition by its topic's id."""
        return TopicPartition(self.topic.topic_id, self.partition)

    @property
    def place(self) -> str:
        """How messages name it."""
        return f"topic {self.topic.name}, partition {self.partition}"


class Planner:
    """Of one query. Remembers the metadata between calls."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self.store: OpenedStore = opened(options.store)
        self._topics = Topics(self.store)

    def topics(self) -> list[SourceTopic]:
        """The topics as they are now. Raises SourceFailed."""
        image = self._topics.image()
        check_cluster(image, self._options.cluster_id, url=self.store.url)
        return find_topics(image, self._options.topics, lane=self._options.lane)

    def slices(self, narrowing: Narrowing) -> list[Slice]:
        """What a batch query reads. Raises SourceFailed."""
        options = self._options
        found = []
        for stretch in self.stretches(narrowing):
            from_offset = max(stretch.from_offset, narrowing.from_offset)
            below = min(stretch.below_offset, narrowing.below_offset, stretch.log.end)
            if from_offset < stretch.log.log_start < below:  # only where options name it: else it begins there
                lost(stretch.place, from_offset, stretch.log.log_start, stretch.log.log_start, fail_on_data_loss=options.fail_on_data_loss)
                from_offset = stretch.log.log_start
            if from_offset < below:
                found.append(_sliced(stretch, from_offset, below, narrowing.min_timestamp_ms))
        return [each for each in found if each.segments]

    def stretches(self, narrowing: Narrowing) -> list[Stretch]:
        """Where a batch query begins and ends in each partition, by its options alone; with the log's entries."""
        topics = [topic for topic in self.topics() if narrowing.topics is None or topic.name in narrowing.topics]
        _check_named(self._options.starting, topics, "startingOffsets")
        _check_named(self._options.ending, topics, "endingOffsets")
        places = [
            (topic, number)
            for topic in topics
            for number in range(topic.partition_count)
            if narrowing.partitions is None or number in narrowing.partitions
        ]
        logs = self.logs({TopicPartition(topic.topic_id, number): EVERY_OFFSET for topic, number in places})
        found = []
        for topic, number in places:
            log = logs[TopicPartition(topic.topic_id, number)]
            start, end = self._start(topic, number, log), self._end(topic, number, log)
            found.append(Stretch(topic=topic, partition=number, from_offset=start, below_offset=end, log=log))
        return found

    def logs(self, wanted: Mapping[TopicPartition, tuple[int, int]]) -> dict[TopicPartition, LogPart]:
        """See logs.read_logs."""
        return read_logs(self.store, wanted)

    def start_of(self, topic: SourceTopic, partition: int, log: LogPart) -> int:
        """Where a new query begins in a partition."""
        return self._start(topic, partition, log)

    def _start(self, topic: SourceTopic, partition: int, log: LogPart) -> int:
        if self._options.starting_ms is not None:
            found = self._at_time(topic, partition, log, self._options.starting_ms)
            return log.end if found is None else found
        offset = _named(self._options.starting, topic.name, partition, EARLIEST)
        if offset > log.end:
            raise SourceFailed(
                f"option startingOffsets: topic {topic.name}, partition {partition} begins at {offset}, its segments end at {log.end}: "
                "name an offset that there is, or latest"
            )
        return {EARLIEST: log.log_start, LATEST: log.end}.get(offset, offset)

    def _end(self, topic: SourceTopic, partition: int, log: LogPart) -> int:
        if self._options.ending_ms is not None:
            found = self._at_time(topic, partition, log, self._options.ending_ms)
            return log.end if found is None else found
        offset = _named(self._options.ending, topic.name, partition, LATEST)
        if offset > log.end:
            raise SourceFailed(
                f"option endingOffsets: topic {topic.name}, partition {partition} ends before {offset}, its segments end at {log.end}: "
                "newer records are still with the broker: set tail=protocol, or read later"
            )
        return {EARLIEST: log.log_start, LATEST: log.end}.get(offset, offset)

    def _at_time(self, topic: SourceTopic, partition: int, log: LogPart, timestamp_ms: int) -> int | None:
        return self.store.run(offset_at(self.store, TopicPartition(topic.topic_id, partition), log, timestamp_ms))


def _sliced(stretch: Stretch, from_offset: int, below: int, min_timestamp_ms: int | None) -> Slice:
    return slice_of(
        stretch.topic,
        stretch.partition,
        stretch.log.entries,
        from_offset=from_offset,
        below_offset=below,
        min_timestamp_ms=min_timestamp_ms,
    )


def _named(bound: Bound, topic: str, partition: int, default: int) -> int:
    """What the option says of a partition; the default where it names others alone."""
    return bound if isinstance(bound, int) else bound.get(topic, {}).get(partition, default)


def _check_named(bound: Bound, topics: Sequence[SourceTopic], name: str) -> None:
    if isinstance(bound, int):
        return
    by_name = {topic.name: topic for topic in topics}
    for topic, partitions in bound.items():
        if topic in by_name and (unknown := [number for number in partitions if not 0 <= number < by_name[topic].partition_count]):
            raise SourceFailed(f"option {name}: topic {topic} has no partition {unknown[0]}: it has 0 to {by_name[topic].partition_count - 1}")

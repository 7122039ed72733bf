"""How far consumer groups are behind, from the broker's memory: no request to the store, no record opened.

In seconds: how long the first unread record has been there. For the tail that is when its WAL object's batch came; for a segment it is
interpolated between the timestamps of the segment's first and last records.
"""

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from bmq.metadata.image import Image
from bmq.ports import Clock
from bmq.roles.controller import Metadata
from bmq.values import TopicPartition
from bmq_broker.coordinators import Coordinators
from bmq_broker.ownership import Ownership
from bmq_broker.partitions.partition import Partition

SERIES_MAX = 50_000
"""Group, topic and partition triples that are exposed; further ones are counted only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLag:
    """One group's lag in one partition that this broker owns."""

    group_id: str
    topic: str
    partition: int
    records: int
    seconds: float


def lag_seconds(partition: Partition, offset: int, *, now_ms: int) -> float:
    """How long the record at `offset` (or the next one that there is) has been there; 0 where everything is read."""
    if offset >= partition.high_watermark:
        return 0.0
    offset = max(offset, partition.log_start)
    if offset >= partition.tail_start:
        runs = partition.tail.runs
        at = bisect_right(runs, offset, key=lambda run: run.base_offset) - 1
        return max(0.0, (now_ms - runs[max(at, 0)].since_ms) / 1000) if runs else 0.0
    part = partition.manifest.entry_for_offset(offset)
    if part is None or part.min_timestamp_ms < 0:
        return 0.0
    share = (offset - part.base_offset) / (part.last_offset - part.base_offset + 1)
    return max(0.0, (now_ms - part.min_timestamp_ms - share * (part.max_timestamp_ms - part.min_timestamp_ms)) / 1000)


class GroupLags(Collector):
    """The lags of all groups whose coordinators and partitions are here, as metrics too."""

    def __init__(self, *, coordinators: Coordinators, ownership: Ownership, metadata: Metadata, clock: Clock) -> None:
        self._coordinators = coordinators
        self._ownership = ownership
        self._metadata = metadata
        self._clock = clock

    def current(self) -> Iterator[GroupLag]:
        """Partitions that nobody has opened yet are left out."""
        image = self._metadata.image
        now_ms = self._clock.now_ms()
        for (group_id, topic, index), (offset, _) in self._coordinators.group_offsets().items():
            partition = self._partition(image, topic, index)
            if partition is None:
                continue
            behind = max(0, partition.high_watermark - max(offset, partition.log_start))
            yield GroupLag(group_id=group_id, topic=topic, partition=index, records=behind, seconds=lag_seconds(partition, offset, now_ms=now_ms))

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """For prometheus_client."""
        labels = ["group", "topic", "partition"]
        records = GaugeMetricFamily("bmq_group_lag_records", "Records that a consumer group has not committed yet.", labels=labels)
        seconds = GaugeMetricFamily(
            "bmq_group_lag_seconds", "How long the first record that a group has not committed has been there.", labels=labels
        )
        left_out = 0
        for number, lag in enumerate(self.current()):
            if number >= SERIES_MAX:
                left_out += 1
                continue
            values = [lag.group_id, lag.topic, str(lag.partition)]
            records.add_metric(values, lag.records)
            seconds.add_metric(values, lag.seconds)
        yield records
        yield seconds
        yield GaugeMetricFamily("bmq_group_lag_series_left_out", f"Lags beyond the {SERIES_MAX} that are exposed.", value=left_out)

    def _partition(self, image: Image, topic: str, index: int) -> Partition | None:
        topic_id = image.topic_ids.get(topic)
        return None if topic_id is None else self._ownership.partitions.get(TopicPartition(topic_id, index))

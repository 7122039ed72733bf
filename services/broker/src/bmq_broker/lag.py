"""How far consumer groups are behind, from the brokers' memory: no request to the store, no record opened.

In seconds: how long the first unread record has been there. For the tail that is when its WAL object's batch came; for a segment it is
interpolated between the timestamps of the segment's first and last records.

A group's committed offsets are with its coordinator, and what lies behind them with the partitions' owners, which may be other brokers: they
are asked when somebody looks at the metrics, and at no other time.
"""

import asyncio
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from bmq.errors import BmqError
from bmq.lanes import BASE, lane_group, name_in_lane
from bmq.roles.controller import Metadata
from bmq.roles.owner import Owner, Position, Unread
from bmq.storage.durable import together
from bmq.values import Offset, TopicPartition
from bmq_broker.coordinators import Coordinators
from bmq_broker.partitions.partition import Partition
from bmq_broker.settings import LagMetrics

POSITIONS_MAX: Final = 50_000
"""Committed offsets that are looked at; further ones are counted only."""
POSITIONS_AT_ONCE: Final = 2_000
"""Asked of an owner in one call."""
ANSWER_WITHIN_S: Final = 2.0
FRESH_S: Final = 1.0
"""Whoever looks again so soon sees the same."""
KEPT_S: Final = 60.0
"""What an owner does not tell is taken to be as it was, for so long: a group is not seen to catch up because a broker is away."""

Key = tuple[str, str, int]


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


def unread(partition: Partition, offset: int, *, now_ms: int) -> Unread:
    """What lies behind an offset. Records that are deleted are nobody's lag."""
    records = max(0, partition.high_watermark - max(offset, partition.log_start))
    return Unread(records=records, seconds=lag_seconds(partition, offset, now_ms=now_ms))


@dataclass(frozen=True, slots=True)
class _Known:
    unread: Unread
    at_s: float

    def at(self, now_s: float) -> Unread:
        """As it would be now, with nothing read since."""
        if not self.unread.records:
            return self.unread
        return Unread(records=self.unread.records, seconds=self.unread.seconds + now_s - self.at_s)


class GroupLags(Collector):
    """The lags of all groups whose coordinators are here, as metrics. `refresh` asks; `collect` tells, from any thread, what was found."""

    def __init__(
        self, *, coordinators: Coordinators, metadata: Metadata, owner_for: Callable[[TopicPartition], Owner], granularity: LagMetrics
    ) -> None:
        self._coordinators = coordinators
        self._metadata = metadata
        self._owner_for = owner_for
        self._granularity = granularity
        self._known: dict[Key, _Known] = {}
        self._refreshing = asyncio.Lock()
        self._fresh_at_s = -FRESH_S
        self._families: tuple[GaugeMetricFamily, ...] = ()

    async def refresh(self) -> None:
        """Asks the owners; who comes while somebody asks waits for the same answers. Never raises BmqError."""
        if self._granularity == "off":
            return
        loop = asyncio.get_running_loop()
        async with self._refreshing:
            if loop.time() - self._fresh_at_s < FRESH_S:
                return
            offsets = {key: Offset(offset) for key, (offset, _) in self._coordinators.group_offsets().items()}
            asked = dict(list(offsets.items())[:POSITIONS_MAX])
            found = await self._ask(asked)
            now_s = loop.time()
            kept = {key: known for key, known in self._known.items() if key in asked and now_s - known.at_s < KEPT_S}
            self._known = kept | {key: _Known(one, now_s) for key, one in found.items()}
            self._fresh_at_s = now_s
            self._families = tuple(self._expose(now_s, left_out=len(offsets) - len(asked)))

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """For prometheus_client."""
        yield from self._families

    async def _ask(self, offsets: dict[Key, Offset]) -> dict[Key, Unread]:
        image = self._metadata.image
        shares: dict[int, tuple[Owner, list[tuple[Key, Position]]]] = {}
        for (group_id, name, index), offset in offsets.items():
            topic_id = image.topic_ids.get(name)
            if topic_id is None:
                continue
            position = Position(tp=TopicPartition(topic_id, index), offset=offset)
            try:
                owner = self._owner_for(position.tp)
            except BmqError:
                continue
            shares.setdefault(id(owner), (owner, []))[1].append(((group_id, name, index), position))
        answers = await together(_ask_owner(owner, theirs) for owner, theirs in shares.values())
        return {key: one for answer in answers for key, one in answer.items()}

    def _expose(self, now_s: float, *, left_out: int) -> Iterator[GaugeMetricFamily]:
        count = {"group": 2, "topic": 3, "partition": 4}[self._granularity]
        sums: dict[tuple[str, ...], tuple[int, float]] = {}
        for (group_id, topic, index), known in self._known.items():
            lane = lane_group(group_id)
            of_lane = (BASE, group_id) if lane is None else (lane.lane, lane.group_id)
            values = (*of_lane, name_in_lane(topic), str(index))[:count]
            now = known.at(now_s)
            records, seconds = sums.get(values, (0, 0.0))
            sums[values] = records + now.records, max(seconds, now.seconds)
        labels = ["lane", "group", "topic", "partition"][:count]
        in_records = GaugeMetricFamily("bmq_group_lag_records", "Records that a consumer group has not committed yet.", labels=labels)
        in_seconds = GaugeMetricFamily(
            "bmq_group_lag_seconds",
            "How long the first record that a group has not committed has been there; of several partitions the most.",
            labels=labels,
        )
        for values, (records, seconds) in sums.items():
            in_records.add_metric(values, records)
            in_seconds.add_metric(values, seconds)
        states = GaugeMetricFamily("bmq_groups", "Consumer groups whose coordinators are here, by state.", labels=["state"])
        for state, groups in self._coordinators.group_states().items():
            states.add_metric([state], groups)
        yield in_records
        yield in_seconds
        yield states
        yield GaugeMetricFamily("bmq_group_lag_left_out", f"Committed offsets beyond the {POSITIONS_MAX} whose lag is looked at.", value=left_out)


async def _ask_owner(owner: Owner, wanted: Sequence[tuple[Key, Position]]) -> dict[Key, Unread]:
    """What it tells in time; an older broker that does not know the question tells nothing."""
    found: dict[Key, Unread] = {}
    try:
        async with asyncio.timeout(ANSWER_WITHIN_S):
            for first in range(0, len(wanted), POSITIONS_AT_ONCE):
                part = wanted[first : first + POSITIONS_AT_ONCE]
                answers = await owner.unread([position for _, position in part])
                found.update((key, one) for (key, _), one in zip(part, answers, strict=True) if one is not None)
    except (BmqError, TimeoutError):
        pass
    return found

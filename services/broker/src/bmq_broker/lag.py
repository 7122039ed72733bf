"""How far consumer groups are behind, from the brokers' memory: no request to the store, no record opened.

In seconds: how long the first unread record has been there. For the tail that is when its WAL object's batch came; for
a segment it is interpolated between the timestamps of the segment's first and last records.

A group's committed offsets are with its coordinator, and what lies behind them with the partitions' owners, which may
be other brokers: they are asked when somebody looks at the metrics, and at no other time.
"""

import asyncio
import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from bmq.errors import BmqError
from bmq.naming.lanes import BASE, lane_group, name_in_lane
from bmq.roles.controller import Metadata
from bmq.roles.owner import Owner, Position, Unread
from bmq.storage.durable import together
from bmq.values import Offset, TopicPartition
from bmq_broker.hosted import Coordinators
from bmq_broker.partitions.partition import Partition
from bmq_broker.settings import LagMetrics

POSITIONS_MAX: Final = 50_000
"""Committed offsets that are looked at; further ones are counted only."""
NAME_CHARS_MAX: Final = 250
"""Groups with longer names are counted only: a page of metrics has each name in a line for each of its partitions,
twice."""
POSITIONS_AT_ONCE: Final = 500
"""Asked of an owner in one call, or looked at in one turn of the event loop."""
GROUPS_AT_ONCE: Final = 2_000
"""Looked at in one turn."""
ANSWER_WITHIN_S: Final = 2.0
FRESH_S: Final = 1.0
"""Whoever looks again so soon sees the same."""
KEPT_S: Final = 60.0
"""What an owner does not tell is taken to be as it was, for so long: a group is not seen to catch up because a broker
is away."""

Key = tuple[str, str, int]

_LAG_LABELS: Final = ("lane", "group", "topic", "partition")
METRICS: Final = (
    ("bmq_group_lag_records", "Records that a consumer group has not committed yet.", _LAG_LABELS),
    (
        "bmq_group_lag_seconds",
        "How long the first record that a group has not committed has been there; of several partitions the most.",
        _LAG_LABELS,
    ),
    ("bmq_groups", "Consumer groups whose coordinators are here, by state.", ("state",)),
    (
        "bmq_group_lag_left_out",
        f"Committed offsets beyond the {POSITIONS_MAX} whose lag is looked at, or of groups whose name is longer "
        f"than {NAME_CHARS_MAX} characters.",
        (),
    ),
)
"""(name, what it says, labels); of the labels of a lag as many as it is told for."""


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
    """The lags of all groups whose coordinators are here, as metrics. `refresh` asks; `collect` tells, from any thread,
    what was found.
    """

    def __init__(
        self,
        *,
        coordinators: Coordinators,
        metadata: Metadata,
        owner_for: Callable[[TopicPartition], Owner],
        granularity: LagMetrics,
    ) -> None:
        self._coordinators = coordinators
        self._metadata = metadata
        self._owner_for = owner_for
        self._granularity = granularity
        self._known: Mapping[Key, _Known] = {}
        """Never changed, only replaced: other threads read it."""
        self._refreshing = asyncio.Lock()
        self._fresh_at_s = -math.inf
        self._states: Mapping[str, int] = {}
        self._left_out = 0

    async def refresh(self) -> None:
        """Asks the owners; who comes while somebody asks waits for the same answers. Never raises BmqError."""
        if self._granularity == "off":
            return
        loop = asyncio.get_running_loop()
        async with self._refreshing:
            if loop.time() - self._fresh_at_s < FRESH_S:
                return
            offsets, left_out = await self._offsets()
            found = await self._ask(offsets)
            now_s = loop.time()
            self._known = await loop.run_in_executor(None, _merged, self._known, offsets, found, now_s)
            self._fresh_at_s, self._left_out = now_s, left_out
            self._states = await self._count_states()

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """For prometheus_client."""
        yield from self._expose()

    async def _count_states(self) -> Mapping[str, int]:
        states: Counter[str] = Counter()
        for part in self._coordinators.group_states(GROUPS_AT_ONCE):
            states.update(part)
            await asyncio.sleep(0)
        return +states

    async def _offsets(self) -> tuple[dict[Key, Offset], int]:
        """What is committed, and of how much more there is."""
        offsets: dict[Key, Offset] = {}
        left_out = 0
        for part in self._coordinators.group_offsets(POSITIONS_AT_ONCE):
            before = len(offsets)
            named = ((key, Offset(offset)) for key, offset in part.items() if len(key[0]) <= NAME_CHARS_MAX)
            offsets.update(islice(named, POSITIONS_MAX - before))
            left_out += len(part) - (len(offsets) - before)
            await asyncio.sleep(0)
        return offsets, left_out

    async def _ask(self, offsets: Mapping[Key, Offset]) -> dict[Key, _Known]:
        shares: dict[int, tuple[Owner, list[tuple[Key, Position]]]] = {}
        for number, (key, offset) in enumerate(offsets.items(), start=1):
            if number % POSITIONS_AT_ONCE == 0:
                await asyncio.sleep(0)
            topic_id = self._metadata.image.topic_ids.get(key[1])
            if topic_id is None:
                continue
            position = Position(tp=TopicPartition(topic_id, key[2]), offset=offset)
            try:
                owner = self._owner_for(position.tp)
            except BmqError:
                continue
            shares.setdefault(id(owner), (owner, []))[1].append((key, position))
        answers = await together(_ask_owner(owner, theirs) for owner, theirs in shares.values())
        return {key: one for answer in answers for key, one in answer.items()}

    def _expose(self) -> Iterator[GaugeMetricFamily]:
        if self._fresh_at_s < 0:
            return
        count = {"group": 2, "topic": 3, "partition": 4}[self._granularity]
        sums: dict[tuple[str, ...], tuple[int, float]] = {}
        for (group_id, topic, index), known in self._known.items():
            lane = lane_group(group_id)
            of_lane = (BASE, group_id) if lane is None else (lane.lane, lane.group_id)
            values = (*of_lane, name_in_lane(topic), str(index))[:count]
            now = known.at(self._fresh_at_s)
            records, seconds = sums.get(values, (0, 0.0))
            sums[values] = records + now.records, max(seconds, now.seconds)
        in_records, in_seconds, states, beyond = (
            GaugeMetricFamily(name, about, labels=labels[:count] if labels is _LAG_LABELS else labels)
            for name, about, labels in METRICS
        )
        for values, (records, seconds) in sums.items():
            in_records.add_metric(values, records)
            in_seconds.add_metric(values, seconds)
        for state, groups in self._states.items():
            states.add_metric([state], groups)
        beyond.add_metric([], self._left_out)
        yield from (in_records, in_seconds, states, beyond)


def _merged(
    known: Mapping[Key, _Known], asked: Mapping[Key, Offset], found: dict[Key, _Known], now_s: float
) -> dict[Key, _Known]:
    """What was found, and for a while what was known of those that were asked for in vain."""
    return {key: one for key, one in known.items() if key in asked and now_s - one.at_s < KEPT_S} | found


async def _ask_owner(owner: Owner, wanted: Sequence[tuple[Key, Position]]) -> dict[Key, _Known]:
    """What it tells in time; an older broker that does not know the question tells nothing."""
    loop = asyncio.get_running_loop()
    found: dict[Key, _Known] = {}
    try:
        async with asyncio.timeout(ANSWER_WITHIN_S):
            for first in range(0, len(wanted), POSITIONS_AT_ONCE):
                part = wanted[first : first + POSITIONS_AT_ONCE]
                answers = await owner.unread([position for _, position in part])
                now_s = loop.time()
                found.update(
                    (key, _Known(one, now_s)) for (key, _), one in zip(part, answers, strict=True) if one is not None
                )
                await asyncio.sleep(0)  # an owner in this process answers without a pause
    except (BmqError, TimeoutError):
        pass
    return found

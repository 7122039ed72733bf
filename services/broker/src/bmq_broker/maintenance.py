"""What a broker does from time to time: rolls by age, retention, merges, forgetting producers, reports to the controller, collecting."""

import asyncio

import structlog
from bmq.clock_guard import ClockGuard

from bmq.errors import BmqError, ControllerUnavailable, Fenced
from bmq.metadata.records import Range
from bmq.ports import Clock, ObjectStore
from bmq.roles.controller import BrokerControl
from bmq.storage.keys import parse_numbered_key, segment_prefix
from bmq.values import BrokerEpoch, NodeId, TopicPartition
from bmq_broker.commit import GroupCommit
from bmq_broker.garbage import Garbage
from bmq_broker.merging import Merger
from bmq_broker.metrics import BUFFERED_BYTES, PARTITIONS, TAIL_BYTES
from bmq_broker.ownership import Ownership
from bmq_broker.partitions.partition import Partition
from bmq_broker.retention import Retention
from bmq_broker.rolling import Roller
from bmq_broker.segments import Segments
from bmq_broker.settings import BrokerSettings

log = structlog.get_logger()

YIELD_EVERY = 100
"""Partitions looked at before other work gets its turn."""


class Maintenance:
    """One loop for all partitions of a broker."""

    def __init__(
        self,
        *,
        node_id: NodeId,
        broker_epoch: BrokerEpoch,
        store: ObjectStore,
        control: BrokerControl,
        ownership: Ownership,
        commit: GroupCommit,
        roller: Roller,
        retention: Retention,
        merger: Merger,
        segments: Segments,
        garbage: Garbage,
        clock: Clock,
        clock_guard: ClockGuard,
        settings: BrokerSettings,
    ) -> None:
        self._node_id = node_id
        self._broker_epoch = broker_epoch
        self._store = store
        self._control = control
        self._ownership = ownership
        self._commit = commit
        self._roller = roller
        self._retention = retention
        self._merger = merger
        self._segments = segments
        self._garbage = garbage
        self._clock = clock
        self._clock_guard = clock_guard
        self._settings = settings
        self._collected: set[TopicPartition] = set()
        self._uncovered: dict[TopicPartition, tuple[Range, ...]] = {}

    def covered_by_nothing(self, ranges: dict[TopicPartition, tuple[Range, ...]]) -> None:
        """Recovery found nothing of these partitions in these ranges: they are covered as they are."""
        self._uncovered.update(ranges)

    async def run(self) -> None:
        """Until cancelled."""
        loop = asyncio.get_running_loop()
        retention_due_s = loop.time() + self._settings.retention_interval_ms / 1000
        while True:
            await self._report()
            await self._roll_old()
            if loop.time() >= retention_due_s:
                await self._retain()
                retention_due_s = loop.time() + self._settings.retention_interval_ms / 1000
            await self._garbage.sweep()
            self._measure()
            await asyncio.sleep(self._settings.maintenance_interval_ms / 1000)

    async def _report(self) -> None:
        """Tells the controller which ranges the manifests cover now."""
        covered = dict(self._uncovered)
        for tp, partition in self._ownership.partitions.items():
            if partition.covers_ranges():
                covered[tp] = partition.ranges
        if not covered:
            return
        try:
            await self._control.report_covered(self._node_id, self._broker_epoch, list(covered.items()))
        except (ControllerUnavailable, Fenced) as error:
            log.info("covered ranges not reported, tried again later", error=str(error))
            return
        self._uncovered.clear()

    async def _roll_old(self) -> None:
        now_ms = self._clock.now_ms()
        for number, partition in enumerate(list(self._ownership.partitions.values())):
            runs = partition.tail.runs
            if runs and now_ms - runs[0].since_ms >= partition.config.segment_ms:
                self._roller.start(partition, "age")
            elif partition.tail.size_bytes:
                self._roller.consider(partition)
            if runs and len(partition.ranges) >= self._settings.ranges_max and not partition.covers_ranges():
                self._roller.start(partition, "ranges")
            if number % YIELD_EVERY == YIELD_EVERY - 1:
                await asyncio.sleep(0)

    async def _retain(self) -> None:
        expiry_ms = self._clock.now_ms() - self._settings.producer_expiry_ms
        for partition in list(self._ownership.partitions.values()):
            if not self._ownership.is_open(partition.tp):
                continue
            try:
                if self._clock_guard.trusted:
                    partition.live.expire(before_ms=expiry_ms)
                    partition.rolled.expire(before_ms=expiry_ms)
                await self._retention.apply(partition, by_time=self._clock_guard.trusted)
                while await self._merger.merge(partition):
                    pass
                await self._collect(partition)
            except Fenced as error:
                self._commit.end(error)
                return
            except (BmqError, OSError) as error:
                log.warning("upkeep of a partition failed, tried again later", partition=str(partition.tp), error=str(error))

    async def _collect(self, partition: Partition) -> None:
        """Gives up segments of earlier owners that no manifest names: only once per ownership, and only after the own claim holds."""
        if not partition.claimed or partition.tp in self._collected:
            return
        named = {entry.key for entry in await self._segments.entries(partition.tp, partition.manifest)}
        prefix = segment_prefix(partition.tp)
        orphans = []
        async for meta in self._store.list(prefix):
            parsed = parse_numbered_key(prefix, meta.key)
            if parsed is not None and parsed.leader_epoch < partition.leader_epoch and meta.key not in named:
                orphans.append(meta.key)
        self._garbage.give_up(orphans)
        self._collected.add(partition.tp)

    def _measure(self) -> None:
        TAIL_BYTES.set(self._roller.tail_bytes)
        BUFFERED_BYTES.set(self._commit.buffered_bytes)
        PARTITIONS.labels("appending").set(len(self._ownership.partitions))

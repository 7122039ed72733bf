"""A broker put together: registered, recovered, serving, and stopped again. The only module that knows all parts."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress

import structlog

from bmq.clock_guard import ClockGuard
from bmq.errors import BmqError
from bmq.metadata.image import Image
from bmq.ports import Clock, ObjectStore, Rng
from bmq.roles.controller import BrokerControl, Metadata, Registration
from bmq.storage.durable import LatencyWindow
from bmq.storage.stream import StreamWriter
from bmq.values import BrokerEpoch, StreamId
from bmq_broker.broker import Broker
from bmq_broker.commit import GroupCommit
from bmq_broker.coordinator_snapshots import CoordinatorSnapshots
from bmq_broker.coordinators import Coordinators
from bmq_broker.garbage import Garbage
from bmq_broker.groups.settings import GroupSettings
from bmq_broker.lag import GroupLags
from bmq_broker.lookups import Lookups
from bmq_broker.maintenance import Maintenance
from bmq_broker.manifests import Manifests
from bmq_broker.merging import Merger
from bmq_broker.ownership import Ownership
from bmq_broker.partitions.partition import Partition
from bmq_broker.partitions.tail import TailTotal
from bmq_broker.recovery import read_ranges
from bmq_broker.retention import Retention
from bmq_broker.rolling import Roller
from bmq_broker.segments import Segments
from bmq_broker.settings import BrokerSettings
from bmq_broker.waiting import Waiters

log = structlog.get_logger()


class BrokerRole:
    """One broker incarnation, from its registration to its stop."""

    def __init__(
        self,
        *,
        store: ObjectStore,
        control: BrokerControl,
        metadata: Metadata,
        registration: Registration,
        clock: Clock,
        rng: Rng,
        clock_guard: ClockGuard,
        settings: BrokerSettings,
        group_settings: GroupSettings,
        cluster_configs: Mapping[str, str],
        on_fenced: Callable[[BmqError], None],
    ) -> None:
        """`on_fenced` is called once when another incarnation took over: this one writes nothing more and is to be thrown away."""
        self._store = store
        self._control = control
        self._metadata = metadata
        self._registration = registration
        self._clock = clock
        self._rng = rng
        self._clock_guard = clock_guard
        self._settings = settings
        self._group_settings = group_settings
        self._cluster_configs = cluster_configs
        self._on_fenced = on_fenced
        self._tasks: list[asyncio.Task[None]] = []
        self._unsubscribe: Callable[[], None] = lambda: None
        self._ended: BmqError | None = None
        self.epoch = BrokerEpoch(-1)
        self.owner: Broker
        self.lags: GroupLags

    async def start(self) -> None:
        """Registers, reads what earlier incarnations left in the WAL, and serves. Raises ControllerUnavailable, StoreError."""
        self.epoch = await self._control.register(self._registration)
        self._build(self._metadata.image.cluster_id)
        self._unsubscribe = self._metadata.subscribe(self._image_changed)
        ranges = self._ownership.inherited_ranges()
        found = await read_ranges(self._store, ranges, clock=self._clock, rng=self._rng)
        self._maintenance.covered_by_nothing({tp: named for tp, named in ranges.items() if tp not in found})
        recovered_partitions = len(found)
        await self._ownership.recovered(found)
        loop = asyncio.get_running_loop()
        self._tasks = [
            loop.create_task(self._maintenance.run(), name="maintenance"),
            loop.create_task(self._coordinators.load_all(), name="load coordinators"),
        ]
        for task in self._tasks:
            task.add_done_callback(_report_failure)
        log.info("broker serves", node=self._registration.node_id, epoch=self.epoch, recovered_partitions=recovered_partitions)

    async def stop(self) -> None:
        """The clean stop: rolls larger tails, makes everything durable, seals the own stream and says so. After a fence it only ends."""
        await self._end_tasks()
        await self._coordinators.close()
        if self._ended is None:
            try:
                await self._hand_over()
            except BmqError as error:
                log.warning("not stopped cleanly: the next start recovers", error=str(error))
        await self.kill()

    async def kill(self) -> None:
        """Ends at once, as a crash would; nothing is handed over."""
        self._unsubscribe()
        await self._end_tasks()
        self._commit.end(self._ended or BmqError("the broker stopped"))
        self._waiters.wake_all()
        await self._coordinators.close()
        await self._ownership.close()
        await self._roller.close()
        await self._writer.close()

    async def _hand_over(self) -> None:
        for partition in self._ownership.partitions.values():
            if partition.tail.size_bytes >= self._settings.stop_roll_bytes:
                await self._roller.roll_to(partition, partition.high_watermark, "stop")
        await self._commit.when_all_durable()
        end = await self._writer.seal_own()
        await self._control.report_stopped(self._registration.node_id, self.epoch, end)

    async def _end_tasks(self) -> None:
        for task in self._tasks:
            task.cancel()
        for task in self._tasks:
            with suppress(asyncio.CancelledError):
                await task
        self._tasks = []

    def _build(self, cluster_id: str) -> None:
        store, rng, clock, settings = self._store, self._rng, self._clock, self._settings
        total = TailTotal()
        self._waiters = Waiters()
        self._commit = GroupCommit(settings, may_send=self._may_send, woken=self._woken)
        self._manifests = Manifests(store, rng=rng, released=self._commit.released)
        self._ownership = Ownership(
            node_id=self._registration.node_id,
            epoch=self.epoch,
            metadata=self._metadata,
            manifests=self._manifests,
            clock=clock,
            settings=settings,
            total=total,
            cluster_configs=self._cluster_configs,
        )
        self._roller = Roller(
            store=store,
            cluster_id=cluster_id,
            rng=rng,
            clock=clock,
            settings=settings,
            partitions=self._ownership.partitions,
            manifests=self._manifests,
            commit=self._commit,
            total=total,
        )
        self._writer = StreamWriter(
            store,
            StreamId(self._registration.node_id, self.epoch),
            cluster_id=cluster_id,
            rng=rng,
            on_durable=self._commit.on_durable,
            on_fenced=self._fenced,
            in_flight_max=settings.in_flight_max,
            latency=LatencyWindow() if settings.hedge_creates else None,
            on_created=self._commit.observed,
        )
        self._commit.start(self._writer)
        garbage = Garbage(store, linger_ms=settings.segment_linger_ms)
        self.segments = segments = Segments(store)
        retention = Retention(manifests=self._manifests, segments=segments, garbage=garbage, roller=self._roller, clock=clock)
        snapshots = CoordinatorSnapshots(store=store, rng=rng, manifests=self._manifests, garbage=garbage)
        self._coordinators = Coordinators(
            node_id=self._registration.node_id,
            ownership=self._ownership,
            metadata=self._metadata,
            commit=self._commit,
            segments=segments,
            snapshots=snapshots,
            clock=clock,
            rng=rng,
            settings=self._group_settings,
            verify_not_sealed=self._writer.verify_not_sealed,
            expiry_allowed=lambda: self._clock_guard.trusted,
        )
        self.lags = GroupLags(coordinators=self._coordinators, ownership=self._ownership, metadata=self._metadata, clock=clock)
        self._ownership.closed = self._partition_closed
        self._maintenance = Maintenance(
            node_id=self._registration.node_id,
            broker_epoch=self.epoch,
            store=store,
            control=self._control,
            ownership=self._ownership,
            commit=self._commit,
            roller=self._roller,
            retention=retention,
            merger=Merger(
                store=store, cluster_id=cluster_id, rng=rng, manifests=self._manifests, segments=segments, garbage=garbage, settings=settings
            ),
            segments=segments,
            garbage=garbage,
            clock=clock,
            clock_guard=self._clock_guard,
            settings=settings,
        )
        self.owner = Broker(
            ownership=self._ownership,
            commit=self._commit,
            roller=self._roller,
            lookups=Lookups(segments),
            retention=retention,
            coordinators=self._coordinators,
            verify_not_sealed=self._writer.verify_not_sealed,
            waiters=self._waiters,
            clock=clock,
        )

    def _may_send(self) -> bool:
        """What is on its way does not count: only rolls make room, and they take what is durable."""
        return self._roller.tail_bytes - self._commit.buffered_bytes <= max(self._settings.tail_limit_bytes, self._settings.tail_budget_bytes)

    def _woken(self, partition: Partition) -> None:
        self._waiters.wake(partition.tp)
        self._roller.consider(partition)

    def _image_changed(self, old: Image, new: Image) -> None:
        self._ownership.image_changed(old, new)
        self._coordinators.image_changed(old, new)

    def _partition_closed(self, partition: Partition) -> None:
        self._commit.released(partition.tail.drop())
        self._waiters.wake(partition.tp)
        self._coordinators.partition_closed(partition)

    def _fenced(self, error: BmqError) -> None:
        """Throws the state away: nothing more is said or written under this epoch."""
        if self._ended is not None:
            return
        self._ended = error
        self._commit.end(error)
        self._ownership.end(error)
        self._waiters.wake_all()
        self._on_fenced(error)


def _report_failure(task: "asyncio.Task[None]") -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("a task of the broker failed", task=task.get_name(), error=repr(error))
        raise error

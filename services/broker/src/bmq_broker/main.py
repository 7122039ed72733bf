"""A broker put together: registered, recovered, serving, and stopped again. The only module that knows all parts."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial

import structlog

from bmq.clocks.clock_guard import ClockGuard
from bmq.errors import BmqError, Fenced
from bmq.fairness.waiters import Waiters
from bmq.metadata.image import Image
from bmq.naming.listeners import ListenerAddresses
from bmq.ports import ObjectStore, Rng, Tracer
from bmq.roles.controller import BrokerControl, Metadata, Registration
from bmq.roles.lane_leases import LaneLeases
from bmq.roles.owner import Owner
from bmq.storage.durable import LatencyWindow, cancelled
from bmq.storage.stream import StreamWriter
from bmq.values import BrokerEpoch, NodeId, StreamId, TopicPartition
from bmq_broker.broker import Broker
from bmq_broker.cluster_values import ClusterValues
from bmq_broker.coordinators.groups.settings import GroupSettings
from bmq_broker.ended import BrokerState, Ended
from bmq_broker.heartbeats import REPORTS_MAX, Heartbeats
from bmq_broker.hosted import Coordinators
from bmq_broker.lag import GroupLags
from bmq_broker.loads import Loads
from bmq_broker.ownership.handover import Handover, sign_off
from bmq_broker.ownership.life import Lives
from bmq_broker.ownership.ownership import Ownership
from bmq_broker.ownership.recovery import read_ranges
from bmq_broker.ownership.reports import Reports
from bmq_broker.partitions.partition import Partition
from bmq_broker.partitions.tail import Run, TailTotal
from bmq_broker.segment_parts import SegmentParts
from bmq_broker.segments.garbage import Garbage
from bmq_broker.segments.lookups import Lookups
from bmq_broker.segments.manifests import Manifests
from bmq_broker.settings import BrokerSettings
from bmq_broker.upkeep import Upkeep
from bmq_broker.wal.commit import GroupCommit

log = structlog.get_logger()


class BrokerRole:
    """One broker incarnation, from its registration to its stop. After a fence, `kill` it and make another one
    (bmq_broker.incarnations).
    """

    def __init__(
        self,
        *,
        store: ObjectStore,
        control: BrokerControl,
        metadata: Metadata,
        registration: Registration,
        rng: Rng,
        clock_guard: ClockGuard,
        settings: BrokerSettings,
        group_settings: GroupSettings,
        cluster_configs: Mapping[str, str],
        on_fenced: Callable[[BmqError], None],
        owner_for: Callable[[TopicPartition], Owner] | None = None,
        listeners: Callable[[], ListenerAddresses | None] = lambda: None,
        tracer: Tracer | None = None,
    ) -> None:
        """`clock_guard` is the only clock a broker has: ages count for days, so no stored time may be that of a clock
        that was wrong for a while.

        `on_fenced` is called once when another incarnation took over: this one writes nothing more and is to be thrown
        away.

        `owner_for` finds the owners of all partitions, for the lags of groups; None: this broker owns all that there
        are. `listeners`: those of the proxy in the same process, which may change; None: they are as they were
        registered.
        """
        self._store = store
        self._control = control
        self._metadata = metadata
        self._registration = registration
        self._rng = rng
        self._clock_guard = clock_guard
        self._settings = settings
        self._group_settings = group_settings
        self._cluster_configs = cluster_configs
        self._on_fenced = on_fenced
        self._owner_for = owner_for
        self._listeners = listeners
        self._tracer = tracer
        self._tasks: list[asyncio.Task[None]] = []
        self._beating: asyncio.Task[None] | None = None
        self._unsubscribe: Callable[[], None] = lambda: None
        self._ended = Ended()
        self.epoch = BrokerEpoch(-1)
        self.owner: Broker
        self.lags: GroupLags

    @property
    def stream(self) -> StreamId:
        """Which node's and incarnation's it is."""
        return StreamId(self._registration.node_id, self.epoch)

    @property
    def partitions(self) -> Mapping[TopicPartition, Partition]:
        """Those that are open."""
        return {} if self._ended.state is BrokerState.UNREGISTERED else self._ownership.partitions

    async def start(self) -> None:
        """Registers, reads what earlier owners left in the WAL, and serves.

        Raises ControllerUnavailable, NotReady, StoreError, FormatError; Fenced where another process has taken the node
        id, or where this incarnation was replaced before it served.
        """
        loop = asyncio.get_running_loop()
        await self._clock_guard.until_compared()
        self.epoch = await self._control.register(self._registration)
        await self._until_image_shows(self.epoch)
        self._build(self._metadata.image.cluster_id)
        self._ended.registered()
        self._unsubscribe = self._metadata.subscribe(self._image_changed)
        self._beating = loop.create_task(self._heartbeats.run(), name="heartbeats")
        self._beating.add_done_callback(_report_failure)
        try:
            recovered_partitions = await self._ownership.recover()
            if self._ended.is_over and self._ended.refusal is not None:
                raise self._ended.refusal
        except BaseException:
            await self._give_up()
            raise
        self._ended.recovered()
        self._tasks = [
            loop.create_task(self._upkeep.run(), name="upkeep"),
            loop.create_task(self._upkeep.run_retention(), name="retention"),
            loop.create_task(self._coordinators.load_all(), name="load coordinators"),
            loop.create_task(self._check_lease(), name="lease"),
        ]
        for task in self._tasks:
            task.add_done_callback(_report_failure)
        log.info(
            "broker serves",
            node=self._registration.node_id,
            epoch=self.epoch,
            recovered_partitions=recovered_partitions,
        )

    async def stop(self) -> None:
        """The clean stop: hands everything over and ends. After a fence it only ends."""
        await self.hand_over()
        await self.kill()

    async def hand_over(self) -> None:
        """Hands everything over: rolls larger tails, stops, makes everything durable, seals the own stream and says so.

        A store that is too slow for that is not waited for longer than `stop_timeout_ms`: who starts next recovers.
        Afterwards requests get NotOwner, and `stop` or `kill` is all that is left to do.
        """
        if not self._ended.may_hand_over:
            return
        self._ended.hand_over()
        self._heartbeats.soon()
        await self._end_tasks()
        try:
            async with asyncio.timeout(self._settings.stop_timeout_ms / 1000):
                await self._handover.roll_larger_tails()
                await self._seal_and_tell()
        except (BmqError, TimeoutError) as error:
            log.warning("not stopped cleanly: the next start recovers", error=repr(error))
        await self._coordinators.close()

    async def _give_up(self) -> None:
        """Ends a start that goes no further. Unless it was replaced, what it registered for goes to others at once, and
        not after a lease.
        """
        try:
            if not self._ended.is_over:
                await sign_off(self._seal_and_tell)
        finally:
            await self.kill()

    async def _seal_and_tell(self) -> None:
        end = await self._handover.seal(self._stop_serving)
        self._ended.sealed()
        await self._end_beating()
        await self._handover.tell(partial(self._control.report_stopped, self._registration.node_id, self.epoch, end))

    def _stop_serving(self) -> None:
        self._ended.stop()
        self._ownership.end()
        self._waiters.wake_all()
        self._coordinators.end()

    async def kill(self) -> None:
        """Ends at once, as a crash would; nothing is handed over."""
        if self._ended.state is BrokerState.UNREGISTERED:
            return
        self._unsubscribe()
        await self._end_tasks()
        await self._end_beating()
        if self._ended.kill():
            self._commit.end()
        self._ownership.end()
        self._waiters.wake_all()
        await self._ownership.leaving.close()
        await self._coordinators.close()
        await self._lane_leases.close()
        await self._ownership.close()
        await self._roller.close()
        await self._writer.close()
        await self.owner.close()
        self._ownership.drop()

    async def _until_image_shows(self, epoch: BrokerEpoch) -> None:
        """Waits for the registration to come to this node's image, which may follow the controller's from afar."""
        changed = asyncio.Event()
        unsubscribe = self._metadata.subscribe(lambda old, new: changed.set())
        try:
            while self._metadata.image.last_epochs.get(self._registration.node_id, -1) < epoch:
                changed.clear()
                await changed.wait()
        finally:
            unsubscribe()

    async def _check_lease(self) -> None:
        """An idle owner makes sure once a lease that it was not replaced; a busy one learns it from its creates
        anyway.
        """
        while not self._ended.is_over:
            await asyncio.sleep(self._settings.lease_ms / 1000)
            with suppress(BmqError):  # the writer has said so itself
                await self._writer.verify_not_sealed()

    async def _verify_not_sealed(self) -> None:
        """Returns if nobody had replaced this broker when this was called. Raises Fenced, NotReady."""
        self._ownership.check_alive()
        await self._writer.verify_not_sealed()
        self._ownership.check_alive()  # a manifest may have told meanwhile

    async def _end_tasks(self) -> None:
        tasks, self._tasks = self._tasks, []
        await cancelled(tasks)  # what failed was reported when it did

    async def _end_beating(self) -> None:
        beating, self._beating = self._beating, None
        if beating is not None:
            await cancelled([beating])

    def _build(self, cluster_id: str) -> None:
        store, rng, clock, settings = self._store, self._rng, self._clock_guard, self._settings
        total = TailTotal()
        self.values = values = ClusterValues(
            self._metadata, self._cluster_configs, settings=settings, groups=self._group_settings
        )
        self._waiters = Waiters()
        self._commit = GroupCommit(
            settings,
            ended=self._ended,
            may_send=self._may_send,
            woken=self._woken,
            carried=self._carried,
            completed=self._completed,
            tracer=self._tracer,
        )
        stream = self.stream
        self._writer = StreamWriter(
            store,
            stream,
            cluster_id=cluster_id,
            rng=rng,
            on_durable=self._commit.on_durable,
            on_fenced=self._fenced,
            in_flight_max=settings.in_flight_max,
            latency=LatencyWindow() if settings.hedge_creates else None,
            on_created=self._commit.observed,
        )
        self._commit.start(self._writer)
        self._lives = lives = Lives(stream)
        reports = Reports(stream, lives=lives, metadata=self._metadata)
        self._heartbeats = Heartbeats(
            control=self._control,
            registration=self._registration,
            broker_epoch=self.epoch,
            lease_ms=settings.lease_ms,
            rng=rng,
            closed=partial(reports.closed, count_max=REPORTS_MAX),
            covered=partial(reports.covered, count_max=REPORTS_MAX),
            manifests=partial(reports.manifests, count_max=REPORTS_MAX),
            loads=Loads(lives.appending, count_max=settings.loads_max).current,
            hands_over=lambda: self._ended.hands_over,
            clock_differs=lambda: self._clock_guard.differs,
            failing=lambda: self._writer.failing,
            fenced=self._fenced,
            position=lambda: self._metadata.image.position,
            listeners=self._listeners,
        )
        garbage = Garbage(store, linger_ms=settings.segment_linger_ms, verify_not_sealed=self._verify_not_sealed)
        self._manifests = Manifests(
            store,
            rng=rng,
            covered=self._commit.covered,
            give_up=garbage.give_up,
            fenced=self._fenced,
            entries_max=settings.manifest_entries_max,
        )
        parts = SegmentParts(
            store=store,
            cluster_id=cluster_id,
            stream=stream,
            rng=rng,
            clock=clock,
            settings=settings,
            metadata=self._metadata,
            partitions=lives.appending,
            manifests=self._manifests,
            commit=self._commit,
            total=total,
            garbage=garbage,
            covered=self._heartbeats.shortly,
        )
        self._roller, self.segments = parts.roller, parts.segments
        self._ownership = Ownership(
            node_id=self._registration.node_id,
            epoch=self.epoch,
            metadata=self._metadata,
            manifests=self._manifests,
            clock=clock,
            settings=settings,
            total=total,
            cluster_configs=self._cluster_configs,
            ended=self._ended,
            lives=lives,
            commit=self._commit,
            roller=self._roller,
            waiters=self._waiters,
            read_ranges=partial(
                read_ranges,
                store,
                clock=clock,
                rng=rng,
                is_sealed=self._is_known_to_be_sealed,
                read=self._roller.read,
            ),
            report_soon=self._heartbeats.soon,
            report_shortly=self._heartbeats.shortly,
            gone=self._partition_gone,
            forgotten=self._forgotten,
            fenced=self._fenced,
        )
        self._upkeep = Upkeep(
            store=store,
            metadata=self._metadata,
            lives=lives,
            ownership=self._ownership,
            manifests=self._manifests,
            commit=self._commit,
            roller=self._roller,
            retention=parts.retention,
            merger=parts.merger,
            segments=parts.segments,
            garbage=garbage,
            shared=parts.shared,
            clock=clock,
            settings=settings,
            values=values,
        )
        self._lane_leases = LaneLeases(self._control, self._metadata)
        self._coordinators = Coordinators(
            node_id=self._registration.node_id,
            ownership=self._ownership,
            metadata=self._metadata,
            manifests=self._manifests,
            commit=self._commit,
            segments=parts.segments,
            snapshots=parts.snapshots,
            clock=clock,
            rng=rng,
            values=values,
            verify_not_sealed=self._verify_not_sealed,
            expiry_allowed=lambda: clock.trusted,
            lane_leases=self._lane_leases,
        )
        self.lags = GroupLags(
            coordinators=self._coordinators,
            metadata=self._metadata,
            owner_for=self._owner_for if self._owner_for is not None else lambda _: self.owner,
            granularity=settings.lag_metrics,
        )
        self._handover = Handover(
            partitions=lives.appending,
            commit=self._commit,
            roller=self._roller,
            writer=self._writer,
            settings=settings,
            rng=rng,
        )
        self.owner = Broker(
            ownership=self._ownership,
            commit=self._commit,
            roller=self._roller,
            lookups=Lookups(parts.segments, self._manifests, false_batches_max=settings.false_batches_per_look_up),
            retention=parts.retention,
            coordinators=self._coordinators,
            verify_not_sealed=self._verify_not_sealed,
            image=lambda: self._metadata.image,
            waiters=self._waiters,
            clock=clock,
        )

    def _may_send(self) -> bool:
        """What is on its way does not count: only rolls make room, and they take what is durable. Nor do, up to as much
        again, partitions that cannot be rolled: they grow no more, and the others go on.
        """
        limit_bytes = max(self._settings.tail_limit_bytes, self._settings.tail_budget_bytes)
        kept_bytes = min(self._roller.stopped_bytes, limit_bytes)
        return self._roller.tail_bytes - self._commit.buffered_bytes - kept_bytes <= limit_bytes

    def _woken(self, partition: Partition, run: Run) -> None:
        self._waiters.wake(partition.tp, grown_bytes=run.size_bytes)
        self._roller.grown(partition)

    def _is_known_to_be_sealed(self, stream: StreamId) -> bool:
        image = self._metadata.image
        return stream in image.sealed or stream in image.dropped

    def _carried(self, partitions: Sequence[Partition]) -> None:
        self._roller.carried(partitions)

    def _completed(self) -> None:
        self._ownership.look()
        self._roller.consider()

    def _image_changed(self, old: Image, new: Image) -> None:
        if self._ended.state is BrokerState.SEALED:
            return
        replaced = _replaced(new, self._registration.node_id, self.epoch)
        if replaced is not None:
            self._fenced(replaced)
        if self._ended.is_over:
            return
        self._ownership.image_changed(old, new)
        self._heartbeats.image_changed()
        self._coordinators.image_changed(old, new)

    def _partition_gone(self, partition: Partition) -> None:
        self._coordinators.partition_closed(partition)

    def _forgotten(self, tp: TopicPartition) -> None:
        self._upkeep.forget(tp)

    def _fenced(self, error: BmqError) -> None:
        """Throws the state away: nothing more is said or written under this epoch."""
        if self._ended.is_over:
            return
        self._ended.fence(error)
        self._commit.end()
        self._ownership.end()
        self._roller.end()
        self._waiters.wake_all()
        self._on_fenced(error)


def _replaced(image: Image, node_id: NodeId, epoch: BrokerEpoch) -> Fenced | None:
    """Whether the image says that this incarnation is over: it was registered again, fenced, or is about to be."""
    newest = image.last_epochs.get(node_id, BrokerEpoch(-1))
    if newest > epoch:
        return Fenced(f"node {node_id} is registered under epoch {newest}, this broker had epoch {epoch}")
    if newest == epoch and (node_id not in image.nodes or image.fencing.get(node_id) == epoch):
        return Fenced(
            f"node {node_id} of epoch {epoch} was not heard for longer than its lease: its partitions go to others"
        )
    return None


def _report_failure(task: "asyncio.Task[None]") -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("a task of the broker failed", task=task.get_name(), error=repr(error))
        raise error

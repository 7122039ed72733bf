"""One node with all roles as `bmq up` runs it, and the supervisor that kills it, stops it and starts it again."""

import asyncio
import contextvars
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from bmq.errors import BmqError
from bmq.fairness.turns import NOBODY, Party
from bmq.metadata.image import Image
from bmq.ports import ObjectStore
from bmq.roles.owner import NEXT, Appended, AppendedAlike, Owner, Proved
from bmq.values import NodeId, TopicPartition
from bmq_broker.coordinators.groups.settings import GroupSettings
from bmq_broker.main import BrokerRole
from bmq_broker.settings import BrokerSettings
from bmq_controller.api.front import AdminFront
from bmq_controller.settings import ControllerSettings
from bmq_node.configuration.node_settings import NodeSettings as ShippedSettings
from bmq_node.node import Node
from bmq_node.process.living import live
from bmq_proxy.settings import ProxySettings
from bmq_sim.checkers import InvariantViolated
from bmq_sim.client import Address
from bmq_sim.clock import SimClock, SimRng
from bmq_sim.history import OwnerAppend, Place
from bmq_sim.limits import Chance, Draws, limits_of
from bmq_sim.owners_eyes import OwnersEyes
from bmq_sim.process import ProcessState, SimProcess
from bmq_sim.rest import Admin, exposition
from bmq_sim.world import World

NODE_ID = NodeId(1)
PORT = 9092
HOSTS = ("node-1", "node-2")
RESTARTS_MAX = 50
MIB = 1024 * 1024


class NodeSettings:
    """Settings of a seed: small enough that rolls, merges, snapshots and deletions happen within a few kilobytes."""

    def __init__(self, chance: Chance, *, tail_limit_factor: int | None = None) -> None:
        """`tail_limit_factor`: how many times its budget the tail may grow before nothing more is written; None:
        far.
        """
        draws = Draws(chance, "settings")
        tail_budget_bytes = draws.choice("tail_budget_bytes", (2_000, 10_000, 100_000))
        broker = BrokerSettings(
            linger_ms=draws.choice("linger_ms", (0.0, 5.0, 100.0)),
            eager=draws.choice("eager", (False, True)),
            flush_bytes=draws.choice("flush_bytes", (300, 4096)),
            in_flight_max=draws.choice("in_flight_max", (2, 8)),
            tail_budget_bytes=tail_budget_bytes,
            tail_limit_bytes=1_000_000 if tail_limit_factor is None else tail_budget_bytes * tail_limit_factor,
            wal_budget_bytes=draws.choice("wal_budget_bytes", (1_000, 5_000, 50_000)),
            wal_objects_max=draws.choice("wal_objects_max", (3, 20, 1_000)),
            shared_below_bytes=draws.choice("shared_below_bytes", (1, 1_000, MIB)),
            buffer_max_bytes=draws.choice("buffer_max_bytes", (5_000, 256 * MIB, 256 * MIB)),
            pending_bytes_max=draws.choice("pending_bytes_max", (1_000, 16 * MIB, 16 * MIB)),
            carry_share=draws.choice("carry_share", (0.0, 0.25, 4.0)),
            carry_parts=draws.choice("carry_parts", (1, 4)),
            carry_chunk_bytes=draws.choice("carry_chunk_bytes", (1, 300, 4 * MIB)),
            roll_concurrency=draws.choice("roll_concurrency", (1, 2)),
            open_concurrency=draws.choice("open_concurrency", (1, 32)),
            ranges_max=draws.choice("ranges_max", (1, 2, 4)),
            stop_roll_bytes=draws.choice("stop_roll_bytes", (1, 1_000)),
            upkeep_interval_ms=draws.choice("maintenance_interval_ms", (200, 1_000, 5_000)),
            retention_interval_ms=draws.choice("retention_interval_ms", (300, 5_000)),
            segment_linger_ms=draws.choice("segment_linger_ms", (0, 2_000, 20_000)),
            merge_below_bytes=4_096,
            merge_count=draws.choice("merge_count", (2, 4)),
            shared_look_ms=draws.choice("shared_look_ms", (100, 1_000)),
            shared_look_ms_max=5_000,
            collect_again_ms=20_000,
            stopped_retry_ms=500,
        )
        groups = GroupSettings(
            initial_rebalance_delay_ms=draws.choice("initial_rebalance_delay_ms", (0, 1_000)),
            snapshot_record_interval=draws.choice("snapshot_record_interval", (5, 20, 10_000)),
            snapshot_byte_interval=draws.choice("snapshot_byte_interval", (2_000, 16 * MIB, 16 * MIB)),
            offsets_check_interval_ms=1_000,
        )
        if draws.choice("groups' rates", (False, False, True)):
            groups = replace(
                groups,
                stored_burst_bytes=6_000,
                stored_per_minute_bytes=60_000,
                rewritten_burst_bytes=20_000,
                rewritten_per_minute_bytes=600_000,
            )
        controller = ControllerSettings(
            records_per_entry=draws.choice("records_per_entry", (1, 5_000)),
            work_per_entry=draws.choice("work_per_entry", (1, 10_000, 500_000)),
            decided_beside_partitions=draws.choice("decided_beside_partitions", (0, 3, 4_000)),
            snapshot_entries=draws.choice("snapshot_entries", (3, 10, 1_000)),
            leading_check_s=draws.choice("leading_check_s", (1.0, 5.0)),
            collect_delay_s=2.0,
            collect_interval_s=1.0,
            lane_grace_s=draws.choice("lane_grace_s", (3.0, 8.0)),
            stray_interval_s=draws.choice("stray_interval_s", (2.0, 20.0)),
        )
        offsets_topic_partitions = draws.choice("offsets_topic_partitions", (1, 3))
        broker = replace(broker, manifest_entries_max=draws.choice("manifest_entries_max", (2, 5, 1_024)))
        proxy = ProxySettings(
            offsets_topic_partitions=offsets_topic_partitions,
            cache_idle_ms=draws.choice("cache_idle_ms", (1_000, 300_000)),
            lane_look_ms=draws.choice("lane_look_ms", (300, 1_000)),
            produce_retry_ms=draws.choice("produce_retry_ms", (100, 30_000, 30_000)),
            store_wait_ms=draws.choice("store_wait_ms", (300, 10_000, 10_000)),
            request_memory_bytes=draws.choice("request_memory_bytes", (20_000, 64 * MIB, 64 * MIB)),
            fetch_memory_bytes=draws.choice("fetch_memory_bytes", (3_000, 64 * MIB, 64 * MIB)),
            catch_up_cache_bytes=draws.choice("catch_up_cache_bytes", (8_000, 64 * MIB, 64 * MIB)),
            tail_cache_bytes=draws.choice("tail_cache_bytes", (4_000, 32 * MIB, 32 * MIB)),
            limits=limits_of(chance),
        )
        self.made = ShippedSettings(node_id=NODE_ID, broker=broker, groups=groups, controller=controller, proxy=proxy)

    def at(self, host: str) -> ShippedSettings:
        """For a start on this host."""
        return replace(self.made, listen=f"{host}:{PORT}", proxy=replace(self.made.proxy, advertised_host=host))


class _RecordingOwner:
    """The broker, with every acknowledgement kept in the history."""

    def __init__(self, owner: Owner, world: World, image: Image, name: str) -> None:
        self._owner = owner
        self._world = world
        self._image = image
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        return getattr(self._owner, attribute)

    def append(
        self, tp: TopicPartition, records: Any, *, produce_version: int, party: Party = NOBODY
    ) -> "asyncio.Future[Appended]":
        future = self._owner.append(tp, records, produce_version=produce_version, party=party)
        topic, meta = self._image.topics.get(tp.topic_id), self._image.partition(tp)
        if topic is not None and meta is not None:
            append = OwnerAppend(
                place=Place(topic.name, tp.partition), leader_epoch=meta.leader_epoch, owner=self._name
            )
            future.add_done_callback(lambda done: self._keep(append, done))
        return future

    def append_alike(
        self, tp: TopicPartition, batches: Sequence[Proved], *, produce_version: int
    ) -> "tuple[int, asyncio.Future[AppendedAlike]] | None":
        taken = self._owner.append_alike(tp, batches, produce_version=produce_version)
        topic, meta = self._image.topics.get(tp.topic_id), self._image.partition(tp)
        if taken is not None and topic is not None and meta is not None:
            count, future = taken
            append = OwnerAppend(
                place=Place(topic.name, tp.partition), leader_epoch=meta.leader_epoch, owner=self._name
            )
            future.add_done_callback(lambda done: self._keep_alike(append, count, done))
        return taken

    def _keep_alike(self, append: OwnerAppend, count: int, done: "asyncio.Future[AppendedAlike]") -> None:
        if not done.cancelled() and done.exception() is None:
            self._world.history.owner_appends += [append] * count

    def _keep(self, append: OwnerAppend, done: "asyncio.Future[Appended]") -> None:
        if not done.cancelled() and done.exception() is None and done.result().base_offset != NEXT:
            self._world.history.owner_appends.append(append)


class _RecordedNode(Node):
    """What `bmq up` runs, and nothing else: only what its proxy asks of its broker is seen on the way."""

    def __init__(
        self, world: World, name: str, *, settings: ShippedSettings, store: ObjectStore, clock: SimClock, rng: SimRng
    ) -> None:
        super().__init__(store, clock=clock, rng=rng, settings=settings)
        self._world = world
        self._name = name

    def _owner_for(self, tp: TopicPartition) -> Owner:
        recording: Any = _RecordingOwner(super()._owner_for(tp), self._world, self.image, self._name)
        return recording  # type: ignore[no-any-return]


class Incarnation:
    """One start of the program: controller, broker and proxy in one process."""

    def __init__(self, world: World, *, number: int, host: str, settings: NodeSettings, clock: SimClock) -> None:
        self.name = f"{host}#{number}"
        self.host = host
        self.process = SimProcess(self.name, host=host)
        self.ended_by: str | None = None
        """Why it ended by itself."""
        self.node: _RecordedNode | None = None
        self.admin: AdminFront | None = None
        self.serving = False
        """Whether it has said that it takes requests."""
        self._world = world
        self._settings = settings
        self._clock = clock
        self._stop: asyncio.Event = asyncio.Event()

    @property
    def alive(self) -> bool:
        """Whether it runs, or would if it were not paused."""
        return self.process.state is not ProcessState.DEAD

    @property
    def image(self) -> Image:
        """Its image of the cluster."""
        assert self.node is not None
        return self.node.image

    def start(self) -> None:
        """Begins, in its own process."""
        self._world.note(f"{self.name} starts")
        self.process.start(self._live())

    def stop(self) -> None:
        """SIGTERM."""
        self._world.note(f"{self.name} is told to stop")
        self._world.work.injected["stop"] += 1
        self._stop.set()

    async def _live(self) -> None:
        world = self._world
        store, rng = world.store.for_node(self.name), SimRng(world.rng(self.name))
        self.node = node = _RecordedNode(
            world, self.name, settings=self._settings.at(self.host), store=store, clock=self._clock, rng=rng
        )
        self.admin = node.admin.front
        self.admin.state.exposition = exposition
        await live(node, start=node.start(), stop=self._stop, serving=self._serves, failed=self._failed)
        world.note(f"{self.name} exits")
        # Outside of the process, which must not run any more.
        world.loop.call_soon(world.loop.end, self.process, context=contextvars.Context())

    def _serves(self) -> None:
        self.serving = True
        self._world.note(f"{self.name} serves")

    def _failed(self, error: BmqError) -> None:
        self.ended_by = f"{type(error).__name__}: {error}"
        self._world.note(f"{self.name} cannot go on: {error!r}")


class Supervisor:
    """Keeps one incarnation running, as an init system does, and plays the accidents."""

    def __init__(self, world: World, settings: NodeSettings | None = None) -> None:
        self._world = world
        self._rng = world.rng("supervisor")
        self._settings = settings or NodeSettings(world.rng)
        self.clock = SimClock()
        """The machine's: of every incarnation."""
        self.incarnations: list[Incarnation] = []
        self._watch: asyncio.Task[None] | None = None
        self._looking: asyncio.Task[None] | None = None
        self._eyes = OwnersEyes(world.store, image=self._newest_image, brokers=self._brokers)
        self.seconds = 0
        """Incarnations that were started beside a living one."""

    def start(self) -> None:
        """Starts the first incarnation and watches it."""
        self._begin(HOSTS[0])
        self._watch = asyncio.get_running_loop().create_task(self._keep_running(), name="supervisor")
        self._looking = asyncio.get_running_loop().create_task(self._eyes.run(), name="owners' eyes")

    @property
    def addresses(self) -> tuple[Address, ...]:
        """Where Kafka clients begin."""
        return tuple((host, PORT) for host in HOSTS)

    def addresses_for(self, client: str) -> tuple[Address, ...]:
        """Where a Kafka client begins, by its name: all begin at the same."""
        return self.addresses

    @property
    def admins(self) -> Sequence[Admin]:
        """Where the admin API is asked."""
        return [(each.process, each.admin) for each in self.living if each.serving and each.admin is not None]

    @property
    def living(self) -> list[Incarnation]:
        """Those that run."""
        return [each for each in self.incarnations if each.alive]

    def kill(self) -> None:
        """kill -9 of all, now."""
        for each in self.living:
            self._world.note(f"kill {each.name}")
            self._world.loop.kill(each.process)

    def kill_within(self, *, steps: int) -> None:
        """kill -9 of the oldest, before one of the next steps."""
        if self.living:
            self._world.kill_within(self.living[0].process, steps=steps, rng=self._rng)

    async def pause(self, duration_s: float) -> None:
        """SIGSTOP, a while, SIGCONT."""
        for each in self.living[:1]:
            self._world.loop.pause(each.process)
            await asyncio.sleep(duration_s)
            self._world.loop.resume(each.process)

    def cut_off(self, duration_s: float) -> None:
        """The store is out of reach for the oldest."""
        for each in self.living[:1]:
            self._world.store.cut_off(each.name, duration_s)

    def stop(self) -> None:
        """SIGTERM to all."""
        for each in self.living:
            each.stop()

    def start_second(self, *, hangs_s: float | None = None) -> None:
        """Another start of the same node elsewhere, while the first one runs, or hangs for so long (by chance where it
        is not said).
        """
        if len(self.living) != 1:
            return
        first = self.living[0]
        self.seconds += 1
        if hangs_s is None:
            hangs_s = self._rng.random() * 20 if self._rng.random() < 0.5 else 0.0
        if hangs_s:
            self._world.note(f"{first.name} hangs")
            self._world.loop.pause(first.process)
            self._world.loop.call_later(hangs_s, self._world.loop.resume, first.process, context=contextvars.Context())
        self._begin(HOSTS[1] if first.host == HOSTS[0] else HOSTS[0])

    def image(self) -> Image:
        """The newest incarnation's."""
        return self.living[-1].image

    def settle(self) -> None:
        """No more accidents: wakes who hangs."""
        for each in self.living:
            self._world.loop.resume(each.process)

    def check(self) -> None:
        """Raises InvariantViolated where incarnations ended by themselves more often than there were others to be ended
        by.
        """
        ended = [f"{each.name}: {each.ended_by}" for each in self.incarnations if each.ended_by is not None]
        if len(ended) > self.seconds:
            raise InvariantViolated(
                f"{self.seconds} seconds were started, and these ended by themselves:\n  " + "\n  ".join(ended)
            )
        self._eyes.check()

    def _newest_image(self) -> Image | None:
        return self.living[-1].image if self.living and self.living[-1].serving else None

    def _brokers(self) -> Iterator[BrokerRole]:
        for each in self.living:
            if each.node is not None and each.node.broker is not None:
                yield each.node.broker

    def _begin(self, host: str) -> None:
        assert len(self.incarnations) < RESTARTS_MAX, "the node does not stay up"
        incarnation = Incarnation(
            self._world, number=len(self.incarnations) + 1, host=host, settings=self._settings, clock=self.clock
        )
        self.incarnations.append(incarnation)
        incarnation.start()

    async def _keep_running(self) -> None:
        while True:
            await asyncio.sleep(0.5 + self._rng.random() * 2)
            if not self.living:
                self._begin(self._rng.choice(HOSTS))

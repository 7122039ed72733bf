"""One node with all roles, composed of the services' own main modules, and the supervisor that kills it, stops it and starts it again."""

import asyncio
import contextvars
from random import Random
from typing import Any

from bmq.clock_guard import ClockGuard
from bmq.errors import BmqError
from bmq.metadata.image import Image
from bmq.roles.controller import Registration
from bmq.roles.owner import Appended, Owner
from bmq.values import NodeId, TopicPartition
from bmq_broker.groups.settings import GroupSettings
from bmq_broker.main import BrokerRole
from bmq_broker.settings import BrokerSettings
from bmq_controller.main import ControllerRole, start_controller
from bmq_controller.settings import ControllerSettings
from bmq_proxy.main import ProxyRole, start_proxy
from bmq_proxy.settings import ProxySettings
from bmq_sim.checkers import InvariantViolated
from bmq_sim.client import Address
from bmq_sim.clock import SimClock, SimRng
from bmq_sim.history import OwnerAppend, Place
from bmq_sim.process import ProcessState, SimProcess
from bmq_sim.world import World

NODE_ID = NodeId(1)
PORT = 9092
HOSTS = ("node-1", "node-2")
RESTARTS_MAX = 50


class NodeSettings:
    """Settings of a seed: small enough that rolls, merges, snapshots and deletions happen within a few kilobytes."""

    def __init__(self, rng: Random, *, tail_limit_factor: int | None = None) -> None:
        """`tail_limit_factor`: how many times its budget the tail may grow before nothing more is written; None: far."""
        tail_budget_bytes = rng.choice((500, 2_000, 20_000))
        self.broker = BrokerSettings(
            linger_ms=rng.choice((0.0, 5.0, 100.0)),
            eager=rng.random() < 0.5,
            flush_bytes=rng.choice((300, 4096)),
            in_flight_max=rng.choice((2, 8)),
            tail_budget_bytes=tail_budget_bytes,
            tail_limit_bytes=1_000_000 if tail_limit_factor is None else tail_budget_bytes * tail_limit_factor,
            wal_budget_bytes=rng.choice((1_000, 5_000, 50_000)),
            carry_share=rng.choice((0.0, 0.25, 4.0)),
            carry_parts=rng.choice((1, 4)),
            ranges_max=rng.choice((1, 2, 4)),
            stop_roll_bytes=rng.choice((1, 1_000)),
            maintenance_interval_ms=rng.choice((200, 1_000, 5_000)),
            retention_interval_ms=rng.choice((300, 5_000)),
            segment_linger_ms=rng.choice((0, 2_000, 20_000)),
            merge_below_bytes=4_096,
            merge_count=rng.choice((2, 4)),
            shared_look_ms=rng.choice((100, 1_000)),
            shared_look_ms_max=5_000,
            collect_again_ms=20_000,
        )
        self.groups = GroupSettings(
            initial_rebalance_delay_ms=rng.choice((0, 1_000)),
            snapshot_record_interval=rng.choice((5, 20, 10_000)),
        )
        self.controller = ControllerSettings(
            snapshot_entries=rng.choice((3, 10, 1_000)),
            leading_check_s=rng.choice((1.0, 5.0)),
            collect_delay_s=2.0,
            collect_interval_s=1.0,
            stray_interval_s=rng.choice((2.0, 20.0)),
        )
        self.offsets_topic_partitions = rng.choice((1, 3))


class _RecordingOwner:
    """The broker, with every acknowledgement kept in the history."""

    def __init__(self, owner: Owner, world: World, role: ControllerRole, name: str) -> None:
        self._owner = owner
        self._world = world
        self._role = role
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        return getattr(self._owner, attribute)

    def append(self, tp: TopicPartition, records: Any, *, produce_version: int) -> "asyncio.Future[Appended]":
        future = self._owner.append(tp, records, produce_version=produce_version)
        image = self._role.metadata.image
        topic, meta = image.topics.get(tp.topic_id), image.partition(tp)
        if topic is not None and meta is not None:
            append = OwnerAppend(place=Place(topic.name, tp.partition), leader_epoch=meta.leader_epoch, owner=self._name)
            future.add_done_callback(lambda done: self._keep(append, done))
        return future

    def _keep(self, append: OwnerAppend, done: "asyncio.Future[Appended]") -> None:
        if not done.cancelled() and done.exception() is None:
            self._world.history.owner_appends.append(append)


class Incarnation:
    """One start of the program: controller, broker and proxy in one process."""

    def __init__(self, world: World, *, number: int, host: str, settings: NodeSettings) -> None:
        self.name = f"{host}#{number}"
        self.host = host
        self.process = SimProcess(self.name, host=host)
        self.ended_by: str | None = None
        """Why it ended by itself."""
        self._world = world
        self._settings = settings
        self._rng = SimRng(world.rng(self.name))
        self._clock = SimClock()
        self._proxy: ProxyRole | None = None
        self._broker: BrokerRole | None = None
        self._controller: ControllerRole | None = None
        self._guard: asyncio.Task[None] | None = None

    @property
    def alive(self) -> bool:
        """Whether it runs, or would if it were not paused."""
        return self.process.state is not ProcessState.DEAD

    @property
    def serving(self) -> bool:
        """Whether it takes requests."""
        return self.alive and self._proxy is not None

    @property
    def image(self) -> Image:
        """Its image of the cluster."""
        assert self._controller is not None
        return self._controller.metadata.image

    def start(self) -> None:
        """Begins, in its own process."""
        self._world.note(f"{self.name} starts")
        self.process.start(self._run())

    def stop(self) -> None:
        """SIGTERM."""
        self._world.note(f"{self.name} is told to stop")
        self.process.start(self._stop(), name=f"{self.name} stop")

    def exit(self, reason: object) -> None:
        """It ends by itself."""
        if self.ended_by is None:
            self.ended_by = str(reason)
            self._world.note(f"{self.name} exits: {reason}")
            self._die()

    def taken_over(self, reason: object) -> None:
        """Another incarnation leads or owns: it goes at once, or stops what it does first, as it does for SIGTERM."""
        if self.ended_by is None:
            self.ended_by = str(reason)
            self._world.note(f"{self.name} is taken over: {reason}")
            if self._world.rng(f"{self.name} ends").random() < 0.5:
                self._die()
            else:
                self.process.start(self._stop(), name=f"{self.name} stop")

    def _die(self) -> None:
        # Outside of the process, which must not run any more.
        self._world.loop.call_soon(self._world.loop.kill, self.process, context=contextvars.Context())

    async def _run(self) -> None:
        try:
            await self._start_roles()
        except (BmqError, OSError) as error:
            self.exit(f"{type(error).__name__}: {error}")

    async def _start_roles(self) -> None:
        store, clock, rng = self._world.store.for_node(self.name), self._clock, self._rng
        self._controller = controller = await start_controller(
            store,
            node_id=NODE_ID,
            clock=clock,
            rng=rng,
            settings=self._settings.controller,
            on_deposed=lambda reason: self.taken_over(f"deposed: {reason}"),
        )
        guard = ClockGuard(store, clock, rng, node_id=NODE_ID)
        self._guard = asyncio.get_running_loop().create_task(guard.run(), name="clock guard")
        self._broker = broker = BrokerRole(
            store=store,
            control=controller.controller,
            metadata=controller.metadata,
            registration=Registration(node_id=NODE_ID, boot=rng.uuid(), roles=("controller", "broker", "proxy"), host=self.host, port=PORT),
            clock=clock,
            rng=rng,
            clock_guard=guard,
            settings=self._settings.broker,
            group_settings=self._settings.groups,
            cluster_configs={},
            on_fenced=lambda error: self.taken_over(f"fenced: {error}"),
        )
        await broker.start()
        owner: Any = _RecordingOwner(broker.owner, self._world, controller, self.name)
        settings = ProxySettings(node_id=NODE_ID, advertised_host=self.host, offsets_topic_partitions=self._settings.offsets_topic_partitions)
        self._proxy = await start_proxy(
            store, lambda _: owner, controller.controller, controller.metadata, settings, clock=clock, rng=rng, host=self.host, port=PORT
        )
        self._world.note(f"{self.name} serves")

    async def _stop(self) -> None:
        if self._proxy is None:
            self.exit("stopped")  # it was still starting: the signal ends it
            self._die()
            return
        await self._proxy.stop()
        if self._broker is not None:
            await self._broker.stop()
        if self._guard is not None:
            self._guard.cancel()
        if self._controller is not None:
            await self._controller.stop()
        self.exit("stopped")
        self._die()


class Supervisor:
    """Keeps one incarnation running, as an init system does, and plays the accidents."""

    def __init__(self, world: World, settings: NodeSettings | None = None) -> None:
        self._world = world
        self._rng = world.rng("supervisor")
        self._settings = settings or NodeSettings(world.rng("settings"))
        self.incarnations: list[Incarnation] = []
        self._watch: asyncio.Task[None] | None = None
        self.seconds = 0
        """Incarnations that were started beside a living one."""

    def start(self) -> None:
        """Starts the first incarnation and watches it."""
        self._begin(HOSTS[0])
        self._watch = asyncio.get_running_loop().create_task(self._keep_running(), name="supervisor")

    @property
    def addresses(self) -> tuple[Address, ...]:
        """Where Kafka clients begin."""
        return tuple((host, PORT) for host in HOSTS)

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
        """Another start of the same node elsewhere, while the first one runs, or hangs for so long (by chance where it is not said)."""
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
        """Raises InvariantViolated where incarnations ended by themselves more often than there were others to be ended by."""
        ended = [f"{each.name}: {each.ended_by}" for each in self.incarnations if each.ended_by is not None and each.ended_by != "stopped"]
        if len(ended) > self.seconds:
            raise InvariantViolated(f"{self.seconds} seconds were started, and these ended by themselves:\n  " + "\n  ".join(ended))

    def _begin(self, host: str) -> None:
        assert len(self.incarnations) < RESTARTS_MAX, "the node does not stay up"
        incarnation = Incarnation(self._world, number=len(self.incarnations) + 1, host=host, settings=self._settings)
        self.incarnations.append(incarnation)
        incarnation.start()

    async def _keep_running(self) -> None:
        while True:
            await asyncio.sleep(0.5 + self._rng.random() * 2)
            if not self.living:
                self._begin(self._rng.choice(HOSTS))

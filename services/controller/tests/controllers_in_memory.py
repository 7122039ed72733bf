"""Several controllers on one store, and brokers that only live and write: each a process of the simulator that can be
killed and stopped.
"""

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from typing import TypeVar
from uuid import UUID

from tests.waiting import until_async

from bmq.errors import BmqError, ControllerUnavailable, Fenced
from bmq.metadata.follower import Poll
from bmq.metadata.image import Image
from bmq.metadata.journal import MetadataJournal
from bmq.roles.controller import ClosedPartition, Heartbeat, HeartbeatReply, PartitionLoad, Registration
from bmq.storage.stream import StreamWriter
from bmq.values import BrokerEpoch, NodeId, StreamId
from bmq_controller.controller import LeadingController
from bmq_controller.current import CurrentController
from bmq_controller.main import StandbyRole, start_standby
from bmq_controller.settings import ControllerSettings
from bmq_sim.clock import SimClock, SimRng
from bmq_sim.loop import VirtualLoop
from bmq_sim.process import ProcessState, SimProcess
from bmq_sim.store import SimStore

T = TypeVar("T")
CALL_TIMEOUT_S = 2.0
BEAT_INTERVAL_S = 2.0
RETRY_S = 0.3


class Controllers:
    """The processes, by node id; a restart is a new process with the same id."""

    def __init__(
        self, loop: VirtualLoop, store: SimStore, *, settings: ControllerSettings | None = None, polling: bool = True
    ) -> None:
        self.store = store
        self.processes: dict[int, SimProcess] = {}
        self.roles: dict[int, StandbyRole] = {}
        self._loop = loop
        self._settings = settings
        self._polling = polling
        self._starts = itertools.count(1)

    def start(self, node_id: int) -> None:
        """A controller that follows or leads, and that is registered as one."""
        number = next(self._starts)
        self.roles.pop(node_id, None)
        self.processes[node_id] = process = SimProcess(f"c{node_id}#{number}", host=f"c{node_id}")
        process.start(self._live(node_id, number))

    def kill(self, node_id: int) -> None:
        self._loop.kill(self.processes[node_id])

    async def stop(self, node_id: int) -> None:
        """The clean stop."""
        role = self.roles.pop(node_id)
        await role.stop()
        self.kill(node_id)

    def pause(self, node_id: int) -> None:
        self._loop.pause(self.processes[node_id])

    def resume(self, node_id: int) -> None:
        self._loop.resume(self.processes[node_id])

    def runs(self, node_id: int) -> bool:
        return self.processes[node_id].state is ProcessState.RUNNING

    def leading(self) -> list[int]:
        """Those that run and believe that they lead."""
        return [node_id for node_id, role in self.roles.items() if self.runs(node_id) and role.leading]

    async def until_led(self, *, by_other_than: int = -1, within_s: float = 30.0) -> int:
        """Who leads, once there is one."""
        found = await until_async(
            lambda: [node_id for node_id in self.leading() if node_id != by_other_than],
            f"a leader other than {by_other_than}",
            within_s,
            every_s=0.01,
        )
        return found[0]

    def leader(self) -> LeadingController:
        """What the newest leader knows. There must be one."""
        controller = self.roles[
            max(self.leading(), key=lambda node_id: self.roles[node_id].metadata.image.controller_epoch)
        ].controller.leading
        assert controller is not None
        return controller

    async def ask(self, call: Callable[[CurrentController], Awaitable[T]]) -> T:
        """What a remote call does: the newest leader answers, or nobody does. Raises ControllerUnavailable."""
        leading = sorted(self.leading(), key=lambda node_id: self.roles[node_id].metadata.image.controller_epoch)
        if not leading:
            await asyncio.sleep(0.01)
            raise ControllerUnavailable("nobody leads")
        controller = self.roles[leading[-1]].controller

        async def answer() -> T | BmqError:
            try:
                return await call(controller)
            except BmqError as error:
                return error

        # In the leader's process, and to its end: a caller that is killed must not leave it half-way.
        answering = self.processes[leading[-1]].start(answer(), name="answer")
        try:
            async with asyncio.timeout(CALL_TIMEOUT_S):
                answered = await asyncio.shield(answering)
        except TimeoutError:
            raise ControllerUnavailable("the leader does not answer") from None
        if isinstance(answered, BmqError):
            raise answered
        return answered

    async def image(self) -> Image:
        """What a reader of the store sees."""
        return (await MetadataJournal(self.store.for_node("reader"), rng=SimRng(99)).load()).image

    async def until(self, shown: Callable[[Image], bool], *, within_s: float = 30.0) -> Image:
        """The leader's image once it shows something."""
        return await until_async(
            lambda: next(filter(shown, (self.roles[node_id].metadata.image for node_id in self.leading())), None),
            "the leader's image to show it",
            within_s,
            holds=lambda image: True,
            every_s=0.05,
        )

    async def _live(self, node_id: int, number: int) -> None:
        role = await start_standby(
            self.store.for_node(f"c{node_id}"),
            node_id=NodeId(node_id),
            clock=SimClock(),
            rng=SimRng(1000 * node_id + number),
            settings=self._settings,
            poll=self._poll_of_leader() if self._polling else None,
            host=f"c{node_id}",
            port=9000 + node_id,
        )
        self.roles[node_id] = role
        registration = Registration(
            node_id=NodeId(node_id), boot=UUID(int=10_000 + number), roles=("controller",), host="", port=0
        )
        await Member(self, registration).live()

    def _poll_of_leader(self) -> Poll:
        async def poll(after_position: int, wait_ms: int) -> list[bytes]:
            return await self.ask(lambda controller: controller.metadata_poll(after_position, wait_ms))

        return poll


class Member:
    """A node that registers and lives on."""

    def __init__(self, controllers: Controllers, registration: Registration) -> None:
        self.registration = registration
        self.epoch = BrokerEpoch(-1)
        self.fenced = 0
        self.closed: Callable[[], tuple[ClosedPartition, ...]] = tuple
        self.loads: tuple[PartitionLoad, ...] = ()
        self.draining = False
        self.clock_differs = False
        self.trouble = ""
        self._controllers = controllers

    async def register(self) -> None:
        while True:
            try:
                self.epoch = await self._controllers.ask(lambda controller: controller.register(self.registration))
            except ControllerUnavailable:
                await asyncio.sleep(RETRY_S)
            else:
                return

    async def beat(self) -> HeartbeatReply:
        beat = Heartbeat(
            node_id=self.registration.node_id,
            broker_epoch=self.epoch,
            boot=self.registration.boot,
            closed=self.closed(),
            loads=self.loads,
            draining=self.draining,
            clock_differs=self.clock_differs,
            trouble=self.trouble,
        )
        return await self._controllers.ask(lambda controller: controller.heartbeat(beat))

    async def live(self) -> None:
        """Registers again whenever it was taken for dead, for ever."""
        await self.register()
        while True:
            try:
                await self.beat()
            except Fenced:
                self.fenced += 1
                await self.register()
            except BmqError:
                await asyncio.sleep(RETRY_S)
            else:
                await asyncio.sleep(BEAT_INTERVAL_S)


class SimBroker(Member):
    """A broker without data: a few WAL objects and heartbeats."""

    def __init__(self, controllers: Controllers, node_id: int, *, boot: int = 1, pool: str = "") -> None:
        registration = Registration(
            node_id=NodeId(node_id),
            boot=UUID(int=1_000 * node_id + boot),
            roles=("broker",),
            host="b",
            port=9092,
            pool=pool,
        )
        super().__init__(controllers, registration)
        self.process = SimProcess(f"b{node_id}#{boot}", host=f"b{node_id}")
        self.process.start(self.live())

    @property
    def stream(self) -> StreamId:
        return StreamId(self.registration.node_id, self.epoch)

    async def registered(self) -> None:
        await until_async(lambda: self.epoch != -1, "the registration", 20, every_s=0.01)

    async def write(self, count: int, *, cluster_id: str) -> None:
        durable: list[int] = []
        store = self._controllers.store.for_node(self.process.name)
        writer = StreamWriter(
            store,
            self.stream,
            cluster_id=cluster_id,
            rng=SimRng(5),
            on_durable=durable.append,
            on_fenced=lambda error: None,
        )
        for _ in range(count):
            writer.submit([])
        await until_async(lambda: len(durable) >= count, "all to be durable", every_s=0.01)
        await writer.close()

    def lets_go(self) -> None:
        """From now on it closes what is to move; nothing of it is in its stream."""
        self.closed = self._closed

    def _closed(self) -> tuple[ClosedPartition, ...]:
        leading = self._controllers.leading()
        if not leading:
            return ()  # while the leader changes
        [leader] = leading
        image = self._controllers.roles[leader].metadata.image
        moving = [(tp, meta) for tp in image.moving if (meta := image.partition(tp)) is not None]
        return tuple(
            ClosedPartition(tp=tp, leader_epoch=meta.leader_epoch, end=0)
            for tp, meta in moving
            if (meta.node_id, meta.broker_epoch) == self.stream
        )

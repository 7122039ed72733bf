"""One start of `bmq server` on a simulated host, and the node that is started there again and again."""

import asyncio
import contextvars

from bmq.errors import BmqError
from bmq.metadata.image import Image
from bmq_broker.main import BrokerRole
from bmq_controller.api.front import AdminFront
from bmq_node.configuration.values import Role
from bmq_node.node import Node
from bmq_node.process.living import CannotGoOn, live
from bmq_sim.client import Address
from bmq_sim.clock import SimClock, SimRng
from bmq_sim.cluster.settings import INTERNAL_PORT, KAFKA_PORT, OUTSIDE, OUTSIDE_PORT, ClusterSettings, NodeSpec
from bmq_sim.process import ProcessState, SimProcess
from bmq_sim.rest import exposition
from bmq_sim.world import World

ADVERTISED_S_MAX = 2.0
"""After which a node has read where it is reached."""


class ServerProcess:
    """From its start to its end. It runs on the host's clock and sees the store as its host does."""

    def __init__(
        self, world: World, spec: NodeSpec, *, number: int, settings: ClusterSettings, clock: SimClock
    ) -> None:
        self.spec = spec
        self.process = SimProcess(f"{spec.host}#{number}", host=spec.host)
        self.serving = False
        """Whether it has said that it serves."""
        self.ended_by: BmqError | None = None
        """Why it ended, where nobody told it to."""
        self._world = world
        self._settings = settings
        self._clock = clock
        self._rng = SimRng(world.rng(self.process.name))
        self._address = ""
        self._advertising = world.rng(f"listeners of {self.process.name}")
        self._number = number
        self._stop = asyncio.Event()
        self._node: Node | None = None

    @property
    def alive(self) -> bool:
        """Whether it runs, or would if it were not paused."""
        return self.process.state is not ProcessState.DEAD

    @property
    def runs(self) -> bool:
        """Whether it is neither dead nor paused."""
        return self.process.state is ProcessState.RUNNING

    @property
    def stopping(self) -> bool:
        """Whether it was told to stop."""
        return self._stop.is_set()

    @property
    def admin(self) -> AdminFront:
        """Its admin API."""
        assert self._node is not None
        return self._node.admin.front

    @property
    def broker(self) -> BrokerRole | None:
        """Its broker, once it has one."""
        return self._node.broker if self._node is not None else None

    @property
    def image(self) -> Image:
        """The cluster as it knows it."""
        return self._node.image if self._node is not None else Image()

    def start(self) -> None:
        """Begins, in its own process."""
        self._world.note(f"{self.process.name} starts")
        self.process.start(self._live())

    def advertise(self, address: str) -> None:
        """Has the file of its listeners say that clients reach the further one there: it reads that file again from
        time to time.
        """
        self._address = address
        self.process.start(self._advertise(), name=f"{self.process.name} is reached at {address}")

    def stop(self) -> None:
        """SIGTERM."""
        if not self.stopping:
            self._world.note(f"{self.process.name} is told to stop")
            self._world.work.injected["stop"] += 1
            self._stop.set()

    async def _live(self) -> None:
        spec, settings = self.spec, self._settings
        store = self._world.store.for_node(spec.host)
        config, made = settings.config(spec, start=self._number), settings.of(spec, start=self._number)
        self._node = node = Node(store, clock=self._clock, rng=self._rng, config=config, settings=made)
        node.admin.front.state.exposition = exposition
        await live(node, start=node.start(), stop=self._stop, serving=self._serves, failed=self._failed)
        self._world.note(f"{self.process.name} exits")
        # Outside of the process, which must not run any more.
        self._world.loop.call_soon(self._world.loop.end, self.process, context=contextvars.Context())

    async def _advertise(self) -> None:
        await asyncio.sleep(ADVERTISED_S_MAX * self._advertising.random())
        while self._node is None:
            await asyncio.sleep(ADVERTISED_S_MAX)
        self._node.advertise({OUTSIDE: self._address})

    def _serves(self) -> None:
        self.serving = True
        self._world.note(f"{self.process.name} serves")

    def _failed(self, error: BmqError) -> None:
        self.ended_by = error
        self._world.note(f"{self.process.name} cannot go on: {error!r}")


class SimNode:
    """A node of the cluster: its host, its clock, and its process of the moment."""

    def __init__(self, world: World, spec: NodeSpec, settings: ClusterSettings) -> None:
        self.spec = spec
        self.clock = SimClock()
        self.wanted = True
        """Whether it is started again when it ends."""
        self.starts = 0
        self.ended: list[tuple[str, BmqError]] = []
        """Processes that ended by themselves."""
        self.current: ServerProcess | None = None
        self._world = world
        self._settings = settings
        self._names = 0
        self.move()

    @property
    def host(self) -> str:
        """The name of its host."""
        return self.spec.host

    @property
    def address(self) -> Address:
        """Where its Kafka listener is, or is first to be."""
        return self.host, self._settings.port(self.spec, KAFKA_PORT, start=max(1, self.starts))

    @property
    def internal(self) -> Address:
        """Where other nodes call it."""
        return self.host, self._settings.port(self.spec, INTERNAL_PORT, start=max(1, self.starts))

    @property
    def outside(self) -> Address:
        """Where clients reach its further listener."""
        return f"door-{self._names}.{self.host}", self._settings.port(
            self.spec, OUTSIDE_PORT, start=max(1, self.starts)
        )

    def move(self) -> None:
        """Its further listener is reached by another name, and by the last one no more."""
        self._world.network.names.pop(self.outside[0], None)
        self._names += 1
        self._world.network.names[self.outside[0]] = self.host
        self._advertise()

    def _advertise(self) -> None:
        if (
            self.current is not None
            and self.current.alive
            and self._settings.listeners_change
            and self.spec.role is Role.PROXY
        ):
            self._world.note(f"{self.host} is reached at {self.outside}")
            self.current.advertise("{}:{}".format(*self.outside))

    @property
    def alive(self) -> bool:
        """Whether a process of it is there."""
        return self.current is not None and self.current.alive

    @property
    def serving(self) -> bool:
        """Whether its process runs and has said that it serves."""
        return self.current is not None and self.current.runs and self.current.serving and not self.current.stopping

    def begin(self) -> None:
        """Starts a process, where none is alive."""
        assert not self.alive
        self.keep_end()
        self.starts += 1
        self.current = ServerProcess(
            self._world, self.spec, number=self.starts, settings=self._settings, clock=self.clock
        )
        self.current.start()
        self._advertise()

    def keep_end(self) -> None:
        """Notes why the last process ended, where it ended by itself."""
        last = self.current
        if last is not None and last.ended_by is not None and isinstance(last.ended_by, CannotGoOn):
            self.ended.append((last.process.name, last.ended_by))

    def kill(self) -> None:
        """kill -9, now."""
        if self.current is not None and self.current.alive:
            self._world.note(f"kill {self.current.process.name}")
            self._world.loop.kill(self.current.process)

    def pause(self) -> None:
        """SIGSTOP."""
        if self.current is not None and self.current.runs:
            self._world.note(f"pause {self.current.process.name}")
            self._world.loop.pause(self.current.process)

    def resume(self) -> None:
        """SIGCONT."""
        if self.current is not None and self.current.alive and not self.current.runs:
            self._world.note(f"resume {self.current.process.name}")
            self._world.loop.resume(self.current.process)

    def stop(self) -> None:
        """SIGTERM."""
        if self.current is not None and self.current.alive:
            self.current.stop()

"""One start of `bmq server` on a simulated host, and the node that is started there again and again."""

import asyncio
import contextvars

from bmq.errors import BmqError
from bmq.metadata.image import Image
from bmq_broker.main import BrokerRole
from bmq_cli.cluster_node import ClusterNode
from bmq_cli.living import CannotGoOn, live
from bmq_controller.api.front import AdminFront
from bmq_sim.clock import SimClock, SimRng
from bmq_sim.cluster.settings import ClusterSettings, NodeSpec
from bmq_sim.process import ProcessState, SimProcess
from bmq_sim.world import World


class ServerProcess:
    """From its start to its end. It runs on the host's clock and sees the store as its host does."""

    def __init__(self, world: World, spec: NodeSpec, *, number: int, settings: ClusterSettings, clock: SimClock) -> None:
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
        self._stop = asyncio.Event()
        self._node: ClusterNode | None = None

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

    def stop(self) -> None:
        """SIGTERM."""
        if not self.stopping:
            self._world.note(f"{self.process.name} is told to stop")
            self._stop.set()

    async def _live(self) -> None:
        spec, settings = self.spec, self._settings
        store = self._world.store.for_node(spec.host)
        self._node = node = ClusterNode(store, clock=self._clock, rng=self._rng, config=settings.config(spec), settings=settings.of(spec))
        await live(node, start=node.start(), stop=self._stop, serving=self._serves, failed=self._failed)
        self._world.note(f"{self.process.name} exits")
        # Outside of the process, which must not run any more.
        self._world.loop.call_soon(self._world.loop.kill, self.process, context=contextvars.Context())

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

    @property
    def host(self) -> str:
        """The name of its host."""
        return self.spec.host

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
        self.current = ServerProcess(self._world, self.spec, number=self.starts, settings=self._settings, clock=self.clock)
        self.current.start()

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

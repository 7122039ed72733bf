"""Whoever runs the simulated cluster: follows the metadata log as a node does, and asks the leading controller for
moves, drains and cordons.
"""

import asyncio
from collections.abc import Awaitable, Callable

from bmq.errors import BmqError
from bmq.internal import Identity, RemoteController
from bmq.metadata.feed import MetadataFeed
from bmq.metadata.follower import MetadataFollower
from bmq.metadata.image import Image
from bmq.values import NodeId, TopicPartition
from bmq_sim.clock import SimRng
from bmq_sim.process import SimProcess
from bmq_sim.world import World

HOST = "operator"
NODE_ID = NodeId(9_999)
ASKED_S = 10.0
"""How long one request is waited for."""


class Operator:
    """In a process of its own, which nothing happens to but on the network."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._process = SimProcess(HOST, host=HOST)
        self._rng = SimRng(world.rng(HOST))
        self._feed = MetadataFeed()
        self._control: RemoteController | None = None
        self._asking: set[asyncio.Task[None]] = set()

    @property
    def image(self) -> Image:
        """The cluster as it follows it."""
        return self._feed.image

    def subscribe(self, changed: Callable[[Image, Image], None]) -> None:
        """Calls `changed(old, new)` for each image."""
        self._feed.subscribe(changed)

    def start(self) -> None:
        """Follows from now on."""
        self._process.start(self._follow(), name="operator follows")

    def move(self, tp: TopicPartition, to: int) -> None:
        """Asks once for a planned move."""
        self._ask(f"move {tp} to {to}", lambda control: control.move(tp, NodeId(to)))

    def drain(self, node_id: int) -> None:
        """Asks once to have a broker drained."""
        self._ask(f"drain {node_id}", lambda control: control.drain(NodeId(node_id)))

    def cordon(self, node_id: int, cordoned: bool) -> None:
        """Asks once."""
        self._ask(f"cordon {node_id}: {cordoned}", lambda control: control.cordon(NodeId(node_id), cordoned))

    async def _follow(self) -> None:
        store = self._world.store.for_node(HOST)
        await MetadataFollower(store, rng=self._rng, feed=self._feed, poll=self._poll).run()

    async def _poll(self, after_position: int, wait_ms: int) -> list[bytes]:
        if not self.image.cluster_id:
            await asyncio.sleep(wait_ms / 1000)
            return []
        return await self._controller().metadata_poll(after_position, wait_ms)

    def _controller(self) -> RemoteController:
        if self._control is None:
            self._control = RemoteController(
                self._feed, me=Identity(cluster_id=self.image.cluster_id, node_id=NODE_ID, copy=self.image.copy)
            )
        return self._control

    def _ask(self, what: str, call: Callable[[RemoteController], Awaitable[None]]) -> None:
        async def ask() -> None:
            try:
                async with asyncio.timeout(ASKED_S):
                    await call(self._controller())
            except (BmqError, TimeoutError) as error:
                self._world.note(f"operator: {what}: {error!r}")

        if self.image.cluster_id:
            self._world.note(f"operator: {what}")
            task = self._process.start(ask(), name=f"operator: {what}")
            self._asking.add(task)
            task.add_done_callback(self._asking.discard)

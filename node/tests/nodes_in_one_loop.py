"""Nodes of one cluster in one event loop: real listeners on the loopback, one store in memory."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from bmq.metadata.image import Image
from bmq.ports import ObjectStore
from bmq.roles.controller import Metadata
from bmq.runtime.open_store import open_store
from bmq.runtime.system import SystemClock, SystemRng
from bmq_node.configuration.node_settings import node_settings
from bmq_node.configuration.sources import read_config
from bmq_node.node import Node

STEP_S = 30
BROKERS = (101, 102)


class Cluster:
    """Nodes by their ids over one store; those that are left at the end are stopped."""

    def __init__(self, store: ObjectStore) -> None:
        self.store = store
        self.nodes: dict[int, Node] = {}

    def make(self, node_id: int, roles: str, **keys: str) -> Node:
        addresses = {"listen": "127.0.0.1:0", "internal_listen": "127.0.0.1:0", "admin": "off"}
        config = read_config(
            {"node_id": node_id, "roles": roles, "store": "memory://", "linger_ms": 1, **addresses, **keys}
        )
        settings = node_settings(config, one_disk=True, log_dir="memory")
        return Node(self.store, clock=SystemClock(), rng=SystemRng(), config=config, settings=settings)

    async def start(self, node_id: int, roles: str, **keys: str) -> Node:
        self.nodes[node_id] = node = self.make(node_id, roles, **keys)
        await node.start()
        return node

    async def stop(self, node_id: int, *, grace_s: float = 5.0) -> None:
        await self.nodes.pop(node_id).stop(grace_s=grace_s)


def run(test: Callable[[Cluster], Awaitable[None]]) -> None:
    @asynccontextmanager
    async def cluster() -> AsyncIterator[Cluster]:
        store = open_store("memory://")
        made = Cluster(store)
        try:
            yield made
        finally:
            for node_id in sorted(made.nodes):
                await made.stop(node_id, grace_s=0)
            store.close()

    async def main() -> None:
        async with cluster() as made, asyncio.timeout(STEP_S):
            await test(made)

    asyncio.run(main())


async def until(metadata: Metadata, condition: Callable[[Image], bool]) -> Image:
    changed = asyncio.Event()
    unsubscribe = metadata.subscribe(lambda _, __: changed.set())
    try:
        while not condition(metadata.image):
            changed.clear()
            await changed.wait()
    finally:
        unsubscribe()
    return metadata.image

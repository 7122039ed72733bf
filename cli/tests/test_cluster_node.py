"""Nodes of one cluster in one event loop: real listeners on the loopback, one store in memory."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from bmq.errors import ConfigurationError, NotOwner
from bmq.internal import RemoteOwner
from bmq.metadata.image import Image
from bmq.ports import ObjectStore
from bmq.roles.controller import Metadata, NewTopic
from bmq.runtime.open_store import open_store
from bmq.runtime.system import SystemClock, SystemRng
from bmq.values import TopicPartition
from bmq.wire.records import Record, build_batch
from bmq_cli.cluster_node import ClusterNode
from bmq_cli.role_settings import role_settings
from bmq_cli.server_sources import read_config
from bmq_proxy.proxy import Proxy

STEP_S = 30
BROKERS = (101, 102)


class Cluster:
    """Nodes by their ids over one store; those that are left at the end are stopped."""

    def __init__(self, store: ObjectStore) -> None:
        self.store = store
        self.nodes: dict[int, ClusterNode] = {}

    def make(self, node_id: int, roles: str, **keys: str) -> ClusterNode:
        addresses = {"listen": "127.0.0.1:0", "internal_listen": "127.0.0.1:0", "admin": "off"}
        config = read_config({"node_id": node_id, "roles": roles, "store": "memory://", "linger_ms": 1, **addresses, **keys})
        settings = role_settings(config, one_disk=True, log_dir="memory")
        return ClusterNode(self.store, clock=SystemClock(), rng=SystemRng(), config=config, settings=settings)

    async def start(self, node_id: int, roles: str, **keys: str) -> ClusterNode:
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


async def create_topic(proxy: Proxy, name: str, partitions: int) -> list[TopicPartition]:
    [result] = await proxy.controller.create_topics([NewTopic(name=name, partitions=partitions)])
    assert result.error is None
    assert result.topic_id is not None
    await until(proxy.metadata, lambda image: image.topic(name) is not None)
    return [TopicPartition(result.topic_id, index) for index in range(partitions)]


async def append(proxy: Proxy, tp: TopicPartition) -> int:
    """The offset of one record that the proxy sends as it sends a client's, and again while it certainly is not applied."""
    records = build_batch([Record(0, 1_000, None, b"value")])
    give_up_at = asyncio.get_running_loop().time() + STEP_S
    return (await proxy.appends.submit(tp, records, produce_version=9, give_up_at=give_up_at).done).base_offset


def proxy_of(node: ClusterNode) -> Proxy:
    assert node.proxy is not None
    return node.proxy.proxy


async def three_roles(cluster: Cluster) -> Proxy:
    """A controller, two brokers and a proxy; the proxy."""
    await asyncio.gather(cluster.start(201, "controller"), *(cluster.start(node_id, "broker") for node_id in BROKERS), cluster.start(1, "proxy"))
    proxy = proxy_of(cluster.nodes[1])
    await until(proxy.metadata, lambda image: {1, 201, *BROKERS} <= set(image.nodes))
    return proxy


def test_a_proxy_reaches_the_owners_of_all_partitions_through_the_metadata() -> None:
    async def test(cluster: Cluster) -> None:
        proxy = await three_roles(cluster)
        tps = await create_topic(proxy, "orders", 6)
        assert [await append(proxy, tp) for tp in tps] == [0] * 6
        assert [await append(proxy, tp) for tp in tps] == [1] * 6
        owners = {proxy.owner_for(tp) for tp in tps}
        assert len(owners) == len(BROKERS)
        assert all(isinstance(owner, RemoteOwner) for owner in owners)

    run(test)


def test_a_proxy_asks_the_broker_of_its_own_process_directly() -> None:
    async def test(cluster: Cluster) -> None:
        proxy = proxy_of(await cluster.start(1, "controller,broker,proxy"))
        [tp] = await create_topic(proxy, "orders", 1)
        assert await append(proxy, tp) == 0
        assert not isinstance(proxy.owner_for(tp), RemoteOwner)

    run(test)


def test_records_are_produced_while_there_is_no_controller() -> None:
    async def test(cluster: Cluster) -> None:
        proxy = await three_roles(cluster)
        tps = await create_topic(proxy, "orders", 2)
        assert [await append(proxy, tp) for tp in tps] == [0, 0]
        await cluster.stop(201, grace_s=0)
        assert [await append(proxy, tp) for tp in tps] == [1, 1]

    run(test)


def test_a_broker_that_stops_hands_its_partitions_over_and_is_gone() -> None:
    async def test(cluster: Cluster) -> None:
        proxy = await three_roles(cluster)
        tps = await create_topic(proxy, "orders", 4)
        assert [await append(proxy, tp) for tp in tps] == [0] * 4
        await cluster.stop(101)
        image = await until(proxy.metadata, lambda image: 101 not in image.nodes)
        assert {meta.node_id for meta in image.topics[tps[0].topic_id].partitions} == {102}
        assert [await append(proxy, tp) for tp in tps] == [1] * 4

    run(test)


def test_a_node_that_stops_is_no_longer_told_of() -> None:
    async def test(cluster: Cluster) -> None:
        await three_roles(cluster)
        second = proxy_of(await cluster.start(2, "proxy"))
        image = await until(second.metadata, lambda image: {1, 2} <= set(image.nodes))
        assert (image.nodes[2].host, image.nodes[2].port) == ("127.0.0.1", second.advertised_port)
        await cluster.stop(1)
        await until(second.metadata, lambda image: 1 not in image.nodes)

    run(test)


def test_a_partition_that_nobody_owns_is_refused_as_certainly_not_applied() -> None:
    async def test(cluster: Cluster) -> None:
        await asyncio.gather(cluster.start(201, "controller"), cluster.start(1, "proxy"))
        proxy = proxy_of(cluster.nodes[1])
        [tp] = await create_topic(proxy, "orders", 1)
        with pytest.raises(NotOwner, match="no broker owns it at present"):
            proxy.owner_for(tp)
        await cluster.start(101, "broker")
        assert await append(proxy, tp) == 0

    run(test)


def test_a_new_store_gets_the_id_that_is_given_and_another_is_refused_from_then_on() -> None:
    async def test(cluster: Cluster) -> None:
        node = await cluster.start(1, "controller,broker,proxy", cluster_id="mine")
        assert proxy_of(node).image.cluster_id == "mine"
        other = cluster.make(2, "proxy", cluster_id="other")
        with pytest.raises(ConfigurationError, match=r"^cluster_id 'other': the store memory:// belongs to cluster 'mine': .*"):
            await other.start()
        await other.stop(grace_s=0)

    run(test)

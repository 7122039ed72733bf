"""The nodes of a cluster, put together: they find each other through the metadata, and go on without a controller."""

import asyncio

import pytest
from nodes_in_one_loop import BROKERS, STEP_S, Cluster, run, until

from bmq.errors import ConfigurationError, NotOwner
from bmq.internal import RemoteOwner
from bmq.roles.controller import NewTopic
from bmq.values import TopicPartition
from bmq.wire.records import Record, build_batch
from bmq_node.node import Node
from bmq_proxy.proxy import Proxy


async def create_topic(proxy: Proxy, name: str, partitions: int) -> list[TopicPartition]:
    [result] = await proxy.controller.create_topics([NewTopic(name=name, partitions=partitions)])
    assert result.error is None
    assert result.topic_id is not None
    await until(proxy.metadata, lambda image: image.topic(name) is not None)
    return [TopicPartition(result.topic_id, index) for index in range(partitions)]


async def append(proxy: Proxy, tp: TopicPartition) -> int:
    """The offset of one record that the proxy sends as it sends a client's, and again while it certainly is not
    applied.
    """
    records = build_batch([Record(0, 1_000, None, b"value")])
    give_up_at = asyncio.get_running_loop().time() + STEP_S
    return (await proxy.appends.submit(tp, records, produce_version=9, give_up_at=give_up_at).done).base_offset


def proxy_of(node: Node) -> Proxy:
    assert node.proxy is not None
    return node.proxy.proxy


async def three_roles(cluster: Cluster) -> Proxy:
    """A controller, two brokers and a proxy; the proxy."""
    await asyncio.gather(
        cluster.start(201, "controller"),
        *(cluster.start(node_id, "broker") for node_id in BROKERS),
        cluster.start(1, "proxy"),
    )
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
        with pytest.raises(
            ConfigurationError, match=r"^cluster_id 'other': the store memory:// belongs to cluster 'mine': .*"
        ):
            await other.start()
        await other.stop(grace_s=0)

    run(test)

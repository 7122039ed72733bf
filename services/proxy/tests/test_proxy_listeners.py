"""A client is told the addresses of the listener by which it came, and of no other."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

from proxy_in_memory import Client, Running, running_proxy

from bmq.metadata.image import Node
from bmq.values import BrokerEpoch, NodeId
from bmq.wire.error_codes import ErrorCode
from bmq_proxy.settings import ProxySettings

OWN = 1


def proxy_node(node_id: int, **listeners: tuple[str, int]) -> Node:
    return Node(
        node_id=NodeId(node_id),
        broker_epoch=BrokerEpoch(1),
        boot=UUID(int=node_id),
        roles=("proxy",),
        host=f"inside-{node_id}",
        port=9092,
        listeners=listeners,
    )


def run(test: Callable[[Running, Client, Client], Awaitable[None]]) -> None:
    """With a client by the default listener, and one by the external; 7 and 8 are external too, 9 is not, and the proxy
    itself not yet.
    """

    async def main() -> None:
        async with running_proxy(
            ProxySettings(node_id=OWN, advertised_host="inside-1"), listeners=["external", "lan"]
        ) as proxy:
            nodes = [
                proxy_node(7, external=("out-7", 31007)),
                proxy_node(8, external=("out-8", 31008), lan=("lan-8", 1)),
                proxy_node(9),
            ]
            proxy.metadata.change(nodes={node.node_id: node for node in nodes})
            proxy.metadata.add_topic("orders", 60)
            proxy.metadata.add_topic("__consumer_offsets", 60)
            await asyncio.wait_for(test(proxy, await proxy.connect(), await proxy.connect(listener="external")), 20)

    asyncio.run(main())


async def metadata(client: Client) -> Any:
    return await client.ask(3, 12, {"topics": [{"name": "orders"}]})


async def told(client: Client) -> dict[int, tuple[str, int]]:
    """The addresses of Metadata, which are those of DescribeCluster, and the leaders and coordinators are among
    them.
    """
    reply = await metadata(client)
    brokers = {one.node_id: (one.host, one.port) for one in reply.brokers}
    cluster = await client.ask(60, 0, {"endpoint_type": 1})
    assert {one.broker_id: (one.host, one.port) for one in cluster.brokers} == brokers
    assert reply.controller_id == cluster.controller_id
    assert reply.controller_id in brokers or (not brokers and reply.controller_id == -1)
    described = await client.ask(75, 0, {"topics": [{"name": "orders"}], "response_partition_limit": 100})
    for partitions in (reply.topics[0].partitions, described.topics[0].partitions):
        assert {one.leader_id for one in partitions} == (set(brokers) or {-1})
    if brokers:
        found = await client.ask(
            10, 5, {"key_type": 0, "coordinator_keys": [f"group-{number}" for number in range(60)]}
        )
        assert {(one.node_id, one.host, one.port) for one in found.coordinators} == {
            (node_id, *address) for node_id, address in brokers.items()
        }
    return brokers


def test_each_client_is_told_the_proxies_of_its_listener_alone() -> None:
    async def test(proxy: Running, inside: Client, outside: Client) -> None:
        for _ in range(2):  # the second answer is one that was kept
            assert await told(inside) == {
                1: ("inside-1", proxy.role.port),
                7: ("inside-7", 9092),
                8: ("inside-8", 9092),
                9: ("inside-9", 9092),
            }
            assert await told(outside) == {7: ("out-7", 31007), 8: ("out-8", 31008)}
        assert await told(await proxy.connect(listener="lan")) == {8: ("lan-8", 1)}

    run(test)


def test_a_proxy_is_told_of_once_its_own_address_is_known() -> None:
    async def test(proxy: Running, inside: Client, outside: Client) -> None:
        assert OWN not in await told(outside)
        proxy.role.proxy.listeners = {"external": ("out-1", 31001)}
        image = proxy.metadata.image
        proxy.metadata.change(nodes={**image.nodes, NodeId(OWN): proxy_node(OWN, external=("out-1", 31001))})
        assert await told(outside) == {1: ("out-1", 31001), 7: ("out-7", 31007), 8: ("out-8", 31008)}

    run(test)


def test_where_no_proxy_has_an_address_clients_are_told_so_and_may_ask_again() -> None:
    async def test(proxy: Running, inside: Client, outside: Client) -> None:
        proxy.metadata.change(nodes={NodeId(9): proxy_node(9)})
        assert await told(outside) == {}
        reply = await metadata(outside)
        assert {one.error_code for one in reply.topics[0].partitions} == {ErrorCode.listener_not_found}
        found = await outside.ask(10, 5, {"key_type": 0, "coordinator_keys": ["group"]})
        assert [(one.error_code, one.node_id) for one in found.coordinators] == [
            (ErrorCode.coordinator_not_available, -1)
        ]
        assert set(await told(inside)) == {1, 9}

    run(test)


def test_what_is_asked_of_each_proxy_is_told_once_among_those_of_the_listener() -> None:
    async def test(proxy: Running, inside: Client, outside: Client) -> None:
        proxy.role.proxy.listeners = {"external": ("out-1", 31001)}
        proxy.metadata.change(nodes={NodeId(7): proxy_node(7, external=("out-7", 31007)), NodeId(9): proxy_node(9)})
        asked: list[int] = []

        def listed(partition: int, *_: object) -> dict[str, object]:
            asked.append(partition)
            return {"error_code": 0, "groups": []}

        proxy.owner.on_group_call = listed
        for client, others in ((outside, {7}), (inside, {7, 9})):
            asked.clear()
            partitions = (await client.ask(3, 12, {"topics": [{"name": "__consumer_offsets"}]})).topics[0].partitions
            assert {one.leader_id for one in partitions} == {OWN, *others}
            await client.ask(16, 4, {})
            assert sorted(asked) == [one.partition_index for one in partitions if one.leader_id == OWN]

    run(test)

"""Which proxy clients are told of for a partition: spread evenly, the same everywhere, and moved only where a proxy
comes or goes.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from proxy_in_memory import Client, Running, running_proxy

from bmq.metadata.image import Image, Node
from bmq.values import BrokerEpoch, NodeId, TopicId, TopicPartition
from bmq_proxy.settings import ProxySettings
from bmq_proxy.spreading import Proxies, ProxyAddress, zone_of

OWN = 1
NOBODY = -1
TOPIC = TopicId(UUID("12345678-1234-4abc-8def-1234567890ab"))


def addresses(*node_ids: int) -> dict[int, ProxyAddress]:
    return {node_id: ProxyAddress(node_id=node_id, host=f"proxy-{node_id}", port=9092) for node_id in node_ids}


def node(node_id: int, *roles: str, host: str = "10.0.0.1", port: int = 9092, rack: str = "") -> Node:
    return Node(
        node_id=NodeId(node_id),
        broker_epoch=BrokerEpoch(1),
        boot=UUID(int=node_id << 64),
        roles=roles,
        host=host,
        port=port,
        rack=rack,
    )


def image_with(*nodes: Node) -> Image:
    return Image(position=1, nodes={one.node_id: one for one in nodes})


node_ids = st.sets(st.integers(0, 2**31 - 1), min_size=1, max_size=8)
partitions = st.builds(TopicPartition, st.builds(TopicId, st.uuids()), st.integers(0, 9_999))


@given(node_ids, partitions)
def test_the_order_in_which_proxies_are_known_does_not_matter(found: set[int], tp: TopicPartition) -> None:
    there = list(found)
    assert Proxies(addresses(*there)).standing_for(tp, owner=NOBODY) == Proxies(
        addresses(*reversed(there))
    ).standing_for(tp, owner=NOBODY)


@given(node_ids, st.integers(0, 2**31 - 1), partitions)
def test_a_proxy_that_comes_takes_partitions_and_moves_no_other(found: set[int], new: int, tp: TopicPartition) -> None:
    before = Proxies(addresses(*(found - {new} or {new + 1}))).standing_for(tp, owner=NOBODY).node_id
    after = Proxies(addresses(*(found - {new} or {new + 1}), new)).standing_for(tp, owner=NOBODY).node_id
    assert after in (before, new)


@pytest.mark.parametrize("count", [2, 3, 7])
def test_partitions_are_spread_evenly(count: int) -> None:
    proxies = Proxies(addresses(*range(1, count + 1)))
    shares = Counter(
        proxies.standing_for(TopicPartition(TOPIC, index), owner=NOBODY).node_id for index in range(10_000)
    )
    assert len(shares) == count
    assert max(shares.values()) - min(shares.values()) < 10_000 / count * 0.15, shares


def test_topics_of_one_partition_are_spread_too() -> None:
    proxies = Proxies(addresses(1, 2, 3))
    shares = Counter(
        proxies.standing_for(TopicPartition(TopicId(UUID(int=number << 70 | number)), 0), owner=NOBODY).node_id
        for number in range(3_000)
    )
    assert min(shares.values()) > 800, shares


def test_only_nodes_with_a_proxy_and_an_address_are_named_and_oneself_always() -> None:
    own = ProxyAddress(node_id=OWN, host="here", port=9092)
    image = image_with(
        node(2, "proxy", rack="a"),
        node(3, "broker", host="", port=0),
        node(4, "broker", "proxy"),
        node(5, "proxy", host=""),
    )
    assert list(Proxies.of(image, own).by_id) == [1, 2, 4]
    assert Proxies.of(image, own).by_id[2] == ProxyAddress(node_id=2, host="10.0.0.1", port=9092, rack="a")
    assert list(Proxies.of(Image(), own).by_id) == [1]


def test_a_proxy_knows_its_own_address_better_than_the_metadata() -> None:
    own = ProxyAddress(node_id=OWN, host="here", port=4000)
    image = image_with(node(OWN, "proxy", host="elsewhere", port=1, rack="b"))
    assert Proxies.of(image, own).by_id[OWN] == ProxyAddress(node_id=OWN, host="here", port=4000, rack="b")


@pytest.mark.parametrize(
    ("client_id", "zone"),
    [
        ("bmq_az=eu-1a", "eu-1a"),
        ("orders,bmq_az=eu-1a,lane=test", "eu-1a"),
        ("orders bmq_az=b; version=7", "b"),
        ("orders", None),
        ("", None),
        ("bmq_az=", None),
        ("mybmq_az=a", None),
    ],
)
def test_a_client_says_its_zone_in_its_id(client_id: str, zone: str | None) -> None:
    assert zone_of(client_id) == zone


def test_in_a_zone_with_proxies_these_alone_stand_for_partitions_and_all_do_for_a_zone_that_has_none() -> None:
    own = ProxyAddress(node_id=OWN, host="here", port=9092, rack="a")
    image = image_with(
        node(OWN, "proxy", rack="a"), node(2, "proxy", rack="b"), node(3, "proxy", rack="b"), node(4, "proxy")
    )
    partitions = [TopicPartition(TOPIC, index) for index in range(200)]

    def standing(zone: str | None) -> set[int]:
        return {Proxies.of(image, own, zone=zone).standing_for(tp, owner=NOBODY).node_id for tp in partitions}

    assert standing("a") == {1}
    assert standing("b") == {2, 3}
    assert standing("c") == standing(None) == {1, 2, 3, 4}
    assert list(Proxies.of(image, own, zone="b").by_id) == [1, 2, 3, 4]


def test_a_proxy_that_owns_the_partition_stands_for_it_but_for_clients_of_another_zone() -> None:
    own = ProxyAddress(node_id=OWN, host="here", port=9092, rack="a")
    image = image_with(
        node(OWN, "broker", "proxy", rack="a"),
        node(2, "broker", "proxy", rack="b"),
        node(3, "proxy", rack="b"),
        node(101, "broker", host="", port=0),
    )
    partitions = [TopicPartition(TOPIC, index) for index in range(200)]

    def standing(owner: int, zone: str | None = None) -> set[int]:
        return {Proxies.of(image, own, zone=zone).standing_for(tp, owner=owner).node_id for tp in partitions}

    assert (standing(OWN), standing(2), standing(2, "b")) == ({1}, {2}, {2})
    assert standing(101) == standing(3) == standing(-1) == {1, 2, 3}, "a broker or a proxy alone, or nobody"
    assert standing(OWN, "b") == {2, 3}


def run(test: Callable[[Running, Client], Awaitable[None]]) -> None:
    async def main() -> None:
        async with running_proxy(ProxySettings(node_id=OWN)) as proxy:
            proxy.metadata.change(
                nodes={
                    NodeId(7): node(7, "proxy", host="seven", port=70),
                    NodeId(9): node(9, "broker", host="", port=0),
                }
            )
            await asyncio.wait_for(test(proxy, await proxy.connect()), 20)

    asyncio.run(main())


def test_metadata_names_all_proxies_and_spreads_the_partitions_over_them() -> None:
    async def test(proxy: Running, client: Client) -> None:
        proxy.metadata.add_topic("orders", 40)
        reply = await client.ask(3, 12, {"topics": [{"name": "orders"}]})
        assert [(one.node_id, one.host, one.port) for one in reply.brokers] == [
            (1, "127.0.0.1", proxy.role.port),
            (7, "seven", 70),
        ]
        leaders = [one.leader_id for one in reply.topics[0].partitions]
        assert set(leaders) == {1, 7}
        described = await client.ask(75, 0, {"topics": [{"name": "orders"}], "response_partition_limit": 100})
        assert [one.leader_id for one in described.topics[0].partitions] == leaders
        cluster = await client.ask(60, 0, {"endpoint_type": 1})
        assert [one.broker_id for one in cluster.brokers] == [1, 7]

    run(test)


def test_what_is_asked_of_each_proxy_is_told_once_in_all() -> None:
    async def test(proxy: Running, client: Client) -> None:
        proxy.metadata.add_topic("__consumer_offsets", 40)
        asked: list[int] = []

        def listed(partition: int, *_: object) -> dict[str, object]:
            asked.append(partition)
            return {
                "error_code": 0,
                "groups": [{"group_id": f"g{partition}", "protocol_type": "consumer", "group_state": "Stable"}],
            }

        proxy.owner.on_group_call = listed
        leaders = (await client.ask(3, 12, {"topics": [{"name": "__consumer_offsets"}]})).topics[0].partitions
        groups = (await client.ask(16, 4, {})).groups
        assert sorted(asked) == [one.partition_index for one in leaders if one.leader_id == OWN]
        assert 0 < len(groups) < 40

    run(test)


def test_a_group_is_sent_to_the_proxy_that_stands_for_its_partition() -> None:
    async def test(proxy: Running, client: Client) -> None:
        reply = await client.ask(
            10, 5, {"key_type": 0, "coordinator_keys": [f"group-{number}" for number in range(30)]}
        )
        assert {(one.node_id, one.host, one.port) for one in reply.coordinators} == {
            (1, "127.0.0.1", proxy.role.port),
            (7, "seven", 70),
        }

    run(test)


def test_metadata_sends_each_client_to_the_proxies_of_its_zone() -> None:
    async def test(proxy: Running, client: Client) -> None:
        proxy.metadata.change(
            nodes={NodeId(7): node(7, "proxy", host="seven", port=70, rack="b"), NodeId(8): node(8, "proxy", rack="c")}
        )
        proxy.metadata.add_topic("orders", 40)
        proxy.metadata.add_topic("__consumer_offsets", 40)
        leaders: dict[str, set[int]] = {}
        for _ in range(2):  # the second answer is one that was kept
            for client.client_id in ("bmq_az=b", "bmq_az=c", "nowhere"):
                reply = await client.ask(3, 12, {"topics": [{"name": "orders"}]})
                leaders[client.client_id] = {one.leader_id for one in reply.topics[0].partitions}
                assert {one.node_id for one in reply.brokers} == {1, 7, 8}
            assert leaders == {"bmq_az=b": {7}, "bmq_az=c": {8}, "nowhere": {1, 7, 8}}
        client.client_id = "bmq_az=b"
        found = await client.ask(
            10, 5, {"key_type": 0, "coordinator_keys": [f"group-{number}" for number in range(30)]}
        )
        assert {one.node_id for one in found.coordinators} == {7}

    run(test)

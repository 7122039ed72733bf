"""Moves of partitions as Kafka's clients ask for them and see them: AlterPartitionReassignments,
ListPartitionReassignments, ElectLeaders.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from proxy_in_memory import Client, Running, running_proxy

from bmq.errors import ControllerUnavailable, InvalidReplicaAssignment, NoMoveUnderWay
from bmq.metadata.image import Node, Topic
from bmq.roles.controller import Reassignment
from bmq.values import BrokerEpoch, NodeId, TopicPartition
from bmq.wire.error_codes import ErrorCode

ELECT, ALTER, LIST = 43, 45, 46
PROXY, OTHER_PROXY, BROKER, OTHER_BROKER = 1, 2, 101, 102


def run(test: Callable[[Running, Client], Awaitable[None]]) -> None:
    async def main() -> None:
        async with running_proxy() as proxy:
            nodes = {**proxies(PROXY, OTHER_PROXY), **brokers(BROKER, OTHER_BROKER)}
            proxy.metadata.change(nodes=nodes)
            await asyncio.wait_for(test(proxy, await proxy.connect()), 20)

    asyncio.run(main())


def node(node_id: int, role: str) -> Node:
    host, port = ("10.0.0.1", 9092) if role == "proxy" else ("", 0)
    return Node(
        node_id=NodeId(node_id),
        broker_epoch=BrokerEpoch(1),
        boot=UUID(int=node_id),
        roles=(role,),
        host=host,
        port=port,
    )


def proxies(*node_ids: int) -> dict[NodeId, Node]:
    return {NodeId(node_id): node(node_id, "proxy") for node_id in node_ids}


def brokers(*node_ids: int) -> dict[NodeId, Node]:
    return {NodeId(node_id): node(node_id, "broker") for node_id in node_ids}


def owned(proxy: Running, name: str, *owners: int) -> Topic:
    """A topic whose partitions have these owners."""
    topic = proxy.metadata.add_topic(name, len(owners))
    metas = tuple(replace(meta, node_id=NodeId(owner)) for meta, owner in zip(topic.partitions, owners, strict=True))
    topic = replace(topic, partitions=metas)
    proxy.metadata.change(topics={**proxy.metadata.image.topics, topic.topic_id: topic})
    return topic


async def alter(
    client: Client, topic: str, wanted: dict[int, list[int] | None], *, version: int = 1
) -> dict[int, tuple[int, str | None]]:
    """(error code, message) of each partition."""
    partitions = [{"partition_index": index, "replicas": replicas} for index, replicas in wanted.items()]
    reply = await client.ask(ALTER, version, {"topics": [{"name": topic, "partitions": partitions}]})
    assert reply.error_code == 0
    [answer] = reply.responses
    assert answer.name == topic
    return {one.partition_index: (one.error_code, one.error_message) for one in answer.partitions}


async def listed(client: Client, topics: Any = None) -> dict[tuple[str, int], tuple[list[int], list[int], list[int]]]:
    reply = await client.ask(LIST, 0, {"topics": topics})
    return {
        (topic.name, one.partition_index): (one.replicas, one.adding_replicas, one.removing_replicas)
        for topic in reply.topics
        for one in topic.partitions
    }


@pytest.mark.parametrize("version", [0, 1])
def test_a_partition_moves_to_the_broker_that_is_named_and_is_listed_while_it_does(version: int) -> None:
    async def test(proxy: Running, client: Client) -> None:
        topic = owned(proxy, "orders", BROKER, BROKER, OTHER_BROKER)
        other = owned(proxy, "logs", OTHER_BROKER)
        assert await alter(client, "orders", {1: [OTHER_BROKER]}, version=version) == {1: (0, None)}
        assert proxy.controller.calls == [
            ("reassign", Reassignment(tp=TopicPartition(topic.topic_id, 1), to=NodeId(OTHER_BROKER)))
        ]
        proxy.metadata.move(TopicPartition(other.topic_id, 0), NodeId(BROKER))
        found = ([OTHER_BROKER, BROKER], [OTHER_BROKER], [BROKER])
        assert await listed(client) == {
            ("orders", 1): found,
            ("logs", 0): ([BROKER, OTHER_BROKER], [BROKER], [OTHER_BROKER]),
        }
        asked = [{"name": "orders", "partition_indexes": [0, 1, 9]}, {"name": "unknown", "partition_indexes": [0]}]
        assert await listed(client, asked) == {("orders", 1): found}
        assert await listed(client, []) == {}

    run(test)


def test_a_move_that_was_taken_back_is_listed_no_more() -> None:
    async def test(proxy: Running, client: Client) -> None:
        owned(proxy, "orders", BROKER)
        await alter(client, "orders", {0: [OTHER_BROKER]})
        assert await alter(client, "orders", {0: None}) == {0: (0, None)}
        assert [call[1].to for call in proxy.controller.calls] == [OTHER_BROKER, None]
        assert await listed(client) == {}

    run(test)


def test_more_than_one_broker_or_none_is_refused_with_the_reason() -> None:
    async def test(proxy: Running, client: Client) -> None:
        owned(proxy, "orders", BROKER, BROKER)
        answers = await alter(client, "orders", {0: [BROKER, OTHER_BROKER], 1: []})
        assert answers[0][0] == ErrorCode.invalid_replication_factor
        assert "one owner and no followers" in str(answers[0][1])
        assert answers[1][0] == ErrorCode.invalid_replica_assignment
        assert proxy.controller.calls == []

    run(test)


def test_the_proxy_that_stands_for_a_partition_is_there_already_and_another_is_refused_with_the_brokers() -> None:
    async def test(proxy: Running, client: Client) -> None:
        owned(proxy, "orders", BROKER)
        reply = await client.ask(3, 12, {"topics": [{"name": "orders"}], "allow_auto_topic_creation": False})
        shown = reply.topics[0].partitions[0].replica_nodes
        assert await alter(client, "orders", {0: shown}) == {0: (0, None)}, "what Metadata shows can be written back"
        [standing] = shown
        code, message = (await alter(client, "orders", {0: [PROXY + OTHER_PROXY - standing]}))[0]
        assert code == ErrorCode.invalid_replica_assignment
        assert "is a proxy" in str(message)
        assert "name a broker: 101, 102" in str(message)
        assert proxy.controller.calls == []

    run(test)


def test_a_node_that_is_broker_and_proxy_is_named_as_the_broker() -> None:
    async def test(proxy: Running, client: Client) -> None:
        proxy.metadata.change(
            nodes={NodeId(PROXY): replace(node(PROXY, "proxy"), roles=("broker", "proxy")), **brokers(BROKER)}
        )
        topic = owned(proxy, "orders", BROKER)
        assert await alter(client, "orders", {0: [PROXY]}) == {0: (0, None)}
        assert proxy.controller.calls == [
            ("reassign", Reassignment(tp=TopicPartition(topic.topic_id, 0), to=NodeId(PROXY)))
        ]

    run(test)


def test_where_the_owner_itself_stands_for_its_partitions_another_proxy_is_refused_for_all_of_them() -> None:
    async def test(proxy: Running, client: Client) -> None:
        both = replace(node(PROXY, "proxy"), roles=("broker", "proxy"))
        proxy.metadata.change(nodes={NodeId(PROXY): both, **proxies(OTHER_PROXY)})
        partitions = range(8)
        owned(proxy, "orders", *[PROXY for _ in partitions])
        reply = await client.ask(3, 12, {"topics": [{"name": "orders"}], "allow_auto_topic_creation": False})
        assert {one.leader_id for one in reply.topics[0].partitions} == {PROXY}
        answers = await alter(client, "orders", {index: [OTHER_PROXY] for index in partitions})
        assert [code for code, _ in answers.values()] == [ErrorCode.invalid_replica_assignment for _ in partitions]
        assert proxy.controller.calls == []

    run(test)


def test_each_partition_has_an_outcome_of_its_own() -> None:
    async def test(proxy: Running, client: Client) -> None:
        topic = owned(proxy, "orders", BROKER, BROKER, BROKER)
        proxy.controller.refusals = {
            TopicPartition(topic.topic_id, 1): InvalidReplicaAssignment("node 9 is no registered broker"),
            TopicPartition(topic.topic_id, 2): NoMoveUnderWay("no move"),
        }
        answers = await alter(client, "orders", {0: [OTHER_BROKER], 1: [9], 2: None, 7: [BROKER]})
        assert {index: code for index, (code, _) in answers.items()} == {
            0: 0,
            1: ErrorCode.invalid_replica_assignment,
            2: ErrorCode.no_reassignment_in_progress,
            7: ErrorCode.unknown_topic_or_partition,
        }
        assert await alter(client, "unknown", {0: [BROKER]}) == {
            0: (ErrorCode.unknown_topic_or_partition, "topic 'unknown' does not exist")
        }

    run(test)


def test_a_partition_that_is_named_twice_is_refused_and_without_a_controller_all_are() -> None:
    async def test(proxy: Running, client: Client) -> None:
        owned(proxy, "orders", BROKER, BROKER)
        twice = [{"partition_index": 0, "replicas": [OTHER_BROKER]}, {"partition_index": 0, "replicas": [BROKER]}]
        reply = await client.ask(ALTER, 1, {"topics": [{"name": "orders", "partitions": twice}]})
        assert [one.error_code for one in reply.responses[0].partitions] == [ErrorCode.invalid_request]
        assert proxy.controller.calls == []
        proxy.controller.error = ControllerUnavailable("nobody leads")
        assert await alter(client, "orders", {1: [OTHER_BROKER]}) == {1: (ErrorCode.request_timed_out, "nobody leads")}

    run(test)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_no_election_is_needed_where_there_is_an_owner(version: int) -> None:
    async def test(proxy: Running, client: Client) -> None:
        owned(proxy, "orders", BROKER, -1)
        asked = [{"topic": "orders", "partitions": [0, 1, 2]}, {"topic": "unknown", "partitions": [0]}]
        reply = await client.ask(ELECT, version, {"topic_partitions": asked})
        found = {
            (one.topic, each.partition_id): each.error_code
            for one in reply.replica_election_results
            for each in one.partition_result
        }
        assert found == {
            ("orders", 0): ErrorCode.election_not_needed,
            ("orders", 1): ErrorCode.preferred_leader_not_available,
            ("orders", 2): ErrorCode.unknown_topic_or_partition,
            ("unknown", 0): ErrorCode.unknown_topic_or_partition,
        }

    run(test)


def test_of_all_partitions_only_those_without_an_owner_are_answered() -> None:
    async def test(proxy: Running, client: Client) -> None:
        owned(proxy, "orders", BROKER, -1)
        owned(proxy, "logs", OTHER_BROKER)
        reply = await client.ask(ELECT, 2, {"election_type": 1, "topic_partitions": None})
        [orders] = reply.replica_election_results
        [outcome] = orders.partition_result
        assert (orders.topic, outcome.partition_id, outcome.error_code) == (
            "orders",
            1,
            ErrorCode.eligible_leaders_not_available,
        )
        assert "start one" in outcome.error_message
        assert (
            await client.ask(ELECT, 2, {"election_type": 7, "topic_partitions": None})
        ).error_code == ErrorCode.invalid_request

    run(test)


@pytest.mark.parametrize("version", [1, 2])
def test_what_is_to_be_in_the_store_is_there_and_there_is_no_other_directory(version: int) -> None:
    async def test(proxy: Running, client: Client) -> None:
        owned(proxy, "orders", BROKER, BROKER)
        dirs = [
            {
                "path": proxy.role.proxy.log_dir,
                "topics": [{"name": "orders", "partitions": [0, 9]}, {"name": "unknown", "partitions": [0]}],
            },
            {"path": "/var/kafka", "topics": [{"name": "orders", "partitions": [1]}]},
        ]
        reply = await client.ask(34, version, {"dirs": dirs})
        found = {
            (one.topic_name, each.partition_index): each.error_code for one in reply.results for each in one.partitions
        }
        assert found == {
            ("orders", 0): 0,
            ("orders", 9): ErrorCode.unknown_topic_or_partition,
            ("unknown", 0): ErrorCode.unknown_topic_or_partition,
            ("orders", 1): ErrorCode.log_dir_not_found,
        }

    run(test)

"""Manual assignments as they come over the wire."""

from uuid import UUID

from one_connection import run
from proxy_in_memory import Client, Running

from bmq.metadata.image import Node
from bmq.values import BrokerEpoch, NodeId
from bmq.wire.error_codes import ErrorCode
from bmq.wire.message import Message


def register(proxy: Running, node_id: int, *roles: str) -> None:
    node = Node(
        node_id=NodeId(node_id), broker_epoch=BrokerEpoch(1), boot=UUID(int=node_id), roles=roles, host="", port=0
    )
    proxy.metadata.change(nodes={**proxy.metadata.image.nodes, node.node_id: node})


async def create(client: Client, name: str, *assigned: tuple[int, list[int]], **options: int) -> Message:
    topic = {
        "name": name,
        "num_partitions": -1,
        "replication_factor": -1,
        "assignments": [{"partition_index": index, "broker_ids": ids} for index, ids in assigned],
        "configs": [],
        **options,
    }
    return (await client.ask(19, 7, {"topics": [topic], "timeout_ms": 0, "validate_only": False})).topics[0]


async def grow(client: Client, name: str, total: int, assignments: list[list[int]] | None) -> Message:
    asked = None if assignments is None else [{"broker_ids": ids} for ids in assignments]
    topic = {"name": name, "count": total, "assignments": asked}
    return (await client.ask(37, 3, {"topics": [topic], "timeout_ms": 0, "validate_only": False})).results[0]


def test_assignments_reach_the_controller_in_the_order_of_their_partitions() -> None:
    async def test(proxy: Running, client: Client) -> None:
        register(proxy, 1, "controller", "broker", "proxy")
        register(proxy, 2, "broker")
        assert (await create(client, "assigned", (1, [2]), (0, [1]))).error_code == 0
        assert (await create(client, "free", num_partitions=3)).error_code == 0
        assert (await grow(client, "assigned", 4, [[2], [1]])).error_code == 0
        assert (await grow(client, "free", 4, None)).error_code == 0
        topics = [call[1] for call in proxy.controller.calls if call[0] == "create_topics"]
        assert [topic.assignments for topic in topics] == [[[1], [2]], None]
        assert [call[2:4] for call in proxy.controller.calls if call[0] == "create_partitions"] == [
            (4, [[2], [1]]),
            (4, None),
        ]

    run(test)


def test_assignments_that_cannot_be_are_refused_before_they_travel() -> None:
    async def test(proxy: Running, client: Client) -> None:
        register(proxy, 1, "controller", "broker", "proxy")
        proxy.metadata.add_topic("there", 1)
        for assigned in ([(0, [7])], [(0, [1]), (0, [1])], [(1, [1])], [(0, [])], [(0, [1, 1])], [(0, [1] * 10_000)]):
            assert (await create(client, "a", *assigned)).error_code == ErrorCode.invalid_replica_assignment
        for assignments in ([[7]], [[]], [[1, 1]]):
            assert (await grow(client, "there", 2, assignments)).error_code == ErrorCode.invalid_replica_assignment
        assert proxy.controller.calls == []

    run(test)

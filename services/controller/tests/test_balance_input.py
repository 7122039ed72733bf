"""From the image to what the balancer plans from."""

from uuid import UUID

from bmq.metadata.fold import apply
from bmq.metadata.image import Image
from bmq.metadata.records import (
    AnyRecord,
    FencingBegun,
    NodeCordoned,
    NodeRegistered,
    PartitionChange,
    PartitionMoveBegun,
    RangesCovered,
    TopicCreated,
)
from bmq.values import NodeId, TopicId, TopicPartition
from bmq_controller.machine.balance import plan
from bmq_controller.machine.balance_input import RecentMoves, cluster_load
from bmq_controller.machine.balance_model import BalanceSettings, BrokerLoad, MoveKind

TOPIC = TopicId(UUID(int=7))


def owned(partition: int, node_id: int, *, leader_epoch: int = 1) -> PartitionChange:
    return PartitionChange(
        topic_id=TOPIC, partition=partition, node_id=node_id, broker_epoch=1, leader_epoch=leader_epoch
    )


def registered(node_id: int, *, rack: str = "", roles: tuple[str, ...] = ("broker",), pool: str = "") -> NodeRegistered:
    return NodeRegistered(
        node_id=node_id, broker_epoch=1, boot=UUID(int=node_id), roles=roles, host="h", port=1, rack=rack, pool=pool
    )


def image_of(*records: AnyRecord) -> Image:
    return apply(Image(), 1, records)


def test_brokers_topics_and_loads_come_from_where_they_are_known() -> None:
    image = image_of(
        registered(1, rack="a"),
        registered(2, rack="b"),
        registered(3, pool="gold"),
        registered(4, roles=("proxy",)),
        registered(5),
        TopicCreated(topic_id=TOPIC, name="orders", partitions=3, leader_epoch=0, configs={"bmq.pool": "gold"}),
        owned(0, 1),
        owned(1, 2),
        NodeCordoned(node_id=2, cordoned=True),
        FencingBegun(node_id=5, broker_epoch=1),
        PartitionMoveBegun(topic_id=TOPIC, partition=0, to_node_id=3),
    )
    loads = {
        TopicPartition(TOPIC, 0): 5.0,
        TopicPartition(TOPIC, 1): float("nan"),
        TopicPartition(TOPIC, 9): 1.0,
        TopicPartition(TopicId(UUID(int=8)), 0): 1.0,
    }
    load = cluster_load(image, loads, now_ms=50, since_ms={TopicPartition(TOPIC, 1): 20}, draining={NodeId(1)})
    assert load.brokers == [
        BrokerLoad(node_id=NodeId(1), rack="a", draining=True),
        BrokerLoad(node_id=NodeId(2), rack="b", cordoned=True),
        BrokerLoad(node_id=NodeId(3), pool="gold"),
    ]
    [topic] = load.topics
    assert (topic.name, topic.pool, list(topic.owners), list(topic.bytes_per_s)) == (
        "orders",
        "gold",
        [1, 2, -1],
        [5, 0, 0],
    )
    assert (topic.moving, topic.since_ms) == ({0: 3}, {1: 20})


def test_a_plan_from_an_image_evens_out_what_the_owners_report() -> None:
    image = image_of(
        registered(1),
        registered(2),
        TopicCreated(topic_id=TOPIC, name="orders", partitions=2, leader_epoch=0),
        owned(0, 1),
        owned(1, 1),
    )
    loads = {TopicPartition(TOPIC, index): 1e6 for index in range(2)}
    [move] = plan(cluster_load(image, loads), BalanceSettings()).moves
    assert (move.source, move.target, move.kind) == (1, 2, MoveKind.BYTES)


def test_a_move_that_was_taken_back_counts_at_its_owner() -> None:
    image = image_of(
        registered(1),
        registered(2),
        TopicCreated(topic_id=TOPIC, name="orders", partitions=2, leader_epoch=0),
        owned(0, 1),
        owned(1, 2),
        PartitionMoveBegun(topic_id=TOPIC, partition=0, to_node_id=1),
    )
    planned = plan(cluster_load(image, {}), BalanceSettings())
    assert planned.moves == ()
    assert [share.partitions_after for share in planned.brokers] == [1, 1]


def test_partitions_are_remembered_for_as_long_as_they_rest() -> None:
    recent = RecentMoves(remember_ms=1_000)
    recent.committed([owned(0, 1), RangesCovered(topic_id=TOPIC, partition=2, ranges=()), owned(1, 1)], now_ms=100)
    recent.committed([owned(0, 2, leader_epoch=2)], now_ms=600)
    assert recent.since_ms(700) == {TopicPartition(TOPIC, 0): 600, TopicPartition(TOPIC, 1): 100}
    assert recent.since_ms(1_101) == {TopicPartition(TOPIC, 0): 600}
    assert recent.since_ms(2_000) == {}

"""What the leader knows of loads while partitions change hands."""

from uuid import UUID

from bmq.metadata.fold import apply
from bmq.metadata.image import Image
from bmq.metadata.records import FencingBegun, NodeRegistered, NodeUnregistered, PartitionChange, TopicCreated
from bmq.roles.controller import PartitionLoad
from bmq.values import BrokerEpoch, NodeId, TopicId, TopicPartition
from bmq_controller.machine.balance import plan
from bmq_controller.machine.balance_input import RecentMoves, cluster_load
from bmq_controller.machine.balance_loads import KnownLoads, merged
from bmq_controller.machine.balance_model import BalanceSettings
from bmq_controller.machine.placement import Incarnation

TOPIC = TopicId(UUID(int=7))
ZERO, ONE = TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)
A: Incarnation = (NodeId(1), BrokerEpoch(1))
B: Incarnation = (NodeId(2), BrokerEpoch(1))


def said(**loads: float) -> list[PartitionLoad]:
    return [PartitionLoad(tp={"zero": ZERO, "one": ONE}[name], bytes_per_s=value) for name, value in loads.items()]


def handed_to(who: Incarnation) -> PartitionChange:
    return PartitionChange(topic_id=TOPIC, partition=0, node_id=who[0], broker_epoch=who[1], leader_epoch=2)


def at(known: KnownLoads, now_ms: int) -> dict[TopicPartition, float]:
    return merged(known.snapshot(now_ms))


def test_what_owners_said_last_counts() -> None:
    known = KnownLoads(carry_ms=100)
    known.reported(A, said(zero=5.0, one=7.0), 0)
    known.reported(A, said(zero=6.0, one=float("nan")), 1)
    assert at(known, 1)[ZERO] == 6.0
    assert at(known, 200) == {ZERO: 6.0}


def test_a_partition_that_moved_counts_as_before_until_its_new_owner_has_measured_it() -> None:
    known = KnownLoads(carry_ms=100)
    known.reported(A, said(zero=50.0), 0)
    known.committed([handed_to(B)], 10)
    known.reported(A, said(), 11)
    assert at(known, 12) == {ZERO: 50.0}
    known.reported(B, said(zero=4.0), 20)
    assert at(known, 20) == {ZERO: 50.0}
    known.reported(B, said(zero=48.0), 100)
    assert at(known, 112) == {ZERO: 48.0}


def test_an_owner_that_has_closed_a_partition_leaves_its_load_behind() -> None:
    known = KnownLoads(carry_ms=100)
    known.reported(A, said(zero=50.0, one=1.0), 0)
    known.reported(A, said(one=1.0), 5)
    assert at(known, 6) == {ZERO: 50.0, ONE: 1.0}
    known.committed([handed_to(B)], 7)
    assert at(known, 90) == {ZERO: 50.0, ONE: 1.0}
    assert at(known, 105) == {ONE: 1.0}


def test_the_partitions_of_a_dead_broker_keep_their_loads_with_their_heirs() -> None:
    known = KnownLoads(carry_ms=100)
    known.reported(A, said(zero=50.0), 0)
    known.committed([NodeUnregistered(node_id=1, broker_epoch=1), handed_to(B)], 10)
    assert at(known, 50) == {ZERO: 50.0}
    assert at(known, 110) == {}


def test_a_broker_that_starts_again_measures_from_nothing() -> None:
    known = KnownLoads(carry_ms=100)
    known.reported(A, said(zero=50.0), 0)
    again = (A[0], BrokerEpoch(2))
    known.committed(
        [
            NodeRegistered(node_id=1, broker_epoch=2, boot=UUID(int=2), roles=("broker",), host="h", port=1),
            handed_to(again),
        ],
        10,
    )
    known.reported(again, said(zero=3.0), 12)
    assert at(known, 12) == {ZERO: 50.0}
    assert at(known, 110) == {ZERO: 3.0}


def test_what_nobody_takes_any_more_is_forgotten() -> None:
    known = KnownLoads(carry_ms=100)
    for now_ms in range(0, 1_000, 50):
        known.reported(A, said(zero=50.0) if now_ms % 100 else said(), now_ms)
    known.reported(A, said(), 1_000)
    assert at(known, 1_100) == {}
    assert at(known, 2_000) == {}


def test_a_leader_that_has_not_heard_every_living_broker_does_not_know_enough() -> None:
    nodes = [
        NodeRegistered(node_id=node_id, broker_epoch=1, boot=UUID(int=node_id), roles=("broker",), host="h", port=1)
        for node_id in (1, 2)
    ]
    proxy = NodeRegistered(node_id=3, broker_epoch=1, boot=UUID(int=3), roles=("proxy",), host="h", port=1)
    image = apply(Image(), 1, [*nodes, proxy])
    known = KnownLoads()
    known.reported(A, said(), 0)
    assert not known.knows(image)
    assert known.knows(apply(image, 2, [FencingBegun(node_id=2, broker_epoch=1)]))
    known.reported(B, said(zero=1.0), 0)
    assert known.knows(image)


def test_a_broker_that_is_silent_is_not_waited_for_and_its_next_incarnation_is() -> None:
    nodes = [
        NodeRegistered(node_id=node_id, broker_epoch=1, boot=UUID(int=node_id), roles=("broker",), host="h", port=1)
        for node_id in (1, 2)
    ]
    image = apply(Image(), 1, nodes)
    known = KnownLoads()
    known.reported(A, said(), 0)
    assert known.knows(image, silent={B})
    again = apply(
        image, 2, [NodeRegistered(node_id=2, broker_epoch=2, boot=UUID(int=3), roles=("broker",), host="h", port=1)]
    )
    assert not known.knows(again, silent={B})


def test_a_broker_that_joins_is_not_overfilled_while_it_measures_what_came() -> None:
    """The loop as it runs: owners smooth what they measure, and know nothing of partitions that have just come."""
    owners = [1 + index % 3 for index in range(180)]
    measured = {(owner, index): 1e6 for index, owner in enumerate(owners)}
    image = image_of(owners, brokers=4)
    known, recent = KnownLoads(), RecentMoves(remember_ms=BalanceSettings().rest_ms)
    moves = 0
    balancing: frozenset[str] = frozenset()
    for now_ms in range(1_000, 241_000, 1_000):
        measured = {
            (owner, index): rate + 0.095 * (1e6 - rate)
            for index, owner in enumerate(owners)
            for rate in [measured.get((owner, index), 0.0)]
        }
        for node_id in range(1, 5):
            said_by = [
                PartitionLoad(tp=TopicPartition(TOPIC, index), bytes_per_s=rate)
                for (owner, index), rate in measured.items()
                if owner == node_id
            ]
            known.reported((NodeId(node_id), BrokerEpoch(1)), said_by, now_ms)
        load = cluster_load(
            image, merged(known.snapshot(now_ms)), now_ms=now_ms, since_ms=recent.since_ms(now_ms), balancing=balancing
        )
        planned = plan(load, BalanceSettings())
        balancing = planned.balancing
        moves += len(planned.moves)
        changes = [
            PartitionChange(
                topic_id=TOPIC, partition=move.tp.partition, node_id=move.target, broker_epoch=1, leader_epoch=now_ms
            )
            for move in planned.moves
        ]
        for move in planned.moves:
            owners[move.tp.partition] = move.target
        image = apply(image, image.position + 1, changes)
        known.committed(changes, now_ms)
        recent.committed(changes, now_ms)
    assert 40 <= moves <= 45
    assert min(owners.count(node_id) for node_id in range(1, 5)) >= 41


def image_of(owners: list[int], *, brokers: int) -> Image:
    return apply(
        Image(),
        1,
        [
            *(
                NodeRegistered(
                    node_id=node_id, broker_epoch=1, boot=UUID(int=node_id), roles=("broker",), host="h", port=1
                )
                for node_id in range(1, brokers + 1)
            ),
            TopicCreated(topic_id=TOPIC, name="t", partitions=len(owners), leader_epoch=0),
            *(
                PartitionChange(topic_id=TOPIC, partition=index, node_id=owner, broker_epoch=1, leader_epoch=1)
                for index, owner in enumerate(owners)
            ),
        ],
    )

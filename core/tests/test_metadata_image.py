"""The fold of metadata records, and the invariants that watch it."""

import time
from dataclasses import replace
from uuid import UUID

import pytest

from bmq.errors import Corrupt, FormatTooNew
from bmq.metadata.derived import count_owners, count_ranges, find_moving
from bmq.metadata.fold import PAST_BOOTS_MAX, TOMBSTONES_MAX, apply
from bmq.metadata.image import Image
from bmq.metadata.invariants import InvariantBroken, check_image, check_step
from bmq.metadata.records import (
    AnyRecord,
    ConfigsChanged,
    FencingBegun,
    LeaderAlive,
    LeaderElected,
    NodeCordoned,
    NodeListeners,
    NodeRegistered,
    NodeUnregistered,
    PartitionChange,
    PartitionMoveBegun,
    PartitionsAdded,
    ProducerIdsAllocated,
    Range,
    RangesCovered,
    Record,
    StreamCollected,
    StreamDropped,
    StreamSealed,
    TopicCollected,
    TopicCreated,
    TopicDeleted,
)
from bmq.values import BrokerEpoch, NodeId, StreamId, TopicId, TopicPartition

TOPIC = TopicId(UUID(int=7))
STREAM = StreamId(NodeId(1), BrokerEpoch(1))


def node(node_id: int = 1, epoch: int = 1, boot: int = 1) -> NodeRegistered:
    return NodeRegistered(
        node_id=node_id, broker_epoch=epoch, boot=UUID(int=boot), roles=("broker",), host="h", port=9, rack="a"
    )


def created(partitions: int = 2, *, leader_epoch: int = 0, topic_id: UUID = TOPIC, name: str = "t") -> TopicCreated:
    return TopicCreated(topic_id=topic_id, name=name, partitions=partitions, leader_epoch=leader_epoch)


def owned(
    partition: int = 0, *, node_id: int = 1, epoch: int = 1, leader_epoch: int = 1, ranges: tuple[Range, ...] = ()
) -> PartitionChange:
    return PartitionChange(
        topic_id=TOPIC,
        partition=partition,
        node_id=node_id,
        broker_epoch=epoch,
        leader_epoch=leader_epoch,
        ranges=ranges,
    )


def image_of(*entries: list[AnyRecord]) -> Image:
    image = Image()
    for records in entries:
        then = apply(image, image.position + 1, records)
        check_step(image, then)
        image = then
    return image


def test_an_image_does_not_change_when_a_later_entry_is_folded_in() -> None:
    before = image_of([node(), created(), owned()])
    after = apply(before, 2, [owned(1), ConfigsChanged(kind="topic", name=str(TOPIC), changes={"retention.ms": "1"})])
    assert before.topics[TOPIC].partitions[1].node_id == -1
    assert before.topics[TOPIC].configs == {}
    assert after.topics[TOPIC].partitions[1].node_id == 1
    assert after.topics[TOPIC].configs == {"retention.ms": "1"}
    assert after.nodes is before.nodes, "what did not change is shared"


class CountedId(UUID):
    """Counts how often topics are looked for."""

    looked_for = 0

    def __hash__(self) -> int:
        CountedId.looked_for += 1
        return super().__hash__()


def test_a_small_change_looks_for_no_topic_but_its_own() -> None:
    """Where there are a hundred thousand topics, a change of one may not be work on all."""
    ids = [CountedId(int=number * 0x9E3779B97F4A7C15) for number in range(1, 20_001)]
    made = [
        TopicCreated(topic_id=one, name=f"t{number}", partitions=1, leader_epoch=0) for number, one in enumerate(ids)
    ]
    many = image_of([node()], [*made])
    changes: list[list[AnyRecord]] = [
        [ConfigsChanged(kind="topic", name=str(ids[7]), changes={"retention.ms": "1"})],
        [PartitionChange(topic_id=ids[9], partition=0, node_id=1, broker_epoch=1, leader_epoch=1)],
        [created()],
        [node(2)],
        [TopicDeleted(topic_id=ids[3], name="t3", last_leader_epoch=0)],
    ]
    for records in changes:
        CountedId.looked_for = 0
        check_step(many, apply(many, many.position + 1, records))
        assert CountedId.looked_for < 3_000, type(records[0]).__name__


def test_counts_follow_owners_and_ranges() -> None:
    heard = Range(1, 1, 1, 5)
    image = image_of(
        [node(), created(3), owned(0), owned(1)],
        [
            StreamSealed(node_id=1, broker_epoch=1, end=5),
            node(epoch=2),
            owned(0, epoch=2, leader_epoch=2, ranges=(heard,)),
            owned(1, epoch=2, leader_epoch=2),
        ],
        [RangesCovered(topic_id=TOPIC, partition=0, ranges=(heard,)), StreamDropped(node_id=1, broker_epoch=1)],
    )
    assert image.owned_counts == count_owners(image.topics) == {1: 2, -1: 1}
    assert image.range_counts == count_ranges(image.topics) == {}
    assert image.sealed == {}
    assert image.dropped == {STREAM: 5}
    assert apply(image, 4, [StreamCollected(node_id=1, broker_epoch=1)]).dropped == {}


def moving(partition: int = 0, to: int = 2) -> PartitionMoveBegun:
    return PartitionMoveBegun(topic_id=TOPIC, partition=partition, to_node_id=to)


def test_a_move_is_in_the_image_until_the_owner_changes_or_the_topic_goes() -> None:
    begun = image_of([node(), node(2), created(3), owned(0), owned(1), owned(2)], [moving(0), moving(1), moving(2)])
    assert begun.topics[TOPIC].partitions[0].moving_to == 2
    assert begun.moving == find_moving(begun.topics) == {TopicPartition(TOPIC, partition): 2 for partition in range(3)}
    after = apply(begun, 3, [owned(0, node_id=2, leader_epoch=2, ranges=(Range(1, 1, 1, 4),)), moving(1, -1)])
    assert after.moving == find_moving(after.topics) == {TopicPartition(TOPIC, 2): 2}
    assert apply(begun, 3, [TopicDeleted(topic_id=TOPIC, name="t", last_leader_epoch=1)]).moving == {}


def test_the_image_tells_an_owner_what_others_must_read_of_its_stream() -> None:
    heard = Range(1, 1, 1, 5)
    image = image_of(
        [node(), node(2), created(), owned(0), owned(1)], [owned(0, node_id=2, leader_epoch=2, ranges=(heard,))]
    )
    check_image(image)
    assert image.ranges_in(STREAM) == {TopicPartition(TOPIC, 0): (heard,)}
    assert image.ranges_in(StreamId(NodeId(2), BrokerEpoch(1))) == {}
    covered = apply(image, 3, [RangesCovered(topic_id=TOPIC, partition=0, ranges=(heard,))])
    assert covered.ranges_in(STREAM) == {}


def test_the_newest_manifest_version_that_was_told_stays_known_whoever_owns_the_partition() -> None:
    image = image_of(
        [node(), node(2), created(), owned(0)],
        [RangesCovered(topic_id=TOPIC, partition=0, ranges=(), manifest_version=5)],
    )
    late = apply(image, 3, [RangesCovered(topic_id=TOPIC, partition=0, ranges=(), manifest_version=4)])
    moved = apply(late, 4, [moving(0), owned(0, node_id=2, leader_epoch=2, ranges=(Range(1, 1, 1, 5),))])
    covered = apply(moved, 5, [RangesCovered(topic_id=TOPIC, partition=0, ranges=(Range(1, 1, 1, 5),))])
    assert [each.topics[TOPIC].partitions[0].manifest_version for each in (image, late, moved, covered)] == [5, 5, 5, 5]
    assert covered.topics[TOPIC].partitions[0].ranges == ()


def test_fencing_ends_when_the_node_goes_or_comes_back() -> None:
    begun = image_of([node(), node(2)], [FencingBegun(node_id=2, broker_epoch=1)])
    assert begun.fencing == {2: 1}
    assert apply(begun, 3, [node(2, epoch=2)]).fencing == {}
    assert apply(begun, 3, [NodeUnregistered(node_id=2, broker_epoch=1)]).fencing == {}


def test_listeners_are_those_that_were_told_last_and_the_node_is_otherwise_what_it_was() -> None:
    image = image_of([node()])
    now = apply(image, 2, [NodeListeners(node_id=1, broker_epoch=1, listeners={"external": ("x", 7)})])
    assert now.nodes[NodeId(1)] == replace(image.nodes[NodeId(1)], listeners={"external": ("x", 7)})
    assert (now.last_epochs, now.past_boots) == (image.last_epochs, image.past_boots)
    assert apply(now, 3, [node(epoch=2, boot=2)]).nodes[NodeId(1)].listeners == {}, "a registration says all of them"
    with pytest.raises(Corrupt, match="NodeListeners names node 1 of epoch 2, which does not exist"):
        apply(now, 3, [NodeListeners(node_id=1, broker_epoch=2, listeners={})])


def test_a_cordon_holds_across_registrations() -> None:
    image = image_of([node()], [NodeCordoned(node_id=1, cordoned=True)], [node(epoch=2)])
    assert image.cordoned == {1: True}
    assert apply(image, 4, [NodeCordoned(node_id=1, cordoned=False)]).cordoned == {}


def test_a_leaders_sign_of_life_changes_nothing_but_the_position() -> None:
    image = image_of([LeaderElected(controller_epoch=3, node_id=1, host="c", port=5), node()])
    assert (image.controller_host, image.controller_port) == ("c", 5)
    after = apply(image, 2, [LeaderAlive(heard=(1, 2))])
    assert after == replace(image, position=2)
    assert after.nodes is image.nodes


def test_a_deleted_topic_leaves_a_tombstone_and_waits_for_its_collection() -> None:
    image = image_of(
        [node(), created(), owned(leader_epoch=4)], [TopicDeleted(topic_id=TOPIC, name="t", last_leader_epoch=4)]
    )
    assert image.topic("t") is None
    assert image.partition(TopicPartition(TOPIC, 0)) is None
    assert image.next_leader_epoch("t") == 5
    assert image.deleted == {TOPIC: "t"}
    assert image.owned_counts == {}
    again = apply(image, 3, [created(1, leader_epoch=5, topic_id=UUID(int=8)), TopicCollected(topic_id=TOPIC)])
    assert again.tombstones == {}
    assert again.deleted == {}


def test_forgotten_tombstones_raise_the_floor_of_new_topics() -> None:
    image = Image()
    many = TOMBSTONES_MAX + 3
    for index in range(0, many, 1000):
        records: list[AnyRecord] = []
        for name in range(index, min(index + 1000, many)):
            topic_id = UUID(int=name + 100)
            records.append(
                created(1, leader_epoch=image.next_leader_epoch(str(name)), topic_id=topic_id, name=str(name))
            )
            records.append(
                TopicDeleted(topic_id=topic_id, name=str(name), last_leader_epoch=40 - name if name < 40 else 0)
            )
        image = apply(image, image.position + 1, records)
    assert len(image.tombstones) == TOMBSTONES_MAX
    assert image.leader_epoch_floor == 40
    assert image.next_leader_epoch("0") == 41
    assert image.next_leader_epoch(str(many - 1)) == 1


def test_partitions_added_later_start_above_a_tombstone_too() -> None:
    image = image_of([created(1, leader_epoch=8)], [PartitionsAdded(topic_id=TOPIC, partitions=3)])
    assert [meta.leader_epoch for meta in image.topics[TOPIC].partitions] == [8, 8, 8]
    assert image.owned_counts == {-1: 3}


def test_boots_that_lost_their_node_id_are_remembered_and_bounded() -> None:
    image = Image()
    for boot in range(PAST_BOOTS_MAX + 3):
        image = apply(image, image.position + 1, [node(epoch=boot + 1, boot=boot)])
    assert image.past_boots[NodeId(1)] == tuple(UUID(int=boot) for boot in range(2, PAST_BOOTS_MAX + 2))
    again = apply(image, image.position + 1, [node(epoch=90, boot=PAST_BOOTS_MAX + 2)])
    assert again.past_boots == image.past_boots, "the same boot under a new epoch has lost nothing"


def test_configs_of_brokers_go_when_the_last_is_unset() -> None:
    image = image_of([ConfigsChanged(kind="broker", name="", changes={"a": "1", "b": None})])
    assert image.configs == {("broker", ""): {"a": "1"}}
    assert apply(image, 2, [ConfigsChanged(kind="broker", name="", changes={"a": None})]).configs == {}


def test_an_unknown_record_is_refused_by_name() -> None:
    class Surprise(Record, frozen=True, tag="surprise"):
        pass

    with pytest.raises(FormatTooNew, match="Surprise"):
        apply(Image(), 1, [Surprise()])


@pytest.mark.parametrize(
    "record",
    [
        owned(),
        RangesCovered(topic_id=TOPIC, partition=0, ranges=()),
        PartitionMoveBegun(topic_id=TOPIC, partition=0, to_node_id=1),
        FencingBegun(node_id=1, broker_epoch=1),
        NodeListeners(node_id=1, broker_epoch=1, listeners={}),
        PartitionsAdded(topic_id=TOPIC, partitions=2),
        TopicDeleted(topic_id=TOPIC, name="t", last_leader_epoch=0),
        StreamDropped(node_id=1, broker_epoch=1),
        ConfigsChanged(kind="topic", name=str(TOPIC), changes={}),
    ],
    ids=lambda record: type(record).__name__,
)
def test_a_record_about_what_does_not_exist_is_corrupt(record: AnyRecord) -> None:
    with pytest.raises(Corrupt, match="does not exist"):
        apply(Image(), 1, [record])


GOOD = [
    LeaderElected(controller_epoch=3, node_id=1),
    ProducerIdsAllocated(next_producer_id=10),
    node(epoch=2),
    created(),
    owned(epoch=2, leader_epoch=5),
]


@pytest.mark.parametrize(
    ("records", "name"),
    [
        ([LeaderElected(controller_epoch=2, node_id=1)], "numbers never go back"),
        ([ProducerIdsAllocated(next_producer_id=9)], "numbers never go back"),
        ([node(epoch=1)], "broker epochs never go back"),
        ([owned(leader_epoch=4, epoch=2)], "leader epochs never go back"),
        ([node(2, 1), owned(node_id=2, epoch=1, leader_epoch=5)], "leader epochs never go back"),
        ([owned(leader_epoch=6, epoch=1)], "owners are registered"),
        ([NodeUnregistered(node_id=1, broker_epoch=2)], "owners are registered"),
        (
            [NodeRegistered(node_id=1, broker_epoch=2, boot=UUID(int=1), roles=("proxy",), host="h", port=9)],
            "owners are registered",
        ),
        ([StreamSealed(node_id=1, broker_epoch=2, end=1)], "no node writes to a sealed stream"),
        ([owned(leader_epoch=6, epoch=2, ranges=(Range(1, 1, 5, 4),))], "named streams are there"),
        ([PartitionMoveBegun(topic_id=TOPIC, partition=1, to_node_id=1)], "who moves has an owner"),
        ([created(3, topic_id=UUID(int=9))], "names and ids agree"),
        ([TopicDeleted(topic_id=TOPIC, name="t", last_leader_epoch=4)], "tombstones cover every epoch"),
        (
            [
                TopicDeleted(topic_id=TOPIC, name="t", last_leader_epoch=5),
                created(leader_epoch=5, topic_id=UUID(int=9)),
            ],
            "tombstones cover every epoch",
        ),
        (
            [TopicDeleted(topic_id=TOPIC, name="t", last_leader_epoch=5), created(leader_epoch=6)],
            "ids are never reused",
        ),
        ([created(1)], "topics never shrink"),
        (
            [StreamSealed(node_id=1, broker_epoch=1, end=3), owned(1, epoch=2, ranges=(Range(1, 1, 0, 4),))],
            "ranges lie below seal and epoch",
        ),
        (
            [
                StreamSealed(node_id=1, broker_epoch=1, end=3),
                owned(1, epoch=2, ranges=(Range(1, 1, 0, 3),)),
                StreamDropped(node_id=1, broker_epoch=1),
            ],
            "dropped streams are named by nobody",
        ),
    ],
)
def test_a_step_that_breaks_an_invariant_is_refused_by_its_name(records: list[AnyRecord], name: str) -> None:
    image = image_of(list(GOOD))
    check_image(image)
    with pytest.raises(InvariantBroken, match=name):
        check_step(image, apply(image, 2, records))


def test_a_seal_never_moves() -> None:
    image = image_of([StreamSealed(node_id=1, broker_epoch=1, end=3)])
    with pytest.raises(InvariantBroken, match="seals never move"):
        check_step(image, apply(image, 2, [StreamSealed(node_id=1, broker_epoch=1, end=4)]))


def test_ten_thousand_changes_of_one_topic_are_folded_in_one_pass() -> None:
    image = image_of([node(), created(10_000)])
    records = [owned(partition) for partition in range(10_000)]
    best_s = float("inf")
    for _ in range(3):
        began = time.thread_time()
        after = apply(image, 2, records)
        best_s = min(best_s, time.thread_time() - began)
    assert after.owned_counts == {1: 10_000}
    assert best_s < 0.25, "copying the topic for each change takes longer than that"

"""What may happen to a partition at one broker and in which order: the machine alone, without a broker."""

from uuid import UUID

import pytest

from bmq.config.topic_config import resolve
from bmq.errors import PartitionStopped
from bmq.metadata.image import Image, PartitionMeta, Topic
from bmq.metadata.records import Range
from bmq.values import BrokerEpoch, LeaderEpoch, NodeId, Offset, StreamId, TopicPartition
from bmq_broker.ownership.inheritance import Inheritance
from bmq_broker.ownership.life import Lives
from bmq_broker.partitions.partition import Partition
from bmq_broker.partitions.states import ImpossibleTransition
from bmq_broker.partitions.tail import TailTotal

TP = TopicPartition(UUID(int=1), 0)
OTHER = TopicPartition(UUID(int=1), 1)
FIRST, SECOND = LeaderEpoch(1), LeaderEpoch(2)
RANGES = (Range(node_id=1, broker_epoch=1, leader_epoch=1, end=10),)
MORE_RANGES = (*RANGES, Range(node_id=3, broker_epoch=1, leader_epoch=2, end=4))


def lives() -> Lives:
    return Lives(StreamId(NodeId(2), BrokerEpoch(1)))


def recovered(tp: TopicPartition = TP, leader_epoch: LeaderEpoch = FIRST) -> Partition:
    partition = Partition(tp, leader_epoch=leader_epoch, config=resolve({}, {}), ranges=(), total=TailTotal())
    partition.start()
    partition.recovered()
    return partition


def still_named(tp: TopicPartition, ranges: tuple[Range, ...]) -> tuple[Range, ...]:
    return ranges


def test_what_left_is_never_open_again_under_its_leader_epoch() -> None:
    of = lives()
    partition = recovered()
    of.open(partition)
    of.leave(partition)
    of.forget(TP)
    assert of.has_left(TP, FIRST)
    with pytest.raises(AssertionError):
        of.open(recovered())
    of.open(recovered(leader_epoch=SECOND))
    assert of.left_count == 1


def test_a_partition_is_not_forgotten_while_it_takes_batches() -> None:
    of = lives()
    of.open(recovered())
    with pytest.raises(ImpossibleTransition):
        of.forget(TP)


def test_nothing_is_to_be_read_of_a_partition_that_takes_batches() -> None:
    of = lives()
    of.open(recovered())
    with pytest.raises(ImpossibleTransition):
        of.want(TP, RANGES)


def test_what_was_read_for_ranges_that_are_not_wanted_any_more_is_not_kept() -> None:
    of = lives()
    of.want(TP, RANGES)
    of.want(TP, MORE_RANGES)
    assert of.read({TP: RANGES}, {TP: Inheritance()}) == ([], False)
    assert of.unread == {TP: MORE_RANGES}
    assert not of.holds(TP)


def test_ranges_that_held_nothing_are_covered_until_the_partition_is_forgotten() -> None:
    of = lives()
    of.want(TP, RANGES)
    of.want(OTHER, RANGES)
    assert of.read({TP: RANGES, OTHER: RANGES}, {OTHER: Inheritance()}) == ([OTHER], True)
    assert of.held_nothing == {TP: RANGES}
    of.forget(TP)
    assert of.held_nothing == {}


def test_a_stopped_partition_is_counted_until_it_opens_or_leaves() -> None:
    of = lives()
    damaged = Inheritance(stopped=PartitionStopped("something is missing"))
    of.want(TP, RANGES)
    of.want(OTHER, RANGES)
    of.read({TP: RANGES, OTHER: RANGES}, {TP: damaged, OTHER: damaged})
    assert of.stopped_count == 2
    assert of.look_again(still_named) == [TP, OTHER]
    assert of.unread == {TP: RANGES, OTHER: RANGES}
    assert of.stopped_count == 2
    assert of.read({TP: RANGES, OTHER: RANGES}, {}) == ([TP, OTHER], True)
    assert of.stopped_count == 2
    of.open(recovered(TP))
    assert of.stopped_count == 1
    assert of.leave_unopened(OTHER, FIRST)
    assert of.stopped_count == 0


def test_what_stops_a_partition_is_not_over_because_other_ranges_held_nothing() -> None:
    of = lives()
    of.want(TP, RANGES)
    of.read({TP: RANGES}, {TP: Inheritance(stopped=PartitionStopped("something is missing"))})
    of.want(TP, MORE_RANGES)
    assert of.read({TP: MORE_RANGES}, {}) == ([], True)
    assert of.found(TP).stopped is not None
    assert of.stopped_count == 1


def test_a_partition_that_was_never_open_is_closed_at_once_and_once() -> None:
    of = lives()
    of.want(TP, RANGES)
    assert of.leave_unopened(TP, FIRST)
    of.forget(TP)
    assert not of.leave_unopened(TP, FIRST)
    assert [(life.leader_epoch, life.start, life.end) for _, left in of.left() for life in left.values()] == [
        (FIRST, 0, 0)
    ]
    assert of.unread == {}


def test_what_was_deleted_is_over_whatever_state_it_was_in() -> None:
    of = lives()
    closing, other = recovered(), recovered(OTHER)
    of.open(closing)
    of.open(other)
    closing.next_offset = Offset(1)
    of.leave(closing)
    of.leave(other)
    assert of.close()
    before = Image(topics={TP.topic_id: Topic(topic_id=TP.topic_id, name="orders", partitions=(PartitionMeta(),) * 2)})
    assert of.image_changed(before, Image()) == ([], [closing])
    assert of.left_count == 0
    assert not of.close()

"""Planned moves, cordons, drains and fencings, decision by decision."""

from dataclasses import replace
from uuid import UUID

import pytest
from controller_committed import Committed

from bmq.config.topic_config import POOL
from bmq.errors import (
    Fenced,
    InvalidReplicaAssignment,
    InvalidRequest,
    NoMoveUnderWay,
    QuotaExceeded,
    UnknownTopic,
)
from bmq.metadata.records import FencingBegun, NodeCordoned, NodeListeners, NodeUnregistered, Range
from bmq.roles.controller import ClosedPartition, Heartbeat, NewTopic, Reassignment
from bmq.values import BrokerEpoch, LeaderEpoch, ManifestVersion, NodeId, StreamId, TopicPartition
from bmq_controller.machine.asked_moves import AskedMoves
from bmq_controller.machine.fencing import begin_fencing, complete_fencing
from bmq_controller.machine.limits import Limits
from bmq_controller.machine.moves import drain, move, reassign
from bmq_controller.machine.nodes import cordon, heartbeat, report_covered, report_stopped

ONE, TWO, THREE = NodeId(1), NodeId(2), NodeId(3)
FIRST = BrokerEpoch(1)


def begin(cluster: Committed, to: int, *, name: str = "a", partition: int = 0) -> None:
    cluster.commit(move(cluster.image, cluster.tp(name, partition), NodeId(to)).records)


def beat(
    cluster: Committed,
    node_id: int,
    *closed: ClosedPartition,
    covered: tuple[tuple[TopicPartition, tuple[Range, ...]], ...] = (),
) -> Heartbeat:
    node = cluster.image.nodes[NodeId(node_id)]
    return Heartbeat(
        node_id=node.node_id, broker_epoch=node.broker_epoch, boot=node.boot, closed=closed, covered=covered
    )


def closing(cluster: Committed, *, end: int, name: str = "a", partition: int = 0) -> ClosedPartition:
    meta = cluster.partition(name, partition)
    return ClosedPartition(tp=cluster.tp(name, partition), leader_epoch=meta.leader_epoch, end=end)


def close(cluster: Committed, *, end: int, name: str = "a", partition: int = 0) -> None:
    """The owner closes what is to move, and says so."""
    report = closing(cluster, end=end, name=name, partition=partition)
    cluster.commit(heartbeat(cluster.image, beat(cluster, cluster.partition(name, partition).node_id, report)).records)


def fence(cluster: Committed, node_id: int, *, end: int = 0) -> None:
    who = (NodeId(node_id), cluster.image.nodes[NodeId(node_id)].broker_epoch)
    cluster.commit(begin_fencing(cluster.image, who).records)
    cluster.commit(complete_fencing(cluster.image, who, end=end).records)


def test_who_asks_has_one_partition_moved_so_often_and_then_as_often_as_time_goes_by() -> None:
    cluster = Committed(brokers=3)
    cluster.create(NewTopic(name="a", partitions=2))
    asked = AskedMoves(Limits(moves_burst=2, moves_per_hour=60))
    tp, other = cluster.tp("a", 0), cluster.tp("a", 1)
    now_s = 1_000.0

    def moved(tp: TopicPartition, to: NodeId | None) -> object:
        decision = reassign(cluster.image, [Reassignment(tp=tp, to=to)], take=lambda taken: asked.take(taken, now_s))
        cluster.commit(decision.records)
        return decision.result[0]

    assert moved(tp, TWO) is None
    assert moved(tp, TWO) is None, "it is on its way there: nothing begins"
    assert moved(tp, None) is None, "what is under way may be taken back"
    assert moved(tp, THREE) is None
    refusal = moved(tp, TWO)
    assert isinstance(refusal, QuotaExceeded)
    assert (refusal.wait_s, cluster.partition("a").moving_to) == (60, THREE)
    assert moved(tp, ONE) is None, "nor does it count where the owner is named"
    assert moved(other, THREE) is None
    now_s += 59
    assert isinstance(moved(tp, TWO), QuotaExceeded)
    now_s += 1
    assert moved(tp, TWO) is None


def test_moves_of_partitions_that_are_not_there_any_more_or_have_all_again_are_forgotten() -> None:
    cluster = Committed(brokers=2)
    cluster.create(NewTopic(name="a", partitions=1_500))
    cluster.create(NewTopic(name="b", partitions=500))
    asked = AskedMoves(Limits(moves_burst=2, moves_per_hour=60))
    for name, count, now_s in (("b", 500, 0.0), ("a", 100, 10.0), ("a", 500, 70.0)):
        for partition in range(count):
            asked.take(cluster.tp(name, partition), now_s)
            asked.forget(cluster.image, now_s)
    assert len(asked._left) == 500
    gone = Committed(brokers=2)
    for partition in range(500, 1_100):
        asked.take(cluster.tp("a", partition), 75.0)
    asked.forget(gone.image, 75.0)
    assert len(asked._left) == 0


def test_a_move_changes_the_owner_only_once_the_old_one_has_closed_the_partition() -> None:
    cluster = Committed(brokers=2)
    cluster.create(NewTopic(name="a"))
    begin(cluster, 2)
    meta = cluster.partition("a")
    assert (meta.node_id, meta.leader_epoch, meta.moving_to) == (1, 1, 2)
    assert move(cluster.image, cluster.tp("a"), TWO).records == (), "it is under way"
    report = closing(cluster, end=7)
    cluster.commit(heartbeat(cluster.image, beat(cluster, 1, report)).records)
    meta = cluster.partition("a")
    assert (meta.node_id, meta.broker_epoch, meta.leader_epoch, meta.moving_to) == (2, 1, 2, -1)
    assert meta.ranges == (Range(1, 1, 1, 7),)
    assert heartbeat(cluster.image, beat(cluster, 1, report)).records == (), "a repeated report says nothing new"
    assert cluster.image.sealed == {}
    assert cluster.image.ranges_in(StreamId(ONE, FIRST)) == {cluster.tp("a"): meta.ranges}


def test_the_range_of_a_living_owners_stream_outlives_its_seal_until_it_is_covered() -> None:
    cluster = Committed(brokers=2)
    cluster.create(NewTopic(name="a"))
    begin(cluster, 2)
    close(cluster, end=7)
    cluster.register(1, boot=2, end=9)
    stream = StreamId(ONE, FIRST)
    assert cluster.image.sealed == {stream: 9}
    cluster.commit(
        report_covered(cluster.image, TWO, FIRST, [(cluster.tp("a"), cluster.partition("a").ranges)]).records
    )
    assert cluster.image.dropped == {stream: 9}


def test_a_range_of_a_living_owners_stream_that_is_covered_leaves_nothing() -> None:
    cluster = Committed(brokers=2)
    cluster.create(NewTopic(name="a"))
    begin(cluster, 2)
    close(cluster, end=7)
    cluster.commit(
        report_covered(cluster.image, TWO, FIRST, [(cluster.tp("a"), cluster.partition("a").ranges)]).records
    )
    assert (cluster.image.ranges_in(StreamId(ONE, FIRST)), cluster.image.sealed, cluster.image.dropped) == ({}, {}, {})


def test_what_the_owner_itself_had_yet_to_cover_goes_along_but_for_what_it_covers_in_the_same_report() -> None:
    cluster = Committed(brokers=2)
    cluster.create(NewTopic(name="a", partitions=3))
    cluster.register(1, boot=2, end=5)
    [old] = cluster.partition("a", 0).ranges
    for partition in (0, 2):
        begin(cluster, 2, partition=partition)
    closed = [closing(cluster, end=4, partition=partition) for partition in (0, 2)]
    covered = ((cluster.tp("a", 2), (old,)),)
    cluster.commit(heartbeat(cluster.image, beat(cluster, 1, *closed, covered=covered)).records)
    assert cluster.partition("a", 0).ranges == (old, Range(1, 2, 2, 4))
    assert cluster.partition("a", 2).ranges == (Range(1, 2, 2, 4),)


def test_a_partition_of_which_its_stream_holds_nothing_moves_without_a_range() -> None:
    cluster = Committed(brokers=2)
    cluster.create(NewTopic(name="a"))
    begin(cluster, 2)
    close(cluster, end=0)
    assert (cluster.partition("a").node_id, cluster.partition("a").ranges) == (2, ())


def test_reports_that_are_not_of_this_move_are_passed_over() -> None:
    cluster = Committed(brokers=3)
    cluster.create(NewTopic(name="a", partitions=3))
    begin(cluster, 2)
    tp = cluster.tp("a")
    for report in (
        ClosedPartition(tp=tp, leader_epoch=LeaderEpoch(0), end=1),
        ClosedPartition(tp=tp, leader_epoch=LeaderEpoch(2), end=1),
        ClosedPartition(tp=TopicPartition(tp.topic_id, 9), leader_epoch=LeaderEpoch(1), end=1),
    ):
        assert heartbeat(cluster.image, beat(cluster, 1, report)).records == ()
    assert heartbeat(cluster.image, beat(cluster, 3, closing(cluster, end=1))).records == (), "not its owner's report"
    assert heartbeat(cluster.image, beat(cluster, 2, closing(cluster, end=1, partition=1))).records == (), (
        "nobody wants it to move"
    )


def test_a_move_that_is_taken_back_leads_to_the_owner_under_a_new_epoch() -> None:
    """The owner may have closed the partition by then: an old report must not end a later move at an old place."""
    cluster = Committed(brokers=2)
    cluster.create(NewTopic(name="a"))
    begin(cluster, 2)
    late = closing(cluster, end=7)
    begin(cluster, 1)
    assert cluster.partition("a").moving_to == 1
    cluster.commit(heartbeat(cluster.image, beat(cluster, 1, late)).records)
    meta = cluster.partition("a")
    assert (meta.node_id, meta.leader_epoch, meta.ranges, meta.moving_to) == (1, 2, (Range(1, 1, 1, 7),), -1)
    begin(cluster, 2)
    assert heartbeat(cluster.image, beat(cluster, 1, late)).records == ()


def test_a_move_may_be_led_elsewhere_while_it_is_under_way() -> None:
    cluster = Committed(brokers=3)
    cluster.create(NewTopic(name="a"))
    begin(cluster, 2)
    begin(cluster, 3)
    close(cluster, end=7)
    assert cluster.partition("a").node_id == 3


def test_a_move_to_a_node_that_goes_leads_elsewhere_or_back() -> None:
    cluster = Committed(brokers=3)
    cluster.create(NewTopic(name="a"))
    begin(cluster, 2)
    fence(cluster, 2)
    assert cluster.partition("a").moving_to == 3
    cluster.commit(report_stopped(cluster.image, THREE, FIRST, end=0).records)
    assert cluster.partition("a").moving_to == 1
    close(cluster, end=5)
    meta = cluster.partition("a")
    assert (meta.node_id, meta.leader_epoch, meta.ranges) == (1, 2, (Range(1, 1, 1, 5),))


def test_a_move_to_a_node_that_comes_back_under_a_new_epoch_goes_on() -> None:
    cluster = Committed(brokers=2)
    cluster.create(NewTopic(name="a"))
    begin(cluster, 2)
    cluster.register(2, boot=2)
    close(cluster, end=5)
    assert (cluster.partition("a").node_id, cluster.partition("a").broker_epoch) == (2, 2)


@pytest.mark.parametrize("how", ["fenced", "stopped", "restarted"])
def test_an_owner_that_goes_leaves_what_was_moving_to_where_it_was_moving(how: str) -> None:
    cluster = Committed(brokers=3)
    cluster.create(NewTopic(name="a", partitions=3))
    begin(cluster, 3)
    match how:
        case "fenced":
            fence(cluster, 1, end=6)
        case "stopped":
            cluster.commit(report_stopped(cluster.image, ONE, FIRST, end=6).records)
        case _:
            cluster.register(1, boot=2, end=6)
    meta = cluster.partition("a")
    assert (meta.node_id, meta.leader_epoch, meta.ranges, meta.moving_to) == (3, 2, (Range(1, 1, 1, 6),), -1)


def test_a_move_is_refused_to_whoever_cannot_take_it() -> None:
    cluster = Committed(brokers=3)
    cluster.register(4, roles=("proxy",))
    cluster.create(NewTopic(name="a"))
    cluster.commit(cordon(cluster.image, THREE, cordoned=True).records)
    cluster.commit(begin_fencing(cluster.image, (TWO, FIRST)).records)
    for to, reason in ((2, "registered"), (3, "cordoned"), (4, "registered"), (9, "registered")):
        with pytest.raises(InvalidRequest, match=reason):
            move(cluster.image, cluster.tp("a"), NodeId(to))
    with pytest.raises(UnknownTopic):
        move(cluster.image, TopicPartition(cluster.tp("a").topic_id, 5), ONE)
    assert move(cluster.image, cluster.tp("a"), ONE).records == ()


def test_of_several_reassignments_each_has_its_own_outcome_and_the_possible_ones_begin() -> None:
    cluster = Committed(brokers=3)
    cluster.create(NewTopic(name="a", partitions=4))
    owners = cluster.owners("a")
    begin(cluster, 3, partition=0)
    gone = TopicPartition(cluster.tp("a").topic_id, 9)
    changes = [
        Reassignment(tp=cluster.tp("a", 0), to=None),
        Reassignment(tp=cluster.tp("a", 1), to=THREE),
        Reassignment(tp=cluster.tp("a", 2), to=None),
        Reassignment(tp=cluster.tp("a", 3), to=NodeId(7)),
        Reassignment(tp=gone, to=ONE),
        Reassignment(tp=gone, to=None),
    ]
    decision = reassign(cluster.image, changes)
    kinds = [type(outcome) for outcome in decision.result]
    assert kinds == [type(None), type(None), NoMoveUnderWay, InvalidReplicaAssignment, UnknownTopic, UnknownTopic]
    assert "name one of 1, 2, 3" in str(decision.result[3])
    cluster.commit(decision.records)
    assert cluster.image.moving == {cluster.tp("a", 0): owners[0], cluster.tp("a", 1): 3}
    assert isinstance(reassign(cluster.image, changes[:1]).result[0], NoMoveUnderWay), "it leads back already"
    close(cluster, end=5, partition=0)
    meta = cluster.partition("a", 0)
    assert (meta.node_id, meta.leader_epoch, meta.moving_to) == (owners[0], 2, -1), (
        "the owner again, under another epoch"
    )


def test_a_partition_without_an_owner_moves_at_once() -> None:
    cluster = Committed()
    cluster.create(NewTopic(name="a"))
    cluster.register(1)
    cluster.commit(cordon(cluster.image, ONE, cordoned=True).records)
    cluster.commit(report_stopped(cluster.image, ONE, FIRST, end=3).records)
    cluster.register(1, boot=2)
    assert cluster.owners("a") == [-1], "a cordoned node gets nothing new"
    # as controllers wrote it that handed nothing over with it
    cluster.commit((NodeCordoned(node_id=ONE, cordoned=False),))
    begin(cluster, 1)
    meta = cluster.partition("a")
    assert (meta.node_id, meta.leader_epoch, meta.ranges) == (1, 3, (Range(1, 1, 1, 3),))


def test_partitions_that_were_made_while_nobody_took_any_go_to_who_takes_some_again() -> None:
    cluster = Committed(brokers=2)
    cluster.register(8, pool="gold")
    for node_id in (ONE, TWO, NodeId(8)):
        cluster.commit(cordon(cluster.image, node_id, cordoned=True).records)
    cluster.create(NewTopic(name="a", partitions=2), NewTopic(name="pinned", configs={POOL: "gold"}))
    assert (cluster.owners("a"), cluster.owners("pinned")) == ([-1, -1], [-1])
    cluster.commit(cordon(cluster.image, TWO, cordoned=False).records)
    assert (cluster.owners("a"), cluster.owners("pinned")) == ([2, 2], [-1]), "of its pool, and nothing beside"
    for node_id in (ONE, NodeId(8)):
        cluster.commit(cordon(cluster.image, node_id, cordoned=False).records)
    assert (cluster.owners("a"), cluster.owners("pinned")) == ([2, 2], [8])


def test_who_is_being_fenced_gets_nothing_by_taking_partitions_again() -> None:
    cluster = Committed(brokers=1)
    cluster.commit(cordon(cluster.image, ONE, cordoned=True).records)
    cluster.create(NewTopic(name="a"))
    cluster.commit(begin_fencing(cluster.image, (ONE, cluster.image.nodes[ONE].broker_epoch)).records)
    cluster.commit(cordon(cluster.image, ONE, cordoned=False).records)
    assert cluster.owners("a") == [-1]


def test_a_cordoned_node_keeps_its_own_and_gets_nothing_new() -> None:
    cluster = Committed(brokers=2)
    cluster.create(NewTopic(name="a", partitions=2))
    cluster.commit(cordon(cluster.image, ONE, cordoned=True).records)
    assert cordon(cluster.image, ONE, cordoned=True).records == ()
    cluster.create(NewTopic(name="b", partitions=4))
    cluster.register(1, boot=2, end=3)
    assert (cluster.owners("a"), cluster.owners("b")) == ([1, 2], [2, 2, 2, 2])
    cluster.commit(report_stopped(cluster.image, TWO, FIRST, end=0).records)
    assert cluster.owners("b") == [1, 1, 1, 1], "better than nobody"
    with pytest.raises(InvalidRequest, match="never registered"):
        cordon(cluster.image, NodeId(77), cordoned=True)
    assert cordon(cluster.image, NodeId(77), cordoned=False).records == ()


def test_a_drained_node_loses_all_its_partitions_and_gets_none() -> None:
    cluster = Committed(brokers=3)
    cluster.create(NewTopic(name="a", partitions=6))
    mine = [partition for partition, owner in enumerate(cluster.owners("a")) if owner == 1]
    cluster.commit(drain(cluster.image, ONE, avoid={THREE}).records)
    assert set(cluster.image.moving.values()) == {2}
    assert drain(cluster.image, ONE).records == (), "it is under way"
    for partition in mine:
        close(cluster, end=4, partition=partition)
    assert cluster.image.owned_counts == {2: 4, 3: 2}
    cluster.commit(report_stopped(cluster.image, ONE, FIRST, end=4).records)
    assert cluster.image.sealed == {StreamId(ONE, FIRST): 4}
    with pytest.raises(InvalidRequest, match="nothing to drain"):
        drain(cluster.image, ONE)


def test_the_last_broker_cannot_be_drained_until_another_one_comes() -> None:
    cluster = Committed(brokers=1)
    cluster.create(NewTopic(name="a", partitions=2))
    cluster.commit(drain(cluster.image, ONE).records)
    assert cluster.image.moving == {}
    cluster.register(2)
    cluster.commit(heartbeat(cluster.image, beat(cluster, 1), is_drained=True).records)
    assert set(cluster.image.moving.values()) == {2}
    assert heartbeat(cluster.image, beat(cluster, 1), is_drained=True).records == ()


def test_listeners_that_changed_are_told_once_and_fence_nobody() -> None:
    cluster = Committed(brokers=1)
    node = cluster.image.nodes[ONE]
    told = replace(beat(cluster, 1), listeners={"external": ("node1.example", 31001)})
    decision = heartbeat(cluster.image, told)
    assert decision.records == (
        NodeListeners(node_id=1, broker_epoch=1, listeners={"external": ("node1.example", 31001)}),
    )
    cluster.commit(decision.records)
    assert cluster.image.nodes[ONE] == replace(node, listeners={"external": ("node1.example", 31001)})
    assert heartbeat(cluster.image, told).records == (), "it is known"
    assert heartbeat(cluster.image, beat(cluster, 1)).records == (), "a node that does not say is as it was registered"
    cluster.commit(heartbeat(cluster.image, replace(told, listeners={})).records)
    assert cluster.image.nodes[ONE] == node


def test_a_heartbeat_of_anyone_but_the_registered_incarnation_is_refused() -> None:
    cluster = Committed(brokers=2)
    good = beat(cluster, 1)
    others = [
        Heartbeat(node_id=NodeId(9), broker_epoch=FIRST, boot=good.boot),
        Heartbeat(node_id=ONE, broker_epoch=BrokerEpoch(0), boot=good.boot),
        Heartbeat(node_id=ONE, broker_epoch=FIRST, boot=UUID(int=9)),
    ]
    for other in others:
        with pytest.raises(Fenced, match="register again"):
            heartbeat(cluster.image, other)
    assert heartbeat(cluster.image, good).records == ()
    cluster.commit(begin_fencing(cluster.image, (ONE, FIRST)).records)
    with pytest.raises(Fenced, match="being fenced"):
        heartbeat(cluster.image, good)


def test_a_fencing_is_begun_then_completed_and_each_of_it_once() -> None:
    cluster = Committed(brokers=3)
    cluster.create(NewTopic(name="a", partitions=6))
    who = (ONE, FIRST)
    decision = begin_fencing(cluster.image, who)
    assert (decision.result, decision.records) == (True, (FencingBegun(node_id=1, broker_epoch=1),))
    cluster.commit(decision.records)
    again = begin_fencing(cluster.image, who)
    assert (again.result, again.records) == (True, ()), "a new leader goes on with what it finds"
    cluster.create(NewTopic(name="b", partitions=2))
    assert 1 not in cluster.owners("b")
    cluster.commit(complete_fencing(cluster.image, who, end=8).records)
    assert cluster.image.sealed == {StreamId(ONE, FIRST): 8}
    assert cluster.image.owned_counts == {2: 4, 3: 4}
    assert {meta.ranges for meta in cluster.image.topics[cluster.image.topic_ids["a"]].partitions} == {
        (),
        (Range(1, 1, 1, 8),),
    }
    assert (complete_fencing(cluster.image, who, end=8).result, begin_fencing(cluster.image, who).result) == (
        False,
        False,
    )
    assert cluster.register(1, boot=2) == 2


def test_a_node_that_registers_anew_is_not_fenced_any_more() -> None:
    cluster = Committed(brokers=2)
    cluster.create(NewTopic(name="a", partitions=2))
    cluster.commit(begin_fencing(cluster.image, (ONE, FIRST)).records)
    cluster.register(1, boot=1, end=3)
    assert cluster.image.fencing == {}
    assert complete_fencing(cluster.image, (ONE, FIRST), end=3).records == ()
    assert begin_fencing(cluster.image, (ONE, FIRST)).records == ()
    assert cluster.owners("a") == [1, 2]


def test_a_silent_node_without_a_stream_just_goes() -> None:
    cluster = Committed()
    cluster.register(4, roles=("proxy",))
    decision = begin_fencing(cluster.image, (NodeId(4), FIRST))
    assert (decision.result, decision.records) == (False, (NodeUnregistered(node_id=4, broker_epoch=1),))


def test_a_range_begins_where_the_owner_says_that_its_manifest_ends() -> None:
    cluster = Committed(brokers=2)
    cluster.create(NewTopic(name="a"))
    begin(cluster, 2)
    meta = cluster.partition("a")
    report = ClosedPartition(tp=cluster.tp("a"), leader_epoch=meta.leader_epoch, end=900, start=880)
    cluster.commit(heartbeat(cluster.image, beat(cluster, 1, report)).records)
    [found] = cluster.partition("a").ranges
    assert (found.start, found.end) == (880, 900)


def test_a_manifest_version_is_known_once_its_owner_has_told_of_it_and_nobody_else_is_heard() -> None:
    cluster = Committed(brokers=2)
    cluster.create(NewTopic(name="a"))
    owner = cluster.partition("a").node_id
    told = ((cluster.tp("a"), ManifestVersion(3)), (TopicPartition(cluster.tp("a").topic_id, 9), ManifestVersion(1)))
    other = replace(beat(cluster, 3 - owner), manifests=told)
    assert heartbeat(cluster.image, other).records == ()
    mine = replace(beat(cluster, owner), manifests=told)
    cluster.commit(heartbeat(cluster.image, mine).records)
    assert cluster.partition("a").manifest_version == 3
    assert heartbeat(cluster.image, mine).records == (), "it says nothing new"
    fence(cluster, owner, end=4)
    assert cluster.partition("a").manifest_version == 3

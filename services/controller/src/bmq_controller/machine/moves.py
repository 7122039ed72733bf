"""Planned moves: begun, closed by the old owner, led elsewhere where the target dies. Pure.

Nothing is taken back as if it had not been: the owner may have closed the partition already, and a report of it may
come at any time, even twice. So under one leader epoch a partition is closed at most once and for good; a move that is
taken back leads to the owner itself.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from bmq.config.topic_config import POOL, pool_of
from bmq.errors import InvalidReplicaAssignment, InvalidRequest, NoMoveUnderWay, RequestError, UnknownTopic
from bmq.metadata.image import Image, PartitionMeta, Topic
from bmq.metadata.records import AnyRecord, NodeCordoned, PartitionChange, PartitionMoveBegun, Range
from bmq.roles.controller import ClosedPartition, Reassignment
from bmq.values import NO_NODE, BrokerEpoch, NodeId, TopicPartition
from bmq_controller.machine.decision import Decision
from bmq_controller.machine.heirs import change_owner, ranges
from bmq_controller.machine.placement import Placement, living_broker
from bmq_controller.machine.pools import brokers_of, members_named


def move(
    image: Image, tp: TopicPartition, to: NodeId, *, take: Callable[[TopicPartition], Any] = lambda _: None
) -> Decision[None]:
    """Begins a move, or leads one elsewhere. A partition without an owner changes hands at once. `take` counts what
    begins, and not what leads back. Raises UnknownTopic, InvalidRequest, and what `take` raises.
    """
    meta = image.partition(tp)
    if meta is None:
        raise UnknownTopic(f"There is no partition {tp}")
    _check_target(image, image.topics[tp.topic_id], to, meta)
    target = living_broker(image, to)
    if meta.node_id == NO_NODE:
        assert target is not None
        return Decision(None, (change_owner(tp, meta, target, ranges=meta.ranges),))
    where = meta.moving_to if meta.moving_to != NO_NODE else meta.node_id
    if where == to:
        return Decision(None, ())
    if to != meta.node_id:  # back is where what was counted began
        take(tp)
    return Decision(None, (_begun(tp, to),))


def take_back(image: Image, tp: TopicPartition) -> Decision[None]:
    """Leads a move that is under way back to the owner. Raises UnknownTopic, NoMoveUnderWay."""
    meta = image.partition(tp)
    if meta is None:
        raise UnknownTopic(f"There is no partition {tp}")
    if meta.moving_to in (NO_NODE, meta.node_id):
        raise NoMoveUnderWay(f"No move of partition {tp} is under way (any more): node {meta.node_id} owns it")
    return Decision(None, (_begun(tp, meta.node_id),))


def reassign(
    image: Image, changes: Sequence[Reassignment], *, take: Callable[[TopicPartition], Any] = lambda _: None
) -> Decision[list[RequestError | None]]:
    """Each change by itself: None, or why it is refused. Each partition is to be named once. `take` as for `move`."""
    outcomes: list[RequestError | None] = []
    records: list[AnyRecord] = []
    for change in changes:
        try:
            decision = (
                take_back(image, change.tp) if change.to is None else move(image, change.tp, change.to, take=take)
            )
        except InvalidRequest as error:
            outcomes.append(InvalidReplicaAssignment(str(error)))
        except RequestError as error:
            outcomes.append(error.with_traceback(None))  # which has this list
        else:
            outcomes.append(None)
            records.extend(decision.records)
    return Decision(outcomes, tuple(records))


def drain(image: Image, node_id: NodeId, *, avoid: Collection[NodeId] = ()) -> Decision[None]:
    """Cordons the node and begins to move all its partitions to others but those to `avoid`. Raises InvalidRequest."""
    if living_broker(image, node_id) is None:
        raise InvalidRequest(f"node {node_id} is no registered broker: there is nothing to drain")
    cordon = () if node_id in image.cordoned else (NodeCordoned(node_id=node_id, cordoned=True),)
    return Decision(None, (*cordon, *drained(image, node_id, avoid=avoid)))


def drained(image: Image, node_id: NodeId, *, avoid: Collection[NodeId] = ()) -> list[PartitionMoveBegun]:
    """A move for each of the node's partitions that has none yet; none where there is no other broker to take them."""
    if not image.owned_counts.get(node_id):
        return []
    # each heartbeat asks, and a placement costs a look at every topic: a look at each partition's owner is less
    if not any(_stays(meta, node_id) for topic in image.topics.values() for meta in topic.partitions):
        return []
    placement = Placement.on(image, without={node_id, *avoid})
    moves: list[PartitionMoveBegun] = []
    for topic in image.topics.values():
        for index, meta in enumerate(topic.partitions):
            if _stays(meta, node_id) and (target := placement.next(topic.topic_id)) is not None:
                moves.append(_begun(TopicPartition(topic.topic_id, index), target[0]))
    return moves


def close_partitions(
    image: Image,
    node_id: NodeId,
    broker_epoch: BrokerEpoch,
    closed: Sequence[ClosedPartition],
    *,
    covered: Mapping[TopicPartition, Collection[Range]],
) -> list[PartitionChange]:
    """The change that completes each move whose owner has closed its partition.

    What is not (or no longer) in the image, or not this owner's to say, is passed over: reports are repeated. `covered`
    are ranges that the same report frees.
    """
    changes: dict[TopicPartition, PartitionChange] = {}
    for report in closed:
        meta = image.partition(report.tp)
        if meta is None or meta.moving_to == NO_NODE:
            continue
        if (meta.node_id, meta.broker_epoch, meta.leader_epoch) != (node_id, broker_epoch, report.leader_epoch):
            continue
        # Where the target has just gone, the owner has the partition back, under a new epoch; the balancer may choose
        # again.
        target = living_broker(image, meta.moving_to) or (node_id, broker_epoch)
        left = tuple(
            found for found in ranges(meta, report.end, start=report.start) if found not in covered.get(report.tp, ())
        )
        changes[report.tp] = change_owner(report.tp, meta, target, ranges=left)
    return list(changes.values())


def redirect_moves(image: Image) -> list[AnyRecord]:
    """Moves to a node that is no living broker (any more) lead to another one, or back. Belongs into every entry that
    lets a node go.
    """
    gone = {to for to in set(image.moving.values()) if living_broker(image, to) is None}
    if not gone:
        return []
    lost = [tp for tp, to in image.moving.items() if to in gone]
    placements: dict[NodeId, Placement] = {}
    records: list[AnyRecord] = []
    for tp in lost:
        owner = _owner(image, tp)
        if living_broker(image, owner) is None:
            continue  # it is being fenced, and its heirs are chosen then
        if owner not in placements:
            placements[owner] = Placement.on(image, without={owner})
        target = placements[owner].next(tp.topic_id)
        records.append(_begun(tp, owner if target is None else target[0]))
    return records


def _stays(meta: PartitionMeta, node_id: NodeId) -> bool:
    return meta.node_id == node_id and meta.moving_to in (NO_NODE, node_id)


def _begun(tp: TopicPartition, to: NodeId) -> PartitionMoveBegun:
    return PartitionMoveBegun(topic_id=tp.topic_id, partition=tp.partition, to_node_id=to)


def _owner(image: Image, tp: TopicPartition) -> NodeId:
    return image.topics[tp.topic_id].partitions[tp.partition].node_id


def _check_target(image: Image, topic: Topic, to: NodeId, meta: PartitionMeta) -> None:
    pool = pool_of(topic.configs)
    if living_broker(image, to) is None:
        raise InvalidRequest(f"node {to} is no registered broker: {members_named(image, pool)}")
    if to == meta.node_id:
        return
    if to in image.cordoned:
        raise InvalidRequest(f"node {to} is cordoned: uncordon it first, or name another one")
    if image.nodes[to].pool != pool:
        raise InvalidRequest(
            f"{topic.name} belongs on {brokers_of(pool)}, and node {to} is one of {brokers_of(image.nodes[to].pool)}: "
            f"{members_named(image, pool)}, or change the topic's {POOL}"
        )

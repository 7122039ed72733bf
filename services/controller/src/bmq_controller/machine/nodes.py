"""Nodes coming and going: registration, clean stop, ranges that heirs have covered, streams that nobody needs any more.
Pure.
"""

from collections.abc import Collection, Sequence

from bmq.errors import Fenced, InvalidRequest
from bmq.metadata.image import Image
from bmq.metadata.records import (
    AnyRecord,
    NodeCordoned,
    NodeListeners,
    NodeRegistered,
    NodeUnregistered,
    Range,
    RangesCovered,
    StreamCollected,
    StreamDropped,
    StreamSealed,
    TopicCollected,
)
from bmq.roles.controller import Heartbeat, Registration
from bmq.values import BrokerEpoch, ManifestVersion, NodeId, StreamId, TopicId, TopicPartition
from bmq_controller.machine.decision import Decision
from bmq_controller.machine.heirs import give_to_heirs, give_to_others
from bmq_controller.machine.moves import close_partitions, drained, redirect_moves
from bmq_controller.machine.placement import living_broker
from bmq_controller.machine.registrable import check_listeners, check_registration


def stream_to_seal(image: Image, registration: Registration) -> StreamId | None:
    """What has to be sealed before this node may get an epoch: the stream of its earlier incarnation, None where there
    is none or it is sealed.

    Raises Fenced for a boot that lost its node id to another one, InvalidRequest.
    """
    check_registration(registration)
    if registration.boot in image.past_boots.get(registration.node_id, ()):
        raise Fenced(
            f"node {registration.node_id} was started again elsewhere and this process has lost its id: it has to "
            "exit; where two were meant to run, give them different node ids"
        )
    earlier = image.nodes.get(registration.node_id)
    if earlier is None or "broker" not in earlier.roles:
        return None
    return StreamId(earlier.node_id, earlier.broker_epoch)


def register(
    image: Image, registration: Registration, *, sealed: StreamId | None, end: int, avoid: Collection[NodeId] = ()
) -> Decision[BrokerEpoch | None]:
    """The node's new epoch, and the partitions of its earlier incarnation and those of its pool without an owner, with
    what it must read for them.

    `sealed` is the stream that was sealed at `end` for this registration. The result None (and no record) says that by
    now it is another one that has to be sealed. Raises as `stream_to_seal`.
    """
    if stream_to_seal(image, registration) != sealed:
        return Decision(None)
    node_id = registration.node_id
    epoch = BrokerEpoch(image.last_epochs.get(node_id, 0) + 1)
    records: list[AnyRecord] = []
    if sealed is not None:
        records.append(StreamSealed(node_id=node_id, broker_epoch=sealed.broker_epoch, end=end))
    records.append(
        NodeRegistered(
            node_id=node_id,
            broker_epoch=epoch,
            boot=registration.boot,
            roles=registration.roles,
            host=registration.host,
            port=registration.port,
            rack=registration.rack,
            internal_host=registration.internal_host,
            internal_port=registration.internal_port,
            pool=registration.pool,
            lane=registration.lane,
            listeners=dict(registration.listeners),
        )
    )
    if "broker" in registration.roles:
        pool = registration.pool if node_id not in image.cordoned else None
        records.extend(give_to_heirs(image, left=sealed, end=end, heir=lambda _: (node_id, epoch), ownerless=pool))
    elif sealed is not None:
        records.extend(give_to_others(image, sealed, end=end, avoid=avoid))
    return Decision(epoch, tuple(records))


def report_stopped(
    image: Image, node_id: NodeId, broker_epoch: BrokerEpoch, *, end: int, avoid: Collection[NodeId] = ()
) -> Decision[None]:
    """The node sealed its own stream at `end` and is gone: its partitions go to other brokers, rather not to those to
    `avoid`, or wait for one.

    A report of an incarnation that is not the registered one says nothing new.
    """
    node = image.nodes.get(node_id)
    if node is None or node.broker_epoch != broker_epoch:
        return Decision(None)
    records: list[AnyRecord] = [NodeUnregistered(node_id=node_id, broker_epoch=broker_epoch)]
    if "broker" in node.roles:
        stream = StreamId(node_id, broker_epoch)
        records.append(StreamSealed(node_id=node_id, broker_epoch=broker_epoch, end=end))
        records.extend(give_to_others(image, stream, end=end, avoid=avoid))
    return Decision(None, tuple(records))


def report_covered(
    image: Image, node_id: NodeId, broker_epoch: BrokerEpoch, covered: Sequence[tuple[TopicPartition, Sequence[Range]]]
) -> Decision[None]:
    """The owner's manifests cover these ranges. What is not (or no longer) in the image, or not this owner's to say, is
    passed over.
    """
    records: list[AnyRecord] = []
    for tp, ranges in covered:
        meta = image.partition(tp)
        if meta is None or (meta.node_id, meta.broker_epoch) != (node_id, broker_epoch):
            continue
        known = tuple(found for found in meta.ranges if found in ranges)
        if known:
            records.append(RangesCovered(topic_id=tp.topic_id, partition=tp.partition, ranges=known))
    return Decision(None, tuple(records))


def report_manifests(
    image: Image,
    node_id: NodeId,
    broker_epoch: BrokerEpoch,
    manifests: Sequence[tuple[TopicPartition, ManifestVersion]],
) -> list[AnyRecord]:
    """These versions of the owner's manifests are in force. What says nothing new, or is not this owner's to say, is
    passed over.
    """
    records: list[AnyRecord] = []
    for tp, version in manifests:
        meta = image.partition(tp)
        if (
            meta is not None
            and (meta.node_id, meta.broker_epoch) == (node_id, broker_epoch)
            and version > meta.manifest_version
        ):
            records.append(
                RangesCovered(topic_id=tp.topic_id, partition=tp.partition, ranges=(), manifest_version=version)
            )
    return records


def heartbeat(
    image: Image,
    beat: Heartbeat,
    *,
    is_drained: bool = False,
    takes_again: bool = False,
    avoid: Collection[NodeId] = (),
) -> Decision[None]:
    """What a node reports with its sign of life. `is_drained`: its partitions are to go to others, but not to those to
    `avoid`. `takes_again`: its clock is right again, so it takes those of its pool that have no owner, as if it
    registered: nobody else may come for them.

    Raises Fenced where it is not the registered incarnation, or is being fenced.
    """
    node = image.nodes.get(beat.node_id)
    if node is None or (node.broker_epoch, node.boot) != (beat.broker_epoch, beat.boot):
        raise Fenced(
            f"node {beat.node_id} is not registered under epoch {beat.broker_epoch} any more: it has to register again"
        )
    if beat.node_id in image.fencing:
        raise Fenced(
            f"node {beat.node_id} of epoch {beat.broker_epoch} was silent for too long and is being fenced: it has "
            "to register again"
        )
    records: list[AnyRecord] = list(report_covered(image, beat.node_id, beat.broker_epoch, beat.covered).records)
    records.extend(report_manifests(image, beat.node_id, beat.broker_epoch, beat.manifests))
    if beat.listeners is not None and beat.listeners != node.listeners:
        check_listeners(beat.listeners)
        records.append(
            NodeListeners(node_id=beat.node_id, broker_epoch=beat.broker_epoch, listeners=dict(beat.listeners))
        )
    records.extend(close_partitions(image, beat.node_id, beat.broker_epoch, beat.closed, covered=dict(beat.covered)))
    if is_drained and "broker" in node.roles:
        records.extend(drained(image, beat.node_id, avoid=avoid))
    elif (
        takes_again
        and beat.node_id not in image.cordoned
        and (broker := living_broker(image, beat.node_id)) is not None
    ):
        records.extend(give_to_heirs(image, left=None, end=0, heir=lambda _: broker, ownerless=node.pool))
    return Decision(None, tuple(records))


def cordon(image: Image, node_id: NodeId, *, cordoned: bool) -> Decision[None]:
    """Also for a node that is not there now: it will not get partitions when it comes. Raises InvalidRequest for a node
    id that nobody ever had.

    A broker that takes partitions again takes those of its pool that have no owner, as if it registered: nobody else
    may come for them.
    """
    if cordoned and node_id not in image.last_epochs:
        raise InvalidRequest(f"node {node_id} was never registered: name one that was")
    if (node_id in image.cordoned) == cordoned:
        return Decision(None)
    records: list[AnyRecord] = [NodeCordoned(node_id=node_id, cordoned=cordoned)]
    if not cordoned and (broker := living_broker(image, node_id)) is not None:
        records.extend(
            give_to_heirs(image, left=None, end=0, heir=lambda _: broker, ownerless=image.nodes[node_id].pool)
        )
    return Decision(None, tuple(records))


def consequences(image: Image) -> list[AnyRecord]:
    """What follows from the records of an entry and belongs at its end: moves whose target is gone, streams that nobody
    needs any more.
    """
    return [*redirect_moves(image), *drop_streams(image)]


def drop_streams(image: Image) -> list[AnyRecord]:
    """A record for each sealed stream that no partition names (any more)."""
    return [
        StreamDropped(node_id=stream.node_id, broker_epoch=stream.broker_epoch)
        for stream in image.sealed
        if stream not in image.range_counts
    ]


def collected(image: Image, *, streams: Sequence[StreamId] = (), topics: Sequence[TopicId] = ()) -> Decision[None]:
    """The objects of these dropped streams and deleted topics are gone."""
    return Decision(
        None,
        (
            *(
                StreamCollected(node_id=stream.node_id, broker_epoch=stream.broker_epoch)
                for stream in streams
                if stream in image.dropped
            ),
            *(TopicCollected(topic_id=topic_id) for topic_id in topics if topic_id in image.deleted),
        ),
    )

"""Which broker gets a partition that has no owner (yet): one of its pool that takes partitions, in the zone that wants
it, the emptiest. Pure.

A move copies nothing, so a first placement need not be a good one for ever: the balancer evens out what becomes of it.
It must be fair, deterministic and cheap, and never break a rule: where no broker may have the partition, it waits for
one.
"""

from collections.abc import Collection, Iterator, Mapping
from math import isfinite

from bmq.config.topic_config import pool_of
from bmq.metadata.image import Image, Node, PartitionMeta
from bmq.values import NO_NODE, BrokerEpoch, NodeId, TopicId
from bmq_controller.machine.balance_seats import Seat, Seats
from bmq_controller.machine.balance_zones import Spread, Zones

Incarnation = tuple[NodeId, BrokerEpoch]
"""One start of a node."""


def living_broker(image: Image, node_id: NodeId) -> Incarnation | None:
    """The broker of this id where it is registered and not being fenced."""
    node = image.nodes.get(node_id)
    return (node_id, node.broker_epoch) if node is not None and _lives(image, node) else None


def living_brokers(image: Image) -> Iterator[Node]:
    """All brokers that are registered and not being fenced."""
    return (node for node in image.nodes.values() if _lives(image, node))


class Placement:
    """Places partitions one by one on the living brokers of an image, counting what it has placed. Lives for one
    decision.
    """

    def __init__(
        self,
        image: Image,
        *,
        without: Collection[NodeId] = (),
        avoid: Collection[NodeId] = (),
        heirs: bool = False,
        bytes_per_s: Mapping[NodeId, float] | None = None,
    ) -> None:
        """`without` those that are leaving. Cordoned brokers and those to `avoid`, which stop soon, get nothing; with
        `heirs` only where their pool has no others, and rather the cordoned ones.

        `bytes_per_s` is what is written to each broker, where that is known; without it brokers are as full as they
        have partitions.
        """
        self._image = image
        members: dict[str, list[Node]] = {}
        for node in living_brokers(image):
            if node.node_id not in without:
                members.setdefault(node.pool, []).append(node)
        self._pools = {
            name: _Pool(name, nodes, image, bytes_per_s or {}, avoid=avoid, heirs=heirs)
            for name, nodes in members.items()
        }
        self._topics: dict[TopicId, tuple[_Pool, Spread] | None] = {}

    @staticmethod
    def on(image: Image, *, without: Collection[NodeId] = (), avoid: Collection[NodeId] = ()) -> "Placement":
        """For partitions that are new, or leave a broker that still serves them."""
        return Placement(image, without=without, avoid=avoid)

    @staticmethod
    def for_heirs(image: Image, *, without: Collection[NodeId], avoid: Collection[NodeId] = ()) -> "Placement":
        """For partitions whose owner is gone: on cordoned brokers and those to avoid, too, where there are no
        others.
        """
        return Placement(image, without=without, avoid=avoid, heirs=True)

    def announce(self, topic_id: TopicId, *, pool: str, partitions: int) -> None:
        """A topic that the image does not have, or that is going to have more partitions than it has there."""
        found = self._pools.get(pool)
        self._topics[topic_id] = None if found is None else (found, found.spread(self._image, topic_id, partitions))

    def next(self, topic_id: TopicId, *, bytes_per_s: int | None = None) -> Incarnation | None:
        """The broker of one more partition of a topic that the image has or that was announced.

        `bytes_per_s` is what is written to the partition; None: as much as to others. The result None: no broker may
        have it.
        """
        pool, spread = self._pool_of(topic_id)
        seat = None if pool is None else pool.seats.pick(spread)
        if pool is None or seat is None:
            return None
        seat.add(pool.usual_bytes_per_s if bytes_per_s is None else bytes_per_s)
        pool.seats.changed(seat)
        if spread is not None:
            spread.enter(seat.zone)
        return pool.incarnations[seat.node_id]

    def takes(self, pool: str, node_id: NodeId) -> bool:
        """Whether this broker may have partitions of topics of the pool."""
        found = self._pools.get(pool)
        return found is not None and found.seat_of(node_id) is not None

    def on_broker(self, topic_id: TopicId, node_id: NodeId) -> Incarnation:
        """As `next`, on a broker that `takes` them."""
        pool, spread = self._pool_of(topic_id)
        seat = None if pool is None else pool.seat_of(node_id)
        assert pool is not None and seat is not None, "only a broker that takes partitions may be asked for"
        seat.add(pool.usual_bytes_per_s)
        pool.seats.changed(seat)
        if spread is not None:
            spread.enter(seat.zone)
        return pool.incarnations[node_id]

    def _pool_of(self, topic_id: TopicId) -> "tuple[_Pool | None, Spread | None]":
        if topic_id not in self._topics:
            topic = self._image.topics[topic_id]
            self.announce(topic_id, pool=pool_of(topic.configs), partitions=len(topic.partitions))
        return self._topics[topic_id] or (None, None)


class _Pool:
    """The brokers of one pool."""

    def __init__(
        self,
        name: str,
        nodes: Collection[Node],
        image: Image,
        loads: Mapping[NodeId, float],
        *,
        avoid: Collection[NodeId],
        heirs: bool,
    ) -> None:
        self.incarnations: dict[NodeId, Incarnation] = {
            node.node_id: (node.node_id, node.broker_epoch) for node in nodes
        }
        self._zones = Zones((node.rack, True) for node in nodes)
        self._zone_of = {node.node_id: self._zones.number(node.rack) for node in nodes}
        taking = _taking(nodes, image, avoid=avoid, heirs=heirs)
        seats = [
            Seat(
                node.node_id,
                zone=self._zone_of[node.node_id],
                pool=name,
                accepting=node.node_id in taking,
                count=image.owned_counts.get(node.node_id, 0),
                bytes_per_s=_sound(loads.get(node.node_id, 0.0)),
            )
            for node in nodes
        ]
        count, load = sum(seat.count for seat in seats), sum(seat.bytes_per_s for seat in seats)
        self.usual_bytes_per_s = load // count if count else 0
        self._accepting = {seat.node_id: seat for seat in seats if seat.accepting}
        self.seats = Seats(seats, mean_count=count / len(seats), mean_bytes_per_s=load / len(seats))

    def seat_of(self, node_id: NodeId) -> Seat | None:
        """None: it is none of the pool's that take partitions."""
        return self._accepting.get(node_id)

    def spread(self, image: Image, topic_id: TopicId, partitions: int) -> Spread:
        """Where the topic's partitions are, and will be, that the pool's brokers own."""
        topic = image.topics.get(topic_id)
        owners = () if topic is None else (_where(meta) for meta in topic.partitions)
        return self._zones.spread(partitions, (self._zone_of[owner] for owner in owners if owner in self._zone_of))


def _taking(nodes: Collection[Node], image: Image, *, avoid: Collection[NodeId], heirs: bool) -> Collection[NodeId]:
    """The brokers of a pool that take partitions."""
    staying = [node.node_id for node in nodes if node.node_id not in avoid]
    willing = {node_id for node_id in staying if node_id not in image.cordoned}
    if willing or not heirs:
        return willing
    return set(staying) or {node.node_id for node in nodes}


def _lives(image: Image, node: Node) -> bool:
    return "broker" in node.roles and node.node_id not in image.fencing


def _where(meta: PartitionMeta) -> NodeId:
    return meta.moving_to if meta.moving_to != NO_NODE else meta.node_id


def _sound(bytes_per_s: float) -> int:
    """What comes over the wire may be no number."""
    return int(bytes_per_s) if isfinite(bytes_per_s) and bytes_per_s > 0 else 0

"""Partitions whose owner's stream has ended, or of which it has said where its part of the stream ends, and what their
heirs must read. Pure.
"""

from collections.abc import Callable, Collection
from typing import Final

from bmq.config.topic_config import pool_of
from bmq.metadata.image import Image, PartitionMeta
from bmq.metadata.records import PartitionChange, Range
from bmq.values import NO_NODE, BrokerEpoch, NodeId, StreamId, TopicId, TopicPartition
from bmq_controller.machine.placement import Incarnation, Placement, living_broker

NO_OWNER: Final[Incarnation] = (NO_NODE, BrokerEpoch(-1))


def give_to_others(image: Image, left: StreamId, *, end: int, avoid: Collection[NodeId] = ()) -> list[PartitionChange]:
    """The partitions of a broker that is gone for good: to where they were moving, else to the others of their pool,
    else to nobody.

    `avoid` are brokers that stop soon.
    """
    placement = Placement.for_heirs(image, without={left.node_id}, avoid=avoid)
    return give_to_heirs(image, left=left, end=end, heir=lambda topic_id: placement.next(topic_id) or NO_OWNER)


def give_to_heirs(
    image: Image,
    *,
    left: StreamId | None,
    end: int,
    heir: Callable[[TopicId], Incarnation],
    ownerless: str | None = None,
) -> list[PartitionChange]:
    """A change for each partition whose owner wrote to the stream `left`, and for each of the pool `ownerless` that has
    no owner.

    A partition that was under a planned move goes where that leads, if a living broker is there.
    """
    leaving = image.owned_counts.get(left.node_id, 0) if left is not None else 0
    waiting = image.owned_counts.get(NO_NODE, 0) if ownerless is not None else 0
    if leaving + waiting == 0:
        return []
    changes = []
    for topic in image.topics.values():
        takes = waiting > 0 and pool_of(topic.configs) == ownerless
        for index, meta in enumerate(topic.partitions):
            leaves = left is not None and (meta.node_id, meta.broker_epoch) == left
            if not leaves and (meta.node_id != NO_NODE or not takes):
                continue
            owner = living_broker(image, meta.moving_to) if meta.moving_to != meta.node_id else None
            tp = TopicPartition(topic.topic_id, index)
            changes.append(
                change_owner(
                    tp,
                    meta,
                    owner if owner is not None else heir(topic.topic_id),
                    ranges=ranges(meta, end) if leaves else meta.ranges,
                )
            )
    return changes


def change_owner(
    tp: TopicPartition, meta: PartitionMeta, owner: Incarnation, *, ranges: tuple[Range, ...]
) -> PartitionChange:
    """Every change of owner raises the leader epoch by one."""
    node_id, broker_epoch = owner
    return PartitionChange(
        topic_id=tp.topic_id,
        partition=tp.partition,
        node_id=node_id,
        broker_epoch=broker_epoch,
        leader_epoch=meta.leader_epoch + 1,
        ranges=ranges,
    )


def ranges(meta: PartitionMeta, end: int, *, start: int = 0) -> tuple[Range, ...]:
    """What the heir must read: what the old owner had yet to cover, and what the old owner wrote. A stream that ends at
    0 holds nothing.
    """
    if end == 0:
        return meta.ranges
    return (*meta.ranges, Range(meta.node_id, meta.broker_epoch, meta.leader_epoch, end, start))

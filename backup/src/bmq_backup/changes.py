"""What of the metadata may change while a store is copied. Pure."""

from collections.abc import Iterable
from typing import Final

from bmq.metadata.image import Image
from bmq.metadata.records import (
    AnyRecord,
    ClusterCreated,
    ConfigsChanged,
    FeatureLevel,
    FencingBegun,
    LaneDeclared,
    LaneDeleted,
    LaneTurned,
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
    RangesCovered,
    StreamCollected,
    StreamDropped,
    StreamSealed,
    TopicCollected,
    TopicCreated,
    TopicDeleted,
    Whose,
)
from bmq.values import TopicId

_HARMLESS: Final = (
    LeaderAlive,
    LeaderElected,
    ConfigsChanged,
    NodeListeners,
    NodeCordoned,
    PartitionMoveBegun,
    ProducerIdsAllocated,
    TopicDeleted,
    TopicCollected,
    LaneDeclared,
    LaneDeleted,
    FeatureLevel,
)
"""Records that leave owners, streams and what must be read of them as they were."""
_LOOKED_AT: Final = (PartitionChange, RangesCovered, TopicCreated, PartitionsAdded, LaneTurned)
"""Those that may."""
HARMLESS_OR_LOOKED_AT: Final = (*_HARMLESS, *_LOOKED_AT)
BEGIN_ANEW: Final = (
    ClusterCreated,
    NodeRegistered,
    NodeUnregistered,
    FencingBegun,
    StreamSealed,
    StreamDropped,
    StreamCollected,
)
"""Those that change which streams there are: a copy that was begun before them is begun anew."""


def is_harmless(records: Iterable[AnyRecord], image: Image) -> bool:
    """Whether the copy may end after these though it was begun before them. Topics that are new, or grow, are copied
    besides.

    Not where such a partition has changed hands already and its owner has to read what earlier ones wrote: that may be
    behind the WAL that was copied, and a node whose stream ends before what others are to read of it cannot register.
    Nor where what went from a lane on to the base ends: the base's partition may have been copied before it had that.
    """
    for record in records:
        if isinstance(record, LaneTurned) and record.whose == Whose.LANE:
            return False
        if isinstance(record, PartitionChange):
            topic = image.topics.get(TopicId(record.topic_id))
            if record.ranges or (topic is not None and record.partition < len(topic.partitions)):
                return False
        elif isinstance(record, RangesCovered):
            if record.ranges:
                return False
        elif not isinstance(record, HARMLESS_OR_LOOKED_AT):
            return False
    return True

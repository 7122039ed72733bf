"""The small values that every part of bmq passes around. No behaviour, no I/O."""

from typing import Final, NamedTuple, NewType
from uuid import UUID

TopicId = NewType("TopicId", UUID)
Offset = NewType("Offset", int)
"""The position of a record in its partition, from 0."""
LeaderEpoch = NewType("LeaderEpoch", int)
"""Grows by at least one each time a partition's owner changes; a client never sees it go back."""
NodeId = NewType("NodeId", int)
NODE_ID_MAX: Final = (1 << 31) - 1
"""The largest that Kafka's protocol and the stored formats have room for."""
BrokerEpoch = NewType("BrokerEpoch", int)
"""One broker incarnation; names its WAL stream together with the node id."""
ControllerEpoch = NewType("ControllerEpoch", int)
Nonce = NewType("Nonce", bytes)
"""16 random bytes that tell one writer's object from another's."""
ManifestVersion = NewType("ManifestVersion", int)
"""The number of a manifest object in its partition's flat log, from 1; 0 means that the partition has none yet."""

NO_MANIFEST = ManifestVersion(0)
NO_NODE: Final = NodeId(-1)
"""Who owns a partition that has no owner, and where one moves that does not."""
LANE_TURN_IDS: Final = 1 << 62
"""Producer ids from here on are of what lanes hand over to the base, and are given to no client."""
NONCE_SIZE_BYTES = 16


class TopicPartition(NamedTuple):
    """What everything cached, fenced or compared is keyed by: an id, never a name."""

    topic_id: TopicId
    partition: int

    def __str__(self) -> str:
        return f"{self.topic_id}/{self.partition}"


class StreamId(NamedTuple):
    """The WAL stream of one broker incarnation."""

    node_id: NodeId
    broker_epoch: BrokerEpoch

    @property
    def prefix(self) -> str:
        """The stream's key prefix, with its final slash."""
        return f"wal/{self.node_id:010d}/{self.broker_epoch:020d}/"

"""The records of the metadata log. Small, and versioned by their fields: a field is only ever added, with a default.

On disk one flat-log entry holds a msgpack array of records, each a msgpack array that starts with its tag (docs/formats/metadata.md).
A tag that this bmq does not know is refused by name (FormatTooNew): a node never guesses what a newer controller meant.
"""

from uuid import UUID

import msgspec


class Record(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """The base of all records."""


class ClusterCreated(Record, frozen=True, tag="cluster"):
    """The first record of all."""

    cluster_id: str


class LeaderElected(Record, frozen=True, tag="leader"):
    """A controller's claim: the first record of its epoch."""

    controller_epoch: int
    node_id: int


class NodeRegistered(Record, frozen=True, tag="node"):
    """A node came up under a new epoch; `roles` of controller, broker, proxy; `boot` tells one start of the process from another."""

    node_id: int
    broker_epoch: int
    boot: UUID
    roles: tuple[str, ...]
    host: str
    port: int
    rack: str = ""


class NodeUnregistered(Record, frozen=True, tag="node-gone"):
    """A node left for good, or was fenced."""

    node_id: int
    broker_epoch: int


class StreamSealed(Record, frozen=True, tag="sealed"):
    """A WAL stream ends: objects at and above `end` count for nothing."""

    node_id: int
    broker_epoch: int
    end: int


class Range(msgspec.Struct, frozen=True, array_like=True):
    """What an heir must read of a predecessor's stream: batches of `leader_epoch` in objects below `end`."""

    node_id: int
    broker_epoch: int
    leader_epoch: int
    end: int


class TopicCreated(Record, frozen=True, tag="topic"):
    """`leader_epoch` is where its partitions' epochs start: above the tombstone of an earlier topic of that name."""

    topic_id: UUID
    name: str
    partitions: int
    leader_epoch: int
    configs: dict[str, str] = {}
    created_ms: int = 0


class PartitionsAdded(Record, frozen=True, tag="partitions"):
    """The topic has `partitions` partitions now."""

    topic_id: UUID
    partitions: int


class TopicDeleted(Record, frozen=True, tag="topic-gone"):
    """Leaves a tombstone: the name's last leader epoch."""

    topic_id: UUID
    name: str
    last_leader_epoch: int


class PartitionChange(Record, frozen=True, tag="owner"):
    """The partition's owner (node and its epoch; node -1: none), its raised leader epoch, and what the heir must read besides the manifest."""

    topic_id: UUID
    partition: int
    node_id: int
    broker_epoch: int
    leader_epoch: int
    ranges: tuple[Range, ...] = ()


class RangesCovered(Record, frozen=True, tag="covered"):
    """The manifest covers what these ranges hold of the partition: they leave the image."""

    topic_id: UUID
    partition: int
    ranges: tuple[Range, ...]


class StreamDropped(Record, frozen=True, tag="stream-gone"):
    """No partition names the sealed stream any more: its data objects may be deleted (its seal stays)."""

    node_id: int
    broker_epoch: int


class StreamCollected(Record, frozen=True, tag="stream-collected"):
    """The data objects of a dropped stream are deleted: nothing is left to do for it."""

    node_id: int
    broker_epoch: int


class TopicCollected(Record, frozen=True, tag="topic-collected"):
    """The objects of a deleted topic are deleted: nothing is left to do for it."""

    topic_id: UUID


class ConfigsChanged(Record, frozen=True, tag="configs"):
    """`kind` is topic, broker or group; a value None goes back to the default. `name` of a topic is its id as text."""

    kind: str
    name: str
    changes: dict[str, str | None]


class ProducerIdsAllocated(Record, frozen=True, tag="producer-ids"):
    """Ids below `next_producer_id` may have been given out."""

    next_producer_id: int


class FeatureLevel(Record, frozen=True, tag="feature"):
    """The cluster runs `name` at `level`."""

    name: str
    level: int


AnyRecord = (
    ClusterCreated
    | LeaderElected
    | NodeRegistered
    | NodeUnregistered
    | StreamSealed
    | TopicCreated
    | PartitionsAdded
    | TopicDeleted
    | PartitionChange
    | RangesCovered
    | StreamDropped
    | StreamCollected
    | TopicCollected
    | ConfigsChanged
    | ProducerIdsAllocated
    | FeatureLevel
)

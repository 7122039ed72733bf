"""The records of the metadata log. Small, and versioned by their fields: a field is only ever added, with a default.

On disk one flat-log entry holds a msgpack array of records, each a msgpack array that starts with its tag
(docs/formats/metadata.md). A tag that this bmq does not know is refused by name (FormatTooNew): a node never guesses
what a newer controller meant.
"""

from enum import StrEnum
from typing import Final
from uuid import UUID

import msgspec


class Record(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """The base of all records."""


class ClusterCreated(Record, frozen=True, tag="cluster"):
    """The first record of all; and the last one that a copy of the store was given: which copy it is. "" is the store
    that nobody copied.
    """

    cluster_id: str
    copy: str = ""


class LeaderElected(Record, frozen=True, tag="leader"):
    """A controller's claim: the first record of its epoch. `host` and `port` are the leader's internal address; "" and
    0: none.
    """

    controller_epoch: int
    node_id: int
    host: str = ""
    port: int = 0


class LeaderAlive(Record, frozen=True, tag="alive"):
    """The leader lives, and has heard these nodes since it said so last. Appended at least once a second where there
    are standbys.

    `resigns`: it is its last word, and a standby may claim leadership at once.
    """

    heard: tuple[int, ...]
    resigns: bool = False


class NodeRegistered(Record, frozen=True, tag="node"):
    """A node came up under a new epoch; `roles` of controller, broker, proxy; `boot` tells one start of the process
    from another.

    `host` and `port` are its Kafka address ("" and 0 without a proxy), the internal ones what other nodes connect to.
    `pool`: whose topics the broker owns partitions of, "" for those of nobody in particular. `lane`: which one its
    proxy serves alone, "": the base and all others. `listeners`: where clients reach it by further listeners, (host,
    port) by name.
    """

    node_id: int
    broker_epoch: int
    boot: UUID
    roles: tuple[str, ...]
    host: str
    port: int
    rack: str = ""
    internal_host: str = ""
    internal_port: int = 0
    pool: str = ""
    lane: str = ""
    listeners: dict[str, tuple[str, int]] = {}


class NodeListeners(Record, frozen=True, tag="listeners"):
    """The node is reached by these further listeners now, and by no others: an address came to be known, or changed,
    while it lives.
    """

    node_id: int
    broker_epoch: int
    listeners: dict[str, tuple[str, int]]


class NodeUnregistered(Record, frozen=True, tag="node-gone"):
    """A node left for good, or was fenced."""

    node_id: int
    broker_epoch: int


class NodeCordoned(Record, frozen=True, tag="cordon"):
    """The node gets no new partitions (or may again); those that it has stay. Holds across its restarts."""

    node_id: int
    cordoned: bool


class FencingBegun(Record, frozen=True, tag="fencing"):
    """This incarnation has been silent for too long: its stream is about to be sealed. There is no way back; any leader
    completes it.
    """

    node_id: int
    broker_epoch: int


class StreamSealed(Record, frozen=True, tag="sealed"):
    """A WAL stream ends: objects at and above `end` count for nothing."""

    node_id: int
    broker_epoch: int
    end: int


class Range(msgspec.Struct, frozen=True, array_like=True):
    """What an heir must read of a predecessor's stream: batches of `leader_epoch` in objects below `end`. Nothing of
    them lies below `start`.
    """

    node_id: int
    broker_epoch: int
    leader_epoch: int
    end: int
    start: int = 0


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
    """The partition's owner (node and its epoch; node -1: none), its raised leader epoch, and what the heir must read
    besides the manifest.
    """

    topic_id: UUID
    partition: int
    node_id: int
    broker_epoch: int
    leader_epoch: int
    ranges: tuple[Range, ...] = ()


class PartitionMoveBegun(Record, frozen=True, tag="moving"):
    """A planned move: the owner is to append no more under its leader epoch and to report the end; PartitionChange
    completes it.

    `to_node_id` may be the owner itself: a move that was taken back after the owner may have closed. -1: there is no
    move; only while it is certain that the owner has not closed the partition.
    """

    topic_id: UUID
    partition: int
    to_node_id: int


class RangesCovered(Record, frozen=True, tag="covered"):
    """The manifest covers what these ranges hold of the partition: they leave the image.

    `manifest_version`: one that has been in force, so it or a later one is there as long as nobody else deletes it.
    With or without ranges.
    """

    topic_id: UUID
    partition: int
    ranges: tuple[Range, ...]
    manifest_version: int = 0


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


class LaneQuota(msgspec.Struct, frozen=True, array_like=True):
    """How much a lane may take of the cluster; 0: as much as there is.

    `write_bytes_per_s`, `read_bytes_per_s`: what all of its clients together write and read, on each proxy.
    `partitions`: of all of its own topics together. `storage_bytes`: what all of these partitions keep, each an equal
    part of it.
    """

    write_bytes_per_s: int = 0
    read_bytes_per_s: int = 0
    partitions: int = 0
    storage_bytes: int = 0

    @property
    def partition_bytes(self) -> int:
        """What one of its partitions keeps at most; 0: as its topic says."""
        return self.storage_bytes // self.partitions if self.partitions else 0


NO_QUOTA: Final = LaneQuota()


class LaneDeclared(Record, frozen=True, tag="lane"):
    """A lane is made, or is as this says from now on; a new one has a `number` that was never given before.

    `reads_base`: which topics of the base its clients may read (patterns), at most so many bytes per second and proxy;
    () for none. `ttl_s` 0: it stays. `falls_back`: what nobody in it consumes goes on to the lane `parent`, which it is
    nested in, or where that is "" to the base. `quota`: how much it may take.
    """

    name: str
    number: int
    created_ms: int
    ttl_s: int = 0
    own_brokers: bool = False
    reads_base: tuple[str, ...] = ()
    reads_base_bytes_per_s: int = 0
    falls_back: bool = False
    parent: str = ""
    quota: LaneQuota = NO_QUOTA


class Whose(StrEnum):
    """Whose turn it is."""

    LANE = "lane"
    CLOSING = "closing"
    """The base's is to end: its partition's owner takes no more, and says how far it got."""
    BASE = "base"


class LaneTurned(Record, frozen=True, tag="turn"):
    """Whose turn what is in a partition of a lane's topic is, from `begin` on. What closes begins where it began. Each
    has the next `generation`; the first, of which nothing is said, is the lane's from the beginning on, and has 0.

    `producer_id`: as whom it is written to the topic `base_topic_id`, while it is the base's; nobody had it before.
    """

    topic_id: UUID
    partition: int
    generation: int
    whose: Whose
    begin: int
    producer_id: int = -1
    base_topic_id: UUID | None = None


class LaneDeleted(Record, frozen=True, tag="lane-gone"):
    """The lane is gone; its topics went with it, in this entry, and its groups are nobody's from now on."""

    name: str
    number: int


class FeatureLevel(Record, frozen=True, tag="feature"):
    """The cluster runs `name` at `level`."""

    name: str
    level: int


AnyRecord = (
    ClusterCreated
    | LeaderElected
    | LeaderAlive
    | NodeRegistered
    | NodeListeners
    | NodeUnregistered
    | NodeCordoned
    | FencingBegun
    | StreamSealed
    | TopicCreated
    | PartitionsAdded
    | TopicDeleted
    | PartitionChange
    | PartitionMoveBegun
    | RangesCovered
    | StreamDropped
    | StreamCollected
    | TopicCollected
    | ConfigsChanged
    | ProducerIdsAllocated
    | LaneDeclared
    | LaneTurned
    | LaneDeleted
    | FeatureLevel
)

"""The image: a node's copy of the cluster's metadata. A pure fold over the records; readers treat it as immutable.

`apply` returns a new Image that shares what did not change with the old one, so a reader keeps a consistent view
without a lock. The fold itself is in `bmq.metadata.fold`; what must hold of every image, in `bmq.metadata.invariants`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from bmq.metadata.records import Range
from bmq.naming.listeners import ListenerAddresses
from bmq.values import (
    NO_MANIFEST,
    NO_NODE,
    BrokerEpoch,
    LeaderEpoch,
    ManifestVersion,
    NodeId,
    StreamId,
    TopicId,
    TopicPartition,
)


@dataclass(frozen=True, slots=True)
class PartitionMeta:
    """Who owns a partition. node_id NO_NODE: nobody.

    `moving_to` is where a planned move leads, NO_NODE without one: its owner closes it and reports the end.
    """

    node_id: NodeId = NO_NODE
    broker_epoch: BrokerEpoch = BrokerEpoch(-1)
    leader_epoch: LeaderEpoch = LeaderEpoch(0)
    ranges: tuple[Range, ...] = ()
    moving_to: NodeId = NO_NODE
    manifest_version: ManifestVersion = NO_MANIFEST
    """One that was in force: the newest is this one or a later one, and where there is none, somebody else deleted
    it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """A topic; `configs` holds only what was set."""

    topic_id: TopicId
    name: str
    partitions: tuple[PartitionMeta, ...]
    configs: Mapping[str, str] = field(default_factory=dict)
    created_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A registered node. `host` and `port`: its Kafka address, "" and 0 without a proxy; the internal ones: where other
    nodes reach it.
    """

    node_id: NodeId
    broker_epoch: BrokerEpoch
    boot: UUID
    roles: tuple[str, ...]
    host: str
    port: int
    rack: str = ""
    internal_host: str = ""
    internal_port: int = 0
    pool: str = ""
    """A broker owns partitions of the topics of its pool and of no others; "": of the topics that are in none."""
    lane: str = ""
    """Its proxy serves this lane alone; "": the base, and whoever names a lane."""
    listeners: ListenerAddresses = field(default_factory=dict)
    """Where clients reach its proxy by further listeners."""


HAS_READ_MAX: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """An isolated line of traffic. Its topics are those whose names `bmq.naming.lanes` makes of it."""

    name: str
    number: int
    """The lane's number, which no other lane has or ever had."""
    created_ms: int
    ttl_s: int = 0
    own_brokers: bool = False
    reads_base: tuple[str, ...] = ()
    reads_base_bytes_per_s: int = 0
    has_read_base: tuple[str, ...] = ()
    """Every pattern that `reads_base` ever had, at most HAS_READ_MAX; ("*",) where there were more."""

    @property
    def expires_ms(self) -> int | None:
        """When it is deleted by itself, in ms since 1970; None: never."""
        return self.created_ms + self.ttl_s * 1000 if self.ttl_s else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """Everything. `position` is the number of the newest metadata log entry that it covers, 0 before the first."""

    position: int = 0
    cluster_id: str = ""
    copy: str = ""
    """Which copy of the cluster's store this is; "" for the one that it began with. Nodes over two of them have nothing
    to say to each other."""
    controller_epoch: int = 0
    controller_id: NodeId = NO_NODE
    controller_host: str = ""
    controller_port: int = 0
    """The leader's internal address; "" and 0 where it serves its own process alone."""
    nodes: Mapping[NodeId, Node] = field(default_factory=dict)
    topics: Mapping[TopicId, Topic] = field(default_factory=dict)
    topic_ids: Mapping[str, TopicId] = field(default_factory=dict)
    tombstones: Mapping[str, LeaderEpoch] = field(default_factory=dict)
    """Last leader epoch of deleted topics, by name, oldest first; bounded, see `leader_epoch_floor`."""
    leader_epoch_floor: LeaderEpoch = LeaderEpoch(-1)
    """The highest epoch of the tombstones that were forgotten: a new topic without a tombstone starts above it."""
    deleted: Mapping[TopicId, str] = field(default_factory=dict)
    """Deleted topics (and their names) whose objects the controller has yet to delete."""
    sealed: Mapping[StreamId, int] = field(default_factory=dict)
    """Sealed streams whose data may still be needed, with their ends."""
    dropped: Mapping[StreamId, int] = field(default_factory=dict)
    """Sealed streams that no partition names any more, with their ends, whose data the controller has yet to delete."""
    last_epochs: Mapping[NodeId, BrokerEpoch] = field(default_factory=dict)
    """The newest epoch ever given to a node id."""
    past_boots: Mapping[NodeId, tuple[UUID, ...]] = field(default_factory=dict)
    """The last few boots that lost their node id to another boot: they may not take it back."""
    fencing: Mapping[NodeId, BrokerEpoch] = field(default_factory=dict)
    """Incarnations whose fencing is begun and not completed: their streams are sealed, or will be."""
    cordoned: Mapping[NodeId, bool] = field(default_factory=dict)
    """Nodes that get no new partitions; each is True."""
    configs: Mapping[tuple[str, str], Mapping[str, str]] = field(default_factory=dict)
    """Configurations of brokers and groups, by (kind, name)."""
    next_producer_id: int = 0
    features: Mapping[str, int] = field(default_factory=dict)
    lanes: Mapping[str, Lane] = field(default_factory=dict)
    next_lane: int = 1
    """The number of the next lane: those below were given."""
    owned_counts: Mapping[NodeId, int] = field(default_factory=dict)
    """Derived: how many partitions each node owns; -1 counts those without an owner."""
    range_counts: Mapping[StreamId, int] = field(default_factory=dict)
    """Derived: how many partitions' ranges name each stream."""

    moving: Mapping[TopicPartition, NodeId] = field(default_factory=dict)
    """Derived: partitions under a planned move, with where it leads."""
    colliding: Mapping[str, str] = field(default_factory=dict)
    """Derived: names that may collide with others, by `names.collision_key`."""
    config_bytes: int = 0
    """Derived: what all configurations take, topics' and others', and the patterns of lanes."""

    def topic(self, name: str) -> Topic | None:
        """The topic of this name."""
        topic_id = self.topic_ids.get(name)
        return None if topic_id is None else self.topics[topic_id]

    def partition(self, tp: TopicPartition) -> PartitionMeta | None:
        """Who owns it; None where it does not exist."""
        topic = self.topics.get(tp.topic_id)
        if topic is None or not 0 <= tp.partition < len(topic.partitions):
            return None
        return topic.partitions[tp.partition]

    def ranges_in(self, stream: StreamId) -> dict[TopicPartition, tuple[Range, ...]]:
        """What partitions must still read of the stream; its owner, where it lives, keeps those objects. O(partitions)
        where there is any.
        """
        found: dict[TopicPartition, tuple[Range, ...]] = {}
        if stream not in self.range_counts:
            return found
        for topic in self.topics.values():
            for index, meta in enumerate(topic.partitions):
                if meta.ranges and (named := tuple(part for part in meta.ranges if stream_of(part) == stream)):
                    found[TopicPartition(topic.topic_id, index)] = named
        return found

    def next_leader_epoch(self, name: str) -> LeaderEpoch:
        """Where the epochs of a topic created now under this name start: above every epoch that a client may have seen
        of the name.
        """
        return LeaderEpoch(self.tombstones.get(name, self.leader_epoch_floor) + 1)


def stream_of(found: Range) -> StreamId:
    """The stream that a range is in."""
    return StreamId(NodeId(found.node_id), BrokerEpoch(found.broker_epoch))

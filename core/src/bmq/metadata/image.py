"""The image: a node's copy of the cluster's metadata. A pure fold over the records; readers treat it as immutable.

`apply` returns a new Image that shares what did not change with the old one, so a reader keeps a consistent view
without a lock. The fold itself is in `bmq.metadata.fold`; what must hold of every image, in `bmq.metadata.invariants`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from bmq.metadata.records import NO_QUOTA, LaneQuota, Range, Whose
from bmq.naming.lanes import lane_of, name_in_lane, overlay_name
from bmq.naming.listeners import ListenerAddresses
from bmq.values import (
    LANE_TURN_IDS,
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """Whose turn what a partition of a lane's topic has from `begin` on is (docs/decisions/0052)."""

    whose: Whose = Whose.LANE
    begin: int = 0
    generation: int = 0
    """How many turns there were before."""
    producer_id: int = -1
    """As whom it is handed over, while it is the base's."""
    base_topic_id: TopicId | None = None
    """The topic to which it is."""


FIRST_TURN: Final = Turn()
"""That of every partition of which nothing else is said."""
HAS_READ_MAX: Final = 64
NESTED_MAX: Final = 8
"""Lanes may be nested so deep: one in another, that in a third."""


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
    falls_back: bool = False
    """Whether what nobody in it consumes goes on to the lane that it is nested in, or to the base."""
    parent: str = ""
    """The lane that it is nested in, which is there for as long as this one; "": none."""
    quota: LaneQuota = NO_QUOTA
    """How much it may take of the cluster."""

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
    turns: Mapping[TopicPartition, Turn] = field(default_factory=dict)
    """Whose turn it is, of partitions of lanes' topics that had more than the first one."""
    next_turn_id: int = LANE_TURN_IDS
    """The producer id of the next turn of the base's."""
    turn_ids: Mapping[int, TopicPartition] = field(default_factory=dict)
    """Derived: the partitions of lanes by the producer ids of their turns, while those are the base's."""
    owned_counts: Mapping[NodeId, int] = field(default_factory=dict)
    """Derived: how many partitions each node owns; -1 counts those without an owner."""
    range_counts: Mapping[StreamId, int] = field(default_factory=dict)
    """Derived: how many partitions' ranges name each stream."""

    moving: Mapping[TopicPartition, NodeId] = field(default_factory=dict)
    """Derived: partitions under a planned move, with where it leads."""
    colliding: Mapping[str, str] = field(default_factory=dict)
    """Derived: names that may collide with others, by `names.collision_key`."""
    lane_partitions: Mapping[str, int] = field(default_factory=dict)
    """Derived: how many partitions each lane's own topics have together; lanes without one are not there."""
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

    def falls_back(self, topic: str) -> bool:
        """Whether what nobody in the topic's lane consumes of it goes on to what is beneath."""
        lane = self.lanes.get(lane_of(topic))
        return lane is not None and lane.falls_back

    def goes_on_to(self, topic: Topic) -> Topic | None:
        """The topic to which goes what nobody in its lane consumes: the one of the lane that this is nested in, else
        the base's. None: there is none (yet).
        """
        lane = self.lanes.get(lane_of(topic.name))
        return None if lane is None else self.topic(overlay_name(lane.parent, name_in_lane(topic.name)))

    def beneath(self, lane: Lane, name: str) -> Topic | None:
        """The topic that a lane's own one of this name lies above, in whose shape it is made: of the nearest of the
        lanes that it is nested in, one in the other, that has its own; else the base's.
        """
        for parent in self.parents(lane):
            if (own := self.topic(overlay_name(parent.name, name))) is not None:
                return own
        return self.topic(name)

    def rooted_in(self, lane: Lane, name: str) -> Topic | None:
        """The topic of whose id a lane's own one of this name tells: the base's, else that of the outermost of the
        lanes that it is nested in. So its id stays the same where one between the two gets its own.
        """
        if (base := self.topic(name)) is not None:
            return base
        found = (self.topic(overlay_name(parent.name, name)) for parent in reversed(list(self.parents(lane))))
        return next(filter(None, found), None)

    def parents(self, lane: Lane) -> Iterator[Lane]:
        """The lanes that it is nested in, the nearest first."""
        for _ in range(NESTED_MAX):
            parent = self.lanes.get(lane.parent)
            if parent is None:
                return
            yield parent
            lane = parent

    def turn(self, tp: TopicPartition) -> Turn:
        """Whose turn it is of a partition of a lane's topic."""
        return self.turns.get(tp, FIRST_TURN)

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

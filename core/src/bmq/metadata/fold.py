"""The fold: what each record does to the image. Pure; one mutable builder lives for the length of one log entry.

Nothing is decided here. What a record says is done; whether it may be said is the controller's business and
`invariants` checks it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final, Generic, TypeVar, assert_never
from uuid import UUID

from bmq.errors import Corrupt, FormatTooNew
from bmq.metadata.derived import config_size, lane_size
from bmq.metadata.image import HAS_READ_MAX, Image, Lane, Node, PartitionMeta, Topic, Turn, stream_of
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
    Range,
    RangesCovered,
    StreamCollected,
    StreamDropped,
    StreamSealed,
    TopicCollected,
    TopicCreated,
    TopicDeleted,
    Whose,
)
from bmq.metadata.shared_map import SharedMap, Successor
from bmq.naming.lanes import BASE, lane_of
from bmq.naming.names import collision_key, may_collide
from bmq.values import NO_NODE, BrokerEpoch, LeaderEpoch, ManifestVersion, NodeId, StreamId, TopicId, TopicPartition

TOMBSTONES_MAX: Final = 10_000
"""Beyond it the oldest tombstones are forgotten and raise the floor instead. Part of the format: every reader folds
alike."""
PAST_BOOTS_MAX: Final = 8
"""How many lost boots of a node id are remembered. Part of the format."""

K = TypeVar("K")
V = TypeVar("V")


def apply(image: Image, position: int, records: Sequence[object]) -> Image:
    """The image after the log entry `position`. O(records + what they touch), however often one topic is named.

    Raises FormatTooNew for a record that it does not know, Corrupt for one that names what does not exist.
    """
    builder = _Builder(image)
    for record in records:
        if not isinstance(record, AnyRecord):
            raise FormatTooNew(
                f"metadata log entry {position}: record {type(record).__name__} is unknown to this bmq: upgrade it"
            )
        try:
            builder.add(record)
        except _Unknown as unknown:
            raise Corrupt(
                f"metadata log entry {position}: {type(record).__name__} names {unknown}, which does not exist"
            ) from None
    return builder.build(position)


def declared_lane(before: Lane | None, record: LaneDeclared) -> Lane:
    """What the lane, which was `before`, is after LaneDeclared."""
    has_read = before.has_read_base if before is not None and before.number == record.number else ()
    has_read = tuple(dict.fromkeys((*has_read, *record.reads_base)))
    return Lane(
        name=record.name,
        number=record.number,
        created_ms=record.created_ms,
        ttl_s=record.ttl_s,
        own_brokers=record.own_brokers,
        reads_base=record.reads_base,
        reads_base_bytes_per_s=record.reads_base_bytes_per_s,
        has_read_base=has_read if len(has_read) <= HAS_READ_MAX else ("*",),
        falls_back=record.falls_back,
        parent=record.parent,
        quota=record.quota,
    )


def turn_of(record: LaneTurned) -> Turn:
    """The turn that begins with LaneTurned."""
    return Turn(
        whose=record.whose,
        begin=record.begin,
        generation=record.generation,
        producer_id=record.producer_id,
        base_topic_id=None if record.base_topic_id is None else TopicId(record.base_topic_id),
    )


class _Unknown(Exception):
    """A record names something that the image does not have."""


class _Shared(Generic[K, V]):
    """A mapping that is copied at the first write."""

    __slots__ = ("_base", "_copy")

    def __init__(self, base: Mapping[K, V]) -> None:
        self._base = base
        self._copy: dict[K, V] | None = None

    @property
    def now(self) -> Mapping[K, V]:
        return self._base if self._copy is None else self._copy

    def write(self) -> dict[K, V]:
        if self._copy is None:
            self._copy = dict(self._base)
        return self._copy

    def add(self: "_Shared[K, int]", key: K, amount: int) -> None:
        counts = self.write()
        total = counts.get(key, 0) + amount
        if total:
            counts[key] = total
        else:
            counts.pop(key, None)


class _Leafed(Generic[K, V]):
    """A large mapping, of which its next version is begun at the first write."""

    __slots__ = ("_base", "_next")

    def __init__(self, base: Mapping[K, V]) -> None:
        self._base = base
        self._next: Successor[K, V] | None = None

    @property
    def now(self) -> Mapping[K, V] | Successor[K, V]:
        return self._base if self._next is None else self._next

    def write(self) -> Successor[K, V]:
        if self._next is None:
            self._next = Successor(SharedMap.of(self._base))
        return self._next

    def version(self) -> Mapping[K, V]:
        return self._base if self._next is None else self._next.version()


class _Builder:
    """The image while one entry is folded in. `_open` holds the partitions of the topics that the entry touches as
    lists.
    """

    def __init__(self, image: Image) -> None:
        self._image = image
        self._cluster_id = image.cluster_id
        self._copy = image.copy
        self._controller_epoch = image.controller_epoch
        self._controller_id = image.controller_id
        self._controller_host = image.controller_host
        self._controller_port = image.controller_port
        self._leader_epoch_floor = image.leader_epoch_floor
        self._next_producer_id = image.next_producer_id
        self._nodes = _Shared(image.nodes)
        self._topics = _Leafed(image.topics)
        self._topic_ids = _Leafed(image.topic_ids)
        self._tombstones = _Shared(image.tombstones)
        self._deleted = _Leafed(image.deleted)
        self._sealed = _Shared(image.sealed)
        self._dropped = _Shared(image.dropped)
        self._last_epochs = _Shared(image.last_epochs)
        self._past_boots = _Shared(image.past_boots)
        self._fencing = _Shared(image.fencing)
        self._cordoned = _Shared(image.cordoned)
        self._configs = _Shared(image.configs)
        self._features = _Shared(image.features)
        self._lanes = _Shared(image.lanes)
        self._next_lane = image.next_lane
        self._turns = _Leafed(image.turns)
        self._next_turn_id = image.next_turn_id
        self._turn_ids = _Leafed(image.turn_ids)
        self._owned_counts = _Shared(image.owned_counts)
        self._range_counts = _Shared(image.range_counts)
        self._moving = _Leafed(image.moving)
        self._colliding = _Leafed(image.colliding)
        self._lane_partitions = _Shared(image.lane_partitions)
        self._config_bytes = image.config_bytes
        self._open: dict[TopicId, list[PartitionMeta]] = {}

    def build(self, position: int) -> Image:
        if self._open:
            topics = self._topics.write()
            for topic_id, partitions in self._open.items():
                topics[topic_id] = replace(topics[topic_id], partitions=tuple(partitions))
        return Image(
            position=position,
            cluster_id=self._cluster_id,
            copy=self._copy,
            controller_epoch=self._controller_epoch,
            controller_id=self._controller_id,
            controller_host=self._controller_host,
            controller_port=self._controller_port,
            nodes=self._nodes.now,
            topics=self._topics.version(),
            topic_ids=self._topic_ids.version(),
            tombstones=self._tombstones.now,
            leader_epoch_floor=self._leader_epoch_floor,
            deleted=self._deleted.version(),
            sealed=self._sealed.now,
            dropped=self._dropped.now,
            last_epochs=self._last_epochs.now,
            past_boots=self._past_boots.now,
            fencing=self._fencing.now,
            cordoned=self._cordoned.now,
            configs=self._configs.now,
            next_producer_id=self._next_producer_id,
            features=self._features.now,
            lanes=self._lanes.now,
            next_lane=self._next_lane,
            turns=self._turns.version(),
            next_turn_id=self._next_turn_id,
            turn_ids=self._turn_ids.version(),
            owned_counts=self._owned_counts.now,
            range_counts=self._range_counts.now,
            moving=self._moving.version(),
            colliding=self._colliding.version(),
            lane_partitions=self._lane_partitions.now,
            config_bytes=self._config_bytes,
        )

    def add(self, record: AnyRecord) -> None:
        match record:
            case PartitionChange():
                self._change_partition(record)
            case PartitionMoveBegun():
                self._begin_move(record)
            case RangesCovered():
                self._cover_ranges(record)
            case TopicCreated():
                self._create_topic(record)
            case PartitionsAdded():
                self._add_partitions(record)
            case TopicDeleted():
                self._delete_topic(record)
            case TopicCollected():
                self._deleted.write().pop(TopicId(record.topic_id))
            case NodeRegistered():
                self._register(record)
            case NodeListeners():
                self._change_listeners(record)
            case NodeUnregistered():
                self._unregister(NodeId(record.node_id))
            case NodeCordoned():
                self._cordon(NodeId(record.node_id), cordoned=record.cordoned)
            case FencingBegun():
                self._begin_fencing(NodeId(record.node_id), BrokerEpoch(record.broker_epoch))
            case StreamSealed():
                self._sealed.write()[_stream(record)] = record.end
            case StreamDropped():
                self._drop_stream(_stream(record))
            case StreamCollected():
                self._dropped.write().pop(_stream(record), None)
            case ConfigsChanged():
                self._change_configs(record)
            case ProducerIdsAllocated():
                self._next_producer_id = record.next_producer_id
            case LaneDeclared() | LaneDeleted():
                self._change_lanes(record)
            case LaneTurned():
                self._turn(record)
            case FeatureLevel():
                self._features.write()[record.name] = record.level
            case LeaderElected():
                self._elect(record)
            case LeaderAlive():
                pass  # a standby looks at the record itself; what it says is old at once
            case ClusterCreated():
                self._cluster_id, self._copy = record.cluster_id, record.copy
            case _:
                assert_never(record)

    def _partitions(self, topic_id: UUID) -> list[PartitionMeta]:
        key = TopicId(topic_id)
        opened = self._open.get(key)
        if opened is None:
            topic = self._topics.now.get(key)
            if topic is None:
                raise _Unknown(f"topic {topic_id}")
            opened = self._open[key] = list(topic.partitions)
        return opened

    def _partition(self, record: PartitionChange | PartitionMoveBegun | RangesCovered) -> PartitionMeta:
        partitions = self._partitions(record.topic_id)
        if not 0 <= record.partition < len(partitions):
            raise _Unknown(f"partition {record.topic_id}/{record.partition}")
        return partitions[record.partition]

    def _put(self, topic_id: UUID, index: int, after: PartitionMeta) -> None:
        partitions = self._partitions(topic_id)
        before = partitions[index]
        partitions[index] = after
        if before.node_id != after.node_id:
            self._owned_counts.add(before.node_id, -1)
            self._owned_counts.add(after.node_id, 1)
        if before.ranges != after.ranges:
            self._count_ranges(before.ranges, -1)
            self._count_ranges(after.ranges, 1)
        if before.moving_to != after.moving_to:
            tp = TopicPartition(TopicId(topic_id), index)
            if after.moving_to == NO_NODE:
                self._moving.write().pop(tp)
            else:
                self._moving.write()[tp] = after.moving_to

    def _count_ranges(self, ranges: Sequence[Range], amount: int) -> None:
        for found in ranges:
            self._range_counts.add(stream_of(found), amount)

    def _change_partition(self, record: PartitionChange) -> None:
        after = PartitionMeta(
            NodeId(record.node_id),
            BrokerEpoch(record.broker_epoch),
            LeaderEpoch(record.leader_epoch),
            record.ranges,
            manifest_version=self._partition(record).manifest_version,
        )
        self._put(record.topic_id, record.partition, after)

    def _begin_move(self, record: PartitionMoveBegun) -> None:
        self._put(
            record.topic_id, record.partition, replace(self._partition(record), moving_to=NodeId(record.to_node_id))
        )

    def _cover_ranges(self, record: RangesCovered) -> None:
        before = self._partition(record)
        left = tuple(found for found in before.ranges if found not in record.ranges)
        version = ManifestVersion(max(before.manifest_version, record.manifest_version))
        self._put(record.topic_id, record.partition, replace(before, ranges=left, manifest_version=version))

    def _create_topic(self, record: TopicCreated) -> None:
        topic_id = TopicId(record.topic_id)
        empty = PartitionMeta(leader_epoch=LeaderEpoch(record.leader_epoch))
        self._topics.write()[topic_id] = Topic(
            topic_id=topic_id,
            name=record.name,
            partitions=(empty,) * record.partitions,
            configs=record.configs,
            created_ms=record.created_ms,
        )
        self._topic_ids.write()[record.name] = topic_id
        if may_collide(record.name):
            self._colliding.write()[collision_key(record.name)] = record.name
        if record.name in self._tombstones.now:
            del self._tombstones.write()[record.name]
        self._owned_counts.add(empty.node_id, record.partitions)
        self._count_lanes(record.name, record.partitions)
        self._config_bytes += config_size(record.configs)

    def _add_partitions(self, record: PartitionsAdded) -> None:
        partitions = self._partitions(record.topic_id)
        # A deleted topic of this name may have had more partitions: the lowest epoch that this one has is above all of
        # theirs.
        epoch = min(meta.leader_epoch for meta in partitions)
        added = max(0, record.partitions - len(partitions))
        partitions.extend([PartitionMeta(leader_epoch=epoch)] * added)
        if added:
            self._owned_counts.add(NO_NODE, added)
            topic = self._topics.now.get(TopicId(record.topic_id))
            assert topic is not None
            self._count_lanes(topic.name, added)

    def _delete_topic(self, record: TopicDeleted) -> None:
        topic_id = TopicId(record.topic_id)
        partitions = self._partitions(record.topic_id)
        self._count_lanes(record.name, -len(partitions))
        for index, meta in enumerate(partitions):
            self._owned_counts.add(meta.node_id, -1)
            self._count_ranges(meta.ranges, -1)
            if meta.moving_to != NO_NODE:
                self._moving.write().pop(TopicPartition(topic_id, index))
            if TopicPartition(topic_id, index) in self._turns.now:
                self._end_turn(TopicPartition(topic_id, index))
        del self._open[topic_id]
        topic = self._topics.write().pop(topic_id)
        assert topic is not None
        self._config_bytes -= config_size(topic.configs)
        self._topic_ids.write().pop(record.name)
        if may_collide(record.name):
            self._colliding.write().pop(collision_key(record.name))
        self._deleted.write()[topic_id] = record.name
        tombstones = self._tombstones.write()
        tombstones[record.name] = LeaderEpoch(record.last_leader_epoch)
        while len(tombstones) > TOMBSTONES_MAX:
            forgotten = tombstones.pop(next(iter(tombstones)))
            self._leader_epoch_floor = max(self._leader_epoch_floor, forgotten)

    def _count_lanes(self, topic: str, partitions: int) -> None:
        if (lane := lane_of(topic)) != BASE:
            self._lane_partitions.add(lane, partitions)

    def _elect(self, record: LeaderElected) -> None:
        self._controller_epoch = record.controller_epoch
        self._controller_id = NodeId(record.node_id)
        self._controller_host = record.host
        self._controller_port = record.port

    def _register(self, record: NodeRegistered) -> None:
        node_id = NodeId(record.node_id)
        before = self._nodes.now.get(node_id)
        if before is not None and before.boot != record.boot:
            past = (*self._past_boots.now.get(node_id, ()), before.boot)
            self._past_boots.write()[node_id] = past[-PAST_BOOTS_MAX:]
        epoch = BrokerEpoch(record.broker_epoch)
        self._last_epochs.write()[node_id] = epoch
        self._end_fencing(node_id)
        self._nodes.write()[node_id] = Node(
            node_id=node_id,
            broker_epoch=epoch,
            boot=record.boot,
            roles=record.roles,
            host=record.host,
            port=record.port,
            rack=record.rack,
            internal_host=record.internal_host,
            internal_port=record.internal_port,
            pool=record.pool,
            lane=record.lane,
            listeners=record.listeners,
        )

    def _change_listeners(self, record: NodeListeners) -> None:
        node_id = NodeId(record.node_id)
        node = self._nodes.now.get(node_id)
        if node is None or node.broker_epoch != record.broker_epoch:
            raise _Unknown(f"node {record.node_id} of epoch {record.broker_epoch}")
        self._nodes.write()[node_id] = replace(node, listeners=record.listeners)

    def _unregister(self, node_id: NodeId) -> None:
        self._nodes.write().pop(node_id, None)
        self._end_fencing(node_id)

    def _begin_fencing(self, node_id: NodeId, broker_epoch: BrokerEpoch) -> None:
        node = self._nodes.now.get(node_id)
        if node is None or node.broker_epoch != broker_epoch:
            raise _Unknown(f"node {node_id} of epoch {broker_epoch}")
        self._fencing.write()[node_id] = broker_epoch

    def _end_fencing(self, node_id: NodeId) -> None:
        if node_id in self._fencing.now:
            del self._fencing.write()[node_id]

    def _cordon(self, node_id: NodeId, *, cordoned: bool) -> None:
        if cordoned:
            self._cordoned.write()[node_id] = True
        elif node_id in self._cordoned.now:
            del self._cordoned.write()[node_id]

    def _drop_stream(self, stream: StreamId) -> None:
        end = self._sealed.write().pop(stream, None)
        if end is None:
            raise _Unknown(f"stream {stream.prefix}")
        self._dropped.write()[stream] = end

    def _change_lanes(self, record: LaneDeclared | LaneDeleted) -> None:
        before = self._lanes.now.get(record.name)
        self._config_bytes -= lane_size(before)
        if isinstance(record, LaneDeleted):
            self._lanes.write().pop(record.name, None)
            return
        self._next_lane = max(self._next_lane, record.number + 1)
        lane = self._lanes.write()[record.name] = declared_lane(before, record)
        self._config_bytes += lane_size(lane)

    def _turn(self, record: LaneTurned) -> None:
        if not 0 <= record.partition < len(self._partitions(record.topic_id)):
            raise _Unknown(f"partition {record.topic_id}/{record.partition}")
        tp = TopicPartition(TopicId(record.topic_id), record.partition)
        self._end_turn(tp)
        turn = self._turns.write()[tp] = turn_of(record)
        if turn.whose is not Whose.LANE:
            self._turn_ids.write()[turn.producer_id] = tp
            self._next_turn_id = max(self._next_turn_id, turn.producer_id + 1)

    def _end_turn(self, tp: TopicPartition) -> None:
        ended = self._turns.write().pop(tp)
        if ended is not None and ended.whose is not Whose.LANE:
            self._turn_ids.write().pop(ended.producer_id)

    def _change_configs(self, record: ConfigsChanged) -> None:
        if record.kind == "topic":
            topic_id = TopicId(UUID(record.name))
            topic = self._topics.now.get(topic_id)
            if topic is None:
                raise _Unknown(f"topic {record.name}")
            after = changed_configs(topic.configs, record.changes)
            self._topics.write()[topic_id] = replace(topic, configs=after)
            self._config_bytes += config_size(after) - config_size(topic.configs)
            return
        key = (record.kind, record.name)
        before = self._configs.now.get(key, {})
        after = changed_configs(before, record.changes)
        self._config_bytes += config_size(after) - config_size(before)
        if after:
            self._configs.write()[key] = after
        else:
            self._configs.write().pop(key, None)


def _stream(record: StreamSealed | StreamDropped | StreamCollected) -> StreamId:
    return StreamId(NodeId(record.node_id), BrokerEpoch(record.broker_epoch))


def changed_configs(configs: Mapping[str, str], changes: Mapping[str, str | None]) -> dict[str, str]:
    """What a configuration is after ConfigsChanged."""
    after = dict(configs)
    for name, value in changes.items():
        if value is None:
            after.pop(name, None)
        else:
            after[name] = value
    return after

"""The stored forms of metadata (docs/formats/metadata.md): the payload of a log entry, and the snapshot object. Pure.

The payload is the msgpack array `[format version, [record, ...]]`; each record is an array that starts with its tag.
The entry around it (envelope, number, nonces, checksum) is the flat log's. A snapshot is an object of its own: envelope
"bmqN", msgpack, CRC32C.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NoReturn, get_args
from uuid import UUID

import msgspec

from bmq.errors import Corrupt, FormatTooNew
from bmq.metadata.derived import (
    count_lane_partitions,
    count_owners,
    count_ranges,
    find_colliding,
    find_moving,
    find_turn_ids,
    measure_configs,
)
from bmq.metadata.image import Image, Lane, Node, PartitionMeta, Topic, Turn
from bmq.metadata.records import NO_QUOTA, AnyRecord, LaneQuota, Range, Whose
from bmq.metadata.shared_map import SharedMap
from bmq.storage.binary import checked, crc_of, encode_crc
from bmq.storage.envelope import ENVELOPE_SIZE_BYTES, decode_envelope, encode_envelope
from bmq.storage.numbered import numbered_key
from bmq.values import (
    LANE_TURN_IDS,
    NO_MANIFEST,
    NO_NODE,
    BrokerEpoch,
    LeaderEpoch,
    ManifestVersion,
    NodeId,
    Nonce,
    StreamId,
    TopicId,
    TopicPartition,
)

PAYLOAD_VERSION: Final = 1
SNAPSHOT_VERSION: Final = 1
SNAPSHOT_MAGIC: Final = b"bmqN"
LOG_PREFIX: Final = "meta/log/"
SNAPSHOT_PREFIX: Final = "meta/snapshot/"


_TAGS: Final = frozenset(str(kind.__struct_config__.tag) for kind in get_args(AnyRecord))
_encoder: Final = msgspec.msgpack.Encoder(uuid_format="bytes")
_payload_decoder: Final = msgspec.msgpack.Decoder(tuple[int, list[AnyRecord]])
_raw_payload_decoder: Final = msgspec.msgpack.Decoder(list[msgspec.Raw])


def encode_records(records: Sequence[AnyRecord]) -> bytes:
    """The payload of one log entry."""
    return _encoder.encode((PAYLOAD_VERSION, records))


def decode_records(payload: bytes, *, what: str) -> list[AnyRecord]:
    """The records of an entry. Raises FormatTooNew naming the version or the tag that this bmq does not know,
    Corrupt.
    """
    try:
        version, records = _payload_decoder.decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        _refuse(payload, what=what, error=error)
    if version != PAYLOAD_VERSION:
        _refuse_version(version, what=what)
    return records


def _refuse(payload: bytes, *, what: str, error: Exception) -> NoReturn:
    """Says why a payload cannot be read: too new a version or an unknown tag before anything else."""
    try:
        outer = _raw_payload_decoder.decode(payload)
        version = msgspec.msgpack.decode(outer[0], type=int)
        if version != PAYLOAD_VERSION:
            _refuse_version(version, what=what)
        for raw in _raw_payload_decoder.decode(outer[1]):
            tag = msgspec.msgpack.decode(_raw_payload_decoder.decode(raw)[0], type=str)
            if tag not in _TAGS:
                raise FormatTooNew(f"{what}: a record {tag!r} is unknown to this bmq: upgrade it")
    except (msgspec.DecodeError, UnicodeDecodeError, IndexError):
        pass
    raise Corrupt(f"{what}: not a list of metadata records: {error}") from error


def _refuse_version(version: int, *, what: str) -> NoReturn:
    if version > PAYLOAD_VERSION:
        raise FormatTooNew(
            f"{what}: payload version {version}; this bmq reads up to version {PAYLOAD_VERSION}: upgrade it"
        )
    raise Corrupt(f"{what}: payload version {version}")


class _TopicRow(msgspec.Struct, array_like=True):
    topic_id: UUID
    name: str
    partitions: list[tuple[int, int, int, tuple[Range, ...]]]
    configs: dict[str, str]
    created_ms: int


class _NodeRow(msgspec.Struct, array_like=True):
    node_id: int
    broker_epoch: int
    boot: UUID
    roles: tuple[str, ...]
    host: str
    port: int
    rack: str
    internal_host: str = ""
    internal_port: int = 0
    pool: str = ""
    lane: str = ""
    listeners: dict[str, tuple[str, int]] = {}


class _LaneRow(msgspec.Struct, array_like=True):
    name: str
    number: int
    created_ms: int
    ttl_s: int = 0
    own_brokers: bool = False
    reads_base: tuple[str, ...] = ()
    reads_base_bytes_per_s: int = 0
    has_read_base: tuple[str, ...] | None = None
    falls_back: bool = False
    parent: str = ""
    quota: LaneQuota = NO_QUOTA


class _TurnRow(msgspec.Struct, array_like=True):
    topic_id: UUID
    partition: int
    generation: int
    whose: Whose
    begin: int
    producer_id: int
    base_topic_id: UUID | None


class _SnapshotBody(msgspec.Struct, array_like=True, kw_only=True):
    """Fields are only ever added at the end, with a default."""

    position: int
    entry_nonce: bytes
    cluster_id: str
    controller_epoch: int
    controller_id: int
    nodes: list[_NodeRow]
    topics: list[_TopicRow]
    tombstones: list[tuple[str, int]]
    leader_epoch_floor: int
    deleted: list[tuple[UUID, str]]
    sealed: list[tuple[int, int, int]]
    dropped: list[tuple[int, int, int]]
    last_epochs: list[tuple[int, int]]
    past_boots: list[tuple[int, tuple[UUID, ...]]]
    configs: list[tuple[str, str, dict[str, str]]]
    next_producer_id: int
    features: dict[str, int]
    controller_host: str = ""
    controller_port: int = 0
    fencing: list[tuple[int, int]] = []
    cordoned: list[int] = []
    moving: list[tuple[UUID, int, int]] = []
    lanes: list[_LaneRow] = []
    next_lane: int = 1
    manifests: list[tuple[UUID, tuple[int, ...]]] = []
    copy: str = ""
    turns: list[_TurnRow] = []
    next_turn_id: int = LANE_TURN_IDS


_snapshot_decoder: Final = msgspec.msgpack.Decoder(_SnapshotBody)


def snapshot_key(position: int) -> str:
    """The key of the snapshot that covers the log up to and with entry `position`."""
    return numbered_key(SNAPSHOT_PREFIX, position)


def encode_snapshot(image: Image, *, entry_nonce: Nonce, nonce: Nonce) -> list[bytes]:
    """The parts of a snapshot object. `entry_nonce` is that of the log entry `image.position`, which the next entry
    must carry.
    """
    body = _SnapshotBody(
        position=image.position,
        entry_nonce=entry_nonce,
        cluster_id=image.cluster_id,
        controller_epoch=image.controller_epoch,
        controller_id=image.controller_id,
        nodes=[_node_row(node) for node in image.nodes.values()],
        topics=[_topic_row(topic) for topic in image.topics.values()],
        tombstones=list(image.tombstones.items()),
        leader_epoch_floor=image.leader_epoch_floor,
        deleted=list(image.deleted.items()),
        sealed=[(*stream, end) for stream, end in image.sealed.items()],
        dropped=[(*stream, end) for stream, end in image.dropped.items()],
        last_epochs=list(image.last_epochs.items()),
        past_boots=list(image.past_boots.items()),
        configs=[(kind, name, dict(configs)) for (kind, name), configs in image.configs.items()],
        next_producer_id=image.next_producer_id,
        features=dict(image.features),
        controller_host=image.controller_host,
        controller_port=image.controller_port,
        fencing=list(image.fencing.items()),
        cordoned=list(image.cordoned),
        moving=[(tp.topic_id, tp.partition, to_node_id) for tp, to_node_id in image.moving.items()],
        lanes=[_lane_row(lane) for lane in image.lanes.values()],
        next_lane=image.next_lane,
        manifests=[(topic.topic_id, versions) for topic in image.topics.values() if any(versions := _versions(topic))],
        copy=image.copy,
        turns=[_turn_row(tp, turn) for tp, turn in image.turns.items()],
        next_turn_id=image.next_turn_id,
    )
    parts = [encode_envelope(magic=SNAPSHOT_MAGIC, version=SNAPSHOT_VERSION, nonce=nonce), _encoder.encode(body)]
    return [*parts, encode_crc(crc_of(parts))]


def decode_snapshot(data: bytes, *, what: str) -> tuple[Image, Nonce]:
    """(image, nonce of the log entry at its position). Raises Corrupt, FormatTooNew."""
    decode_envelope(data, magic=SNAPSHOT_MAGIC, version_max=SNAPSHOT_VERSION, what=what)
    inner = checked(data, what=what)[ENVELOPE_SIZE_BYTES:]
    try:
        body = _snapshot_decoder.decode(inner)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Corrupt(f"{what}: not a snapshot: {error}") from error
    moving = _moving(body.moving)
    versions = dict(body.manifests)
    topics = SharedMap(
        {
            TopicId(row.topic_id): _topic(row, moving.get(row.topic_id, {}), versions.get(row.topic_id, ()))
            for row in body.topics
        }
    )
    configs = {(kind, name): configs for kind, name, configs in body.configs}
    lanes = {row.name: _lane(row) for row in body.lanes}
    turns = {TopicPartition(TopicId(row.topic_id), row.partition): _turn(row) for row in body.turns}
    image = Image(
        position=body.position,
        cluster_id=body.cluster_id,
        copy=body.copy,
        controller_epoch=body.controller_epoch,
        controller_id=NodeId(body.controller_id),
        controller_host=body.controller_host,
        controller_port=body.controller_port,
        nodes={NodeId(row.node_id): _node(row) for row in body.nodes},
        topics=topics,
        topic_ids=SharedMap({topic.name: topic_id for topic_id, topic in topics.items()}),
        tombstones={name: LeaderEpoch(epoch) for name, epoch in body.tombstones},
        leader_epoch_floor=LeaderEpoch(body.leader_epoch_floor),
        deleted=SharedMap({TopicId(topic_id): name for topic_id, name in body.deleted}),
        sealed={StreamId(NodeId(node), BrokerEpoch(epoch)): end for node, epoch, end in body.sealed},
        dropped={StreamId(NodeId(node), BrokerEpoch(epoch)): end for node, epoch, end in body.dropped},
        last_epochs={NodeId(node): BrokerEpoch(epoch) for node, epoch in body.last_epochs},
        past_boots={NodeId(node): boots for node, boots in body.past_boots},
        fencing={NodeId(node): BrokerEpoch(epoch) for node, epoch in body.fencing},
        cordoned={NodeId(node): True for node in body.cordoned},
        configs=configs,
        next_producer_id=body.next_producer_id,
        features=body.features,
        lanes=lanes,
        next_lane=body.next_lane,
        turns=SharedMap(turns),
        next_turn_id=body.next_turn_id,
        turn_ids=SharedMap(find_turn_ids(turns)),
        owned_counts=count_owners(topics),
        range_counts=count_ranges(topics),
        moving=SharedMap(find_moving(topics)),
        colliding=SharedMap(find_colliding(topics)),
        lane_partitions=count_lane_partitions(topics),
        config_bytes=measure_configs(topics, configs, lanes),
    )
    return image, Nonce(body.entry_nonce)


def _topic_row(topic: Topic) -> _TopicRow:
    rows: list[tuple[int, int, int, tuple[Range, ...]]] = [
        (meta.node_id, meta.broker_epoch, meta.leader_epoch, meta.ranges) for meta in topic.partitions
    ]
    return _TopicRow(topic.topic_id, topic.name, rows, dict(topic.configs), topic.created_ms)


def _moving(rows: list[tuple[UUID, int, int]]) -> dict[UUID, dict[int, NodeId]]:
    """Where moves lead, by topic and partition. In a list of its own: few partitions move, and rows of partitions keep
    their length.
    """
    moving: dict[UUID, dict[int, NodeId]] = {}
    for topic_id, partition, to_node_id in rows:
        moving.setdefault(topic_id, {})[partition] = NodeId(to_node_id)
    return moving


def _node_row(node: Node) -> _NodeRow:
    return _NodeRow(
        node.node_id,
        node.broker_epoch,
        node.boot,
        node.roles,
        node.host,
        node.port,
        node.rack,
        node.internal_host,
        node.internal_port,
        node.pool,
        node.lane,
        dict(node.listeners),
    )


def _lane_row(lane: Lane) -> _LaneRow:
    return _LaneRow(
        name=lane.name,
        number=lane.number,
        created_ms=lane.created_ms,
        ttl_s=lane.ttl_s,
        own_brokers=lane.own_brokers,
        reads_base=lane.reads_base,
        reads_base_bytes_per_s=lane.reads_base_bytes_per_s,
        has_read_base=lane.has_read_base,
        falls_back=lane.falls_back,
        parent=lane.parent,
        quota=lane.quota,
    )


def _lane(row: _LaneRow) -> Lane:
    return Lane(
        name=row.name,
        number=row.number,
        created_ms=row.created_ms,
        ttl_s=row.ttl_s,
        own_brokers=row.own_brokers,
        reads_base=row.reads_base,
        reads_base_bytes_per_s=row.reads_base_bytes_per_s,
        has_read_base=row.reads_base if row.has_read_base is None else row.has_read_base,
        falls_back=row.falls_back,
        parent=row.parent,
        quota=row.quota,
    )


def _turn_row(tp: TopicPartition, turn: Turn) -> _TurnRow:
    return _TurnRow(
        tp.topic_id, tp.partition, turn.generation, turn.whose, turn.begin, turn.producer_id, turn.base_topic_id
    )


def _turn(row: _TurnRow) -> Turn:
    return Turn(
        whose=row.whose,
        begin=row.begin,
        generation=row.generation,
        producer_id=row.producer_id,
        base_topic_id=None if row.base_topic_id is None else TopicId(row.base_topic_id),
    )


def _versions(topic: Topic) -> tuple[int, ...]:
    """The manifest version that is known of each partition. In a list of its own, as moves are: rows of partitions keep
    their length.
    """
    return tuple(meta.manifest_version for meta in topic.partitions)


def _topic(row: _TopicRow, moving: Mapping[int, NodeId], versions: Sequence[int]) -> Topic:
    partitions = tuple(
        PartitionMeta(
            NodeId(node),
            BrokerEpoch(broker_epoch),
            LeaderEpoch(leader_epoch),
            ranges,
            moving.get(index, NO_NODE),
            ManifestVersion(versions[index]) if index < len(versions) else NO_MANIFEST,
        )
        for index, (node, broker_epoch, leader_epoch, ranges) in enumerate(row.partitions)
    )
    return Topic(
        topic_id=TopicId(row.topic_id),
        name=row.name,
        partitions=partitions,
        configs=row.configs,
        created_ms=row.created_ms,
    )


def _node(row: _NodeRow) -> Node:
    return Node(
        node_id=NodeId(row.node_id),
        broker_epoch=BrokerEpoch(row.broker_epoch),
        boot=row.boot,
        roles=row.roles,
        host=row.host,
        port=row.port,
        rack=row.rack,
        internal_host=row.internal_host,
        internal_port=row.internal_port,
        pool=row.pool,
        lane=row.lane,
        listeners=row.listeners,
    )

"""A store for tests of the audit, put together object by object with the real formats: two topics, WAL, groups, pages,
a shared segment.
"""

from collections.abc import AsyncIterator, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from crc32c import crc32c
from scripted_store import SeededRng, run
from typing_extensions import Buffer

from bmq.errors import Conflict, Corrupt, ObjectMissing
from bmq.metadata.codec import LOG_PREFIX, encode_records, encode_snapshot, snapshot_key
from bmq.metadata.fold import apply
from bmq.metadata.image import Image
from bmq.metadata.records import (
    AnyRecord,
    ClusterCreated,
    ConfigsChanged,
    LeaderElected,
    NodeRegistered,
    PartitionChange,
    Range,
    StreamSealed,
    TopicCreated,
)
from bmq.ports import ObjectMeta
from bmq.storage.flatlog import NO_PREDECESSOR, Entry, encode_entry
from bmq.storage.keys import (
    coordinator_snapshot_key,
    manifest_page_key,
    manifest_prefix,
    segment_key,
    shared_segment_key,
)
from bmq.storage.leader_epochs import EpochStart
from bmq.storage.manifest import CoordinatorSnapshotRef, Manifest, page_ref
from bmq.storage.manifest_format import encode_manifest, encode_page
from bmq.storage.numbered import numbered_key, wal_key
from bmq.storage.segment import SegmentEntry, SegmentRun, encode_segment
from bmq.storage.segment_index import SegmentBatch
from bmq.storage.snapshot import CoordinatorSnapshot
from bmq.storage.snapshot import encode_snapshot as encode_coordinator
from bmq.storage.wal import Seal, WalHeader, WalRun, encode_seal, encode_wal
from bmq.values import (
    BrokerEpoch,
    LeaderEpoch,
    ManifestVersion,
    NodeId,
    Nonce,
    Offset,
    StreamId,
    TopicId,
    TopicPartition,
)
from bmq.wire.batches import HEADER_SIZE_BYTES, Record, build_batch
from bmq_audit.audit import Audited, AuditOptions, audit_store
from bmq_audit.findings import Finding, Level

CLUSTER = "a-cluster"
ORDERS, OFFSETS = TopicId(UUID(int=1 << 100)), TopicId(UUID(int=2 << 100))
BOOT = UUID(int=77)
STREAM = StreamId(NodeId(1), BrokerEpoch(2))
EARLIER = StreamId(NodeId(1), BrokerEpoch(1))
VERSIONS_KEPT = 4


def tp(topic_id: TopicId, partition: int) -> TopicPartition:
    return TopicPartition(topic_id, partition)


@dataclass(slots=True)
class MemoryStore:
    """An ObjectStore in a dict."""

    objects: dict[str, bytes] = field(default_factory=dict)

    async def create(self, key: str, parts: Sequence[Buffer]) -> None:
        if key in self.objects:
            raise Conflict(key)
        self.objects[key] = b"".join(parts)

    async def get(self, key: str, *, start: int = 0, length: int | None = None) -> bytes:
        if key not in self.objects:
            raise ObjectMissing(key)
        return self.objects[key][start : None if length is None else start + length]

    async def list(self, prefix: str, *, after: str = "") -> AsyncIterator[ObjectMeta]:
        for key in sorted(self.objects):
            if key.startswith(prefix) and key > after:
                yield ObjectMeta(key=key, size_bytes=len(self.objects[key]), modified_ms=0)

    async def delete(self, key: str) -> None:
        self.objects.pop(key, None)

    async def head(self, key: str) -> ObjectMeta:
        if key not in self.objects:
            raise ObjectMissing(key)
        return ObjectMeta(key=key, size_bytes=len(self.objects[key]), modified_ms=0)


def decode_producers(data: bytes) -> object:
    if data != b"producers":
        raise Corrupt("producer snapshot: not the one of these tests")
    return data


def decode_state(topic: str, data: bytes) -> object:
    if data != b"state":
        raise Corrupt("coordinator snapshot: not the one of these tests")
    return data


def batches(base_offset: int, count: int, *, epoch: int, records: int = 3, size: int = 40) -> list[SegmentBatch]:
    """`count` batches of `records` records each."""
    made = []
    for number in range(count):
        base = base_offset + number * records
        data = build_batch(
            [Record(0, 1_000 + base + i, b"k", bytes([base % 251]) * size) for i in range(records)],
            base_offset=base,
            leader_epoch=epoch,
        )
        made.append(
            SegmentBatch(
                data, Offset(base), Offset(base + records - 1), records, 1_000 + base, 1_000 + base + records - 1
            )
        )
    return made


def unopenable(batch: SegmentBatch) -> SegmentBatch:
    """The same batch with records that nobody can read, and the checksum that these have."""
    data = bytearray(batch.data)
    data[HEADER_SIZE_BYTES:] = b"\xff" * (len(data) - HEADER_SIZE_BYTES)
    data[17:21] = crc32c(memoryview(data)[21:]).to_bytes(4, "big")
    return batch._replace(data=bytes(data))


class World:
    """Builds a store; every method makes the objects that a cluster would."""

    def __init__(self, seed: int = 0) -> None:
        self.rng = SeededRng(seed)
        self.store = MemoryStore()
        self.image = Image()
        self.nonce = NO_PREDECESSOR
        self.versions: dict[TopicPartition, tuple[int, Nonce]] = {}
        self.spoilt: set[int] = set()
        """Base offsets of batches that are made unopenable from now on."""

    @property
    def objects(self) -> dict[str, bytes]:
        return self.store.objects

    def put(self, key: str, parts: Sequence[Any]) -> str:
        assert key not in self.objects
        self.objects[key] = b"".join(bytes(part) for part in parts)
        return key

    def commit(self, *records: AnyRecord, epoch: int = 1, claim: bool = False) -> str:
        number = self.image.position + 1
        entry = Entry(
            number=number,
            epoch=epoch,
            nonce=self.rng.nonce(),
            predecessor=self.nonce,
            claim=claim,
            payload=encode_records(list(records)),
        )
        self.image = apply(self.image, number, records)
        self.nonce = entry.nonce
        return self.put(numbered_key(LOG_PREFIX, number), encode_entry(entry))

    def snapshot(self) -> str:
        return self.put(
            snapshot_key(self.image.position),
            encode_snapshot(self.image, entry_nonce=self.nonce, nonce=self.rng.nonce()),
        )

    def _batches(self, base_offset: int, count: int, *, epoch: int, size: int = 40) -> list[SegmentBatch]:
        made = batches(base_offset, count, epoch=epoch, size=size)
        return [unopenable(batch) if batch.base_offset in self.spoilt else batch for batch in made]

    def segment(
        self, part: TopicPartition, base_offset: int, count: int, *, epoch: int = 1, size: int = 40
    ) -> SegmentEntry:
        nonce = self.rng.nonce()
        made = encode_segment(
            nonce,
            CLUSTER,
            [
                SegmentRun(
                    part,
                    LeaderEpoch(epoch),
                    self._batches(base_offset, count, epoch=epoch, size=size),
                    (),
                    b"producers",
                )
            ],
        )
        key = self.put(segment_key(part, LeaderEpoch(epoch), Offset(base_offset), nonce), made.parts)
        return made.entries_at(key)[0]

    def shared(
        self, runs: Sequence[tuple[TopicPartition, int, int]], *, epoch: int = 1, stream: StreamId = STREAM
    ) -> tuple[SegmentEntry, ...]:
        """A segment with runs of (partition, base offset, batches)."""
        nonce = self.rng.nonce()
        made = encode_segment(
            nonce,
            CLUSTER,
            [
                SegmentRun(part, LeaderEpoch(epoch), self._batches(base, count, epoch=epoch), (), b"producers")
                for part, base, count in runs
            ],
        )
        return made.entries_at(self.put(shared_segment_key(stream.node_id, stream.broker_epoch, nonce), made.parts))

    def manifest(self, part: TopicPartition, manifest: Manifest, *, epoch: int = 1, claim: bool | None = None) -> str:
        number, predecessor = self.versions.get(part, (0, NO_PREDECESSOR))
        nonce = self.rng.nonce()
        entry = Entry(
            number=number + 1,
            epoch=epoch,
            nonce=nonce,
            predecessor=predecessor,
            claim=number == 0 if claim is None else claim,
            payload=encode_manifest(manifest),
        )
        self.versions[part] = number + 1, nonce
        return self.put(numbered_key(manifest_prefix(part), number + 1), encode_entry(entry))

    def page(self, part: TopicPartition, entries: Sequence[SegmentEntry]) -> str:
        nonce = self.rng.nonce()
        return self.put(manifest_page_key(part, nonce), encode_page(nonce, part, entries))

    def coordinator_snapshot(self, part: TopicPartition, offset: int, *, epoch: int = 1) -> str:
        nonce = self.rng.nonce()
        made = encode_coordinator(CoordinatorSnapshot(nonce=nonce, tp=part, offset=Offset(offset), state=b"state"))
        return self.put(coordinator_snapshot_key(part, LeaderEpoch(epoch), Offset(offset), nonce), made)

    def wal(
        self,
        stream: StreamId,
        number: int,
        runs: Sequence[tuple[TopicPartition, int, int]],
        *,
        durable_below: int | None = None,
        epoch: int = 1,
    ) -> str:
        """An object with runs of (partition, base offset, batches)."""
        header = WalHeader(
            cluster_id=CLUSTER,
            node_id=stream.node_id,
            broker_epoch=stream.broker_epoch,
            number=number,
            nonce=self.rng.nonce(),
            durable_below=number if durable_below is None else durable_below,
        )
        made = []
        for part, base, count in runs:
            each = self._batches(base, count, epoch=epoch)
            version = ManifestVersion(self.versions.get(part, (0, b""))[0])
            made.append(
                WalRun(
                    part,
                    LeaderEpoch(epoch),
                    version,
                    Offset(base),
                    each[-1].last_offset,
                    each[-1].max_timestamp_ms,
                    [batch.data for batch in each],
                )
            )
        return self.put(wal_key(stream, number), encode_wal(header, made))

    def seal(self, stream: StreamId, number: int) -> str:
        seal = Seal(
            cluster_id=CLUSTER,
            node_id=stream.node_id,
            broker_epoch=stream.broker_epoch,
            number=number,
            nonce=self.rng.nonce(),
        )
        return self.put(wal_key(stream, number), encode_seal(seal))

    def audit(self, *, quick: bool = False, store: Any = None) -> Audited:
        options = AuditOptions(
            decode_producers=decode_producers,
            decode_state=decode_state,
            versions_kept=VERSIONS_KEPT,
            quick=quick,
            at_once=3,
        )
        return run(audit_store(store or self.store, rng=self.rng, options=options))

    def faults(self, *, quick: bool = False) -> list[Finding]:
        return self.audit(quick=quick).report.findings[Level.FAULT]


def flipped(data: bytes, position: int, mask: int) -> bytes:
    return data[:position] + bytes([data[position] ^ mask]) + data[position + 1 :]


def manifest_of(*entries: SegmentEntry, **changes: object) -> Manifest:
    """A manifest that names these segments, in their order."""
    end = entries[-1].last_offset + 1 if entries else 0
    fields: dict[str, Any] = {
        "entries": tuple(entries),
        "next_offset": end,
        "last_stable_offset": end,
        "log_start": entries[0].base_offset if entries else 0,
        "leader_epochs": (EpochStart(1, entries[0].base_offset),) if entries else (),
        **changes,
    }
    return Manifest(**fields)


def full_world(spoilt: Collection[int] = ()) -> World:
    """Everything that there is: a node that was killed (its stream unsealed) after one that was sealed; 0 faults.

    `spoilt`: base offsets of batches that no reader can open.
    """
    world = World()
    world.spoilt.update(spoilt)
    world.commit(ClusterCreated(cluster_id=CLUSTER), LeaderElected(controller_epoch=1, node_id=1), claim=True)
    world.commit(
        NodeRegistered(node_id=1, broker_epoch=1, boot=BOOT, roles=("controller", "broker", "proxy"), host="h", port=1)
    )
    world.commit(
        TopicCreated(topic_id=ORDERS, name="orders", partitions=3, leader_epoch=0),
        TopicCreated(topic_id=OFFSETS, name="__consumer_offsets", partitions=1, leader_epoch=0),
    )
    owned = [(ORDERS, 0), (ORDERS, 1), (ORDERS, 2), (OFFSETS, 0)]
    world.commit(
        *(PartitionChange(topic_id=t, partition=p, node_id=1, broker_epoch=1, leader_epoch=1) for t, p in owned)
    )
    world.snapshot()
    world.commit(
        StreamSealed(node_id=1, broker_epoch=1, end=3),
        NodeRegistered(node_id=1, broker_epoch=2, boot=BOOT, roles=("controller", "broker", "proxy"), host="h", port=1),
        *(
            PartitionChange(
                topic_id=t,
                partition=p,
                node_id=1,
                broker_epoch=2,
                leader_epoch=2,
                ranges=(Range(1, 1, 1, 3),) if t == ORDERS else (),
            )
            for t, p in owned
        ),
    )
    world.snapshot()
    world.commit(LeaderElected(controller_epoch=2, node_id=1), epoch=2, claim=True)
    world.commit(ConfigsChanged(kind="broker", name="", changes={"num.partitions": "3"}), epoch=2)
    _fill_orders(world)
    _fill_offsets(world)
    return world


def _fill_orders(world: World) -> None:
    """Partition 0: a page and two segments, a tail in both streams. 1: nothing but WAL. 2: a run of a shared
    segment.
    """
    first, second, third = tp(ORDERS, 0), tp(ORDERS, 1), tp(ORDERS, 2)
    segments = [world.segment(first, base, 4) for base in range(0, 60, 12)]
    world.manifest(first, manifest_of(*segments[:1]))
    world.manifest(first, manifest_of(*segments[:2]))
    page = world.page(first, segments[:3])
    rest = segments[3:]
    world.manifest(
        first,
        manifest_of(
            *rest,
            pages=(page_ref(page, segments[:3]),),
            log_start=0,
            leader_epochs=(EpochStart(1, 0),),
            next_offset=60,
            last_stable_offset=60,
        ),
    )
    shared, _ = world.shared([(third, 0, 2), (tp(OFFSETS, 0), 0, 2)], epoch=1, stream=EARLIER)
    world.manifest(third, manifest_of(shared))
    world.wal(EARLIER, 1, [(first, 54, 2), (second, 0, 2)])
    world.wal(EARLIER, 2, [(first, 60, 2), (second, 6, 1), (third, 6, 1)])
    world.seal(EARLIER, 3)
    world.wal(STREAM, 0, [(first, 66, 1)], epoch=2)
    world.wal(STREAM, 1, [(first, 69, 2), (second, 9, 1)], epoch=2)
    world.wal(STREAM, 3, [(second, 12, 1)], epoch=2, durable_below=2)


def _fill_offsets(world: World) -> None:
    part = tp(OFFSETS, 0)
    segment = world.segment(part, 0, 4)
    snapshot = world.coordinator_snapshot(part, 9)
    world.manifest(part, manifest_of(segment, coordinator_snapshot=CoordinatorSnapshotRef(snapshot, 9)))


def copied(world: World) -> World:
    other = World()
    other.store.objects = dict(world.objects)
    other.image = world.image
    return other

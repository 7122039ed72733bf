"""A cluster as its brokers leave it in a folder, written by bmq's own encoders: for tests that need exact segments and
no process.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bmq.metadata.codec import LOG_PREFIX, encode_records
from bmq.metadata.records import AnyRecord, ClusterCreated, LeaderElected, TopicCreated
from bmq.ports import ObjectStore
from bmq.runtime.open_store import open_store
from bmq.runtime.system import SystemRng
from bmq.storage.flatlog import Entry, FlatLog
from bmq.storage.keys import manifest_page_key, manifest_prefix, segment_key, shared_segment_key
from bmq.storage.manifest import Manifest, page_ref
from bmq.storage.manifest_format import encode_manifest, encode_page
from bmq.storage.segment import SegmentEntry, SegmentRun, encode_segment
from bmq.storage.segment_index import SegmentBatch
from bmq.values import BrokerEpoch, LeaderEpoch, NodeId, Offset, TopicId, TopicPartition
from bmq.wire.batches import Record, build_batch, split

CLUSTER = "abcdefghijklmnopqrstuv"


@dataclass(slots=True)
class StoredCluster:
    """Its folder (or another store's URL), and the manifests as they were last written."""

    folder: Path
    store: str = ""
    rng: SystemRng = field(default_factory=SystemRng)
    manifests: dict[TopicPartition, Manifest] = field(default_factory=dict)
    versions: dict[TopicPartition, Entry] = field(default_factory=dict)
    newest: Entry | None = None

    @property
    def url(self) -> str:
        return self.store or f"file://{self.folder}"

    def create(self, *records: AnyRecord, cluster_id: str = CLUSTER) -> None:
        """The first entry of the metadata log."""
        self.commit(ClusterCreated(cluster_id=cluster_id), LeaderElected(controller_epoch=1, node_id=1), *records)

    def commit(self, *records: AnyRecord) -> None:
        """One more entry of the metadata log."""

        async def append(store: ObjectStore) -> None:
            log = FlatLog(store, LOG_PREFIX, rng=self.rng, what="metadata log")
            payload = encode_records(records)
            self.newest = await log.claim(
                self.newest, epoch=1 if self.newest is None else self.newest.epoch + 1, payload=payload
            )

        self._with_store(append)

    def topic(self, name: str, partitions: int = 1) -> TopicId:
        """A topic of this name; the cluster is made with it."""
        topic_id = self.rng.uuid()
        record = TopicCreated(topic_id=topic_id, name=name, partitions=partitions, leader_epoch=0)
        if self.newest is None:
            self.create(record)
        else:
            self.commit(record)
        return TopicId(topic_id)

    def segment(self, tp: TopicPartition, *batches: bytes) -> SegmentEntry:
        """An object with one run, not yet named."""
        return self.shared({tp: batches})[tp]

    def shared(self, runs: dict[TopicPartition, Sequence[bytes]]) -> dict[TopicPartition, SegmentEntry]:
        """An object with several partitions' runs, not yet named."""
        nonce = self.rng.nonce()
        encoded = encode_segment(
            nonce, CLUSTER, [SegmentRun(tp, LeaderEpoch(0), _described(batches)) for tp, batches in runs.items()]
        )
        tp = next(iter(runs))
        own = segment_key(tp, LeaderEpoch(0), Offset(encoded.entries[0].base_offset), nonce)
        key = own if len(runs) == 1 else shared_segment_key(NodeId(1), BrokerEpoch(1), nonce)
        self.put(key, encoded.parts)
        return dict(zip(runs, encoded.entries_at(key), strict=True))

    def name(self, tp: TopicPartition, *entries: SegmentEntry) -> None:
        """A version of the manifest that names these, too; pages are written where it has too many."""
        manifest = self.manifests.get(tp, Manifest())
        for entry in entries:
            manifest = manifest.add_segment(entry, last_stable_offset=entry.last_offset + 1)
            while overflow := manifest.overflow():
                nonce = self.rng.nonce()
                key = manifest_page_key(tp, nonce)
                self.put(key, encode_page(nonce, tp, overflow))
                manifest = manifest.move_to_page(page_ref(key, overflow))
        self.write(tp, manifest)

    def write(self, tp: TopicPartition, manifest: Manifest) -> None:
        """The next version of the manifest."""

        async def append(store: ObjectStore) -> None:
            log = FlatLog(store, manifest_prefix(tp), rng=self.rng, what="manifest")
            base = self.versions.get(tp)
            payload = encode_manifest(manifest)
            epoch = 0 if base is None else base.epoch + 1
            self.versions[tp] = await log.claim(base, epoch=epoch, payload=payload)

        self._with_store(append)
        self.manifests[tp] = manifest

    def put(self, key: str, parts: Sequence[bytes]) -> None:
        self._with_store(lambda store: store.create(key, parts))

    def path(self, key: str) -> Path:
        return self.folder / key

    def _with_store(self, operation: Callable[[ObjectStore], Awaitable[None]]) -> None:
        store = open_store(self.url, fsync=False)
        try:
            asyncio.run(_awaited(operation(store)))
        finally:
            store.close()


def batch_of(base_offset: int, count: int, *, codec: int = 0, timestamp_ms: int = 1_700_000_000_000) -> bytes:
    """A batch whose records say their offset: key `k<offset>`, value `v<offset>`, a ms after each other."""
    offsets = range(base_offset, base_offset + count)
    records = [
        Record(offset, timestamp_ms + place, b"k%d" % offset, b"v%d" % offset) for place, offset in enumerate(offsets)
    ]
    return build_batch(records, base_offset=base_offset, codec=codec, leader_epoch=0)


async def _awaited(operation: Awaitable[None]) -> None:
    await operation


def _described(batches: Sequence[bytes]) -> list[SegmentBatch]:
    described = []
    for batch in batches:
        for header in split(batch):
            described.append(
                SegmentBatch(
                    batch[header.position : header.end],
                    Offset(header.base_offset),
                    Offset(header.last_offset),
                    header.record_count,
                    header.base_timestamp_ms,
                    header.max_timestamp_ms,
                )
            )
    return described

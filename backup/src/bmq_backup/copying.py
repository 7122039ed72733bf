"""Copies a store while a cluster works on it. What starts over the copy finds all that was acknowledged before, as
after a crash.

Objects never change, so a copy is wrong only by what it lacks. The order makes it whole:

1. The image, at an entry of the metadata log.
2. The WAL, until two listings in a row agree (`_agree`). Whatever the owners roll and delete afterwards is in manifests
   that come later. Right behind it the coordinators' partitions, and both again where one names a snapshot of what may
   lie above its copied log (`_wal_and_coordinators`).
3. Of each partition the manifest, then what it names. What a newer version released meanwhile lives on for ten minutes;
   is it gone, again. What is gone while the same version is the newest is lost (`_is_lost`): no copy is made, or one
   without it. Where that is a shared segment that was made meanwhile, the other partitions in it follow as far as to
   the version that names their part of it (`_even`).
4. The metadata log, to its end at that time, provided that nothing since 1 changed who owns what or which stream ends
   where; else again from 1, which copies only what is new. It is copied last, entries from the newest down and then the
   snapshots: what was interrupted is no store. Above all of them stands one entry of the copy's own, which says that it
   is a copy and which one: its nodes know the addresses of those that the store was copied from, and would register
   there, in the place of theirs, with the same ids, the same cluster id and the same secret.

Everything acknowledged before 1 is in the copy, of what came later a part: of each partition a beginning, not all of
them up to one moment. A group's offset that was committed meanwhile may be there without the records below it
(docs/backup.md says what to do).
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple, TypeVar

from bmq.errors import BmqError, Conflict, FormatError, ObjectMissing, StoreError
from bmq.fairness.grouping import in_groups
from bmq.metadata.codec import LOG_PREFIX, SNAPSHOT_PREFIX, decode_records, encode_records
from bmq.metadata.image import Image, Node, Topic
from bmq.metadata.records import (
    AnyRecord,
    ClusterCreated,
    ConfigsChanged,
    FeatureLevel,
    FencingBegun,
    LaneDeclared,
    LaneDeleted,
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
    TopicCollected,
    TopicCreated,
    TopicDeleted,
)
from bmq.naming.names import is_internal
from bmq.ports import ObjectMeta, ObjectStore, Rng
from bmq.storage.durable import Backoff, together
from bmq.storage.flatlog import Entry, decode_entry, encode_entry
from bmq.storage.keys import SHARED_PREFIX, manifest_page_prefix, manifest_prefix, partition_prefix
from bmq.storage.manifest import Manifest
from bmq.storage.manifest_format import check_page, decode_manifest
from bmq.storage.numbered import number_of, numbered_key
from bmq.storage.wal import WalHeader, decode_head
from bmq.values import TopicId, TopicPartition
from bmq_audit.findings import Report
from bmq_audit.metadata import Metadata, NoMetadata, audit_metadata
from bmq_audit.reading import TRIES_MAX, Reader
from bmq_backup.shared_runs import SharedRuns

T = TypeVar("T")

WAL_PREFIX: Final = "wal/"
PASSES_MAX: Final = 30
LOST_TOLD_MAX: Final = 5
WAL_ROUNDS_MAX: Final = 200
MANIFEST_ROUNDS_MAX: Final = 20
COORDINATOR_ROUNDS_MAX: Final = 4
EVEN_ROUNDS_MAX: Final = 20
OFFSET_MAX: Final = 2**63 - 1
MEMORY_BYTES: Final = 256 << 20
"""How many bytes of objects may be on their way at a time; an object larger than this goes alone."""

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


class NotCopied(BmqError):
    """The copy could not be made; the message says why, and what helps."""


@dataclass(slots=True)
class Copied:
    """What was done. `position`: the metadata entry that the copy ends with, its own."""

    cluster_id: str = ""
    position: int = 0
    passes: int = 0
    objects: int = 0
    size_bytes: int = 0
    there_already: int = 0
    """Objects of an earlier try."""
    lost: list[str] = field(default_factory=list)
    """What the copy does not have because the store itself has lost it: keys that newest manifest versions name."""
    told: Callable[["Copied"], None] = field(default=lambda _: None)


class Copier:
    """One copy, from a store that others write to into one that nobody else writes to."""

    def __init__(
        self,
        source: Reader,
        target: ObjectStore,
        *,
        rng: Rng,
        without_lost: bool = False,
        told: Callable[[Copied], None] = lambda _: None,
    ) -> None:
        """`source.at_once` objects are on their way at a time. `without_lost`: what the source has lost is no reason to
        copy nothing.

        `told` hears of progress.
        """
        self._source = source
        self._target = target
        self._rng = rng
        self._without_lost = without_lost
        self._there = Reader(target, rng=rng, at_once=source.at_once, progress=source.progress)
        self._memory = _Memory(MEMORY_BYTES)
        self._done = Copied(told=told)
        self._covered: dict[TopicPartition, int] = {}
        """Below which offset the coordinators' logs are in the copied WAL or in manifests that are copied after it."""
        self._versions: dict[TopicPartition, int] = {}
        """The newest manifest version in the copy, or that was looked for."""
        self._ends: dict[TopicPartition, int] = {}
        """Where those versions that this pass copied end."""
        self._shared = SharedRuns()

    async def run(self) -> Copied:
        """Raises NotCopied, NoMetadata (the source is no store), StoreLost, StoreError (the target)."""
        start = await audit_metadata(self._source, Report())
        await self._check(start)
        for _ in range(PASSES_MAX):
            self._done.passes += 1
            self._ends.clear()
            self._shared = SharedRuns([meta.key for meta in await self._listed(SHARED_PREFIX)])
            whole = await self._wal_and_coordinators(start.image)
            others = [topic_id for topic_id, topic in start.image.topics.items() if not is_internal(topic.name)]
            whole = await self._topics(start.image, others) and whole
            whole = whole and await self._even()
            end = await self._settled(start)
            if end is not None and whole and await self._metadata(end):
                self._done.cluster_id, self._done.position = end.image.cluster_id, end.position + 1
                return self._done
            start = await audit_metadata(self._source, Report())
            self._done.lost.clear()
        raise NotCopied(
            f"partitions changed hands, or objects went, in each of {PASSES_MAX} passes: try again when no node "
            "restarts and with the balancer off (balance_interval_ms: 0); what is copied already is not copied "
            "again"
        )

    async def _check(self, start: Metadata) -> None:
        if not start.whole:
            raise NotCopied("the source's metadata is damaged: bmq store check says where; mend it first")
        try:
            earlier = await audit_metadata(self._there, Report())
        except NoMetadata:
            return
        if not earlier.whole and await self._clears_interrupted(start.image.cluster_id):
            return
        other = earlier.image.cluster_id
        of_whom = (
            "an older copy of the same cluster"
            if other == start.image.cluster_id
            else f"the store of cluster {other!r}"
        )
        raise NotCopied(
            f"the target is {of_whom} already: a copy goes where there is none, name an empty folder, bucket or prefix"
        )

    async def _settled(self, start: Metadata) -> Metadata | None:
        """The image as it is now, or was a moment ago; None where something changed that the copy must follow.

        What is new is copied, too: topics, and manifests of which the metadata says by now that there are newer
        versions. Owners go on writing those meanwhile: the image is then the one that named what was copied last, and
        not the next one.
        """
        known, position = dict(start.image.topics), start.position
        whole: Metadata | None = None
        while True:
            now = await audit_metadata(self._source, Report())
            records = await self._records(position, now.position)
            if records is None or not _is_harmless(records, start.image):
                return None
            topics = now.image.topics
            grown = {
                each
                for each in topics
                if each not in known or len(topics[each].partitions) != len(known[each].partitions)
            }
            if whole is not None and not grown:
                return whole
            grown.update(topic_id for topic_id, topic in topics.items() if self._is_behind(topic))
            if not grown:
                return now
            if not await self._topics(now.image, grown) or not await self._even():
                return None
            known, position, whole = {**known, **{each: topics[each] for each in grown}}, now.position, now

    def _is_behind(self, topic: Topic) -> bool:
        """Whether the metadata names a manifest version, and the copy has neither it nor a later one: there it would
        look lost.

        Of each such version once: where it is no more in the source either, it is lost there.
        """
        behind = False
        for index, meta in enumerate(topic.partitions):
            tp = TopicPartition(topic.topic_id, index)
            if self._versions.get(tp, 0) < meta.manifest_version:
                self._versions[tp] = meta.manifest_version
                behind = True
        return behind

    async def _records(self, after: int, last: int) -> list[AnyRecord] | None:
        """The records of the metadata log's entries above `after`, up to `last`; None where an entry was deleted
        meanwhile.
        """
        found: list[AnyRecord] = []
        for number in range(after + 1, last + 1):
            try:
                entry = decode_entry(
                    await self._source.get(numbered_key(LOG_PREFIX, number)), what=f"metadata log entry {number}"
                )
            except ObjectMissing:
                return None
            found += decode_records(entry.payload, what=f"metadata log entry {number}")
        return found

    async def _wal_and_coordinators(self, image: Image) -> bool:
        """Whether both are there, and no coordinator's snapshot is newer than its log, if that can be had in a few
        rounds.

        What a snapshot holds that was named before the WAL was looked at is in the copy: it was acknowledged. Where
        groups commit so much that there is always a newer one, a coordinator finds one above the end of its log: it
        goes on from there, with groups' offsets beyond the logs' ends.
        """
        internal = [topic_id for topic_id, topic in image.topics.items() if is_internal(topic.name)]
        tps = _partitions(image, internal)
        for left in reversed(range(COORDINATOR_ROUNDS_MAX)):
            self._covered = {tp: await self._snapshot_offset(tp) if left else OFFSET_MAX for tp in tps}
            if not await self._wal():
                return False
            if await self._topics(image, internal):
                return True
        return False

    async def _snapshot_offset(self, tp: TopicPartition) -> int:
        """The offset of the coordinator snapshot that the source's newest manifest names; 0 where it names none, or
        there is no manifest, or that is gone again.
        """
        newest = max(await self._listed(manifest_prefix(tp)), key=lambda meta: meta.key, default=None)
        if newest is None:
            return 0
        manifest = await self._manifest_there(newest.key)
        named = None if manifest is None else manifest.coordinator_snapshot
        return 0 if named is None else named.offset

    async def _wal(self) -> bool:
        """Whether it came to a moment at which all of it was copied.

        What is deleted while this looks was rolled before, or carried forward into an object with a higher number: a
        listing, which goes upwards, has that one. So two listings in a row are compared. Nothing of the first may be
        gone: then nothing is carried elsewhere meanwhile. And nothing may be new below what was durable when the newest
        copied object was sent: that was on its way while its successors were listed, and missing it would look as if it
        had been deleted.
        """
        durable_below: dict[str, int] = defaultdict(int)
        heads: set[str] = set()
        before: Mapping[str, frozenset[int]] | None = None
        for _ in range(WAL_ROUNDS_MAX):
            listed = await self._listed(WAL_PREFIX)
            now = _by_stream(listed)
            if before is not None and _agree(before, now, durable_below):
                return True
            copied = await self._copy_all(listed, WAL_PREFIX)
            for meta in listed:
                if meta.key in copied and meta.key not in heads:
                    heads.add(meta.key)
                    stream, _, _ = meta.key.rpartition("/")
                    durable_below[stream] = max(durable_below[stream], await self._durable_below(meta.key))
            before = now if len(copied) == len(listed) else None
        return False

    async def _durable_below(self, key: str) -> int:
        """What a copied object says; 0: it is a seal."""
        head = await self._read(key, decode_head)
        return head.durable_below if isinstance(head, WalHeader) else 0

    async def _topics(self, image: Image, topics: Iterable[TopicId]) -> bool:
        """Whether everything that the manifests name is there."""
        return await self._copy_named(dict.fromkeys(_partitions(image, topics)))

    async def _even(self) -> bool:
        """Whether no shared segment in the copy has more of a partition than its log there. Those of which one has
        follow, and no further: what they name then was made no later, so that this ends however much is rolled
        meanwhile. Their owner may be about to name it.
        """
        backoff = Backoff(self._rng)
        for _ in range(EVEN_ROUNDS_MAX):
            behind = await self._shared.beyond(self._there, self._ends)
            if not behind:
                return True
            if not await self._copy_named(behind):
                return False
            if not behind.keys().isdisjoint(await self._shared.beyond(self._there, self._ends)):
                await backoff.wait()
        return False

    async def _copy_named(self, partitions: Mapping[TopicPartition, int | None]) -> bool:
        """Copies what their manifests name; of those with an offset as of the first version that ends above it."""
        shared: dict[str, _Naming] = {}
        whole = True
        for group in in_groups(list(partitions.items()), self._source.at_once):
            for found in await together(self._partition(tp, shared, beyond=beyond) for tp, beyond in group):
                whole = whole and found
        if not whole:
            return False
        self._shared.named(shared)
        missing: dict[_Naming, set[str]] = defaultdict(set)
        for key in await self._missing(shared.keys(), SHARED_PREFIX):
            missing[shared[key]].add(key)
        return all([await self._is_lost(naming, keys) for naming, keys in missing.items()])

    async def _partition(self, tp: TopicPartition, shared: "dict[str, _Naming]", *, beyond: int | None) -> bool:
        """Nothing but what the newest version names: a segment that a later one names would look as if that one were
        lost.
        """
        prefix = manifest_prefix(tp)
        for _ in range(MANIFEST_ROUNDS_MAX):
            versions = await self._listed(prefix)
            if beyond is not None:
                versions = await self._as_far_as(tp, versions, beyond)
            if len(await self._copy_all(versions, prefix)) == len(versions):
                break
        else:
            return False
        newest = max(versions, key=lambda meta: meta.key, default=None)
        if newest is None:
            self._ends[tp] = 0
            return True
        self._versions[tp] = number_of(manifest_prefix(tp), newest.key) or 0
        manifest = await self._read(
            newest.key, lambda data: decode_manifest(decode_entry(data, what=newest.key).payload)
        )
        self._ends[tp] = manifest.next_offset
        snapshot = manifest.coordinator_snapshot
        if (
            beyond is None
            and snapshot is not None
            and snapshot.offset > max(manifest.next_offset, self._covered.get(tp, 0))
        ):
            return False
        naming = _Naming(tp, newest.key)
        named = set(manifest.keys())
        pages = {page.key for page in manifest.pages}
        gone = await self._missing(pages, manifest_page_prefix(tp))
        if gone:
            if not await self._is_lost(naming, gone):
                return False
            # nobody knows what they named: a repair of the copy looks for it in all there is
            for prefix in (partition_prefix(tp), SHARED_PREFIX):
                await self._copy_all(await self._listed(prefix), prefix)
        for page in manifest.pages:
            if page.key not in gone:
                named |= {entry.key for entry in await self._read(page.key, partial(check_page, page, tp))}
        shared.update((key, naming) for key in named if key.startswith(SHARED_PREFIX))
        missing = await self._missing(
            {key for key in named - pages if not key.startswith(SHARED_PREFIX)}, partition_prefix(tp)
        )
        return not missing or await self._is_lost(naming, missing)

    async def _as_far_as(self, tp: TopicPartition, versions: list[ObjectMeta], beyond: int) -> list[ObjectMeta]:
        """Up to the first that is not copied yet and ends above that offset; all where none does."""
        for at, meta in enumerate(versions):
            if (number_of(manifest_prefix(tp), meta.key) or 0) > self._versions.get(tp, 0):
                manifest = await self._manifest_there(meta.key)
                if manifest is not None and manifest.next_offset > beyond:
                    return versions[: at + 1]
        return versions

    async def _manifest_there(self, key: str) -> Manifest | None:
        """In the source; None where it is gone again. Raises NotCopied where it is not what bmq wrote."""
        try:
            return decode_manifest(decode_entry(await self._source.get(key), what=key).payload)
        except ObjectMissing:
            return None
        except FormatError as error:
            raise NotCopied(
                f"{key}: {error}: the source is damaged: bmq store check says where; mend it first"
            ) from error

    async def _missing(self, named: Collection[str], prefix: str) -> set[str]:
        """Copies what is named, and returns what the source did not have."""
        if not named:
            return set()
        listed = [meta for meta in await self._listed(prefix) if meta.key in named]
        return set(named) - await self._copy_all(listed, prefix)

    async def _is_lost(self, naming: "_Naming", keys: Collection[str]) -> bool:
        """Whether what was missing just now is lost, so that no other pass would find it: then it is left out. Raises
        NotCopied.

        An owner deletes what its newest version names no more, and nothing else. So what was missing while a version
        named it that is the newest still was not deleted by bmq, unless with its topic; of that the metadata tells
        first.
        """
        newest = max(await self._listed(manifest_prefix(naming.tp)), key=lambda meta: meta.key, default=None)
        now = await audit_metadata(self._source, Report())
        if newest is None or newest.key != naming.version or now.image.partition(naming.tp) is None:
            return False
        self._done.lost = sorted({*self._done.lost, *keys})
        if not self._without_lost:
            raise NotCopied(
                "the store has lost "
                f"{', '.join(sorted(keys)[:LOST_TOLD_MAX])}{' and others' if len(keys) > LOST_TOLD_MAX else ''}, "
                f"which {naming.version} names: no copy of it is whole. Stop the cluster and mend it (bmq store "
                "check --repair), or restore what is lost from a backup; --without-lost copies all the rest as it "
                "is"
            )
        return True

    async def _read(self, key: str, decode: Callable[[bytes], T]) -> T:
        """A copied object. Raises NotCopied where it is not what bmq wrote."""
        try:
            return decode(await self._there.get(key))
        except FormatError as error:
            raise NotCopied(
                f"{key}: {error}: the source is damaged: bmq store check says where; mend it first"
            ) from error

    async def _clears_interrupted(self, cluster_id: str) -> bool:
        """Whether the target's metadata was what a copy of this cluster had written of it when it ended, and is gone
        now: a store that has gone on since has another entry where that has its own. Its newest entry tells, and so
        goes last."""
        entries = sorted(await self._there.numbers(LOG_PREFIX))
        if not entries or await self._there.numbers(SNAPSHOT_PREFIX):
            return False
        key = numbered_key(LOG_PREFIX, entries[-1])
        try:
            first, *_ = decode_records(decode_entry(await self._there.get(key), what=key).payload, what=key)
        except (FormatError, ValueError):
            return False
        if not (isinstance(first, ClusterCreated) and first.copy and first.cluster_id == cluster_id):
            return False
        for number in entries:
            await self._delete(numbered_key(LOG_PREFIX, number))
        return True

    async def _metadata(self, end: Metadata) -> bool:
        """Newest entries first, snapshots last: whoever reads half of it finds a gap, and not an older cluster."""
        entries = [
            meta for meta in await self._listed(LOG_PREFIX) if (number_of(LOG_PREFIX, meta.key) or 0) <= end.position
        ]
        snapshots = [
            meta
            for meta in await self._listed(SNAPSHOT_PREFIX)
            if (number_of(SNAPSHOT_PREFIX, meta.key) or 0) <= end.position
        ]
        data: dict[str, bytes] = {}
        for meta in (*entries, *snapshots):
            try:
                data[meta.key] = await self._source.get(meta.key)
            except ObjectMissing:
                return False
        await self._own_entry(end)
        for meta in (*sorted(entries, key=lambda each: each.key, reverse=True), *snapshots):
            await self._put(meta.key, data[meta.key])
        return True

    async def _own_entry(self, end: Metadata) -> None:
        """The one that says which copy this is. Proxies are gone in it: clients would be told the addresses of those
        that serve the original.
        """
        nonce = self._rng.nonce()
        gone = [
            record
            for node in end.image.nodes.values()
            for record in _without_proxy(node, fencing=node.node_id in end.image.fencing)
        ]
        payload = encode_records([ClusterCreated(cluster_id=end.image.cluster_id, copy=nonce.hex()), *gone])
        number, epoch = end.position + 1, end.image.controller_epoch
        entry = Entry(number=number, epoch=epoch, nonce=nonce, predecessor=end.nonce, claim=True, payload=payload)
        await self._put(numbered_key(LOG_PREFIX, number), b"".join(encode_entry(entry)))

    async def _listed(self, prefix: str) -> list[ObjectMeta]:
        return [meta async for meta in self._source.list(prefix)]

    async def _copy_all(self, objects: Sequence[ObjectMeta], prefix: str) -> set[str]:
        """Copies what the target does not have. Returns the keys that are there now: some may have gone from the
        source.
        """
        there = {meta.key: meta.size_bytes async for meta in self._there.list(prefix)} if objects else {}
        copied = {meta.key for meta in objects if there.get(meta.key) == meta.size_bytes}
        missing = [meta for meta in objects if meta.key not in copied]
        for group in in_groups(missing, self._source.at_once):
            for meta, found in zip(group, await together(self._copy(meta) for meta in group), strict=True):
                if found:
                    copied.add(meta.key)
        return copied

    async def _copy(self, meta: ObjectMeta) -> bool:
        """Whether it was still there."""
        async with self._memory.of(meta.size_bytes):
            try:
                data = await self._source.get(meta.key)
            except ObjectMissing:
                return False
            await self._put(meta.key, data)
        return True

    async def _put(self, key: str, data: bytes) -> None:
        backoff = Backoff(self._rng)
        for tries in range(1, TRIES_MAX + 1):
            try:
                await self._target.create(key, [data])
                break
            except Conflict:
                if await self._there.get(key) != data:
                    raise NotCopied(
                        f"{key} is in the target already, and is another object: name an empty folder, bucket or prefix"
                    ) from None
                self._done.there_already += 1
                return
            except StoreError:
                if tries == TRIES_MAX:
                    raise
            await backoff.wait()
        self._done.objects += 1
        self._done.size_bytes += len(data)
        self._done.told(self._done)

    async def _delete(self, key: str) -> None:
        """Deletes an object of the target. Raises StoreError where the last of TRIES_MAX tries fails."""
        backoff = Backoff(self._rng)
        for tries in range(1, TRIES_MAX + 1):
            try:
                await self._target.delete(key)
                return
            except StoreError:
                if tries == TRIES_MAX:
                    raise
            await backoff.wait()


class _Naming(NamedTuple):
    """The key of a partition's newest manifest version."""

    tp: TopicPartition
    version: str


class _Memory:
    """So many bytes at a time; one that is larger than all of them goes alone."""

    def __init__(self, size_bytes: int) -> None:
        self._size_bytes = size_bytes
        self._held_bytes = 0
        self._freed = asyncio.Condition()

    @asynccontextmanager
    async def of(self, size_bytes: int) -> AsyncIterator[None]:
        taken = min(size_bytes, self._size_bytes)
        async with self._freed:
            await self._freed.wait_for(lambda: self._held_bytes + taken <= self._size_bytes)
            self._held_bytes += taken
        try:
            yield
        finally:
            async with self._freed:
                self._held_bytes -= taken
                self._freed.notify_all()


def _without_proxy(node: Node, *, fencing: bool) -> list[AnyRecord]:
    """A node that is a broker, too, is fenced for what it wrote, and so stays as that, under its epoch."""
    if "broker" not in node.roles:
        return [NodeUnregistered(node_id=node.node_id, broker_epoch=node.broker_epoch)]
    if "proxy" not in node.roles:
        return []
    as_broker = NodeRegistered(
        node_id=node.node_id,
        broker_epoch=node.broker_epoch,
        boot=node.boot,
        roles=tuple(role for role in node.roles if role != "proxy"),
        host="",
        port=0,
        rack=node.rack,
        internal_host=node.internal_host,
        internal_port=node.internal_port,
        pool=node.pool,
    )
    return [as_broker, FencingBegun(node_id=node.node_id, broker_epoch=node.broker_epoch)] if fencing else [as_broker]


def _partitions(image: Image, topics: Iterable[TopicId]) -> list[TopicPartition]:
    return [
        TopicPartition(topic_id, index)
        for topic_id in topics
        for index in range(len(image.topics[topic_id].partitions))
    ]


def _is_harmless(records: Iterable[AnyRecord], image: Image) -> bool:
    """Whether the copy may end after these though it was begun before them. Topics that are new, or grow, are copied
    besides.

    Not where such a partition has changed hands already and its owner has to read what earlier ones wrote: that may be
    behind the WAL that was copied, and a node whose stream ends before what others are to read of it cannot register.
    """
    for record in records:
        if isinstance(record, PartitionChange):
            topic = image.topics.get(TopicId(record.topic_id))
            if record.ranges or (topic is not None and record.partition < len(topic.partitions)):
                return False
        elif isinstance(record, RangesCovered):
            if record.ranges:
                return False
        elif not isinstance(record, (*_HARMLESS, TopicCreated, PartitionsAdded)):
            return False
    return True


def _by_stream(listed: Iterable[ObjectMeta]) -> dict[str, frozenset[int]]:
    found: dict[str, set[int]] = defaultdict(set)
    for meta in listed:
        stream, _, _ = meta.key.rpartition("/")
        number = number_of(f"{stream}/", meta.key)
        if number is not None:
            found[stream].add(number)
    return {stream: frozenset(numbers) for stream, numbers in found.items()}


def _agree(
    before: Mapping[str, Collection[int]], now: Mapping[str, frozenset[int]], durable_below: Mapping[str, int]
) -> bool:
    for stream, numbers in before.items():
        later = now.get(stream, frozenset())
        if not later.issuperset(numbers):
            return False
        if any(number < durable_below[stream] for number in later.difference(numbers)):
            return False
    return True

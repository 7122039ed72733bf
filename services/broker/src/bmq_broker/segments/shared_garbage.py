"""Which shared segments may go: those that no partition of their directory names, and none ever can (docs/garbage.md).

Each broker looks after what its node id has ever written, and the one with the lowest id after what nodes left that are
gone. Whoever looks may delete: what is asked of each partition never becomes untrue again. Anything that is not known
counts as named.

Of a partition of others that rests on who owned it when its manifest was read. An image may be behind, and an owner
that it does not show may have begun with the version before one that came to stand late. So before the segment is given
up the log of the metadata is asked whether there is anything that the image does not show.
"""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Mapping, Set
from dataclasses import dataclass
from typing import Final

import structlog

from bmq.errors import BmqError, ObjectMissing
from bmq.metadata.journal import newest_position
from bmq.ports import ObjectMeta, ObjectStore, Rng
from bmq.roles.controller import Metadata
from bmq.storage import leader_epochs
from bmq.storage.flatlog import FlatLog
from bmq.storage.keys import SHARED_PREFIX, manifest_prefix, parse_shared_key, shared_node_prefix
from bmq.storage.manifest import Manifest, PageRef
from bmq.storage.manifest_format import decode_manifest
from bmq.storage.segment import SEGMENT_FOOTER_SIZE_BYTES, DirectoryEntry, decode_directory, decode_footer
from bmq.values import LeaderEpoch, StreamId, TopicPartition
from bmq_broker.partitions.partition import Partition
from bmq_broker.partitions.states import PartitionState
from bmq_broker.segments.garbage import Garbage
from bmq_broker.segments.manifests import Manifests
from bmq_broker.segments.reading import Segments
from bmq_broker.segments.roll_writing import PATIENCE_S, within
from bmq_broker.settings import BrokerSettings

log = structlog.get_logger()

WATCHED_MAX: Final = 100_000
"""Shared segments of which it is remembered who names them."""
DIRECTORIES_PER_SWEEP_MAX: Final = 200
CLAIMS_PER_SWEEP_MAX: Final = 20
IMAGE_WAIT_S: Final = 5.0
"""How long one sweep waits for an image that is behind; what rests on it is looked at again at the next."""

Owners = dict[TopicPartition, LeaderEpoch]
"""Partitions of others that have done with a segment, under the leader epoch that the image showed."""


@dataclass(slots=True)
class _Watch:
    """Why a segment stays: a run that is named, or may be. Where the store had to be asked, it is asked again less and
    less often.
    """

    run: DirectoryEntry
    wait_s: float = 0.0
    due_s: float = 0.0


class SharedGarbage:
    """Looks through shared segments for one broker incarnation, and gives up those that nobody names nor ever can."""

    def __init__(
        self,
        *,
        store: ObjectStore,
        stream: StreamId,
        rng: Rng,
        metadata: Metadata,
        partitions: Mapping[TopicPartition, Partition],
        manifests: Manifests,
        segments: Segments,
        garbage: Garbage,
        writing: Set[str],
        settings: BrokerSettings,
    ) -> None:
        """`partitions`: those that are open here. `writing`: segments that a manifest version under way here may yet
        name.
        """
        self._store = store
        self._stream = stream
        self._rng = rng
        self._metadata = metadata
        self._partitions = partitions
        self._manifests = manifests
        self._segments = segments
        self._garbage = garbage
        self._writing = writing
        self._settings = settings
        self._watched: OrderedDict[str, _Watch] = OrderedDict()
        self._directories_left = 0
        self._claims_left = 0
        self._is_behind = False
        """Whether the image was found behind in this sweep, for longer than is waited."""
        self._after = ""
        """Where the next sweep goes on, if this one had to stop."""
        self._due_s = 0.0

    async def sweep_if_due(self) -> None:
        """One round over the segments, `shared_look_ms` after the last one. Raises StoreError, FormatError."""
        now_s = asyncio.get_running_loop().time()
        if now_s < self._due_s:
            return
        self._due_s = now_s + self._settings.shared_look_ms / 1000
        await self.sweep()

    async def sweep(self) -> None:
        """One round, or as much of it as may be done at once."""
        self._directories_left, self._claims_left, self._is_behind = (
            DIRECTORIES_PER_SWEEP_MAX,
            CLAIMS_PER_SWEEP_MAX,
            False,
        )
        after, self._after = self._after, ""
        async for meta, writer in self._mine(after):
            if self._directories_left <= 0:
                return
            self._after = meta.key
            if self._garbage.holds(meta.key):
                continue
            try:
                if await self._is_garbage(meta, writer):
                    self._watched.pop(meta.key, None)
                    self._garbage.give_up_shared(meta.key)
            except BmqError as error:
                log.warning(
                    "whether a shared segment is still named is not known, looked at again later",
                    key=meta.key,
                    error=str(error),
                )
        self._after = ""

    async def _mine(self, after: str) -> AsyncIterator[tuple[ObjectMeta, StreamId]]:
        nodes = self._metadata.image.nodes
        brokers = [node_id for node_id, node in nodes.items() if "broker" in node.roles]
        of_all = self._stream.node_id == min(brokers, default=None)
        prefix = SHARED_PREFIX if of_all else shared_node_prefix(self._stream.node_id)
        async for meta in self._store.list(prefix, after=after):
            writer = parse_shared_key(meta.key)
            if writer is not None and (writer.node_id == self._stream.node_id or writer.node_id not in nodes):
                yield meta, writer

    async def _is_garbage(self, meta: ObjectMeta, writer: StreamId) -> bool:
        key = meta.key
        if key in self._writing:
            return False
        watch, owners = self._watched.get(key), Owners()
        if watch is not None:
            now_s = asyncio.get_running_loop().time()
            if not self._is_open(watch.run.tp) and now_s < watch.due_s:
                return False
            if await self._may_name(watch.run, key, writer, owners):
                self._watch(key, watch.run, watch)
                return False
        self._directories_left -= 1
        directory = await self._directory(meta)
        if directory is None:
            self._watched.pop(key, None)
            return False
        # another one each time: the last of them to let go is met after a few tries
        begin = int(self._rng.random() * len(directory))
        # those cost no request
        for run in sorted((*directory[begin:], *directory[:begin]), key=lambda run: not self._is_open(run.tp)):
            if await self._may_name(run, key, writer, owners):
                self._watch(key, run, watch)
                return False
        return await self._still_own(owners)

    async def _still_own(self, owners: Owners) -> bool:
        """Whether nobody had followed them when this was called, with all manifests read: whoever does later begins
        with what was read, or a later version.
        """
        if not owners:
            return True
        if self._is_behind:
            return False
        newest = await newest_position(self._store, above=self._metadata.image.position)
        try:
            async with asyncio.timeout(IMAGE_WAIT_S):
                image = await self._metadata.wait_for(newest)
        except TimeoutError:
            self._is_behind = True
            return False
        return all((meta := image.partition(tp)) is None or meta.leader_epoch == epoch for tp, epoch in owners.items())

    def _watch(self, key: str, run: DirectoryEntry, before: _Watch | None) -> None:
        now_s = asyncio.get_running_loop().time()
        wait_s = self._settings.shared_look_ms / 1000
        if before is not None and before.run is run:
            wait_s = min(before.wait_s * 2, self._settings.shared_look_ms_max / 1000)
        self._watched[key] = _Watch(run, wait_s, now_s + wait_s)
        self._watched.move_to_end(key)
        if len(self._watched) > WATCHED_MAX:
            self._watched.popitem(last=False)

    async def _directory(self, meta: ObjectMeta) -> tuple[DirectoryEntry, ...] | None:
        """None: somebody else has deleted the segment."""
        try:
            end = await self._store.get(
                meta.key, start=meta.size_bytes - SEGMENT_FOOTER_SIZE_BYTES, length=SEGMENT_FOOTER_SIZE_BYTES
            )
            footer = decode_footer(end)
            directory = await self._store.get(meta.key, start=footer.directory_position, length=footer.directory_length)
        except ObjectMissing:
            return None
        return decode_directory(footer, directory)

    def _is_open(self, tp: TopicPartition) -> bool:
        partition = self._partitions.get(tp)
        return partition is not None and partition.state is PartitionState.APPENDING

    async def _may_name(self, run: DirectoryEntry, key: str, writer: StreamId, owners: Owners) -> bool:
        """Whether the partition names the run, or may come to. False is for ever; where it is added to `owners`, if
        nobody owns it by now whom the image does not show.
        """
        partition = self._partitions.get(run.tp)
        if partition is not None and partition.state is PartitionState.APPENDING:
            return await self._open_may_name(partition, run, key)
        meta = self._metadata.image.partition(run.tp)
        if meta is None:
            return not self._was_deleted(writer)
        newest = await FlatLog(
            self._store, manifest_prefix(run.tp), rng=self._rng, what=f"manifest of {run.tp}"
        ).newest()
        if newest is None or newest.epoch <= run.leader_epoch:
            return True  # who wrote the run may be asleep: only a claim above it keeps it from naming the run
        if newest.epoch < meta.leader_epoch:
            return True  # the owner has claimed nothing: it may serve with an older version, until it meets this one
        manifest = decode_manifest(newest.payload)
        _, end = leader_epochs.epoch_end(manifest.leader_epochs, run.leader_epoch, log_end=manifest.next_offset)
        if run.base_offset >= (manifest.next_offset if end < 0 else end):
            # the owner has it in its WAL, or versions of the manifest are missing that named it: who opens the
            # partition tells
            return True
        owners[run.tp] = meta.leader_epoch
        return await self._names(run.tp, manifest, run, key)

    async def _open_may_name(self, partition: Partition, run: DirectoryEntry, key: str) -> bool:
        if await self._names(run.tp, partition.manifest, run, key):
            return True
        if partition.is_stray(run.leader_epoch, run.base_offset):
            # Versions of the manifest are missing that named it; or this store is a copy of one that ran, where the
            # segment is another's.
            if partition.stray is None and partition.stop_for_stray(key, run.base_offset):
                log.error(
                    "shared segment of an earlier owner begins above the end that it left",
                    partition=str(run.tp),
                    key=key,
                )
            return True
        if not partition.claimed and self._claims_left > 0:
            self._claims_left -= 1
            async with self._manifests.lock(run.tp):
                if not partition.claimed:
                    await within(self._manifests.commit(partition, lambda manifest: manifest), PATIENCE_S)
            return True  # looked at again: it may have found another's version there
        if (
            not partition.claimed
            or partition.state is not PartitionState.APPENDING
            or run.leader_epoch > partition.leader_epoch
        ):
            return True  # of a higher epoch: then this broker was replaced and has yet to hear of it
        return run.leader_epoch == partition.leader_epoch and not self._manifests.settled(run.tp)

    async def _names(self, tp: TopicPartition, manifest: Manifest, run: DirectoryEntry, key: str) -> bool:
        if manifest.producer_snapshot is not None and manifest.producer_snapshot.key == key:
            return True
        part = manifest.entry_for_offset(run.base_offset)
        if isinstance(part, PageRef):
            return any(entry.key == key for entry in await within(self._segments.page(tp, part), PATIENCE_S))
        return part is not None and part.key == key

    def _was_deleted(self, writer: StreamId) -> bool:
        """Whether a partition of the writer's that the image does not know is gone, and not just newer than this image.

        The writer owned it before its incarnation ended; an image that shows that end, or that is the writer's own, has
        it or has its deletion.
        """
        image = self._metadata.image
        newest = image.last_epochs.get(writer.node_id, -1)
        ended = newest > writer.broker_epoch or (newest == writer.broker_epoch and writer.node_id not in image.nodes)
        return ended or writer == self._stream

"""Loading and committing a partition's manifest: the one place where the owner writes to its flat log, and where what
it names no more is given up.

A version that comes into force gives up what the one before it named and it does not (bmq_broker.segments.released), if
the partition is still this broker's and appending when that is known: an heir that has begun with the version before
would still name it, and gives it up itself when it takes the newer one into force. Who fails to commit gives up
nothing.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import structlog

from bmq.errors import BmqError, Fenced, FormatError, NotOwner, ObjectMissing, PartitionStopped, UnknownOutcome
from bmq.fairness.locks import Locks
from bmq.ports import ObjectStore, Rng
from bmq.storage.durable import cancelled, create_once
from bmq.storage.flatlog import Entry, FlatLog, Overtaken
from bmq.storage.keys import NumberedKey, manifest_page_key, manifest_prefix, parse_numbered_key, segment_prefix
from bmq.storage.manifest import ENTRIES_MAX, Manifest, PageRef, page_ref
from bmq.storage.manifest_format import check_page, decode_manifest, encode_manifest, encode_page
from bmq.storage.segment import SegmentEntry, decode_producer_snapshot
from bmq.values import LeaderEpoch, ManifestVersion, Offset, TopicPartition
from bmq_broker.partitions.partition import Partition
from bmq_broker.partitions.producers import Producers
from bmq_broker.partitions.states import PartitionState
from bmq_broker.partitions.tail import Run
from bmq_broker.segments.released import pages_apart, released

log = structlog.get_logger()

FIRST_OWNERS_EPOCH = 1
"""The leader epoch under which a partition has its first owner, where its topic is the first of its name. The first
owner of a later one asks for a listing more than it needs."""
KEPT_VERSIONS = 16
"""Manifest versions kept behind the newest for readers that still hold their number."""


class ManifestMoved(BmqError):
    """An earlier owner wrote a version meanwhile, and the edit does not fit it: plan again."""


Entries = tuple[SegmentEntry, ...]

Edit = Callable[[Manifest], Manifest]
"""The next manifest made from the newest one; may raise ManifestMoved."""


class Loaded(NamedTuple):
    """What the store has of a partition that opens. `entry` None: it has no manifest."""

    manifest: Manifest
    entry: Entry | None
    producers: Producers
    beyond: tuple[NumberedKey, ...]
    """Segments of earlier owners that begin at or above the manifest's end: the WAL has them, too, or versions are
    missing that named them."""


class Manifests:
    """The manifests of the partitions that a broker owns."""

    def __init__(
        self,
        store: ObjectStore,
        *,
        rng: Rng,
        covered: Callable[[list[Run]], None],
        give_up: Callable[[Iterable[str]], None],
        fenced: Callable[[BmqError], None] = lambda _: None,
        entries_max: int = ENTRIES_MAX,
    ) -> None:
        """`covered` is called with the runs that a new version covers, `give_up` with the keys that it names no more.

        `fenced` is called where another owner's version shows that there is one. `entries_max`: with more entries the
        older half is paged.
        """
        assert 2 <= entries_max <= ENTRIES_MAX
        self._store = store
        self._rng = rng
        self._covered = covered
        self._give_up = give_up
        self._fenced = fenced
        self._entries_max = entries_max
        self._locks: Locks[TopicPartition] = Locks()
        self._logs: dict[TopicPartition, FlatLog] = {}
        self._pages: dict[TopicPartition, set[str]] = {}
        """Pages that were written here: one that is not named may yet be, where the outcome of a commit is not
        known."""

    def lock(self, tp: TopicPartition) -> asyncio.Lock:
        """Held by whoever changes the partition's manifest or writes segments for it: a roll, a merge, retention."""
        return self._locks.of(tp)

    async def load(
        self, tp: TopicPartition, *, leader_epoch: LeaderEpoch, at_least: ManifestVersion, first_offset: int = 0
    ) -> Loaded:
        """The newest manifest, found by a listing from a version known to have been, and what its owner of
        `leader_epoch` needs besides.

        A partition without one is empty, and begins at `first_offset`. Raises PartitionStopped, StoreError,
        FormatError.
        """
        self._logs[tp] = FlatLog(self._store, manifest_prefix(tp), rng=self._rng, what=f"manifest of {tp}")
        entry = await self._logs[tp].newest(max(at_least, 1))
        if entry is None:
            if at_least > 0:
                raise PartitionStopped(
                    f"partition {tp}: manifest version {at_least} was there and is gone, with every later one; "
                    "restore it from a backup, or stop the cluster and run `bmq store check --repair`"
                )
            begun = leader_epoch > FIRST_OWNERS_EPOCH
            beyond = await self._segments_from(tp, LeaderEpoch(0), Offset(0), below=leader_epoch) if begun else ()
            return Loaded(Manifest.beginning_at(first_offset), None, Producers(), beyond)
        manifest = decode_manifest(entry.payload)
        if entry.epoch >= leader_epoch:
            return Loaded(manifest, entry, await self._producers(manifest), ())
        # What versions after this one named was written under its epoch or a later one. At the same time: it costs a
        # request, and no wait.
        beyond_end = self._segments_from(tp, LeaderEpoch(entry.epoch), Offset(manifest.next_offset), below=leader_epoch)
        looking = asyncio.get_running_loop().create_task(beyond_end, name=f"look beyond the manifest of {tp}")
        try:
            return Loaded(manifest, entry, await self._producers(manifest), await looking)
        finally:
            await cancelled((looking,))

    async def _segments_from(
        self, tp: TopicPartition, epoch: LeaderEpoch, offset: Offset, *, below: LeaderEpoch
    ) -> tuple[NumberedKey, ...]:
        """The partition's own segments of leader epochs from `epoch` on and below `below` that begin at or above
        `offset`. One listing.
        """
        prefix = segment_prefix(tp)
        listed = self._store.list(prefix, after=f"{prefix}{epoch:010d}/{offset:020d}")
        parsed = [parse_numbered_key(prefix, meta.key) async for meta in listed]
        return tuple(
            found for found in parsed if found is not None and found.leader_epoch < below and found.offset >= offset
        )

    async def has_nothing(self, tp: TopicPartition, *, leader_epoch: LeaderEpoch) -> bool:
        """Whether the store has neither a manifest of the partition nor a segment of its own by an owner before
        `leader_epoch`.

        Nothing is kept of it here. Raises StoreError.
        """
        if [meta async for meta in self._store.list(manifest_prefix(tp))]:
            return False
        return leader_epoch <= FIRST_OWNERS_EPOCH or not await self._segments_from(
            tp, LeaderEpoch(0), Offset(0), below=leader_epoch
        )

    async def commit(self, partition: Partition, edit: Edit, *, rolled: Producers | None = None) -> None:
        """Writes the edited manifest and takes it into force. Call with the partition's lock held.

        Raises Fenced; NotOwner where the partition has left and nothing was written; ManifestMoved from the edit;
        StoreError, after which the outcome is unknown: the next commit finds out what became of it.
        """
        try:
            await self._commit(partition, edit, rolled=rolled)
        except Fenced as error:
            if partition.state is not PartitionState.APPENDING:
                # The heir's version may have been built from this one before that was known here: what it names stays.
                raise UnknownOutcome(
                    f"partition {partition.tp} left while its manifest was written: {error}"
                ) from error
            self._fenced(error)
            raise

    async def refresh(self, partition: Partition) -> None:
        """Takes the newest version into force where an earlier owner wrote one meanwhile. Call with the partition's
        lock held.

        For who misses an object that the manifest names: the earlier owner may have merged it and deleted it. Raises as
        `commit`.
        """
        newest = await self._log_of(partition).newest(max(partition.manifest_version, 1))
        try:
            if newest is not None or partition.entry is not None:
                await self._go_on_from(partition, newest)
        except Fenced as error:
            if partition.state is not PartitionState.APPENDING:
                raise NotOwner(f"partition {partition.tp} is not this broker's any more") from error
            self._fenced(error)
            raise

    def settled(self, tp: TopicPartition) -> bool:
        """Whether it is known what became of every version that was tried here. With the lock held: no other can come
        to be in force.
        """
        flat_log = self._logs.get(tp)
        return flat_log is not None and flat_log.settled

    async def find_out(self, partition: Partition) -> None:
        """Takes a version into force that was tried here and stands, though nobody answered. Asks for nothing where
        there is none in doubt.

        Others see that version and count what it names no more as done with. Raises as `refresh`.
        """
        if self._is_in_doubt(partition):
            async with self.lock(partition.tp):
                if self._is_in_doubt(partition):
                    await self.refresh(partition)

    def _is_in_doubt(self, partition: Partition) -> bool:
        flat_log = self._logs.get(partition.tp)
        return flat_log is not None and flat_log.tried > partition.manifest_version

    def pages_of(self, tp: TopicPartition) -> frozenset[str]:
        """The pages that this broker wrote for the partition, named or not."""
        return frozenset(self._pages.get(tp, ()))

    def forget(self, tp: TopicPartition) -> None:
        """The partition is not this broker's any more."""
        self._logs.pop(tp, None)
        self._pages.pop(tp, None)

    def _log_of(self, partition: Partition) -> FlatLog:
        if partition.state is not PartitionState.APPENDING:
            raise NotOwner(f"partition {partition.tp} is not this broker's any more")
        return self._logs[partition.tp]

    async def _commit(self, partition: Partition, edit: Edit, *, rolled: Producers | None) -> None:
        flat_log = self._log_of(partition)
        epoch = partition.leader_epoch
        while True:
            manifest, known = await self._paged(partition.tp, partition.manifest, edit(partition.manifest))
            payload = encode_manifest(manifest)
            self._log_of(partition)  # it may have left meanwhile
            try:
                if partition.claimed and partition.entry is not None:
                    entry = await flat_log.append(partition.entry, epoch=epoch, payload=payload)
                else:
                    entry = await flat_log.claim(partition.entry, epoch=epoch, payload=payload)
            except Overtaken as overtaken:
                # What stands there may be an own earlier try that fell into the deleted past: only as the newest does
                # it count.
                await self._go_on_from(partition, await flat_log.newest(overtaken.entry.number))
                continue
            await self._take_into_force(partition, manifest, entry, known, rolled=rolled)
            try:
                await flat_log.delete_covered(entry.number - KEPT_VERSIONS)
            except BmqError as error:  # the version is in force all the same
                log.info(
                    "old manifest versions not deleted, tried again later",
                    partition=str(partition.tp),
                    error=str(error),
                )
            return

    async def _go_on_from(self, partition: Partition, newest: Entry | None) -> None:
        """Takes what stands in the log into force. Raises Fenced where that is another's, or nothing."""
        if newest is None:
            raise Fenced(f"the manifest of {partition.tp} is gone")
        if newest.epoch > partition.leader_epoch:
            raise Fenced(
                f"manifest {newest.number} of {partition.tp} is of epoch {newest.epoch}, this broker owned it "
                f"under {partition.leader_epoch}"
            )
        if newest.number > partition.manifest_version:
            manifest = decode_manifest(newest.payload)
            producers = await self._producers(manifest)
            await self._take_into_force(partition, manifest, newest, {}, rolled=producers)

    async def _take_into_force(
        self,
        partition: Partition,
        manifest: Manifest,
        entry: Entry,
        known: Mapping[str, Entries],
        *,
        rolled: Producers | None,
    ) -> None:
        """`known`: entries of pages that need not be read for it."""
        before = partition.manifest
        # asked now that the version stands: an heir of after now begins with it
        is_ours = partition.state is PartitionState.APPENDING
        self._covered(partition.manifest_changed(manifest, entry, rolled=rolled))
        if is_ours:
            self._give_up(await self._released(partition.tp, before, manifest, known))

    async def _released(
        self, tp: TopicPartition, old: Manifest, new: Manifest, known: Mapping[str, Entries]
    ) -> frozenset[str]:
        """What is lost from sight here because a page cannot be read, the collection of what nothing names finds."""
        entries = dict(known)
        for page in pages_apart(old, new):
            if page.key not in entries:
                try:
                    entries[page.key] = check_page(page, tp, await self._store.get(page.key))
                except BmqError as error:
                    log.warning(
                        "a manifest page cannot be read, what it names stays for now",
                        partition=str(tp),
                        page=page.key,
                        error=str(error),
                    )
        return released(old, new, entries)

    async def _paged(
        self, tp: TopicPartition, before: Manifest, manifest: Manifest
    ) -> tuple[Manifest, dict[str, Entries]]:
        """(the manifest with its oldest entries on pages, and without entries wholly below the log start on its first
        page; pages' entries).
        """
        known: dict[str, Entries] = {}
        cut = manifest.cut_page()
        if cut is not None and manifest.log_start > before.log_start:
            try:
                known[cut.key] = entries = check_page(cut, tp, await self._store.get(cut.key))
            except (FormatError, ObjectMissing) as error:  # then it goes whole, when the log start has passed it
                log.warning(
                    "a manifest page cannot be read and stays as it is",
                    partition=str(tp),
                    page=cut.key,
                    error=str(error),
                )
            else:
                kept = manifest.kept_of_page(entries)
                if len(kept) < len(entries):
                    page = await self._write_page(tp, kept)
                    known[page.key] = kept
                    manifest = manifest.replace_page(entries, page)
        while overflow := manifest.overflow(self._entries_max):
            page = await self._write_page(tp, overflow)
            known[page.key] = overflow
            manifest = manifest.move_to_page(page)
        return manifest, known

    async def _write_page(self, tp: TopicPartition, entries: Sequence[SegmentEntry]) -> PageRef:
        nonce = self._rng.nonce()
        key = manifest_page_key(tp, nonce)
        self._pages.setdefault(tp, set()).add(key)
        await create_once(self._store, key, encode_page(nonce, tp, entries), nonce=nonce, rng=self._rng)
        return page_ref(key, entries)

    async def _producers(self, manifest: Manifest) -> Producers:
        newest = manifest.newest_producer_snapshot()
        if newest is None:
            return Producers()
        data = await self._store.get(newest.key, start=newest.position, length=newest.length)
        return Producers.decode(bytes(decode_producer_snapshot(data)))

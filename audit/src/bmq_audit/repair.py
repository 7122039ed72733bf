"""Carries out repairs on a store on which nothing runs: new manifest versions first, then deletions. Nothing is ever
overwritten.
"""

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import msgspec

from bmq.errors import BmqError, Conflict, StoreError
from bmq.naming.names import is_internal
from bmq.ports import ObjectStore, Rng
from bmq.storage.durable import TroubleLog, create_once, together, when_available
from bmq.storage.flatlog import FIRST_NUMBER, NO_PREDECESSOR, Entry, encode_entry
from bmq.storage.keys import coordinator_snapshot_key, manifest_page_key, manifest_prefix, segment_key
from bmq.storage.manifest import ENTRIES_MAX, CoordinatorSnapshotRef, Manifest, PageRef, broken_invariant, page_ref
from bmq.storage.manifest_format import encode_manifest, encode_page
from bmq.storage.numbered import just_before, number_of, numbered_key
from bmq.storage.segment import SegmentEntry, SegmentRun, encode_segment
from bmq.storage.segment_index import SegmentBatch
from bmq.storage.snapshot import CoordinatorSnapshot, decode_snapshot, encode_snapshot
from bmq.values import LeaderEpoch, Offset, TopicPartition
from bmq.wire.batches import build_empty_batch
from bmq_audit.findings import Delete, ManifestRepair, Repair
from bmq_audit.manifest_repair import Gap

DELETES_AT_ONCE: Final = 8
OFFSETS_OF_A_BATCH: Final = 1 << 31


class NotRepaired(BmqError):
    """A repair that was planned cannot be carried out; nothing was changed by it."""


@dataclass(slots=True)
class Repaired:
    """What was done. `failed`: the key or partition, and why."""

    deleted_objects: int = 0
    deleted_bytes: int = 0
    partitions: list[str] = field(default_factory=list)
    failed: list[tuple[str, str]] = field(default_factory=list)


class Repairer:
    """Carries out the repairs of one store."""

    def __init__(
        self,
        store: ObjectStore,
        *,
        rng: Rng,
        cluster_id: str,
        no_producers: bytes,
        no_groups: bytes,
        told: Callable[[Repaired], None] = lambda _: None,
    ) -> None:
        """`no_producers`: a producer snapshot of a partition that nobody wrote to. `no_groups`: the state of a
        coordinator without groups.

        `told` is called after each step.
        """
        self._store = store
        self._rng = rng
        self._cluster_id = cluster_id
        self._no_producers = no_producers
        self._no_groups = no_groups
        self._trouble = TroubleLog("repair")
        self._told = told
        self.done = Repaired()

    async def run(self, repairs: Iterable[Repair]) -> Repaired:
        """Waits out a store that is down. What fails is told, and the rest is done all the same."""
        repairs = list(repairs)
        repaired = {key: each.topic for each in repairs if isinstance(each, ManifestRepair) for key in _named(each)}
        for each in repairs:
            if isinstance(each, ManifestRepair):
                await self._attempt(each.topic, self._repair(each))
        deletes = [each for each in repairs if isinstance(each, Delete) and not self._is_named(each, repaired)]
        for at in range(0, len(deletes), DELETES_AT_ONCE):
            await together(self._attempt(each.key, self._delete(each)) for each in deletes[at : at + DELETES_AT_ONCE])
        return self.done

    def _is_named(self, delete: Delete, repaired: Mapping[str, str]) -> bool:
        """Whether a repaired manifest names what is to go; that stays, whatever was planned."""
        below = (key for key in repaired if key.startswith(delete.key)) if delete.key.endswith("/") else ()
        named = delete.key if delete.key in repaired else next(iter(below), None)
        if named is None:
            return False
        self.done.failed.append(
            (delete.key, f"not deleted: the repaired manifest of {repaired[named]} names {named}: this is a bug in bmq")
        )
        return True

    async def _attempt(self, what: str, repair: Awaitable[None]) -> None:
        try:
            await repair
        except (BmqError, StoreError) as error:
            self.done.failed.append((what, str(error)))
        self._told(self.done)

    async def _repair(self, repair: ManifestRepair) -> None:
        """One more manifest version, as an owner's. Raises BmqError."""
        newest = await self._newest(repair.tp)
        if newest > repair.base_number:
            raise NotRepaired(f"manifest version {newest} was written meanwhile: check again")
        filled = [await self._fill(repair, gap) for gap in repair.gaps]
        entries = tuple(sorted((*repair.entries, *filled), key=lambda entry: entry.base_offset))
        pages, entries = await self._paged(repair.tp, repair.manifest.pages, entries)
        manifest: Manifest = msgspec.structs.replace(repair.manifest, pages=pages, entries=entries)
        manifest = await self._loadable(repair, manifest)
        broken = broken_invariant(manifest)
        if broken is not None:
            raise NotRepaired(f"the repaired manifest would not hold that {broken}: this is a bug in bmq")
        await self._add(repair, encode_manifest(manifest))
        self.done.partitions.append(repair.topic)

    async def _add(self, repair: ManifestRepair, payload: bytes) -> None:
        """One more entry, a claim, above the newest there is: it is known to be no sleeper's, and what is below it may
        be gone.
        """
        prefix = manifest_prefix(repair.tp)
        number, nonce = repair.base_number + 1, self._rng.nonce()
        predecessor = repair.base_nonce if repair.base_number >= FIRST_NUMBER else NO_PREDECESSOR
        entry = Entry(
            number=number, epoch=repair.base_epoch, nonce=nonce, predecessor=predecessor, claim=True, payload=payload
        )
        meanwhile = f"manifest version {number}, or a newer one, was written meanwhile: check again"
        try:
            await create_once(
                self._store,
                numbered_key(prefix, number),
                encode_entry(entry),
                nonce=nonce,
                rng=self._rng,
                trouble=self._trouble,
            )
        except Conflict:
            raise NotRepaired(meanwhile) from None
        if await self._newest(repair.tp) != number:
            raise NotRepaired(meanwhile)

    async def _loadable(self, repair: ManifestRepair, manifest: Manifest) -> Manifest:
        """With a snapshot where the log starts now, if a coordinator would miss what is gone before that: what its last
        one had, or nothing.
        """
        named = manifest.coordinator_snapshot
        if not is_internal(repair.topic.rpartition("-")[0]) or manifest.log_start <= (
            0 if named is None else named.offset
        ):
            return manifest
        state = self._no_groups if named is None else decode_snapshot(await self._store.get(named.key)).state
        nonce, offset = self._rng.nonce(), Offset(manifest.log_start)
        key = coordinator_snapshot_key(repair.tp, LeaderEpoch(repair.leader_epoch), offset, nonce)
        made = encode_snapshot(CoordinatorSnapshot(nonce=nonce, tp=repair.tp, offset=offset, state=state))
        await create_once(self._store, key, made, nonce=nonce, rng=self._rng, trouble=self._trouble)
        loadable: Manifest = msgspec.structs.replace(manifest, coordinator_snapshot=CoordinatorSnapshotRef(key, offset))
        return loadable

    async def _fill(self, repair: ManifestRepair, gap: Gap) -> SegmentEntry:
        """A segment that has the gap's offsets and no records. It knows no producers: what they wrote last is not
        known.
        """
        batches = []
        for base in range(gap.span.base, gap.span.end, OFFSETS_OF_A_BATCH):
            count = min(OFFSETS_OF_A_BATCH, gap.span.end - base)
            data = build_empty_batch(
                base_offset=base, offset_count=count, leader_epoch=gap.leader_epoch, timestamp_ms=gap.timestamp_ms
            )
            batches.append(
                SegmentBatch(data, Offset(base), Offset(base + count - 1), 0, gap.timestamp_ms, gap.timestamp_ms)
            )
        nonce = self._rng.nonce()
        leader_epoch = LeaderEpoch(repair.leader_epoch)
        made = encode_segment(
            nonce, self._cluster_id, [SegmentRun(repair.tp, leader_epoch, batches, (), self._no_producers)]
        )
        key = segment_key(repair.tp, leader_epoch, Offset(gap.span.base), nonce)
        await create_once(self._store, key, made.parts, nonce=nonce, rng=self._rng, trouble=self._trouble)
        return made.entries_at(key)[0]

    async def _newest(self, tp: TopicPartition) -> int:
        prefix = manifest_prefix(tp)

        async def newest() -> int:
            listed = self._store.list(prefix, after=just_before(prefix, FIRST_NUMBER))
            return max(
                [number async for meta in listed if (number := number_of(prefix, meta.key)) is not None], default=0
            )

        return await when_available(newest, rng=self._rng, trouble=self._trouble)

    async def _paged(
        self, tp: TopicPartition, pages: tuple[PageRef, ...], entries: Sequence[SegmentEntry]
    ) -> tuple[tuple[PageRef, ...], tuple[SegmentEntry, ...]]:
        """The entries that fit into a manifest, and those before them on new pages."""
        while len(entries) > ENTRIES_MAX:
            moved, entries = entries[: ENTRIES_MAX // 2], entries[ENTRIES_MAX // 2 :]
            nonce = self._rng.nonce()
            key = manifest_page_key(tp, nonce)
            await create_once(
                self._store, key, encode_page(nonce, tp, moved), nonce=nonce, rng=self._rng, trouble=self._trouble
            )
            pages = (*pages, page_ref(key, moved))
        return pages, tuple(entries)

    async def _delete(self, delete: Delete) -> None:
        if not delete.key.endswith("/"):
            await self._delete_one(delete.key, delete.size_bytes)
            return
        while found := await when_available(
            partial(self._some_below, delete.key), rng=self._rng, trouble=self._trouble
        ):
            await together(self._delete_one(key, size_bytes) for key, size_bytes in found)

    async def _some_below(self, prefix: str) -> list[tuple[str, int]]:
        found: list[tuple[str, int]] = []
        async for meta in self._store.list(prefix):
            found.append((meta.key, meta.size_bytes))
            if len(found) >= DELETES_AT_ONCE:
                break
        return found

    async def _delete_one(self, key: str, size_bytes: int) -> None:
        await when_available(partial(self._store.delete, key), rng=self._rng, trouble=self._trouble)
        self.done.deleted_objects += 1
        self.done.deleted_bytes += size_bytes


def _named(repair: ManifestRepair) -> Iterator[str]:
    """The key of every object that the repaired manifest names."""
    manifest = repair.manifest
    yield from (entry.key for entry in repair.entries)
    yield from (page.key for page in manifest.pages)
    yield from (ref.key for ref in (manifest.coordinator_snapshot, manifest.producer_snapshot) if ref is not None)

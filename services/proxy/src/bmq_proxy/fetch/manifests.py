"""Manifests as readers need them: the version that an owner named (or a later one), got by its number.

A listing comes only after something that the version names was missing: an earlier owner may have written a later one
that the owner of now has not met yet, and will meet.

Bounded by the segment entries that are kept; each object is got once however many wait for it.
"""

import asyncio
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Coroutine
from typing import Final, NamedTuple

from bmq.errors import ObjectMissing
from bmq.ports import ObjectStore, Rng
from bmq.storage.flatlog import Entry, FlatLog
from bmq.storage.keys import manifest_prefix
from bmq.storage.manifest import Manifest, PageRef
from bmq.storage.manifest_format import check_page, decode_manifest
from bmq.storage.segment import SegmentEntry
from bmq.values import ManifestVersion, TopicPartition

Entries = tuple[SegmentEntry, ...]
_OVERHEAD_ENTRIES: Final = 2
"""What a manifest costs besides its entries, in entries."""


class Run(NamedTuple):
    """`entries[at]` is the first that ends at or above the offset asked for. `newest`: the last of them is the
    partition's newest.
    """

    entries: Entries
    at: int
    newest: bool


class _Kept(NamedTuple):
    version: int
    manifest: Manifest


class ManifestCache:
    """By partition the newest manifest version that was asked for, and pages of old entries by their key."""

    def __init__(self, store: ObjectStore, rng: Rng, *, entries_max: int) -> None:
        self._store = store
        self._rng = rng
        self._entries_max = entries_max
        self._manifests: OrderedDict[TopicPartition, _Kept] = OrderedDict()
        self._pages: OrderedDict[str, Entries] = OrderedDict()
        self._held = 0
        self._loading: dict[tuple[TopicPartition, int] | str, asyncio.Task[Manifest | Entries]] = {}

    async def get(self, tp: TopicPartition, version: ManifestVersion) -> Manifest:
        """Version `version` or a later one. Raises ObjectMissing where it is gone (ask the owner again),
        FormatError.
        """
        kept = self._manifests.get(tp)
        if kept is None or kept.version < version:
            loaded = await self._once((tp, version), self._load(tp, version))
            assert isinstance(loaded, Manifest)
            return loaded
        self._manifests.move_to_end(tp)
        return kept.manifest

    def forget(self, tp: TopicPartition) -> None:
        """What is kept of it was found wrong: the next `get` has it from the store."""
        kept = self._manifests.pop(tp, None)
        if kept is not None:
            self._held -= len(kept.manifest.entries) + _OVERHEAD_ENTRIES

    async def look_above(self, tp: TopicPartition, version: ManifestVersion) -> bool:
        """Whether there is a version above this one and what is kept: `get` gives it from now on. Raises FormatError.
        Waits out a store that is down.
        """
        kept = self._manifests.get(tp)
        entry = await self._log(tp).newest(max(version, kept.version if kept is not None else 0) + 1)
        if entry is None:
            return False
        self._keep(tp, entry)
        return True

    async def run_from(self, tp: TopicPartition, manifest: Manifest, offset: int) -> Run | None:
        """Where to read an offset; None where the manifest has nothing at or above it. Raises ObjectMissing,
        StoreUnavailable, FormatError.
        """
        part = manifest.entry_for_offset(offset)
        if part is None:
            return None
        if not isinstance(part, PageRef):
            return Run(manifest.entries, _first_ending_at(manifest.entries, offset), newest=True)
        entries = self._pages.get(part.key)
        if entries is None:
            loaded = await self._once(part.key, self._load_page(tp, part))
            assert isinstance(loaded, tuple)
            entries = loaded
        else:
            self._pages.move_to_end(part.key)
        return Run(entries, _first_ending_at(entries, offset), newest=False)

    async def close(self) -> None:
        """Ends what is under way."""
        tasks = list(self._loading.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _load(self, tp: TopicPartition, version: ManifestVersion) -> Manifest:
        """Where a claim stands it may be that of an owner who slept, in the deleted past. It counts as the newest
        entry, or not at all.
        """
        log = self._log(tp)
        entry: Entry | None = await log.read(version)
        if entry is not None and not await log.counts(entry):
            entry = await log.newest(version)
        if entry is None:
            raise ObjectMissing(f"manifest {version} of {tp} is gone")
        return self._keep(tp, entry)

    def _log(self, tp: TopicPartition) -> FlatLog:
        return FlatLog(self._store, manifest_prefix(tp), rng=self._rng, what=f"manifest of {tp}")

    def _keep(self, tp: TopicPartition, entry: Entry) -> Manifest:
        """The newer one of this and what is kept."""
        manifest = decode_manifest(entry.payload)
        kept = self._manifests.get(tp)
        if kept is not None and kept.version >= entry.number:
            return kept.manifest
        self._manifests[tp] = _Kept(entry.number, manifest)
        self._held += (
            len(manifest.entries)
            + _OVERHEAD_ENTRIES
            - (len(kept.manifest.entries) + _OVERHEAD_ENTRIES if kept is not None else 0)
        )
        self._manifests.move_to_end(tp)
        while self._held > self._entries_max and (self._pages or len(self._manifests) > 1):
            self._evict()
        return manifest

    async def _load_page(self, tp: TopicPartition, page: PageRef) -> Entries:
        entries = check_page(page, tp, await self._store.get(page.key))
        self._pages[page.key] = entries
        self._held += page.entry_count
        while self._held > self._entries_max and (len(self._pages) > 1 or self._manifests):
            self._evict(keep_page=page.key)
        return entries

    def _evict(self, *, keep_page: str | None = None) -> None:
        oldest = next(iter(self._pages), None)
        if oldest is not None and oldest != keep_page:
            self._held -= len(self._pages.pop(oldest))
        else:
            _, kept = self._manifests.popitem(last=False)
            self._held -= len(kept.manifest.entries) + _OVERHEAD_ENTRIES

    async def _once(
        self, key: tuple[TopicPartition, int] | str, load: Coroutine[None, None, Manifest | Entries]
    ) -> Manifest | Entries:
        task = self._loading.get(key)
        if task is None:
            task = asyncio.get_running_loop().create_task(load, name=f"load {key}")
            self._loading[key] = task
            task.add_done_callback(lambda done: self._loaded(key, done))
        else:
            load.close()
        return await asyncio.shield(task)

    def _loaded(self, key: tuple[TopicPartition, int] | str, done: "asyncio.Task[Manifest | Entries]") -> None:
        del self._loading[key]
        if not done.cancelled():
            done.exception()  # Whoever waits has it; where nobody does any more, nobody needs it.


def _first_ending_at(entries: Entries, offset: int) -> int:
    return bisect_left(entries, offset, key=lambda entry: entry.last_offset)

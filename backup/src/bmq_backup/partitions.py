"""The partitions of a copy: of each its manifest, what that names, and what the store has lost of that."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from functools import partial
from typing import Final, NamedTuple

from bmq.fairness.grouping import in_groups
from bmq.metadata.image import Topic
from bmq.ports import ObjectMeta
from bmq.storage.durable import Backoff, together
from bmq.storage.flatlog import decode_entry
from bmq.storage.keys import SHARED_PREFIX, manifest_page_prefix, manifest_prefix, partition_prefix
from bmq.storage.manifest_format import check_page, decode_manifest
from bmq.storage.numbered import number_of
from bmq.values import TopicPartition
from bmq_audit.findings import Report
from bmq_audit.metadata import audit_metadata
from bmq_backup.copied import NotCopied
from bmq_backup.shared_runs import SharedRuns
from bmq_backup.transfer import Transfer

LOST_TOLD_MAX: Final = 5
MANIFEST_ROUNDS_MAX: Final = 20
EVEN_ROUNDS_MAX: Final = 20


class _Naming(NamedTuple):
    """The key of a partition's newest manifest version."""

    tp: TopicPartition
    version: str


class Partitions:
    """Which partitions one copy has, and up to where, pass by pass."""

    def __init__(self, transfer: Transfer, *, without_lost: bool) -> None:
        """`without_lost`: what the source has lost is no reason to copy nothing."""
        self.covered: dict[TopicPartition, int] = {}
        """Below which offset the coordinators' logs are in the copied WAL or in manifests that are copied after it."""
        self._transfer = transfer
        self._without_lost = without_lost
        self._versions: dict[TopicPartition, int] = {}
        """The newest manifest version in the copy, or that was looked for."""
        self._ends: dict[TopicPartition, int] = {}
        """Where those versions that this pass copied end."""
        self._shared = SharedRuns()

    async def begin_pass(self) -> None:
        """Each pass looks at the partitions anew."""
        self._ends.clear()
        self._shared = SharedRuns([meta.key for meta in await self._transfer.listed(SHARED_PREFIX)])

    async def copy(self, partitions: Iterable[TopicPartition]) -> bool:
        """Whether everything that the manifests name is there."""
        return await self._copy_named(dict.fromkeys(partitions))

    async def even(self) -> bool:
        """Whether no shared segment in the copy has more of a partition than its log there. Those of which one has
        follow, and no further: what they name then was made no later, so that this ends however much is rolled
        meanwhile. Their owner may be about to name it.
        """
        backoff = Backoff(self._transfer.rng)
        for _ in range(EVEN_ROUNDS_MAX):
            behind = await self._shared.beyond(self._transfer.there, self._ends)
            if not behind:
                return True
            if not await self._copy_named(behind):
                return False
            if not behind.keys().isdisjoint(await self._shared.beyond(self._transfer.there, self._ends)):
                await backoff.wait()
        return False

    def is_behind(self, topic: Topic) -> bool:
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

    async def snapshot_offset(self, tp: TopicPartition) -> int:
        """The offset of the coordinator snapshot that the source's newest manifest names; 0 where it names none, or
        there is no manifest, or that is gone again.
        """
        newest = max(await self._transfer.listed(manifest_prefix(tp)), key=lambda meta: meta.key, default=None)
        if newest is None:
            return 0
        manifest = await self._transfer.manifest_there(newest.key)
        named = None if manifest is None else manifest.coordinator_snapshot
        return 0 if named is None else named.offset

    async def _copy_named(self, partitions: Mapping[TopicPartition, int | None]) -> bool:
        """Copies what their manifests name; of those with an offset as of the first version that ends above it."""
        shared: dict[str, _Naming] = {}
        whole = True
        for group in in_groups(list(partitions.items()), self._transfer.source.at_once):
            for found in await together(self._partition(tp, shared, beyond=beyond) for tp, beyond in group):
                whole = whole and found
        if not whole:
            return False
        self._shared.named(shared)
        missing: dict[_Naming, set[str]] = defaultdict(set)
        for key in await self._transfer.missing(shared.keys(), SHARED_PREFIX):
            missing[shared[key]].add(key)
        return all([await self._is_lost(naming, keys) for naming, keys in missing.items()])

    async def _partition(self, tp: TopicPartition, shared: "dict[str, _Naming]", *, beyond: int | None) -> bool:
        """Nothing but what the newest version names: a segment that a later one names would look as if that one were
        lost.
        """
        prefix = manifest_prefix(tp)
        for _ in range(MANIFEST_ROUNDS_MAX):
            versions = await self._transfer.listed(prefix)
            if beyond is not None:
                versions = await self._as_far_as(tp, versions, beyond)
            if len(await self._transfer.copy_all(versions, prefix)) == len(versions):
                break
        else:
            return False
        newest = max(versions, key=lambda meta: meta.key, default=None)
        if newest is None:
            self._ends[tp] = 0
            return True
        self._versions[tp] = number_of(manifest_prefix(tp), newest.key) or 0
        manifest = await self._transfer.read(
            newest.key, lambda data: decode_manifest(decode_entry(data, what=newest.key).payload)
        )
        self._ends[tp] = manifest.next_offset
        snapshot = manifest.coordinator_snapshot
        if (
            beyond is None
            and snapshot is not None
            and snapshot.offset > max(manifest.next_offset, self.covered.get(tp, 0))
        ):
            return False
        naming = _Naming(tp, newest.key)
        named = set(manifest.keys())
        pages = {page.key for page in manifest.pages}
        gone = await self._transfer.missing(pages, manifest_page_prefix(tp))
        if gone:
            if not await self._is_lost(naming, gone):
                return False
            # nobody knows what they named: a repair of the copy looks for it in all there is
            for prefix in (partition_prefix(tp), SHARED_PREFIX):
                await self._transfer.copy_all(await self._transfer.listed(prefix), prefix)
        for page in manifest.pages:
            if page.key not in gone:
                named |= {entry.key for entry in await self._transfer.read(page.key, partial(check_page, page, tp))}
        shared.update((key, naming) for key in named if key.startswith(SHARED_PREFIX))
        missing = await self._transfer.missing(
            {key for key in named - pages if not key.startswith(SHARED_PREFIX)}, partition_prefix(tp)
        )
        return not missing or await self._is_lost(naming, missing)

    async def _as_far_as(self, tp: TopicPartition, versions: list[ObjectMeta], beyond: int) -> list[ObjectMeta]:
        """Up to the first that is not copied yet and ends above that offset; all where none does."""
        for at, meta in enumerate(versions):
            if (number_of(manifest_prefix(tp), meta.key) or 0) > self._versions.get(tp, 0):
                manifest = await self._transfer.manifest_there(meta.key)
                if manifest is not None and manifest.next_offset > beyond:
                    return versions[: at + 1]
        return versions

    async def _is_lost(self, naming: "_Naming", keys: Collection[str]) -> bool:
        """Whether what was missing just now is lost, so that no other pass would find it: then it is left out. Raises
        NotCopied.

        An owner deletes what its newest version names no more, and nothing else. So what was missing while a version
        named it that is the newest still was not deleted by bmq, unless with its topic; of that the metadata tells
        first.
        """
        newest = max(await self._transfer.listed(manifest_prefix(naming.tp)), key=lambda meta: meta.key, default=None)
        now = await audit_metadata(self._transfer.source, Report())
        if newest is None or newest.key != naming.version or now.image.partition(naming.tp) is None:
            return False
        self._transfer.done.lost = sorted({*self._transfer.done.lost, *keys})
        if not self._without_lost:
            raise NotCopied(
                "the store has lost "
                f"{', '.join(sorted(keys)[:LOST_TOLD_MAX])}{' and others' if len(keys) > LOST_TOLD_MAX else ''}, "
                f"which {naming.version} names: no copy of it is whole. Stop the cluster and repair it (bmq store "
                "check --repair), or restore what is lost from a backup; --without-lost copies all the rest as it "
                "is"
            )
        return True

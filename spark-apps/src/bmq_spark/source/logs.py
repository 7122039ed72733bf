"""What segments a partition's log is in, as its manifest and the manifest's pages say. Two requests for each partition,
and one for each page.

Requests of many partitions run at once. Everything here is asynchronous: it runs on the loop of an OpenedStore.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from bmq.errors import FormatError, ObjectMissing
from bmq.storage.flatlog import FlatLog
from bmq.storage.keys import manifest_prefix
from bmq.storage.manifest import Manifest, PageRef
from bmq.storage.manifest_format import check_page, decode_manifest
from bmq.storage.segment import SegmentEntry
from bmq.values import TopicId, TopicPartition
from bmq_spark.source.failures import SegmentBroken, SourceFailed
from bmq_spark.source.opening import OpenedStore

AT_ONCE: Final = 32
"""Partitions whose manifests are read at a time."""
PAGE_TRIES_MAX: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPart:
    """A partition's manifest, and of its entries at least those of the offsets that were asked for, ascending."""

    manifest: Manifest
    entries: tuple[SegmentEntry, ...]

    @property
    def log_start(self) -> int:
        """The first offset that can be read."""
        return self.manifest.log_start

    @property
    def end(self) -> int:
        """Behind the newest record that is in a segment."""
        return max(self.manifest.next_offset, self.manifest.log_start)


def read_logs(
    store: OpenedStore,
    wanted: Mapping[TopicPartition, tuple[int, int]],
    first_offsets: Mapping[TopicId, int] | None = None,
) -> dict[TopicPartition, LogPart]:
    """The logs of these partitions, with the entries of the offsets from the first number and below the second. Raises
    SourceFailed.

    `first_offsets`: where those begin that have no manifest yet, by topic; 0 where nothing is said.
    """
    return store.run(_read_all(store, wanted, first_offsets or {}))


async def _read_all(
    store: OpenedStore, wanted: Mapping[TopicPartition, tuple[int, int]], first_offsets: Mapping[TopicId, int]
) -> dict[TopicPartition, LogPart]:
    places = asyncio.Semaphore(AT_ONCE)

    async def one(tp: TopicPartition, from_offset: int, below: int) -> LogPart:
        async with places:
            return await read_log(store, tp, from_offset, below, first_offset=first_offsets.get(tp.topic_id, 0))

    async with asyncio.TaskGroup() as group:
        tasks = {tp: group.create_task(one(tp, *offsets)) for tp, offsets in wanted.items()}
    return {tp: task.result() for tp, task in tasks.items()}


async def read_log(
    store: OpenedStore, tp: TopicPartition, from_offset: int, below: int, *, first_offset: int = 0
) -> LogPart:
    """One partition's; one without a manifest is empty, and begins at `first_offset`. Raises SourceFailed."""
    log = FlatLog(store.objects, manifest_prefix(tp), rng=store.rng, what="manifest")
    try:
        for _ in range(PAGE_TRIES_MAX):
            entry = await log.newest()
            manifest = decode_manifest(entry.payload) if entry is not None else Manifest.beginning_at(first_offset)
            try:
                entries: list[SegmentEntry] = []
                for page in manifest.pages:
                    if page.last_offset >= from_offset and page.base_offset < below:
                        entries += await _read_page(store, tp, page)
            except ObjectMissing:  # the log start has cut the page meanwhile: there is a newer version
                continue
            return LogPart(manifest=manifest, entries=(*entries, *manifest.entries))
    except FormatError as error:
        raise SegmentBroken(
            f"manifest {manifest_prefix(tp)} in {store.url}: {error}: `bmq store check` says more"
        ) from error
    raise SourceFailed(
        f"manifest {manifest_prefix(tp)} in {store.url}: a page that it names is missing: `bmq store check` says more"
    )


async def _read_page(store: OpenedStore, tp: TopicPartition, page: PageRef) -> tuple[SegmentEntry, ...]:
    return check_page(page, tp, await store.objects.get(page.key))

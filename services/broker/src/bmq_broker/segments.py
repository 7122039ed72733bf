"""Reading a partition's segments at its owner: for look-ups by time, for merges and for loading coordinators. Readers' fetches go through proxies."""

from collections.abc import AsyncIterator

from typing_extensions import Buffer

from bmq.ports import ObjectStore
from bmq.storage.manifest import Manifest, PageRef
from bmq.storage.manifest_format import check_page
from bmq.storage.segment import SegmentEntry
from bmq.storage.segment_index import SegmentIndex, decode_index
from bmq.values import TopicPartition
from bmq.wire.batches import split


class Segments:
    """Of any partition of one store."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    async def entries(self, tp: TopicPartition, manifest: Manifest) -> list[SegmentEntry]:
        """All entries, those of pages included, oldest first."""
        found: list[SegmentEntry] = []
        for page in manifest.pages:
            found.extend(await self.page(tp, page))
        found.extend(manifest.entries)
        return found

    async def page(self, tp: TopicPartition, page: PageRef) -> tuple[SegmentEntry, ...]:
        """The entries of a page. Raises StoreError, FormatError."""
        return check_page(page, tp, await self._store.get(page.key))

    async def index(self, entry: SegmentEntry) -> SegmentIndex:
        """A segment's index."""
        return decode_index(await self._store.get(entry.key, start=entry.index_position, length=entry.index_length))

    async def block(self, entry: SegmentEntry, index: SegmentIndex, position: int) -> bytes:
        """The whole batches from `position` (a block's start) to the end of its block."""
        return await self._store.get(entry.key, start=entry.position + position, length=index.block_end(position) - position)

    async def batches(self, entry: SegmentEntry) -> bytes:
        """All batches of a segment."""
        return await self._store.get(entry.key, start=entry.position, length=entry.length)

    async def read_batches(self, tp: TopicPartition, manifest: Manifest, offset: int) -> AsyncIterator[Buffer]:
        """Every batch from the one that holds `offset` to the manifest's end."""
        for entry in await self.entries(tp, manifest):
            if entry.last_offset < offset:
                continue
            data = memoryview(await self.batches(entry))
            for header in split(data):
                if header.last_offset >= offset:
                    yield data[header.position : header.end]

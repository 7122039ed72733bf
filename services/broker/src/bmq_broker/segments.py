"""Reading a partition's segments at its owner: for look-ups by time, for merges and for loading coordinators. Readers' fetches go through proxies."""

from collections.abc import AsyncIterator

from typing_extensions import Buffer

from bmq.errors import Corrupt
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
        """Every batch from the one that holds `offset` to the manifest's end, by runs that are as they were written. Raises Corrupt for others."""
        for entry in await self.entries(tp, manifest):
            if entry.last_offset < offset:
                continue
            data = await self._checked_batches(tp, entry)
            for header in split(data):
                if header.last_offset >= offset:
                    yield data[header.position : header.end]

    async def _checked_batches(self, tp: TopicPartition, entry: SegmentEntry) -> memoryview:
        """All batches of a segment, by the checksum of its index, which lies right behind them. Raises Corrupt, FormatTooNew."""
        length = entry.index_position + entry.index_length - entry.position
        data = memoryview(await self._store.get(entry.key, start=entry.position, length=length))
        try:
            index = decode_index(data[entry.index_position - entry.position :])
            if (index.tp, index.base_offset, index.last_offset) != (tp, entry.base_offset, entry.last_offset):
                raise Corrupt(f"its index is that of {index.tp} at {index.base_offset}")
            index.check_batches(data[: entry.length])
        except Corrupt as error:
            raise Corrupt(f"{entry.key}: {error}; restore it from a backup") from error
        return data[: entry.length]

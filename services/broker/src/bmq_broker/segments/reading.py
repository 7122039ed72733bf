"""Reading a partition's segments at its owner: for look-ups by time, for merges and for loading coordinators. Readers'
fetches go through proxies.
"""

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

from typing_extensions import Buffer

from bmq.errors import Corrupt, RequestError
from bmq.ports import ObjectStore
from bmq.storage.manifest import Manifest, PageRef
from bmq.storage.manifest_format import check_page
from bmq.storage.segment import SegmentEntry
from bmq.storage.segment_index import SegmentIndex, decode_index
from bmq.values import TopicPartition
from bmq.wire.batches import BatchHeader, check_crc, split


class Segments:
    """Reads segments, their indexes and pages of manifests, of any partition of one store."""

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

    async def index(self, tp: TopicPartition, entry: SegmentEntry) -> SegmentIndex:
        """A segment's index. Raises Corrupt where it is damaged, or another run's; FormatTooNew."""
        data = await self._store.get(entry.key, start=entry.index_position, length=entry.index_length)
        with _naming(entry):
            return _index_of(tp, entry, data)

    async def block(
        self, entry: SegmentEntry, index: SegmentIndex, position: int
    ) -> tuple[memoryview, list[BatchHeader]]:
        """The whole batches from `position` (a block's start) to its block's end, and their headers. Raises Corrupt for
        others than were written.
        """
        data = memoryview(
            await self._store.get(
                entry.key, start=entry.position + position, length=index.block_end(position) - position
            )
        )
        with _naming(entry):
            return data, _headers_of(index, position, data)

    async def batches(self, entry: SegmentEntry) -> bytes:
        """All batches of a segment."""
        return await self._store.get(entry.key, start=entry.position, length=entry.length)

    async def read_batches(self, tp: TopicPartition, manifest: Manifest, offset: int) -> AsyncIterator[Buffer]:
        """Every batch from the one that holds `offset` to the manifest's end, by runs that are as they were written.
        Raises Corrupt for others.
        """
        for entry in await self.entries(tp, manifest):
            if entry.last_offset < offset:
                continue
            data = await self._checked_batches(tp, entry)
            for header in split(data):
                if header.last_offset >= offset:
                    yield data[header.position : header.end]

    async def _checked_batches(self, tp: TopicPartition, entry: SegmentEntry) -> memoryview:
        """All batches of a segment, by the checksum of its index, which lies right behind them. Raises Corrupt,
        FormatTooNew.
        """
        length = entry.index_position + entry.index_length - entry.position
        data = memoryview(await self._store.get(entry.key, start=entry.position, length=length))
        with _naming(entry):
            _index_of(tp, entry, data[entry.index_position - entry.position :]).check_batches(data[: entry.length])
        return data[: entry.length]


@contextmanager
def _naming(entry: SegmentEntry) -> Iterator[None]:
    """Says of which object something is Corrupt, and what to do."""
    try:
        yield
    except (Corrupt, RequestError) as error:
        raise Corrupt(f"{entry.key}: {error}; restore it from a backup") from error


def _index_of(tp: TopicPartition, entry: SegmentEntry, data: Buffer) -> SegmentIndex:
    index = decode_index(data)
    if (index.tp, index.base_offset, index.last_offset, index.length) != (
        tp,
        entry.base_offset,
        entry.last_offset,
        entry.length,
    ):
        raise Corrupt(f"its index is that of {index.tp} at {index.base_offset}")
    return index


def _headers_of(index: SegmentIndex, position: int, block: memoryview) -> list[BatchHeader]:
    """What no CRC covers follows from the index, and from the batch before."""
    start, end = index.offsets_of_block(position)
    dense = index.record_count == index.last_offset - index.base_offset + 1
    headers = split(block)
    offset, epoch = start, 0
    for header in headers:
        check_crc(block, header)
        moved = header.base_offset != offset if dense or offset == start else header.base_offset < offset
        if moved or header.last_offset < header.base_offset or not epoch <= header.leader_epoch <= index.leader_epoch:
            raise Corrupt(
                f"a batch of offset {header.base_offset} and leader epoch {header.leader_epoch} is where {offset} "
                "is to be"
            )
        offset, epoch = header.next_offset, header.leader_epoch
    if offset > end or (dense and offset != end):
        raise Corrupt(f"batches from offset {start} on end at {offset}, not at {end}")
    return headers

"""Reading record batches out of segments: index, blocks, whole batches as views of blocks. Owns the index cache and read-ahead."""

import asyncio
from bisect import bisect_right
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final

from bmq.errors import Corrupt
from bmq.ports import ObjectStore
from bmq.storage.segment import SegmentEntry
from bmq.storage.segment_index import SegmentIndex, decode_index
from bmq.wire.batch_headers import HEADER_SIZE_BYTES, LOG_OVERHEAD_BYTES
from bmq_proxy.fetch.blocks import BLOCK_SIZE_BYTES, BlockCache, BlockKey, Pool

INDEX_BLOCK_COST_BYTES: Final = 176
"""What one decoded line of an index takes in memory."""
READERS_MAX: Final = 10_000
_LAST_OFFSET_DELTA_AT: Final = 23


@dataclass(slots=True)
class Slice:
    """Whole record batches, as views one after the other (a batch may span two). `complete`: they go up to the run's end."""

    parts: list[memoryview] = field(default_factory=list)
    size_bytes: int = 0
    complete: bool = False


class _Window:
    """Loaded blocks of one object, read as if they were one buffer."""

    def __init__(self, cache: BlockCache, key: str, pool: Pool) -> None:
        self._cache = cache
        self._key = key
        self._pool = pool
        self._blocks: dict[int, bytes] = {}

    async def load(self, start: int, end: int) -> None:
        """Makes the object's bytes from `start` to before `end` readable. Raises ObjectMissing, StoreUnavailable, Corrupt."""
        missing = [n for n in range(start // BLOCK_SIZE_BYTES, (end - 1) // BLOCK_SIZE_BYTES + 1) if n not in self._blocks]
        if len(missing) == 1:
            self._blocks[missing[0]] = await self._cache.get(BlockKey(self._key, missing[0]), self._pool)
        elif missing:
            loaded = await asyncio.gather(*(self._cache.get(BlockKey(self._key, n), self._pool) for n in missing))
            self._blocks.update(zip(missing, loaded, strict=True))
        last = (end - 1) // BLOCK_SIZE_BYTES
        if missing and len(self._blocks[last]) < (end - 1) % BLOCK_SIZE_BYTES + 1:
            raise Corrupt(f"{self._key}: it ends before byte {end}")

    def views(self, start: int, end: int) -> list[memoryview]:
        """Loaded bytes without a copy."""
        found = []
        while start < end:
            number, at = divmod(start, BLOCK_SIZE_BYTES)
            length = min(BLOCK_SIZE_BYTES - at, end - start)
            found.append(memoryview(self._blocks[number])[at : at + length])
            start += length
        return found

    def read(self, start: int, length: int) -> bytes:
        """A few loaded bytes."""
        return b"".join(self.views(start, start + length))


class SegmentReader:
    """Reads runs that a manifest names."""

    def __init__(self, store: ObjectStore, cache: BlockCache, *, index_cache_bytes: int, read_ahead_blocks: int) -> None:
        self._store = store
        self._cache = cache
        self._index_cache_bytes = index_cache_bytes
        self._read_ahead_blocks = read_ahead_blocks
        self._indexes: OrderedDict[tuple[str, int], asyncio.Task[SegmentIndex]] = OrderedDict()
        self._index_bytes = 0
        self._expected: OrderedDict[tuple[str, int], None] = OrderedDict()
        """Where sequential readers will go on: (key, position)."""

    async def read(
        self, entry: SegmentEntry, offset: int, *, max_bytes: int, at_least_one: bool, pool: Pool, following: SegmentEntry | None = None
    ) -> Slice:
        """Batches from the one that holds `offset` (or the next one above it), `max_bytes` at most; the first one whole where `at_least_one`.

        `following` is the entry after this one, to read ahead into. Raises ObjectMissing, StoreUnavailable, Corrupt.
        """
        index = await self._index(entry)
        window = _Window(self._cache, entry.key, pool)
        start, first_base = index.position_for_offset(offset)
        guess = min(max(max_bytes, HEADER_SIZE_BYTES), index.length - start)
        await window.load(entry.position + start, entry.position + start + guess)
        if first_base < offset:
            start = await self._skip(window, entry, start, offset)
            if start >= entry.length:
                return Slice(complete=True)
        end = await self._end(window, entry, index, start, max_bytes=max_bytes, at_least_one=at_least_one)
        if end == start:
            return Slice()
        await window.load(entry.position + start, entry.position + end)
        self._follow(entry, start, end, pool, following)
        return Slice(window.views(entry.position + start, entry.position + end), end - start, end == entry.length)

    async def close(self) -> None:
        """Ends what is under way."""
        tasks = list(self._indexes.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._cache.close()

    async def _skip(self, window: _Window, entry: SegmentEntry, position: int, offset: int) -> int:
        """The first batch from `position` on that ends at or above `offset`; the run's length where there is none."""
        while position < entry.length:
            size_bytes, last_offset = await self._batch(window, entry, position)
            if last_offset >= offset:
                break
            position += size_bytes
        return position

    async def _end(self, window: _Window, entry: SegmentEntry, index: SegmentIndex, start: int, *, max_bytes: int, at_least_one: bool) -> int:
        """Where to stop: between two batches, `max_bytes` behind `start` at most, behind the first batch at least."""
        limit = start + max_bytes
        if limit >= entry.length:
            return entry.length
        boundary = index.blocks[bisect_right(index.blocks, limit, key=lambda block: block.position) - 1].position
        if boundary > start:
            return boundary
        end = start
        while end < entry.length:
            size_bytes, _ = await self._batch(window, entry, end)
            if end + size_bytes > limit and (end > start or not at_least_one):
                break
            end += size_bytes
        return end

    async def _batch(self, window: _Window, entry: SegmentEntry, position: int) -> tuple[int, int]:
        """(size in bytes, last offset) of the batch at a position of the run."""
        at = entry.position + position
        if position + HEADER_SIZE_BYTES > entry.length:
            raise Corrupt(f"{entry.key}: the run ends within a batch header at {at}")
        await window.load(at, at + HEADER_SIZE_BYTES)
        header = window.read(at, HEADER_SIZE_BYTES)
        size_bytes = LOG_OVERHEAD_BYTES + int.from_bytes(header[8:12], "big", signed=True)
        if not HEADER_SIZE_BYTES <= size_bytes <= entry.length - position:
            raise Corrupt(f"{entry.key}: a batch of {size_bytes} bytes at {at} does not fit its run")
        base_offset = int.from_bytes(header[:8], "big", signed=True)
        delta = int.from_bytes(header[_LAST_OFFSET_DELTA_AT : _LAST_OFFSET_DELTA_AT + 4], "big", signed=True)
        if not entry.base_offset <= base_offset <= base_offset + delta <= entry.last_offset:
            raise Corrupt(f"{entry.key}: a batch with offsets {base_offset} to {base_offset + delta} at {at} does not belong there")
        return size_bytes, base_offset + delta

    async def _index(self, entry: SegmentEntry) -> SegmentIndex:
        key = (entry.key, entry.index_position)
        task = self._indexes.get(key)
        if task is None:
            task = asyncio.get_running_loop().create_task(self._load_index(entry), name=f"get index of {entry.key}")
            self._indexes[key] = task
            task.add_done_callback(lambda done: self._index_loaded(key, done))
        else:
            self._indexes.move_to_end(key)
        return await asyncio.shield(task)

    async def _load_index(self, entry: SegmentEntry) -> SegmentIndex:
        index = decode_index(await self._store.get(entry.key, start=entry.index_position, length=entry.index_length))
        if (index.base_offset, index.last_offset, index.length) != (entry.base_offset, entry.last_offset, entry.length):
            raise Corrupt(f"{entry.key}: the index at {entry.index_position} is another run's")
        return index

    def _index_loaded(self, key: tuple[str, int], done: "asyncio.Task[SegmentIndex]") -> None:
        if done.cancelled() or done.exception() is not None:
            self._indexes.pop(key, None)
            return
        self._index_bytes += _cost_bytes(done.result())
        for old in list(self._indexes):
            if self._index_bytes <= self._index_cache_bytes or len(self._indexes) == 1:
                break
            if self._indexes[old].done():
                self._index_bytes -= _cost_bytes(self._indexes.pop(old).result())

    def _follow(self, entry: SegmentEntry, start: int, end: int, pool: Pool, following: SegmentEntry | None) -> None:
        """Remembers where this reader goes on; one that went on where it was expected has the blocks after that read ahead."""
        sequential = self._expected.pop((entry.key, entry.position + start), "new") is None
        if end < entry.length:
            going_on = (entry.key, entry.position + end)
        elif following is not None:
            going_on = (following.key, following.position)
        else:
            return
        self._expected[going_on] = None
        self._expected.move_to_end(going_on)
        if len(self._expected) > READERS_MAX:
            self._expected.popitem(last=False)
        if sequential:
            self._read_ahead(entry, end, pool, following)

    def _read_ahead(self, entry: SegmentEntry, end: int, pool: Pool, following: SegmentEntry | None) -> None:
        left = self._read_ahead_blocks
        spans = [(entry.key, entry.position + end, entry.position + entry.length)]
        if following is not None:
            spans.append((following.key, following.position, following.position + following.length))
        for key, start, stop in spans:
            if start >= stop:
                continue
            for number in range(start // BLOCK_SIZE_BYTES, (stop - 1) // BLOCK_SIZE_BYTES + 1):
                if not left:
                    return
                left -= 1
                self._cache.read_ahead(BlockKey(key, number), pool)


def _cost_bytes(index: SegmentIndex) -> int:
    return 512 + INDEX_BLOCK_COST_BYTES * len(index.blocks)

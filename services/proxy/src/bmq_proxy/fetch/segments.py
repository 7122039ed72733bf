"""Reading record batches out of segments: index, blocks, whole batches as views of blocks. Owns the index cache and
read-ahead.

A view keeps all of its block in memory, which an answer counts by its records alone: what is less than half of a block
is copied out of it.

What stands before a batch's CRC, no CRC covers: its base offset, its length, its leader epoch. They have to follow from
the index and from the batch before, which is looked at once for each block of an index while its bytes are kept.
Otherwise a consumer would pass over records unseen.
"""

import asyncio
import struct
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

from bmq.errors import Corrupt
from bmq.ports import ObjectStore
from bmq.storage.segment import SegmentEntry
from bmq.storage.segment_index import SegmentIndex, decode_index
from bmq.values import TopicPartition
from bmq.wire.batch_headers import HEADER_SIZE_BYTES, LOG_OVERHEAD_BYTES, MAGIC
from bmq_proxy.fetch.blocks import BLOCK_SIZE_BYTES, BlockCache, BlockKey, Pool

INDEX_BLOCK_COST_BYTES: Final = 176
"""What one decoded line of an index takes in memory."""
READERS_MAX: Final = 10_000
COPIED_BELOW_BYTES: Final = BLOCK_SIZE_BYTES // 2
LOOKED_AT_ONCE: Final = 32
"""Blocks of an index, until other work gets its turn."""
_LAST_OFFSET_DELTA_AT: Final = 23
# base offset, length, leader epoch and magic, (CRC and attributes,) last offset delta
_HEADER_START: Final = struct.Struct(">qi5s6xi")
_LENGTH_MIN: Final = HEADER_SIZE_BYTES - LOG_OVERHEAD_BYTES


class OtherRun(Corrupt):
    """Where a manifest names a run there is the index of another: of another partition, or of other offsets."""


@dataclass(slots=True)
class Slice:
    """Whole record batches, one after the other (a batch may span two parts). `complete`: they go up to the run's
    end.
    """

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
        """Makes the object's bytes from `start` to before `end` readable. Raises ObjectMissing, StoreUnavailable,
        Corrupt.
        """
        missing = [
            n for n in range(start // BLOCK_SIZE_BYTES, (end - 1) // BLOCK_SIZE_BYTES + 1) if n not in self._blocks
        ]
        if len(missing) == 1:
            self._blocks[missing[0]] = await self._cache.get(BlockKey(self._key, missing[0]), self._pool)
        elif missing:
            loaded = await asyncio.gather(*(self._cache.get(BlockKey(self._key, n), self._pool) for n in missing))
            self._blocks.update(zip(missing, loaded, strict=True))
        last = (end - 1) // BLOCK_SIZE_BYTES
        if missing and len(self._blocks[last]) < (end - 1) % BLOCK_SIZE_BYTES + 1:
            raise Corrupt(f"{self._key}: it ends before byte {end}")

    def clear(self) -> None:
        """Nothing is loaded any more."""
        self._blocks.clear()

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

    def walk(self, at: int, end: int, offset: int, *, epoch_max: int, dense: bool) -> int:
        """The offset behind these whole batches, the first of which begins with `offset`; -1 where their headers are
        not what was written.

        `dense`: each begins where the one before ends; otherwise there or later. All of `at` to `end` is loaded.
        """
        header_start, size_bytes = _HEADER_START.unpack_from, _HEADER_START.size
        same = b""
        while at < end:
            number, inside = divmod(at, BLOCK_SIZE_BYTES)
            block, origin = self._blocks[number], at - inside
            last = min(end - origin, BLOCK_SIZE_BYTES) - size_bytes
            if inside > last:  # the header lies in two blocks
                if at + HEADER_SIZE_BYTES > end:
                    return -1
                block, origin, inside, last = self.read(at, size_bytes), at, 0, 0
            while inside <= last:
                base_offset, length, epoch_and_magic, delta = header_start(block, inside)
                if base_offset != offset or epoch_and_magic != same or length < _LENGTH_MIN:
                    epoch = int.from_bytes(epoch_and_magic[:4], "big", signed=True)
                    falls = bool(same) and epoch < int.from_bytes(same[:4], "big", signed=True)
                    moved = base_offset < offset or (dense and base_offset != offset)
                    if moved or falls or epoch > epoch_max or epoch_and_magic[4] != MAGIC or length < _LENGTH_MIN:
                        return -1
                    same = epoch_and_magic
                offset = base_offset + delta + 1
                inside += length + LOG_OVERHEAD_BYTES
            at = origin + inside
        return offset if at == end else -1


class SegmentReader:
    """Reads runs that a manifest names."""

    def __init__(
        self, store: ObjectStore, cache: BlockCache, *, index_cache_bytes: int, read_ahead_blocks: int
    ) -> None:
        self._store = store
        self._cache = cache
        self._index_cache_bytes = index_cache_bytes
        self._read_ahead_blocks = read_ahead_blocks
        self._indexes: OrderedDict[tuple[str, int], asyncio.Task[SegmentIndex]] = OrderedDict()
        self._index_costs: dict[tuple[str, int], int] = {}
        """In memory, of those that are there."""
        self._index_bytes = 0
        self._expected: OrderedDict[tuple[str, int], None] = OrderedDict()
        """Where sequential readers will go on: (key, position)."""

    async def read(
        self,
        tp: TopicPartition,
        entry: SegmentEntry,
        offset: int,
        *,
        max_bytes: int,
        at_least_one: bool,
        pool: Pool,
        following: SegmentEntry | None = None,
        larger: Callable[[int], Awaitable[bool]] | None = None,
    ) -> Slice:
        """Batches from the one that holds `offset` (or the next one above it), `max_bytes` at most; the first one whole
        where `at_least_one`, unless `larger` says that there is no room for so many more bytes.

        `entry` is one of `tp`, `following` the one after it, to read ahead into. Raises ObjectMissing,
        StoreUnavailable, Corrupt.
        """
        index = await self._index(entry)
        if (index.tp, index.base_offset, index.last_offset, index.length) != (
            tp,
            entry.base_offset,
            entry.last_offset,
            entry.length,
        ):
            self._forget((entry.key, entry.index_position))
            raise OtherRun(
                f"{entry.key}: the index at {entry.index_position} is that of {index.tp} at {index.base_offset}, "
                f"not of {tp} at {entry.base_offset}: restore the object from a backup"
            )
        window = _Window(self._cache, entry.key, pool)
        block_start, first_base = index.position_for_offset(offset)
        start = block_start
        guess = min(max(max_bytes, HEADER_SIZE_BYTES), index.length - start)
        await window.load(entry.position + start, entry.position + start + guess)
        if first_base < offset:
            start = await self._skip(window, entry, start, offset)
            if start >= entry.length:
                await self._whole_until(window, entry, index, block_start, entry.length, needed=start)
                return Slice(complete=True)
        end = await self._end(window, entry, index, start, max_bytes=max_bytes, at_least_one=at_least_one)
        if end == start:
            return Slice()
        if end - start > max(max_bytes, 0):
            window.clear()  # nothing is held while it waits for room
            if larger is not None and not await larger(end - start - max(max_bytes, 0)):
                return Slice()
        await window.load(entry.position + block_start, entry.position + end)
        end = await self._whole_until(window, entry, index, block_start, end, needed=start)
        self._follow(entry, start, end, pool, following)
        parts = [
            view if view.nbytes >= COPIED_BELOW_BYTES else memoryview(bytes(view))
            for view in window.views(entry.position + start, entry.position + end)
        ]
        return Slice(parts, end - start, end == entry.length)

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

    async def _end(
        self,
        window: _Window,
        entry: SegmentEntry,
        index: SegmentIndex,
        start: int,
        *,
        max_bytes: int,
        at_least_one: bool,
    ) -> int:
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

    async def _whole_until(
        self, window: _Window, entry: SegmentEntry, index: SegmentIndex, start: int, end: int, *, needed: int
    ) -> int:
        """`end`, or where the first block begins whose batches' headers are not what was written. `start` is the
        beginning of a block.

        Raises Corrupt where that is at or before `needed`.
        """
        if self._cache.is_checked(entry.key, entry.position + start, entry.position + end):
            return end
        blocks, epoch_max = index.blocks, index.leader_epoch
        dense = index.record_count == index.last_offset - index.base_offset + 1
        number = bisect_right(blocks, start, key=lambda block: block.position) - 1
        looked_at = 0
        while start < end:
            offset = index.base_offset + blocks[number].relative_offset
            number += 1
            stop, stop_offset = entry.length, index.last_offset + 1
            if number < len(blocks):
                stop, stop_offset = blocks[number].position, index.base_offset + blocks[number].relative_offset
            at, to = entry.position + start, entry.position + min(stop, end)
            if not self._cache.is_checked(entry.key, at, to):
                found = window.walk(at, to, offset, epoch_max=epoch_max, dense=dense)
                # the last batch ends where the run does, whatever is between others
                exact = stop <= end and (dense or stop == entry.length)
                if found < 0 or found > stop_offset or (exact and found != stop_offset):
                    if start <= needed:
                        raise Corrupt(
                            f"{entry.key}: batches from byte {at} on, offset {offset}, are not those that were "
                            "written; restore it from a backup"
                        )
                    return start
                self._cache.note_checked(entry.key, at, to)
                looked_at += 1
                if looked_at % LOOKED_AT_ONCE == 0:
                    await asyncio.sleep(0)
            start = stop
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
            raise Corrupt(
                f"{entry.key}: a batch with offsets {base_offset} to {base_offset + delta} at {at} does not belong "
                "there"
            )
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
        return decode_index(await self._store.get(entry.key, start=entry.index_position, length=entry.index_length))

    def _forget(self, key: tuple[str, int]) -> None:
        """It is read anew when it is asked for, unless it is just being read."""
        cost_bytes = self._index_costs.pop(key, None)
        if cost_bytes is not None:
            self._index_bytes -= cost_bytes
            del self._indexes[key]

    def _index_loaded(self, key: tuple[str, int], done: "asyncio.Task[SegmentIndex]") -> None:
        if done.cancelled() or done.exception() is not None:
            self._indexes.pop(key, None)
            return
        self._index_costs[key] = _cost_bytes(done.result())
        self._index_bytes += self._index_costs[key]
        if self._index_bytes <= self._index_cache_bytes:
            return
        for old in list(self._indexes):
            if self._index_bytes <= self._index_cache_bytes or len(self._indexes) == 1:
                break
            self._forget(old)  # others are under way, or have ended a moment ago, with an error maybe

    def _follow(self, entry: SegmentEntry, start: int, end: int, pool: Pool, following: SegmentEntry | None) -> None:
        """Remembers where this reader goes on; one that went on where it was expected has the blocks after that read
        ahead.
        """
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

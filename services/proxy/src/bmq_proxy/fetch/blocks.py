"""1 MiB-aligned pieces of segment objects, kept for readers. Byte-bounded; each piece is got once however many wait for
it, and goes when nobody has wanted it for a while.

Two pools with their own memory and their own requests, so that a reader far behind never slows those near the end of
the log. What one of them does not use of its memory the other may, until it is wanted back. Blocks are immutable bytes:
what a response still points into lives on after its eviction.
"""

import asyncio
from collections import OrderedDict
from enum import Enum
from typing import Final, NamedTuple

from bmq.errors import StoreError
from bmq.ports import ObjectStore
from bmq_proxy import metrics

BLOCK_SIZE_BYTES = 1 << 20
TAIL_GETS_AT_ONCE = 16


class Pool(Enum):
    """Who reads."""

    TAIL = "tail"
    CATCH_UP = "catch_up"


class BlockKey(NamedTuple):
    """Block `number` of an object: the bytes from `number` MiB on."""

    key: str
    number: int


_SWEPT: Final = BlockKey("", -1)
"""Stands in a pool where its newest block stood when the last sweep was over: what is before it was not asked for
since."""
_NOTHING_CHECKED: Final = (1 << 62, -1)


class _Pool:
    """Blocks in the order of their last use."""

    def __init__(self, pool: Pool, limit_bytes: int, *, gets_at_once: int) -> None:
        self.limit_bytes = limit_bytes
        self.held_bytes = 0
        self.blocks: OrderedDict[BlockKey, bytes] = OrderedDict()
        self.requests = asyncio.Semaphore(gets_at_once)
        self.unread: set[BlockKey] = set()
        """Read ahead and not asked for yet."""
        self.checked: dict[BlockKey, tuple[int, int]] = {}
        """By block that is kept: from where to where its readers have found it to be whole, in bytes of the object."""
        self.hits = metrics.CACHE.labels(pool.value, "hit")
        self.misses = metrics.CACHE.labels(pool.value, "miss")
        metrics.CACHE_BYTES.labels(pool.value).set_function(lambda: self.held_bytes)

    @property
    def borrowed_bytes(self) -> int:
        """What it holds above its own memory."""
        return self.held_bytes - self.limit_bytes

    def put(self, block: BlockKey, data: bytes) -> None:
        self.blocks[block] = data
        self.checked.pop(block, None)
        self.held_bytes += len(data)

    def evict_unused(self) -> None:
        """Those that were not asked for since this was called last."""
        if _SWEPT in self.blocks:
            while next(iter(self.blocks)) != _SWEPT:
                self.evict_one()
            del self.blocks[_SWEPT]
        if self.blocks:
            self.blocks[_SWEPT] = b""

    def evict_one(self) -> None:
        evicted, gone = self.blocks.popitem(last=False)
        self.unread.discard(evicted)
        self.checked.pop(evicted, None)
        self.held_bytes -= len(gone)


class BlockCache:
    """All blocks of one proxy."""

    def __init__(
        self,
        store: ObjectStore,
        *,
        tail_bytes: int,
        catch_up_bytes: int,
        catch_up_gets_at_once: int = 16,
        idle_ms: int = 300_000,
    ) -> None:
        """`idle_ms`: a block that nobody asks for goes after this time, and before twice of it."""
        self._store = store
        self._idle_s = idle_ms / 1000
        self._sweeper: asyncio.TimerHandle | None = None
        self._pools = {
            Pool.TAIL: _Pool(Pool.TAIL, tail_bytes, gets_at_once=TAIL_GETS_AT_ONCE),
            Pool.CATCH_UP: _Pool(Pool.CATCH_UP, catch_up_bytes, gets_at_once=catch_up_gets_at_once),
        }
        self._under_way: dict[BlockKey, asyncio.Task[bytes]] = {}

    async def get(self, block: BlockKey, pool: Pool) -> bytes:
        """The block's bytes, fewer than a MiB at the object's end, empty behind it. Raises ObjectMissing,
        StoreUnavailable.
        """
        found = self._look_up(block)
        if found is not None:
            self._pools[pool].hits.inc()
            return found
        self._pools[pool].misses.inc()
        for other in self._pools.values():
            other.unread.discard(block)
        # The task is the cache's: a waiter that goes away does not take it from the others.
        return await asyncio.shield(self._start(block, pool))

    def read_ahead(self, block: BlockKey, pool: Pool) -> None:
        """Starts getting a block that will be asked for soon. Does nothing where half the pool waits to be read
        already.
        """
        kept = self._pools[pool]
        if len(kept.unread) * BLOCK_SIZE_BYTES * 2 >= kept.limit_bytes:
            return
        if block in self._under_way or any(block in other.blocks for other in self._pools.values()):
            return
        kept.unread.add(block)
        self._start(block, pool)

    def is_checked(self, key: str, start: int, end: int) -> bool:
        """Whether these bytes of an object were noted as checked, and are kept since."""
        for number in range(start // BLOCK_SIZE_BYTES, (end - 1) // BLOCK_SIZE_BYTES + 1):
            first, last = self._checked(BlockKey(key, number))
            if first > max(start, number * BLOCK_SIZE_BYTES) or last < min(end, (number + 1) * BLOCK_SIZE_BYTES):
                return False
        return True

    def note_checked(self, key: str, start: int, end: int) -> None:
        """A reader has found these bytes, which it has just got, to be what was written. Of each block one stretch is
        remembered.
        """
        for number in range(start // BLOCK_SIZE_BYTES, (end - 1) // BLOCK_SIZE_BYTES + 1):
            block = BlockKey(key, number)
            first, last = self._checked(block)
            joined = (min(first, start), max(last, end)) if start <= last and first <= end else (start, end)
            for kept in self._pools.values():
                if block in kept.blocks:
                    kept.checked[block] = joined

    def _checked(self, block: BlockKey) -> tuple[int, int]:
        for kept in self._pools.values():
            if block in kept.checked:
                return kept.checked[block]
        return _NOTHING_CHECKED

    async def close(self) -> None:
        """Ends what is under way."""
        if self._sweeper is not None:
            self._sweeper.cancel()
        tasks = list(self._under_way.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _look_up(self, block: BlockKey) -> bytes | None:
        for kept in self._pools.values():
            data = kept.blocks.get(block)
            if data is not None:
                kept.blocks.move_to_end(block)
                kept.unread.discard(block)
                return data
        return None

    def _start(self, block: BlockKey, pool: Pool) -> "asyncio.Task[bytes]":
        task = self._under_way.get(block)
        if task is None:
            task = asyncio.get_running_loop().create_task(
                self._fetch(block, self._pools[pool]), name=f"get block {block.number} of {block.key}"
            )
            self._under_way[block] = task
            task.add_done_callback(lambda done: self._finished(block, done, self._pools[pool]))
        return task

    async def _fetch(self, block: BlockKey, kept: _Pool) -> bytes:
        async with kept.requests:
            data = await self._store.get(block.key, start=block.number * BLOCK_SIZE_BYTES, length=BLOCK_SIZE_BYTES)
        kept.put(block, data)
        self._make_room()
        self._sweep_later()
        return data

    def _sweep_later(self) -> None:
        if self._sweeper is None:
            self._sweeper = asyncio.get_running_loop().call_later(self._idle_s, self._sweep)

    def _sweep(self) -> None:
        self._sweeper = None
        for pool in self._pools.values():
            pool.evict_unused()
        if any(pool.blocks for pool in self._pools.values()):
            self._sweep_later()

    def _make_room(self) -> None:
        """Evicts where both pools together hold more than they may, from the one that has borrowed most."""
        pools = self._pools.values()
        while sum(pool.borrowed_bytes for pool in pools) > 0:
            borrower = max(pools, key=lambda pool: pool.borrowed_bytes)
            if len(borrower.blocks) == 1:  # the one that was just got, or a limit below a block
                return
            borrower.evict_one()

    def _finished(self, block: BlockKey, done: "asyncio.Task[bytes]", kept: _Pool) -> None:
        del self._under_way[block]
        if done.cancelled():
            kept.unread.discard(block)
        elif isinstance(done.exception(), StoreError):
            kept.unread.discard(block)  # Who waits for it gets the error; of a read-ahead nobody needs to know.

"""A CoordinatorLog in memory whose records become durable late, in order, and only as far as the test lets them."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Sequence

from typing_extensions import Buffer

from bmq.errors import Fenced, NotReady
from bmq.values import Offset
from bmq.wire.batches import Record, build_batch, iterate_records, read_header


class Disk:
    """What survives: durable batches and snapshots."""

    def __init__(self) -> None:
        self.batches: list[bytes] = []
        self.next_offset = 0
        self.snapshots: list[tuple[Offset, bytes]] = []

    def records(self) -> list[tuple[bytes | None, bytes | None]]:
        return [
            (record.key, record.value)
            for batch in self.batches
            for record in iterate_records(batch, read_header(batch))
        ]


class LateLog:
    """`delay_s` after it was appended a batch is durable, unless the log is held; `fence` fails whatever is not."""

    def __init__(self, disk: Disk, *, delay_s: float = 0.005) -> None:
        self.disk = disk
        self.delay_s = delay_s
        self.is_held = False
        self.is_fenced = False
        self.is_stopped = False
        self._end = disk.next_offset
        self._pending: deque[tuple[bytes | None, asyncio.Future[None], float]] = deque()

    def check_open(self) -> None:
        if self.is_stopped:
            raise NotReady("nothing can be stored now")

    def append(self, records: Sequence[tuple[bytes, bytes | None]]) -> "asyncio.Future[None]":
        assert records, "an append without records"
        batch = build_batch([Record(0, 0, key, value) for key, value in records], base_offset=self._end)
        self._end += len(records)
        return self._enqueue(batch)

    def barrier(self) -> "asyncio.Future[None]":
        if not self._pending and not self.is_fenced:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            future.set_result(None)
            return future
        return self._enqueue(None)

    async def read_from(self, offset: Offset) -> AsyncIterator[Buffer]:
        for batch in list(self.disk.batches):
            await asyncio.sleep(0.001)
            if read_header(batch).next_offset > offset:
                yield batch

    async def load_snapshot(self) -> tuple[Offset, bytes] | None:
        await asyncio.sleep(0.001)
        return self.disk.snapshots[-1] if self.disk.snapshots else None

    async def save_snapshot(self, offset: Offset, data: bytes) -> None:
        assert offset <= self.high_watermark(), "a snapshot of what may yet be lost"
        await asyncio.sleep(0.001)
        self.disk.snapshots.append((offset, data))

    def high_watermark(self) -> Offset:
        return Offset(self.disk.next_offset)

    def end_offset(self) -> Offset:
        return Offset(self._end)

    def hold(self) -> None:
        self.is_held = True

    def release(self) -> None:
        self.is_held = False
        self._settle()

    def fence(self) -> None:
        """Somebody else owns the partition now."""
        self.is_fenced = True
        while self._pending:
            _, future, _ = self._pending.popleft()
            if not future.done():
                future.set_exception(Fenced("sealed"))

    def _enqueue(self, batch: bytes | None) -> "asyncio.Future[None]":
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        if self.is_fenced:
            future.set_exception(Fenced("sealed"))
        else:
            self._pending.append((batch, future, loop.time() + self.delay_s))
            loop.call_later(self.delay_s, self._settle)
        return future

    def _settle(self) -> None:
        now_s = asyncio.get_running_loop().time()
        while self._pending and not self.is_held and self._pending[0][2] <= now_s:
            batch, future, _ = self._pending.popleft()
            if batch is not None:
                self.disk.batches.append(batch)
                self.disk.next_offset = read_header(batch).next_offset
            if not future.done():
                future.set_result(None)

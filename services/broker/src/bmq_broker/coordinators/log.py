"""The log of a coordinator: one partition of an internal topic, owned by this broker (bmq.roles.log.CoordinatorLog)."""

import asyncio
from collections.abc import AsyncIterator, Sequence

import structlog
from typing_extensions import Buffer

from bmq.clocks.clock_guard import ClockGuard
from bmq.errors import BmqError, Corrupt, NotReady
from bmq.values import Offset
from bmq.wire.batches import Record, build_batch, read_header
from bmq_broker.coordinators.snapshots import CoordinatorSnapshots
from bmq_broker.partitions.partition import Partition
from bmq_broker.segments.reading import Segments
from bmq_broker.wal.commit import GroupCommit

log = structlog.get_logger()


class PartitionLog:
    """Implements CoordinatorLog over an open partition."""

    def __init__(
        self,
        partition: Partition,
        *,
        commit: GroupCommit,
        segments: Segments,
        snapshots: CoordinatorSnapshots,
        clock: ClockGuard,
    ) -> None:
        self._partition = partition
        self._commit = commit
        self._segments = segments
        self._snapshots = snapshots
        self._clock = clock

    def check_open(self) -> None:
        """Raises NotReady while the partition takes no batches."""
        if self._partition.stopped is not None:
            raise NotReady(f"nothing can be stored in {self._partition.tp} now: {self._partition.stopped}")

    def append(self, records: Sequence[tuple[bytes, bytes | None]]) -> "asyncio.Future[None]":
        """Appends the records to the partition as one batch, before it returns; the future resolves once it and all
        before are durable, and has what the append raises.
        """
        partition = self._partition
        now_ms = self._clock.now_ms()
        batch = build_batch(
            [Record(offset=0, timestamp_ms=now_ms, key=key, value=value, headers=()) for key, value in records],
            base_offset=partition.next_offset,
            leader_epoch=partition.leader_epoch,
        )
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        try:
            self._commit.append(partition, batch, read_header(batch), now_ms=now_ms)
        except BmqError as error:
            future.set_exception(error)
        else:
            self._commit.when_durable(partition, future, None)
        return future

    def barrier(self) -> "asyncio.Future[None]":
        """Resolves once everything appended to the partition so far is durable."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._commit.when_durable(self._partition, future, None)
        return future

    async def read_from(self, offset: Offset) -> AsyncIterator[Buffer]:
        """Every durable batch from the one that holds `offset` on: first those of segments, then those of the tail.
        Raises Corrupt where records are missing.
        """
        partition = self._partition
        await self.barrier()  # what an earlier coordinator here appended is part of the log, too
        at, end = int(offset), int(partition.high_watermark)
        if partition.log_start > at:
            raise self._gap(at, partition.log_start)
        tail = partition.tail.durable_batches()
        async for batch in self._segments.read_batches(partition.tp, partition.manifest, at):
            at = self._after(batch, at)
            yield batch
        for batch in tail:
            if read_header(batch).next_offset > at:
                at = self._after(batch, at)
                yield batch
        if at < end:
            raise self._gap(at, end)

    def _after(self, batch: Buffer, at: int) -> int:
        """The offset behind the batch, in which `at` is or with which it begins. Raises Corrupt where records are
        missing before it.
        """
        header = read_header(batch)
        if header.base_offset > at:
            raise self._gap(at, header.base_offset)
        return header.next_offset

    def _gap(self, start: int, end: int) -> Corrupt:
        return Corrupt(
            f"{self._partition.tp}: offsets {start} to {end - 1} are in no snapshot of the coordinator and not in "
            "the log, so what groups committed there is not known: restore the missing objects from a backup, or "
            "stop bmq and have bmq store check --repair go on without them"
        )

    async def load_snapshot(self) -> tuple[Offset, bytes] | None:
        """The newest snapshot that the manifest names, if any. One above the log's end, of which something was lost, is
        named anew at the end: what is appended next is behind it.
        """
        found = await self._snapshots.load(self._partition)
        if found is None:
            return None
        await self.barrier()
        end = self._partition.high_watermark
        if found[0] <= end:
            return found
        log.error(
            "records of a coordinator's log are lost that its snapshot holds: it goes on from there",
            partition=str(self._partition.tp),
            log_end=end,
            snapshot=found[0],
        )
        await self._snapshots.save(self._partition, end, found[1], ends_there=True)
        return end, found[1]

    async def save_snapshot(self, offset: Offset, data: bytes) -> None:
        """Stores a snapshot of everything below `offset`, and has the partition's manifest name it."""
        await self._snapshots.save(self._partition, offset, data)

    def high_watermark(self) -> Offset:
        """The partition's high watermark: everything below it is durable."""
        return self._partition.high_watermark

    def end_offset(self) -> Offset:
        """The offset that the partition's next record gets."""
        return self._partition.next_offset

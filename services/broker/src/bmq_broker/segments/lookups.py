"""Offsets by time, exact to the record."""

import asyncio
from bisect import insort
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from heapq import nlargest
from typing import Final, NamedTuple

import structlog
from typing_extensions import Buffer

from bmq.errors import BatchTooLarge, CorruptBatch, ObjectMissing, UnsupportedCompression, UnsupportedMessageFormat
from bmq.fairness.log_limit import RateLimited
from bmq.fairness.opening import Look, Opener
from bmq.fairness.turns import Party, Places, Turns
from bmq.roles.owner import OffsetForTime
from bmq.storage.segment import SegmentEntry
from bmq.values import LeaderEpoch, Offset, TopicPartition
from bmq.wire.batch_headers import NO_TIMESTAMP
from bmq.wire.batches import BatchHeader, first_at_or_after, read_header, with_max_timestamp
from bmq.wire.special_timestamps import EARLIEST, EARLIEST_LOCAL, LATEST, LATEST_TIERED, MAX_TIMESTAMP
from bmq_broker.metrics import UNREADABLE_BATCHES
from bmq_broker.partitions.partition import Partition
from bmq_broker.segments.manifests import Manifests
from bmq_broker.segments.reading import Segments
from bmq_broker.segments.roll_writing import PATIENCE_S, within

log = structlog.get_logger()

PLANS_MAX: Final = 5
"""How often a look-up begins again because a segment went meanwhile."""

SEGMENT_LOOK_UPS_AT_ONCE: Final = 32
"""Each holds what it reads of segments: a block, of up to 1 MiB or one batch, or a manifest's entries."""

TAIL_BATCHES_PER_TURN: Final = 500
"""Whose headers are read before others have their turn: about 2 ms."""

LOG_INTERVAL_S: Final = 10.0

NOWHERE: Final = OffsetForTime(offset=Offset(-1), timestamp_ms=-1, leader_epoch=LeaderEpoch(-1))


class _LookUp:
    """`who` asks: by whose turns it is done.

    Of what producers wrote a header says the largest time, and only opening the batch tells whether it is true: that is
    done for so many that it was not true of as it has `doubts`. Then headers are believed. What is found is then a
    batch's first offset, which is never above the record that was meant: who reads on from there misses nothing.

    A batch without records tells the time of what went elsewhere (bmq.wire.parting). It is not opened; a block of a
    segment that was read for the sake of such batches alone is doubted as one.
    """

    __slots__ = ("doubts", "who")

    def __init__(self, who: Party, doubts: int) -> None:
        self.who = who
        self.doubts = doubts

    def for_nothing(self, headers: list[BatchHeader]) -> list[BatchHeader]:
        """What is to be believed of a block that was read for nothing."""
        if not self.doubts:
            return headers
        self.doubts -= 1
        return []


class _Said(NamedTuple):
    """A batch, or a segment, and the largest timestamp that it says it has from this offset on."""

    max_timestamp_ms: int
    base_offset: int
    what: SegmentEntry | tuple[BatchHeader, Buffer]


def _rank(one: _Said) -> tuple[int, int]:
    """The highest is opened first: the largest timestamp, and of equals what comes first."""
    return one.max_timestamp_ms, -one.base_offset


class Lookups:
    """Looks in segments and in the tail; opens batches in a thread."""

    def __init__(self, segments: Segments, manifests: Manifests, *, false_batches_max: int) -> None:
        """`false_batches_max`: how many batches whose headers are not true one look-up opens."""
        self._false_batches_max = false_batches_max
        self._segments = segments
        self._manifests = manifests
        self._opener = Opener()
        self._turns = Turns()
        self._in_segments = Places(SEGMENT_LOOK_UPS_AT_ONCE, leaving=True)
        self._left_in_turn = TAIL_BATCHES_PER_TURN
        self._limit = RateLimited(interval_s=LOG_INTERVAL_S)

    async def offset_for_time(
        self, partition: Partition, timestamp_ms: int, *, committed: bool, address: str
    ) -> OffsetForTime:
        """The first record at or after a timestamp in ms, or the place that a negative one stands for in ListOffsets.
        `committed` makes no difference until there are transactions. `address` is its client's; "" where nobody knows.
        Raises StoreError, FormatError.
        """
        asked = _LookUp(_who(partition.tp, address), self._false_batches_max)
        match timestamp_ms:
            case _ if timestamp_ms == LATEST:
                return self._at(partition, partition.high_watermark, epoch=partition.leader_epoch)
            case _ if timestamp_ms in (EARLIEST, EARLIEST_LOCAL):
                return self._at(partition, partition.log_start)
            case _ if timestamp_ms == LATEST_TIERED:
                end = partition.manifest.next_offset - 1
                return NOWHERE if end < partition.log_start else self._at(partition, Offset(end))
            case _ if timestamp_ms == MAX_TIMESTAMP:
                return await self._in_turn(
                    partition, NO_TIMESTAMP, partial(self._max_timestamp, partition, asked), asked.who
                )
            case _ if timestamp_ms < 0:
                raise UnsupportedMessageFormat(f"{timestamp_ms} is not a timestamp to look up")
        look = partial(self._first_at_or_after, partition, timestamp_ms, asked)
        return await self._in_turn(partition, timestamp_ms, look, asked.who)

    async def _in_turn(
        self, partition: Partition, timestamp_ms: int, look: Callable[[], Awaitable[OffsetForTime]], who: Party
    ) -> OffsetForTime:
        """Where segments may have such a time, whatever is looked up waits for its turn. What a tail alone can answer
        does not wait. An address has no more of the places than it leaves: each is held for all batches that are opened
        for it, which have turns of their own."""
        if next(partition.manifest.entries_for_time(timestamp_ms), None) is None:
            return await look()
        address, sender = who
        async with self._in_segments.holding(party=address, sender=sender):
            return await self._planned(partition, look)

    async def _planned(self, partition: Partition, look: Callable[[], Awaitable[OffsetForTime]]) -> OffsetForTime:
        """A segment may be merged or expired and deleted while it is looked into: then it is planned again, from the
        newest manifest.
        """
        for _ in range(PLANS_MAX - 1):
            try:
                return await look()
            except ObjectMissing:
                async with self._manifests.lock(partition.tp):
                    await within(self._manifests.refresh(partition), PATIENCE_S)
        return await look()

    def _at(
        self, partition: Partition, offset: Offset, *, timestamp_ms: int = -1, epoch: LeaderEpoch | None = None
    ) -> OffsetForTime:
        return OffsetForTime(
            offset=offset,
            timestamp_ms=timestamp_ms,
            leader_epoch=partition.epoch_at(offset) if epoch is None else epoch,
        )

    async def _first_at_or_after(self, partition: Partition, timestamp_ms: int, asked: _LookUp) -> OffsetForTime:
        tail = partition.tail.durable_from(timestamp_ms)
        log_start = partition.log_start
        async for batch, header in self._candidates(partition, timestamp_ms, asked):
            if (found := await self._open(batch, header, timestamp_ms, log_start, asked)) is not None:
                return self._at(partition, Offset(found[0]), timestamp_ms=found[1])
        for batch in tail:
            await self._look_on(asked)
            header = read_header(batch)
            if header.max_timestamp_ms < timestamp_ms or header.last_offset < log_start or not header.record_count:
                continue
            if (found := await self._open(batch, header, timestamp_ms, log_start, asked)) is not None:
                return self._at(partition, Offset(found[0]), timestamp_ms=found[1])
        return NOWHERE

    async def _look_on(self, asked: _LookUp) -> None:
        """Before each batch of a tail: all look-ups together see few in one turn of the loop."""
        self._left_in_turn -= 1
        if self._left_in_turn < 0:
            address, sender = asked.who
            await self._turns.turn(party=address, sender=sender)
            self._left_in_turn = TAIL_BATCHES_PER_TURN

    async def _candidates(
        self, partition: Partition, timestamp_ms: int, asked: _LookUp
    ) -> AsyncIterator[tuple[Buffer, BatchHeader]]:
        """Batches of segments whose largest timestamp is at or above the time, in offset order."""
        manifest = partition.manifest
        log_start = manifest.log_start
        for page in manifest.pages:
            if page.max_timestamp_ms >= timestamp_ms and page.last_offset >= log_start:
                for entry in await self._segments.page(partition.tp, page):
                    async for found in self._in_segment(partition.tp, entry, timestamp_ms, log_start, asked):
                        yield found
        for entry in manifest.entries:
            async for found in self._in_segment(partition.tp, entry, timestamp_ms, log_start, asked):
                yield found

    async def _in_segment(
        self, tp: TopicPartition, entry: SegmentEntry, timestamp_ms: int, log_start: int, asked: _LookUp
    ) -> AsyncIterator[tuple[Buffer, BatchHeader]]:
        if entry.max_timestamp_ms < timestamp_ms or entry.last_offset < log_start or not entry.record_count:
            return
        index = await self._segments.index(tp, entry)
        position, _ = index.position_for_offset(log_start)
        while (
            position < index.length
            and (found := index.position_for_time(timestamp_ms, from_position=position)) is not None
        ):
            position = found[0]
            block, headers = await self._segments.block(entry, index, position)
            late = [one for one in headers if one.max_timestamp_ms >= timestamp_ms and one.last_offset >= log_start]
            held = [header for header in late if header.record_count]
            if late and not held:
                held = asked.for_nothing(late)
            for header in held:
                yield block[header.position : header.end], header._replace(position=0)
            position = index.block_end(position)

    async def _max_timestamp(self, partition: Partition, asked: _LookUp) -> OffsetForTime:
        """What says the largest time is opened first: where that is true it alone is. So no more are than are false,
        and one.
        """
        log_start, opened_max = partition.log_start, asked.doubts + 1
        tail = partition.tail.durable_batches()
        entries = await self._segments.entries(partition.tp, partition.manifest)
        said = [
            _Said(entry.max_timestamp_ms, entry.base_offset, entry)
            for entry in entries
            if entry.last_offset >= log_start and entry.record_count
        ]
        of_tail: list[_Said] = []
        for batch in tail:
            await self._look_on(asked)
            header = read_header(batch)
            if header.last_offset >= log_start and header.record_count:
                of_tail.append(_Said(header.max_timestamp_ms, header.base_offset, (header, batch)))
            if len(of_tail) >= opened_max + TAIL_BATCHES_PER_TURN:
                of_tail = nlargest(opened_max, of_tail, key=_rank)
        left = sorted([*said, *of_tail], key=_rank)
        best: tuple[int, int] | None = None  # (timestamp, -offset): the earliest of the largest
        while left and left[-1].max_timestamp_ms > (NO_TIMESTAMP if best is None else best[0]):
            one = left.pop()
            if not isinstance(one.what, SegmentEntry):
                header, batch = one.what
                best = await self._better(best, batch, header, log_start, asked)
                continue
            for header, batch in await self._max_blocks(partition.tp, one.what, log_start, asked):
                there = _Said(header.max_timestamp_ms, header.base_offset, one.what)
                if _rank(there) > _rank(one):
                    continue  # it was opened before
                if left and _rank(left[-1]) > _rank(there):
                    insort(left, there, key=_rank)
                    break
                best = await self._better(best, batch, header, log_start, asked)
        return NOWHERE if best is None else self._at(partition, Offset(-best[1]), timestamp_ms=best[0])

    async def _max_blocks(
        self, tp: TopicPartition, entry: SegmentEntry, log_start: int, asked: _LookUp
    ) -> list[tuple[BatchHeader, Buffer]]:
        """The batches of the first block whose largest timestamp is one of a batch with records, and of what blocks
        say a larger one, or are cut by the log start; the largest timestamp first.
        """
        index = await self._segments.index(tp, entry)
        start, base_offset = index.position_for_offset(log_start)
        blocks = [block for block in index.blocks if block.position >= start]
        # of one that the log start cuts it may be that of a deleted record
        cut = blocks[:1] if base_offset < log_start else []
        found: list[tuple[BatchHeader, Buffer]] = []
        for block in (*cut, *sorted(blocks[len(cut) :], key=lambda each: -each.max_timestamp_ms)):
            data, headers = await self._segments.block(entry, index, block.position)
            left = [header for header in headers if header.last_offset >= log_start]
            held = [header for header in left if header.record_count]
            is_true = any(header.max_timestamp_ms == block.max_timestamp_ms for header in held)
            is_last = block not in cut and (is_true or not asked.doubts)
            if block not in cut and not is_true:
                held = asked.for_nothing(left) or held
            found.extend((header._replace(position=0), data[header.position : header.end]) for header in held)
            if is_last:
                break
        return sorted(found, key=lambda one: (-one[0].max_timestamp_ms, one[0].base_offset))

    async def _open(
        self, batch: Buffer, header: BatchHeader, timestamp_ms: int, log_start: int, asked: _LookUp
    ) -> tuple[int, int] | None:
        if not asked.doubts:
            return self._believed(header, log_start)

        def look(batch: Buffer, header: BatchHeader, *, decompressed_bytes_max: int) -> tuple[int, int] | None:
            return first_at_or_after(
                batch, header, timestamp_ms, from_offset=log_start, decompressed_bytes_max=decompressed_bytes_max
            )

        found = await self._opened(look, batch, header, asked.who)
        asked.doubts -= found is None
        return found

    async def _better(
        self, best: tuple[int, int] | None, batch: Buffer, header: BatchHeader, log_start: int, asked: _LookUp
    ) -> tuple[int, int] | None:
        if header.max_timestamp_ms <= (NO_TIMESTAMP if best is None else best[0]):
            return best

        def look(batch: Buffer, header: BatchHeader, *, decompressed_bytes_max: int) -> tuple[int, int] | None:
            return with_max_timestamp(
                batch, header, from_offset=log_start, decompressed_bytes_max=decompressed_bytes_max
            )

        if asked.doubts:
            found = await self._opened(look, batch, header, asked.who)
            asked.doubts -= found is None or found[1] < header.max_timestamp_ms
        else:
            found = self._believed(header, log_start)
        if found is None or (best is not None and found[1] <= best[0]):
            return best
        return found[1], -found[0]

    def _believed(self, header: BatchHeader, log_start: int) -> tuple[int, int]:
        if (
            header.record_count
            and (left_out := self._limit.due("believed", now=asyncio.get_running_loop().time())) is not None
        ):
            log.warning(
                "times in batches are not what their headers say: a look-up by time found the first offset of a "
                "batch, and not of a record",
                offset=header.base_offset,
                remedy="set bmq.validation=records for the topic, or raise the limit false_batches_per_look_up",
                left_out=left_out,
            )
        return max(header.base_offset, log_start), header.max_timestamp_ms

    async def _opened(
        self, look: Look[tuple[int, int] | None], batch: Buffer, header: BatchHeader, who: Party
    ) -> tuple[int, int] | None:
        """What is found in the batch. One that cannot be opened (taken before batches were proved, or unproved as its
        topic asked) is passed over: it must not hide what comes after it."""
        try:
            address, sender = who
            return await self._opener.look(look, batch, header, party=address, sender=sender)
        except (CorruptBatch, BatchTooLarge, UnsupportedCompression) as error:
            UNREADABLE_BATCHES.inc()
            if (left_out := self._limit.due("unreadable", now=asyncio.get_running_loop().time())) is not None:
                log.warning(
                    "a batch cannot be opened: look-ups pass over it",
                    offset=header.base_offset,
                    error=str(error),
                    left_out=left_out,
                )
            return None


def _who(tp: TopicPartition, address: str) -> Party:
    """Those of whom nobody knows where they are, as a node of an older version does not say it, have turns as one
    address, and within it by topics.
    """
    return address, tp if address else tp.topic_id

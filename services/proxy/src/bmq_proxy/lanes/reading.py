"""Fetch in a lane: its own topics as everywhere, the base's capped in rate, and those that nobody has written to yet
are empty and are waited for.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from typing_extensions import Buffer

from bmq.errors import OffsetOutOfRange, UnknownTopic
from bmq.fairness.grouping import in_groups
from bmq.fairness.opening import Opener
from bmq.fairness.turns import NOBODY, Party, Turns
from bmq.metadata.image import Image
from bmq.values import TopicId, TopicPartition
from bmq.wire.batches import BatchHeader, split
from bmq_proxy.fetch.answers import Found, Read, Result, whole
from bmq_proxy.fetch.reader import FetchReader
from bmq_proxy.lanes.fallback.beginning import from_begin
from bmq_proxy.lanes.fallback.turns import LaneTurns
from bmq_proxy.lanes.quotas import Pace
from bmq_proxy.lanes.rate import RateCap
from bmq_proxy.lanes.views import LaneView

ENDS_KEPT_MAX: Final = 10_000
LOOKED_AT_PER_TURN: Final = 200
"""Topics that nobody in the lane has written to: for each it is worked out where it would begin, in a few ms for so
many."""


class BaseEnds:
    """What this proxy saw last of the base's partitions, whatever lane asked: it is said of them while nothing may be
    read.
    """

    def __init__(self) -> None:
        self._seen: dict[TopicPartition, Found] = {}

    def of(self, tps: Iterable[TopicPartition]) -> dict[TopicPartition, Found]:
        """What was seen of the partitions; those that were not seen are left out."""
        return {tp: self._seen[tp] for tp in tps if tp in self._seen}

    def remember(self, tp: TopicPartition, found: Found) -> None:
        """What was seen now; beyond `ENDS_KEPT_MAX` the oldest is forgotten."""
        if found.error is not None:
            self._seen.pop(tp, None)
            return
        if len(self._seen) >= ENDS_KEPT_MAX:
            del self._seen[next(iter(self._seen))]
        self._seen[tp] = found.without_records()


class LaneReader:
    """`FetchReader` for one lane's clients."""

    def __init__(
        self,
        reader: FetchReader,
        view: LaneView,
        ends: BaseEnds,
        turns: LaneTurns,
        *,
        opener: Opener,
        bytes_per_s: Callable[[], int],
        pace: Pace,
    ) -> None:
        """`opener` opens the batch in which a turn begins. `bytes_per_s`: what may be read of the base at present; it
        is asked for at each request. `pace`: how much the lane's clients may read, of whatever.
        """
        self._reader = reader
        self._view = view
        self._opener = opener
        self._bytes_per_s = bytes_per_s
        self._cap = RateCap(1)
        self._turns = Turns()
        self._ends = ends
        self._lane_turns = turns
        self._pace = pace
        self.memory = reader.memory

    async def read(
        self, reads: Sequence[Read], *, min_bytes: int, max_bytes: int, max_wait_ms: int, party: Party = NOBODY
    ) -> Result:
        """Reads the lane's own topics as everywhere and the base's as far as their rate has room, and finds those empty
        that nobody has written to yet. Where the lane falls back, its own are read in its turn, from where that began.
        """
        if not self._view.falls_back:
            return await self._read(
                reads, min_bytes=min_bytes, max_bytes=max_bytes, max_wait_ms=max_wait_ms, party=party
            )
        return await self._read_in_turn(
            reads, min_bytes=min_bytes, max_bytes=max_bytes, max_wait_ms=max_wait_ms, party=party
        )

    async def _from_begin(self, found: Found, begin: int, party: Party) -> Found:
        """Clients leave out what lies below the offset that they asked for: these asked for one below their turn."""
        if not found.parts:
            return found

        def look(batches: Buffer, _: BatchHeader, /, *, decompressed_bytes_max: int) -> Sequence[Buffer]:
            return from_begin([batches], begin, decompressed_bytes_max=decompressed_bytes_max)

        batches = whole(found.parts)
        [first] = split(batches, count_max=1)
        address, sender = party
        cut = await self._opener.look(look, batches[: first.end], first, party=address, sender=sender)
        parts = [*cut, batches[first.end :]] if first.end < batches.nbytes else cut
        return replace(found, parts=parts, size_bytes=sum(memoryview(part).nbytes for part in parts))

    async def _read_in_turn(
        self, reads: Sequence[Read], *, min_bytes: int, max_bytes: int, max_wait_ms: int, party: Party
    ) -> Result:
        until_s = _now_s() + max_wait_ms / 1000
        own = [read.tp for read in reads if self._view.is_own(read.tp.topic_id)]
        begins = await self._lane_turns.wait(own, until_s) if own else {}
        waiting = frozenset(own) - begins.keys()
        asked = [
            replace(read, offset=max(read.offset, begins.get(read.tp, read.offset)))
            for read in reads
            if read.tp not in waiting
        ]
        left_ms = max(0, int((until_s - _now_s()) * 1000)) if asked else 0
        result = await self._read(asked, min_bytes=min_bytes, max_bytes=max_bytes, max_wait_ms=left_ms, party=party)
        found = dict(zip((read.tp for read in asked), result.found, strict=True))
        cut = [read for read in reads if read.offset < begins.get(read.tp, read.offset)]
        for read in cut:
            found[read.tp] = await self._from_begin(found[read.tp], begins[read.tp], party)
        for tp, begin in begins.items():
            # It was over while records were waited for, and may be another one by now: what they are of is the base's.
            if self._lane_turns.begin(tp) != begin:
                found[tp] = found[tp].without_records()
        if waiting:
            theirs = [read for read in reads if read.tp in waiting]
            found |= zip((read.tp for read in theirs), await self._reader.ends(theirs), strict=True)
        result.found = [found[read.tp] for read in reads]
        return result

    async def _read(
        self, reads: Sequence[Read], *, min_bytes: int, max_bytes: int, max_wait_ms: int, party: Party
    ) -> Result:
        """Within what the lane's clients may read: where others were given it while this waited for records, it waits
        for its turn, and reads again.
        """
        until_s = _now_s() + max_wait_ms / 1000
        while True:
            if not self._pace.is_due:
                left_ms = min(max_wait_ms, max(0, int((until_s - _now_s()) * 1000)))
                few = self._pace.left_bytes(max_bytes)
                result = await self._read_any(
                    reads, min_bytes=min_bytes, max_bytes=few, max_wait_ms=left_ms, party=party
                )
                size_bytes = sum(one.size_bytes for one in result.found)
                if not size_bytes or not self._pace.is_due:
                    self._pace.take(size_bytes)
                    return result
                result.release()
            granted = await self._pace.grant(max_bytes, until_s, party=party)
            if not granted:
                return Result(await self._nothing_of(reads, party), 0, self.memory)
            size_bytes = 0
            try:
                result = await self._read_any(reads, min_bytes=min_bytes, max_bytes=granted, max_wait_ms=0, party=party)
                size_bytes = sum(one.size_bytes for one in result.found)
            finally:
                self._pace.settle(granted, size_bytes)
            if size_bytes or _now_s() >= until_s or any(one.error is not None for one in result.found):
                return result
            result.release()

    async def _nothing_of(self, reads: Sequence[Read], party: Party) -> list[Found]:
        """What is said of partitions while nothing may be read."""
        found = await self._found_unwritten(reads, party)
        theirs = {read.tp: read for read in reads if read.tp not in found}
        base = {tp: read for tp, read in theirs.items() if not self._view.is_own(tp.topic_id)}
        found |= await self._ends_of(base, party)
        own = [read for tp, read in theirs.items() if tp not in base]
        found |= zip((read.tp for read in own), await self._reader.ends(own), strict=True)
        return [found[read.tp] for read in reads]

    async def _found_unwritten(self, reads: Sequence[Read], party: Party) -> dict[TopicPartition, Found]:
        unwritten = [read for read in reads if not self._view.is_written(read.tp.topic_id)]
        begins = await self._begins({read.tp.topic_id for read in unwritten}, party)
        return {read.tp: _unwritten(read, begins[read.tp.topic_id]) for read in unwritten}

    async def _read_any(
        self, reads: Sequence[Read], *, min_bytes: int, max_bytes: int, max_wait_ms: int, party: Party
    ) -> Result:
        found = await self._found_unwritten(reads, party)
        unwritten = [read for read in reads if read.tp in found]
        base = {read.tp: read for read in reads if read.tp not in found and not self._view.is_own(read.tp.topic_id)}
        if not found and not base:
            return await self._reader.read(
                reads, min_bytes=min_bytes, max_bytes=max_bytes, max_wait_ms=max_wait_ms, party=party
            )
        if any(one.error is not None for one in found.values()):
            max_wait_ms = 0
        granted = self._grant() if base else 0
        asked = [read for read in reads if read.tp not in found]
        if base and not granted:
            max_wait_ms = min(max_wait_ms, int(self._cap.wait_s(_now_s()) * 1000) + 1)
            found |= await self._ends_of(base, party)
            asked = [read for read in asked if read.tp not in found]
        if not asked:
            await self._wait(unwritten, max_wait_ms)
            return Result([found[read.tp] for read in reads], 0, self.memory)
        share = granted // len(base) if granted else 0
        capped = [
            read if read.tp not in base else replace(read, max_bytes=min(read.max_bytes, max(1, share)))
            for read in asked
        ]
        used = 0
        try:
            result = await self._reader.read(
                capped, min_bytes=min_bytes, max_bytes=max_bytes, max_wait_ms=max_wait_ms, party=party
            )
            for read, one in zip(asked, result.found, strict=True):
                found[read.tp] = one
                if granted and read.tp in base:
                    used += one.size_bytes
                    self._ends.remember(read.tp, one)
                    if read.tp.topic_id not in self._view.image.topics:
                        found[read.tp] = Found(
                            error=UnknownTopic(f"{read.tp}: the lane has a topic of its own of that name by now")
                        )
        finally:
            if granted:
                self._cap.settle(granted, used)
        return Result([found[read.tp] for read in reads], result.held_bytes, result.memory)

    async def close(self) -> None:
        """Nothing of its own is under way."""

    async def _begins(self, topic_ids: Collection[TopicId], party: Party) -> dict[TopicId, int]:
        """Where each of these topics will begin."""
        begins: dict[TopicId, int] = {}
        for topic_id in topic_ids:
            if len(begins) % LOOKED_AT_PER_TURN == LOOKED_AT_PER_TURN - 1:
                await self._turns.turn(party=party)
            begins[topic_id] = self._view.first_offset(topic_id)
        return begins

    def _grant(self) -> int:
        bytes_per_s = max(1, self._bytes_per_s())
        if bytes_per_s != self._cap.bytes_per_s:
            self._cap = RateCap(bytes_per_s)
        return self._cap.grant(_now_s())

    async def _ends_of(self, base: Mapping[TopicPartition, Read], party: Party) -> dict[TopicPartition, Found]:
        """What is said of partitions of which nothing may be read now: where they end, as far as this proxy has seen.
        It costs none of the rate.
        """
        ends = self._ends.of(base)
        for reads in in_groups([read for tp, read in base.items() if tp not in ends], LOOKED_AT_PER_TURN):
            for read, found in zip(reads, await self._reader.ends(reads), strict=True):
                ends[read.tp] = found
                self._ends.remember(read.tp, found)
            await self._turns.turn(party=party)
        return ends

    async def _wait(self, unwritten: Sequence[Read], max_wait_ms: int) -> None:
        """Until the time is up, one of these topics is written to, or the lane is gone."""
        written: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def changed(_: Image, now: Image) -> None:
            if written.done():
                return
            if self._view.name not in now.lanes or any(self._view.is_written(read.tp.topic_id) for read in unwritten):
                written.set_result(None)

        unsubscribe = self._view.real.subscribe(changed)
        try:
            async with asyncio.timeout(max_wait_ms / 1000):
                await written
        except TimeoutError:
            pass
        finally:
            unsubscribe()


def _unwritten(read: Read, at: int) -> Found:
    if read.offset != at:
        return Found(
            error=OffsetOutOfRange(
                f"{read.tp}: nobody in the lane has written to it yet: it is empty, and ends at {at}"
            )
        )
    return Found(high_watermark=at, last_stable_offset=at, log_start=at)


def _now_s() -> float:
    return asyncio.get_running_loop().time()

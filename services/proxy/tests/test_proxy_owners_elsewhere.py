"""What a proxy fetches of owners in other processes is counted before it is fetched, however many read and however long
an owner takes.
"""

import asyncio
import weakref
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import pytest

from bmq.fairness.turns import NOBODY, Party
from bmq.metadata.image import Image
from bmq.roles.owner import Owner, TailAnswer, TailRequest, TailRoom
from bmq.values import LeaderEpoch, ManifestVersion, Offset, TopicId, TopicPartition
from bmq_proxy.budget import MemoryBudget
from bmq_proxy.fetch.answers import Read
from bmq_proxy.fetch.reader import ANSWER_SHARE, FetchReader
from bmq_proxy.fetch.turns import ReadTurns
from bmq_sim.loop import run

MIB = 1 << 20
MEMORY_BYTES = 16 * MIB
ALLOWED_BYTES = MEMORY_BYTES * 3 // 2 + MEMORY_BYTES // 8 + 2 * MIB
"""Answers, what is fetched, little answers, and the batch that is larger than what there was room for."""
TPS = [TopicPartition(TopicId(UUID(int=1)), number) for number in range(8)]


class Sent:
    """Knows how much of what was sent is alive."""

    def __init__(self) -> None:
        self.alive_bytes = 0
        self.most_bytes = 0

    def batch(self) -> memoryview:
        batch = memoryview(bytes(MIB))
        self.alive_bytes += MIB
        self.most_bytes = max(self.most_bytes, self.alive_bytes)
        weakref.finalize(batch, self._gone)
        return batch

    def _gone(self) -> None:
        self.alive_bytes -= MIB


class Elsewhere:
    """Implements what of Owner reads: each partition has one batch of a MiB at offset 0."""

    def __init__(self, sent: Sent, *, takes_s: float, end: int = 1) -> None:
        self.sent = sent
        self.takes_s = takes_s
        self.end = end
        self.refused = 0

    async def read_tail(
        self,
        requests: Sequence[TailRequest],
        *,
        min_bytes: int,
        max_bytes: int,
        max_wait_ms: int,
        room: TailRoom | None = None,
        party: Party = NOBODY,
    ) -> list[TailAnswer]:
        at_most = min(max_bytes, sum(request.max_bytes for request in requests))
        has_room = room is None or room.take(at_most)
        self.refused += not has_room
        await asyncio.sleep(self.takes_s)
        answers, left_bytes = [], max_bytes
        for request in requests:
            fits = request.offset < self.end and (left_bytes >= MIB or left_bytes == max_bytes)
            left_bytes -= MIB if fits else 0
            batches = (self.sent.batch(),) if fits and has_room else ()
            answers.append(
                TailAnswer(
                    tp=request.tp,
                    leader_epoch=LeaderEpoch(0),
                    manifest_version=ManifestVersion(0),
                    log_start=Offset(0),
                    tail_start=Offset(0),
                    high_watermark=Offset(self.end),
                    last_stable_offset=Offset(self.end),
                    batches=batches,
                    size_bytes=MIB * len(batches),
                    unsent_bytes=MIB if fits and not has_room else 0,
                )
            )
        if room is not None and has_room:
            room.settle(at_most, max_bytes - left_bytes)
        return answers


class Window:
    """Of what is read at one time while there are others."""

    def __init__(self) -> None:
        self.size_bytes = MEMORY_BYTES
        self.left_bytes = MEMORY_BYTES

    def began(self, size_bytes: int) -> None:
        self.left_bytes -= size_bytes

    def over(self, size_bytes: int, *, took_s: float, now: float) -> None:
        self.left_bytes += size_bytes

    def fits(self, size_bytes: int, now: float) -> bool:
        return size_bytes <= self.left_bytes

    def tell_rested(self, then: Any) -> None:
        """It never has to rest."""


class Others:
    """Implements what of Modest a proxy's reads ask."""

    def __init__(self, *, are_there: bool) -> None:
        self._are_there = are_there

    def are_there(self, now: float) -> bool:
        return self._are_there

    def window(self, **_: Any) -> Window:
        return Window()


class Metadata:
    image = Image()


def reader_of(*owners: Elsewhere, with_others: bool = False) -> FetchReader:
    def owner_for(tp: TopicPartition) -> Owner:
        return owners[tp.partition % len(owners)]  # type: ignore[return-value]

    turns = ReadTurns(Others(are_there=with_others), bytes_max=MEMORY_BYTES)  # type: ignore[arg-type]
    return FetchReader(owner_for, Metadata(), None, None, memory=MemoryBudget(MEMORY_BYTES), turns=turns)  # type: ignore[arg-type]


@pytest.mark.parametrize("slow_s", [0.01, 20.0], ids=["answers", "hangs"])
def test_hundreds_of_readers_hold_no_more_than_there_is_memory_for(slow_s: float) -> None:
    async def main() -> None:
        sent = Sent()
        owners = Elsewhere(sent, takes_s=0.01), Elsewhere(sent, takes_s=slow_s)
        reader = reader_of(*owners)
        got: list[int] = []

        async def read() -> None:
            reads = [Read(tp=tp, offset=0, max_bytes=MIB) for tp in TPS]
            result = await reader.read(reads, min_bytes=1, max_bytes=50 * MIB, max_wait_ms=500)
            await asyncio.sleep(0.1)
            got.append(sum(one.size_bytes for one in result.found))
            result.release()

        await asyncio.gather(*(read() for _ in range(300)))
        assert sent.most_bytes <= ALLOWED_BYTES
        assert owners[0].refused > 0
        assert sum(1 for size_bytes in got if size_bytes) >= 4
        assert (reader.memory.held_bytes, reader._asked.held_bytes, reader._small_memory.held_bytes) == (0, 0, 0)
        assert sent.alive_bytes == 0

    run(main())


@pytest.mark.parametrize("count", [1, 2, 8])
def test_of_many_owners_no_more_is_fetched_than_was_counted(count: int) -> None:
    async def main() -> None:
        sent = Sent()
        reader = reader_of(*(Elsewhere(sent, takes_s=0.01) for _ in range(count)))
        reader._asked.hold(MEMORY_BYTES)

        async def read() -> int:
            reads = [Read(tp=TopicPartition(TPS[0].topic_id, number), offset=0, max_bytes=MIB) for number in range(64)]
            result = await reader.read(reads, min_bytes=1, max_bytes=50 * MIB, max_wait_ms=500)
            size_bytes = sum(one.size_bytes for one in result.found)
            await asyncio.sleep(0.1)
            result.release()
            return size_bytes

        assert await read() == MEMORY_BYTES // ANSWER_SHARE
        assert sent.most_bytes == MEMORY_BYTES // ANSWER_SHARE
        assert sum(map(bool, await asyncio.gather(*(read() for _ in range(40))))) >= 4
        assert sent.most_bytes <= MEMORY_BYTES + 2 * MIB

    run(main())


def test_what_had_no_room_is_fetched_once_it_is_counted() -> None:
    async def main() -> None:
        owner = Elsewhere(Sent(), takes_s=0.01)
        reader = reader_of(owner)
        reader._asked.hold(MEMORY_BYTES)
        result = await reader.read(
            [Read(tp=tp, offset=0, max_bytes=MIB) for tp in TPS], min_bytes=1, max_bytes=3 * MIB, max_wait_ms=500
        )
        assert [one.size_bytes for one in result.found] == [MIB] * 3 + [0] * 5
        assert reader.memory.held_bytes == 3 * MIB
        assert owner.refused == 1

    run(main())


def test_who_reads_much_elsewhere_takes_a_turn_while_there_are_others() -> None:
    async def main() -> None:
        sent = Sent()
        reader = reader_of(Elsewhere(sent, takes_s=0.01), with_others=True)
        window = reader._turns.window
        window.began(MEMORY_BYTES)
        reads = [Read(tp=tp, offset=0, max_bytes=MIB) for tp in TPS]
        reading = asyncio.ensure_future(reader.read(reads, min_bytes=1, max_bytes=50 * MIB, max_wait_ms=500))
        await asyncio.sleep(1)
        assert (reading.done(), sent.most_bytes) == (False, 0)
        reader._turns.over(MEMORY_BYTES, 0.0)
        assert sum(one.size_bytes for one in (await reading).found) == MEMORY_BYTES // ANSWER_SHARE

    run(main())


def test_who_waits_for_more_holds_nothing_meanwhile() -> None:
    async def main() -> None:
        sent = Sent()
        owners = Elsewhere(sent, takes_s=0.01), Elsewhere(sent, takes_s=0.01, end=0)
        reader = reader_of(*owners)
        reads = [Read(tp=tp, offset=0, max_bytes=MIB) for tp in TPS[:2]]
        reading = asyncio.ensure_future(reader.read(reads, min_bytes=3 * MIB, max_bytes=50 * MIB, max_wait_ms=60))
        await asyncio.sleep(0.035)  # both were looked at, and are waited for
        assert not reading.done()
        assert sent.alive_bytes == 0
        assert reader._asked.held_bytes == 0
        assert [one.size_bytes for one in (await reading).found] == [MIB, 0]

    run(main())

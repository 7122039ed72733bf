"""A batch larger than a partition's limit is given to somebody in each Fetch, also while another partition of the
request cannot be read.
"""

import asyncio
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

from bmq.errors import StoreUnavailable
from bmq.metadata.image import Image
from bmq.roles.owner import TailAnswer
from bmq.values import LeaderEpoch, ManifestVersion, Offset, TopicId, TopicPartition
from bmq_proxy.budget import MemoryBudget
from bmq_proxy.fetch.answers import Read
from bmq_proxy.fetch.reader import BELOW_AT_ONCE, ROOM_WAIT_S, STORAGE_WAIT_S, FetchReader
from bmq_proxy.fetch.segments import Slice
from bmq_sim.loop import run

BATCH_BYTES = 2 << 20
BROKEN, ONE, TWO = (TopicPartition(TopicId(UUID(int=number)), 0) for number in (1, 2, 3))


class Owner:
    """Everything below offset 10 is in segments."""

    async def read_tail(self, requests: list[Any], **_: Any) -> list[TailAnswer]:
        return [
            TailAnswer(
                tp=asked.tp,
                leader_epoch=LeaderEpoch(0),
                manifest_version=ManifestVersion(1),
                log_start=Offset(0),
                tail_start=Offset(10),
                high_watermark=Offset(10),
                last_stable_offset=Offset(10),
            )
            for asked in requests
        ]


class Manifests:
    async def get(self, tp: TopicPartition, version: int) -> Any:
        if tp == BROKEN:
            raise StoreUnavailable("the store does not give its manifest")
        return SimpleNamespace(log_start=0, next_offset=10, last_stable_offset=10)

    async def run_from(self, tp: TopicPartition, manifest: Any, offset: int) -> Any:
        return SimpleNamespace(entries=(SimpleNamespace(base_offset=0),), at=0, newest=True)


@dataclass
class Segments:
    """Each with one batch."""

    read_times: int = field(default=0)

    async def read(
        self,
        tp: TopicPartition,
        entry: Any,
        offset: int,
        *,
        max_bytes: int,
        at_least_one: bool,
        pool: Any,
        following: Any,
        larger: Any,
    ) -> Slice:
        self.read_times += 1
        return (
            Slice([memoryview(bytes(BATCH_BYTES))], BATCH_BYTES, True)
            if at_least_one or max_bytes >= BATCH_BYTES
            else Slice()
        )


def reader_of(segments: Any, memory: MemoryBudget) -> FetchReader:
    turns: Any = SimpleNamespace(at_most=lambda size: size, begin=lambda size: SimpleNamespace(over=lambda: None))
    metadata: Any = SimpleNamespace(image=Image())
    owner, manifests = cast(Any, Owner()), cast(Any, Manifests())
    return FetchReader(lambda tp: owner, metadata, manifests, segments, memory=memory, turns=turns)


@pytest.mark.parametrize(
    ("order", "given"),
    [
        ((BROKEN, ONE), [ONE]),
        ((ONE, BROKEN), [ONE]),
        ((BROKEN, ONE, TWO), [ONE]),
        ((TWO, BROKEN, ONE), [TWO]),
        ((BROKEN, TWO, ONE), [TWO]),
    ],
)
def test_the_next_partition_has_its_turn_where_the_first_cannot_be_read(
    order: tuple[TopicPartition, ...], given: list[TopicPartition]
) -> None:
    async def main() -> None:
        reader = reader_of(Segments(), MemoryBudget(512 << 20))
        result = await reader.read(
            [Read(tp=tp, offset=0, max_bytes=1 << 20) for tp in order], min_bytes=1, max_bytes=50 << 20, max_wait_ms=0
        )
        assert [tp for tp, one in zip(order, result.found, strict=True) if one.size_bytes] == given
        assert all((one.error is not None) is (tp == BROKEN) for tp, one in zip(order, result.found, strict=True))
        result.release()

    asyncio.run(main())


@dataclass
class SlowSegments:
    """They answer nobody until `gate` is set."""

    gate: asyncio.Event
    begun: int = field(default=0)

    async def read(
        self,
        tp: TopicPartition,
        entry: Any,
        offset: int,
        *,
        max_bytes: int,
        at_least_one: bool,
        pool: Any,
        following: Any,
        larger: Any,
    ) -> Slice:
        self.begun += 1
        await self.gate.wait()
        return Slice([memoryview(bytes(10))], 10, True)


@pytest.mark.parametrize("answers", [True, False], ids=["the store answers", "the store hangs"])
def test_a_request_for_very_many_partitions_reads_few_of_them_at_a_time_and_waits_no_longer_than_for_one(
    answers: bool,
) -> None:
    """Each holds a block of a MiB while it waits for the next one, and the store's turn before those who ask later."""

    async def main() -> None:
        turns = SimpleNamespace(at_most=lambda size: size, begin=lambda size: SimpleNamespace(over=lambda: None))
        metadata: Any = SimpleNamespace(image=Image())
        segments = SlowSegments(asyncio.Event())
        reader = FetchReader(
            lambda tp: Owner(),  # type: ignore[arg-type, return-value]
            metadata,
            Manifests(),  # type: ignore[arg-type]
            segments,  # type: ignore[arg-type]
            memory=MemoryBudget(512 << 20),
            turns=turns,  # type: ignore[arg-type]
        )
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        reads = [Read(tp=TopicPartition(ONE.topic_id, number), offset=0, max_bytes=10) for number in range(1_000)]
        asked = loop.create_task(reader.read(reads, min_bytes=1, max_bytes=1 << 20, max_wait_ms=0))
        await asyncio.sleep(1)
        assert segments.begun == BELOW_AT_ONCE
        if answers:
            segments.gate.set()
        found = (await asked).found
        assert [one.size_bytes for one in found] == [10 if answers else 0] * len(reads)
        assert all((one.error is None) is answers for one in found)
        assert loop.time() - began_s <= STORAGE_WAIT_S + 1

    run(main())


@dataclass
class LargeSegments:
    """Each with one batch, which is in memory from when there was room for it until its reader lets go of it."""

    in_memory: int = 0
    most: int = 0
    refused: int = 0

    async def read(
        self, tp: TopicPartition, entry: Any, offset: int, *, max_bytes: int, larger: Any, **_: Any
    ) -> Slice:
        if max_bytes < BATCH_BYTES and not await larger(BATCH_BYTES - max_bytes):
            self.refused += 1
            return Slice()
        self.in_memory += 1
        self.most = max(self.most, self.in_memory)
        await asyncio.sleep(0.1)
        return Slice([memoryview(bytes(BATCH_BYTES))], BATCH_BYTES, True)


def test_first_batches_that_are_larger_than_was_asked_for_are_read_as_far_as_there_is_memory() -> None:
    async def main() -> None:
        segments, memory = LargeSegments(), MemoryBudget(4 * BATCH_BYTES + 100)
        reader = reader_of(segments, memory)

        async def read_one() -> int:
            result = await reader.read([Read(tp=ONE, offset=0, max_bytes=1)], min_bytes=1, max_bytes=1, max_wait_ms=0)
            assert memory.held_bytes <= memory.limit_bytes
            [found] = result.found
            await asyncio.sleep(0.1)  # until the client has taken it
            segments.in_memory -= found.size_bytes // BATCH_BYTES
            result.release()
            return found.size_bytes

        assert await asyncio.gather(*(read_one() for _ in range(40))) == [BATCH_BYTES] * 40
        assert (segments.most, segments.refused, memory.held_bytes) == (4, 0, 0)

    run(main())


def test_who_finds_no_memory_for_a_large_first_batch_is_answered_without_records_and_told_no_error() -> None:
    async def main() -> None:
        segments, memory = LargeSegments(), MemoryBudget(BATCH_BYTES)
        memory.hold(10)
        reader = reader_of(segments, memory)
        began_s = asyncio.get_running_loop().time()
        wanted = [Read(tp=tp, offset=0, max_bytes=1) for tp in (ONE, TWO, BROKEN)]
        result = await reader.read(wanted, min_bytes=1, max_bytes=1, max_wait_ms=0)
        assert [(one.size_bytes, one.high_watermark) for one in result.found[:2]] == [(0, 10), (0, 10)]
        assert [one.error for one in result.found[:2]] == [None, None]
        assert segments.refused == 1
        assert asyncio.get_running_loop().time() - began_s < ROOM_WAIT_S + 1
        result.release()
        assert memory.held_bytes == 10

    run(main())


def test_a_large_first_batch_waits_where_memory_is_used_up_and_is_not_read_before() -> None:
    async def main() -> None:
        segments, memory = LargeSegments(), MemoryBudget(2 * BATCH_BYTES)
        memory.hold(memory.limit_bytes)
        reader = reader_of(segments, memory)
        reading = asyncio.ensure_future(
            reader.read([Read(tp=ONE, offset=0, max_bytes=1)], min_bytes=1, max_bytes=1, max_wait_ms=0)
        )
        await asyncio.sleep(ROOM_WAIT_S / 2)
        assert (segments.most, segments.refused, reading.done()) == (0, 1, False)
        memory.release(memory.limit_bytes)
        result = await reading
        assert (result.found[0].size_bytes, segments.most) == (BATCH_BYTES, 1)
        result.release()
        assert memory.held_bytes == 0

    run(main())


def test_a_large_first_batch_is_read_in_a_turn_and_leaves_it() -> None:
    async def main() -> None:
        begun: list[int] = []
        over: list[bool] = []
        reader = reader_of(LargeSegments(), MemoryBudget(512 << 20))
        reader._turns.begin = lambda size: begun.append(size) or SimpleNamespace(over=lambda: over.append(True))  # type: ignore
        result = await reader.read([Read(tp=ONE, offset=0, max_bytes=1)], min_bytes=1, max_bytes=1, max_wait_ms=0)
        assert result.found[0].size_bytes == BATCH_BYTES
        assert (begun, over) == ([BATCH_BYTES - 1], [True])
        result.release()

    run(main())

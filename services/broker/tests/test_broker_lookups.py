"""Look-ups by time against a walk over every record: over pages, segments and the tail, with times that do not ascend,
above any log start.
"""

import asyncio
import threading
from dataclasses import replace
from itertools import count
from random import Random

import pytest
from broker_under_test import Cluster
from tests.waiting import until_async
from typing_extensions import Buffer

from bmq.errors import Corrupt, UnsupportedMessageFormat
from bmq.fairness.opening import ORDINARY_AT_ONCE
from bmq.storage.segment import SegmentEntry
from bmq.storage.segment_index import SegmentIndex
from bmq.values import Offset, TopicPartition
from bmq.wire.batches import BatchHeader, Record, build_batch, first_at_or_after
from bmq.wire.special_timestamps import LATEST_TIERED, MAX_TIMESTAMP
from bmq_broker.segments import lookups
from bmq_broker.segments.lookups import NOWHERE
from bmq_broker.segments.reading import Segments
from bmq_broker.settings import BrokerSettings
from bmq_sim.loop import on_virtual_time

PAGED = BrokerSettings(manifest_entries_max=4, merge_count=1000)
BEGIN_MS = 1_000


async def put(cluster: Cluster, tp: TopicPartition, rng: Random, times_ms: list[int], *, batches: int = 1) -> None:
    """Batches of some records, a few of them large enough for blocks of their own, in one WAL object."""
    appended = []
    for _ in range(batches):
        added = [BEGIN_MS + rng.randrange(1_000) for _ in range(rng.randrange(1, 5))]
        records = [
            Record(offset=at, timestamp_ms=time_ms, key=None, value=bytes(rng.choice((1, 2_000))), headers=())
            for at, time_ms in enumerate(added)
        ]
        appended.append(cluster.broker.owner.append(tp, build_batch(records), produce_version=9))
        times_ms += added
    await asyncio.gather(*appended)


async def check(cluster: Cluster, tp: TopicPartition, times_ms: list[int], *, log_start: int) -> None:
    """Every time is found where a walk finds it."""
    left = list(enumerate(times_ms))[log_start:]
    for asked_ms in sorted({*times_ms[::5], *(time_ms + 1 for time_ms in times_ms[::5]), 0, max(times_ms) + 1}):
        found = await cluster.broker.owner.offset_for_time(tp, asked_ms)
        expected = next(((offset, time_ms) for offset, time_ms in left if time_ms >= asked_ms), (-1, -1))
        assert (found.offset, found.timestamp_ms) == expected, asked_ms
    found = await cluster.broker.owner.offset_for_time(tp, MAX_TIMESTAMP)
    expected = max(left, key=lambda each: (each[1], -each[0]), default=(-1, -1))
    assert (found.offset, found.timestamp_ms) == expected


@pytest.mark.parametrize("seed", range(2))
@on_virtual_time
async def test_every_time_is_found_where_a_walk_over_all_records_finds_it(seed: int) -> None:
    rng = Random(seed)
    cluster = Cluster(settings=PAGED)
    await cluster.start()
    (tp,) = await cluster.topic("orders")
    times_ms: list[int] = []
    for _ in range(9):
        await put(cluster, tp, rng, times_ms, batches=rng.randrange(1, 8))
        await cluster.roll(tp)
    for _ in range(2):
        await put(cluster, tp, rng, times_ms, batches=4)
    partition = await cluster.broker._ownership.open(tp)
    assert len(partition.manifest.pages) >= 2
    assert partition.tail_start < len(times_ms)
    for log_start in range(len(times_ms) + 1):
        await cluster.broker.owner.delete_records(tp, Offset(log_start))
        await check(cluster, tp, times_ms, log_start=log_start)
    await cluster.stop()


@on_virtual_time
async def test_the_last_offset_in_segments_is_told_by_its_epoch_and_nowhere_where_there_is_none() -> None:
    cluster = Cluster()
    await cluster.start()
    (tp,) = await cluster.topic("orders")
    owner = cluster.broker.owner
    await cluster.append(tp, b"a")
    assert await owner.offset_for_time(tp, LATEST_TIERED) == NOWHERE
    await cluster.roll(tp)
    await cluster.append(tp, b"b")
    first = await owner.offset_for_time(tp, LATEST_TIERED)
    assert first.offset == 0
    await cluster.kill()
    await cluster.start("again")
    owner = cluster.broker.owner
    await cluster.append(tp, b"c")
    await cluster.roll(tp)
    then = await owner.offset_for_time(tp, LATEST_TIERED)
    assert then.offset == 2
    assert then.leader_epoch > first.leader_epoch
    await owner.delete_records(tp, Offset(2))
    assert (await owner.offset_for_time(tp, LATEST_TIERED)).offset == 2
    await owner.delete_records(tp, Offset(3))
    assert await owner.offset_for_time(tp, LATEST_TIERED) == NOWHERE
    with pytest.raises(UnsupportedMessageFormat):
        await owner.offset_for_time(tp, -6)
    await cluster.stop()


@on_virtual_time
async def test_what_is_rolled_while_it_is_looked_for_is_found_once_and_where_it_is() -> None:
    """The tail that a look-up took and the manifest that it took are of one moment, however long the store then
    takes.
    """
    cluster = Cluster(settings=PAGED)
    await cluster.start()
    (tp,) = await cluster.topic("orders")
    rng, times_ms = Random(7), list[int]()
    for number in count():
        await put(cluster, tp, rng, times_ms)
        if number == 20:
            break
        looking = asyncio.ensure_future(check(cluster, tp, list(times_ms), log_start=0)) if number % 5 == 4 else None
        if number % 2:
            await cluster.roll(tp)
        if looking is not None:
            await looking
    await cluster.stop()


GREEDY, MODEST = "/10.0.0.1", "/10.0.0.2"


class LooksIntoSegments:
    """Counts them, each a second long, and says whose were answered in which order."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, cluster: Cluster) -> None:
        self._cluster = cluster
        self._looking = self.most = 0
        self.answered: list[str | TopicPartition] = []
        index = Segments.index

        async def counted(segments: Segments, tp: TopicPartition, entry: SegmentEntry) -> SegmentIndex:
            self._looking += 1
            self.most = max(self.most, self._looking)
            try:
                await asyncio.sleep(1)
            finally:
                self._looking -= 1
            return await index(segments, tp, entry)

        monkeypatch.setattr(Segments, "index", counted)

    def begin(self, tp: TopicPartition, timestamp_ms: int, *, address: str = "") -> "asyncio.Task[None]":
        async def look() -> None:
            found = await self._cluster.broker.owner.offset_for_time(tp, timestamp_ms, address=address)
            assert found.offset >= 0
            self.answered.append(address or tp)

        return asyncio.create_task(look())


async def in_segments(cluster: Cluster, *names: str) -> list[TopicPartition]:
    """One partition of each topic, with a record in a segment and one in the tail."""
    found = []
    for name in names:
        (tp,) = await cluster.topic(name)
        await cluster.append(tp, b"old")
        await cluster.roll(tp)
        await cluster.append(tp, b"new")
        found.append(tp)
    return found


@on_virtual_time
async def test_few_look_ups_read_segments_at_once_and_no_address_waits_for_all_of_another_ones_topics(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lookups, "SEGMENT_LOOK_UPS_AT_ONCE", 4)
    cluster = Cluster(settings=PAGED)
    await cluster.start()
    *greedy, modest = await in_segments(cluster, *(f"greedy-{number}" for number in range(10)), "modest")
    looks = LooksIntoSegments(monkeypatch, cluster)
    tasks = [looks.begin(tp, asked_ms, address=GREEDY) for tp in greedy for asked_ms in (0, MAX_TIMESTAMP)]
    await asyncio.sleep(0.5)
    assert looks.most == 2, "one address leaves as many as it has"
    gone = looks.begin(modest, 0, address=MODEST)
    tasks.append(looks.begin(modest, 0, address=MODEST))
    await asyncio.sleep(0)
    gone.cancel()
    await asyncio.gather(*tasks)
    assert looks.most == 3
    assert looks.answered.index(MODEST) <= 2, "it did not wait for a place"
    await cluster.stop()


@on_virtual_time
async def test_clients_of_whom_nobody_knows_where_they_are_wait_by_turns_of_topics_and_nobody_else_for_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lookups, "SEGMENT_LOOK_UPS_AT_ONCE", 4)
    cluster = Cluster(settings=PAGED)
    await cluster.start()
    greedy, modest = await in_segments(cluster, "greedy", "modest")
    looks = LooksIntoSegments(monkeypatch, cluster)
    tasks = [looks.begin(greedy, asked_ms) for asked_ms in [0, MAX_TIMESTAMP] * 10]
    await asyncio.sleep(0.5)
    tasks += [looks.begin(modest, 0), looks.begin(modest, 0, address=MODEST)]
    await asyncio.gather(*tasks)
    assert looks.answered.index(MODEST) <= 2
    assert looks.answered.index(modest) <= 5, "two were there before, and then both topics go by turns"
    await cluster.stop()


@pytest.mark.parametrize("rolled", [False, True], ids=["tail", "segments"])
def test_no_address_waits_for_more_than_one_of_the_batches_that_are_opened_for_another_ones_topics(
    monkeypatch: pytest.MonkeyPatch, rolled: bool
) -> None:
    opened: list[int] = []
    may_end = threading.Semaphore(0)

    def opens(batch: Buffer, header: BatchHeader, timestamp_ms: int, **how: int) -> tuple[int, int] | None:
        opened.append(timestamp_ms)
        assert may_end.acquire(timeout=30)
        return first_at_or_after(batch, header, timestamp_ms, **how)

    monkeypatch.setattr(lookups, "first_at_or_after", opens)

    async def main() -> None:
        cluster = Cluster()
        await cluster.start()
        tps = [(await cluster.topic(f"topic-{number}"))[0] for number in range(20)]
        for tp in tps:
            await cluster.append(tp, b"one")
            if rolled:
                await cluster.roll(tp)
        owner = cluster.broker.owner
        looks = [asyncio.create_task(owner.offset_for_time(tp, 1, address=GREEDY)) for tp in tps]
        await until_async(lambda: len(opened) == ORDINARY_AT_ONCE, "two batches to be opened")
        looks.append(asyncio.create_task(owner.offset_for_time(tps[0], 2, address=MODEST)))
        waiting = owner._lookups._opener._ordinary._places._waiting
        await until_async(lambda: waiting.parties == 2, "both to wait for their turn")
        may_end.release(1)
        await until_async(lambda: len(opened) > ORDINARY_AT_ONCE, "the next batch to be opened")
        assert opened == [1, 1, 2]
        may_end.release(len(looks))
        assert {one.offset for one in await asyncio.gather(*looks)} == {0}
        await cluster.stop()

    asyncio.run(main())


@pytest.mark.parametrize(
    "byte",
    [
        pytest.param(7, id="base offset"),
        pytest.param(11, id="length"),
        pytest.param(15, id="leader epoch"),
        pytest.param(26, id="last offset delta"),
        pytest.param(42, id="largest timestamp"),
        pytest.param(70, id="records"),
    ],
)
@on_virtual_time
async def test_no_look_up_believes_a_block_whose_batches_are_not_those_that_were_written(byte: int) -> None:
    cluster = Cluster()
    await cluster.start()
    (tp,) = await cluster.topic("orders")
    times_ms = [1_000, 3_000, 2_000, 4_000]
    for time_ms in times_ms:
        await cluster.broker.owner.append(tp, build_batch([Record(0, time_ms, None, b"value", ())]), produce_version=9)
    await cluster.roll(tp)
    await check(cluster, tp, times_ms, log_start=0)
    [entry] = (await cluster.broker._ownership.open(tp)).manifest.entries
    stored = cluster.store.objects[entry.key]
    at = entry.position + entry.length // 4 + byte  # in the second of four batches
    data = bytearray(stored.data)
    data[at] ^= 0x40
    cluster.store.objects[entry.key] = replace(stored, data=bytes(data))
    for asked_ms in (1_500, 4_000, MAX_TIMESTAMP):
        with pytest.raises(Corrupt, match="restore it from a backup"):
            await cluster.broker.owner.offset_for_time(tp, asked_ms)
    await cluster.stop()


@on_virtual_time
async def test_no_look_up_believes_another_partitions_index() -> None:
    cluster = Cluster()
    await cluster.start()
    (tp, other) = await cluster.topic("orders", partitions=2)
    for each in (tp, other):
        await cluster.broker.owner.append(each, build_batch([Record(0, 1_000, None, b"value", ())]), produce_version=9)
        await cluster.roll(each)
    [entry], [anothers] = [(await cluster.broker._ownership.open(each)).manifest.entries for each in (tp, other)]
    cluster.store.objects[entry.key] = cluster.store.objects[anothers.key]
    with pytest.raises(Corrupt, match="restore it from a backup"):
        await cluster.broker.owner.offset_for_time(tp, 0)
    await cluster.stop()

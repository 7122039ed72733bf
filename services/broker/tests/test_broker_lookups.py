"""Look-ups by time against a walk over every record: over pages, segments and the tail, with times that do not ascend,
above any log start.
"""

import asyncio
from dataclasses import replace
from itertools import count
from random import Random

import pytest
from broker_under_test import Cluster

from bmq.errors import Corrupt, UnsupportedMessageFormat
from bmq.storage.segment import SegmentEntry
from bmq.storage.segment_index import SegmentIndex
from bmq.values import Offset, TopicPartition
from bmq.wire.batches import Record, build_batch
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


@on_virtual_time
async def test_few_look_ups_read_segments_at_once_and_no_topic_waits_for_all_of_another_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lookups, "SEGMENT_LOOK_UPS_AT_ONCE", 3)
    cluster = Cluster(settings=PAGED)
    await cluster.start()
    (greedy,) = await cluster.topic("greedy")
    (modest,) = await cluster.topic("modest")
    for tp in (greedy, modest):
        await cluster.append(tp, b"old")
        await cluster.roll(tp)
        await cluster.append(tp, b"new")
    owner, looking, most, answered = cluster.broker.owner, 0, 0, list[TopicPartition]()
    index = Segments.index

    async def counted(segments: Segments, tp: TopicPartition, entry: SegmentEntry) -> SegmentIndex:
        nonlocal looking, most
        looking += 1
        most = max(most, looking)
        await asyncio.sleep(1)
        looking -= 1
        return await index(segments, tp, entry)

    async def look(tp: TopicPartition, timestamp_ms: int) -> None:
        assert (await owner.offset_for_time(tp, timestamp_ms)).offset >= 0
        answered.append(tp)

    monkeypatch.setattr(Segments, "index", counted)
    tasks = [asyncio.create_task(look(greedy, asked_ms)) for asked_ms in [0, MAX_TIMESTAMP] * 10]
    await asyncio.sleep(0.5)
    gone = asyncio.create_task(look(modest, 0))
    tasks.append(asyncio.create_task(look(modest, 0)))
    await asyncio.sleep(0)
    gone.cancel()
    await asyncio.gather(*tasks)
    assert most == 3
    assert answered.index(modest) <= 6  # three were there before, and then all go by turns
    await cluster.stop()


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

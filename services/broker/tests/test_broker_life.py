"""A broker over a store: what it acknowledges is there afterwards, whatever happens to it."""

import asyncio
from random import Random

import pytest
from broker_under_test import Cluster, small

from bmq.errors import CorruptBatch, Fenced, OffsetOutOfRange, OutOfOrderSequence
from bmq.values import Offset
from bmq_sim.loop import on_virtual_time
from bmq_sim.store import SimStore, StoreFaults


@on_virtual_time
async def test_what_was_acknowledged_is_read_and_is_there_after_a_kill() -> None:
    cluster = Cluster()
    await cluster.start()
    (tp,) = await cluster.topic("orders")
    first = await cluster.append(tp, b"a", b"b")
    second = await cluster.append(tp, b"c")
    assert (first.base_offset, second.base_offset) == (0, 2)
    assert (await cluster.tail(tp, 0)).high_watermark == 3
    await cluster.kill()
    await cluster.start("again")
    assert await cluster.read_all(tp) == [(0, b"a"), (1, b"b"), (2, b"c")]
    third = await cluster.append(tp, b"d")
    assert third.base_offset == 3
    await cluster.roll(tp)
    await cluster.kill()
    await cluster.start("once more")
    assert await cluster.read_all(tp) == [(0, b"a"), (1, b"b"), (2, b"c"), (3, b"d")]
    await cluster.stop()


@on_virtual_time
async def test_a_clean_stop_hands_over_and_its_stream_goes_once_it_is_covered() -> None:
    cluster = Cluster()
    await cluster.start()
    (tp,) = await cluster.topic("orders")
    await cluster.append(tp, b"a")
    await cluster.stop()
    await cluster.start("again")
    assert cluster.controller.metadata.image.partition(tp).ranges  # type: ignore[union-attr]
    await cluster.roll(tp)
    await asyncio.sleep(30)
    assert cluster.controller.metadata.image.partition(tp).ranges == ()  # type: ignore[union-attr]
    await asyncio.sleep(200)
    assert [key for key in cluster.store.keys("wal/") if "/00000000000000000001/" in key][:-1] == []  # its seal stays
    assert await cluster.read_all(tp) == [(0, b"a")]
    await cluster.stop()


@on_virtual_time
async def test_a_waiting_reader_wakes_when_a_batch_is_durable_and_not_before() -> None:
    cluster = Cluster(SimStore(faults=StoreFaults(latency_s_min=0.05, latency_s_max=0.05)))
    await cluster.start()
    (tp,) = await cluster.topic("orders")
    await cluster.append(tp, b"warm")
    waiting = asyncio.ensure_future(cluster.tail(tp, 1, max_wait_ms=5000))
    await asyncio.sleep(0.01)
    began_s = asyncio.get_running_loop().time()
    appended = cluster.append(tp, b"a")
    answer = await waiting
    assert appended.done()
    assert answer.high_watermark == 2
    assert answer.size_bytes > 0
    assert 0.049 < asyncio.get_running_loop().time() - began_s < 0.1
    await cluster.stop()


@on_virtual_time
async def test_a_duplicate_in_flight_is_answered_when_the_first_is_durable() -> None:
    cluster = Cluster(SimStore(faults=StoreFaults(latency_s_min=0.05, latency_s_max=0.05)))
    await cluster.start()
    (tp,) = await cluster.topic("orders")
    await cluster.append(tp, b"warm")
    first = cluster.append(tp, b"a", producer_id=5, producer_epoch=0, base_sequence=0)
    second = cluster.append(tp, b"a", producer_id=5, producer_epoch=0, base_sequence=0)
    await asyncio.sleep(0.01)
    assert not first.done()
    assert not second.done()
    assert (await first).base_offset == (await second).base_offset == 1
    with pytest.raises(OutOfOrderSequence):
        await cluster.append(tp, b"c", producer_id=5, producer_epoch=0, base_sequence=2)
    await cluster.kill()
    await cluster.start("again")
    assert (await cluster.append(tp, b"a", producer_id=5, producer_epoch=0, base_sequence=0)).base_offset == 1
    await cluster.roll(tp)
    await cluster.kill()
    await cluster.start("once more")
    assert (await cluster.append(tp, b"a", producer_id=5, producer_epoch=0, base_sequence=0)).base_offset == 1
    assert (await cluster.append(tp, b"b", producer_id=5, producer_epoch=0, base_sequence=1)).base_offset == 2
    await cluster.stop()


@on_virtual_time
async def test_a_replaced_broker_says_nothing_more_and_is_told() -> None:
    store = SimStore()
    old = Cluster(store)
    await old.start("old")
    (tp,) = await old.topic("orders")
    await old.append(tp, b"a")
    new = Cluster(store, seed=1)
    await new.start("new")
    with pytest.raises(Fenced):
        await old.append(tp, b"lost")
    assert old.fenced
    with pytest.raises(Fenced):
        await old.append(tp, b"lost as well")
    with pytest.raises(Fenced):
        await old.broker.owner.offset_for_time(tp, -1)
    assert await new.read_all(tp) == [(0, b"a")]
    await new.append(tp, b"b")
    assert await new.read_all(tp) == [(0, b"a"), (1, b"b")]
    await old.kill()
    await new.stop()


@on_virtual_time
async def test_an_idle_replaced_broker_does_not_say_latest() -> None:
    store = SimStore()
    old = Cluster(store)
    await old.start("old")
    (tp,) = await old.topic("orders")
    await old.append(tp, b"a")
    new = Cluster(store, seed=1)
    await new.start("new")
    await new.append(tp, b"b")
    for ask in (
        old.broker.owner.offset_for_time(tp, -1),
        old.tail(tp, 5),
        old.broker.owner.delete_records(tp, Offset(1)),
    ):
        with pytest.raises(Fenced):
            await ask
    await old.kill()
    await new.stop()


@on_virtual_time
async def test_memory_and_wal_stay_within_their_budgets_under_load() -> None:
    cluster = Cluster(SimStore(faults=StoreFaults(latency_s_min=0.001, latency_s_max=0.02)), settings=small())
    await cluster.start()
    tps = await cluster.topic("orders", partitions=4, configs={"segment.bytes": "1048576"})
    expected: dict[int, list[tuple[int, bytes]]] = {index: [] for index in range(4)}
    for number in range(400):
        index = number % 4 if number % 40 else 3
        value = b"%d" % number + bytes(100)
        appended = await cluster.append(tps[index], value)
        expected[index].append((appended.base_offset, value))
    await asyncio.sleep(1)
    assert cluster.broker._roller.tail_bytes <= 4000 + 1000
    assert cluster.broker._commit.wal_bytes <= 4000 + 2000
    for index, tp in enumerate(tps):
        assert await cluster.read_all(tp) == expected[index]
    await cluster.kill()
    await cluster.start("again")
    for index, tp in enumerate(tps):
        assert await cluster.read_all(tp) == expected[index]
    await cluster.stop()


@on_virtual_time
async def test_offsets_for_times_are_exact_to_the_record_in_segments_and_in_the_tail() -> None:
    cluster = Cluster()
    await cluster.start()
    (tp,) = await cluster.topic("orders")
    times: list[int] = []
    rng = Random(3)
    for number in range(60):
        await asyncio.sleep(rng.choice([0.0, 1.0, 2.5]))
        times.extend([cluster.clock.now_ms()] * 2)
        await cluster.append(tp, b"x", b"y")
        if number in (20, 40):
            await cluster.roll(tp)
    owner = cluster.broker.owner
    for asked in range(min(times) - 1500, max(times) + 1500, 500):
        found = await owner.offset_for_time(tp, asked)
        expected = next((offset for offset, time in enumerate(times) if time >= asked), -1)
        assert found.offset == expected
        assert found.timestamp_ms == (times[expected] if expected >= 0 else -1)
    assert (await owner.offset_for_time(tp, -1)).offset == 120
    assert (await owner.offset_for_time(tp, -2)).offset == 0
    newest = await owner.offset_for_time(tp, -3)
    assert (newest.offset, newest.timestamp_ms) == (times.index(max(times)), max(times))
    await cluster.stop()


@on_virtual_time
async def test_deleted_records_stay_deleted_and_their_segments_go() -> None:
    cluster = Cluster()
    await cluster.start()
    (tp,) = await cluster.topic("orders")
    for number in range(10):
        await cluster.append(tp, b"%d" % number)
        if number == 4:
            await cluster.roll(tp)
    assert await cluster.broker.owner.delete_records(tp, Offset(7)) == 7
    assert isinstance((await cluster.tail(tp, 6)).error, OffsetOutOfRange)
    assert await cluster.read_all(tp) == [(7, b"7"), (8, b"8"), (9, b"9")]
    with pytest.raises(OffsetOutOfRange):
        await cluster.broker.owner.delete_records(tp, Offset(11))
    await asyncio.sleep(700)
    assert len([key for key in cluster.store.keys("topics/") if "/segment/" in key]) == 1
    await cluster.kill()
    await cluster.start("again")
    assert await cluster.read_all(tp) == [(7, b"7"), (8, b"8"), (9, b"9")]
    assert await cluster.broker.owner.delete_records(tp, Offset(-1)) == 10
    assert (await cluster.append(tp, b"10")).base_offset == 10
    assert await cluster.read_all(tp) == [(10, b"10")]
    await cluster.stop()


@on_virtual_time
async def test_old_records_go_by_time_and_many_by_size() -> None:
    cluster = Cluster()
    await cluster.start()
    (by_time,) = await cluster.topic("by-time", configs={"retention.ms": "100000"})
    (by_size,) = await cluster.topic("by-size", configs={"retention.bytes": "300", "retention.ms": "-1"})
    for number in range(6):
        for tp in (by_time, by_size):
            await cluster.append(tp, b"%d" % number)
            await cluster.roll(tp)
        await asyncio.sleep(30)
    await asyncio.sleep(61)
    assert next(offset for offset, _ in await cluster.read_all(by_time)) >= 3
    assert 4 <= len(await cluster.read_all(by_size)) < 6
    await asyncio.sleep(200)
    assert await cluster.read_all(by_time) == []
    assert (await cluster.append(by_time, b"new")).base_offset == 6
    await cluster.stop()


@on_virtual_time
async def test_quiet_segments_are_merged_and_read_the_same() -> None:
    cluster = Cluster(settings=small())
    await cluster.start()
    (tp,) = await cluster.topic("orders")
    for number in range(20):
        await cluster.append(tp, b"%d" % number)
        await cluster.roll(tp)
    before = await cluster.read_all(tp)
    await asyncio.sleep(70)
    partition = await cluster.broker._ownership.open(tp)
    assert partition.manifest.segment_count < 8
    assert await cluster.read_all(tp) == before
    await asyncio.sleep(700)
    assert len([key for key in cluster.store.keys("topics/") if "/segment/" in key]) == partition.manifest.segment_count
    await cluster.kill()
    await cluster.start("again")
    assert await cluster.read_all(tp) == before
    await cluster.stop()


@on_virtual_time
async def test_a_batch_with_a_wrong_checksum_is_refused() -> None:
    cluster = Cluster()
    await cluster.start()
    (tp,) = await cluster.topic("orders")
    from bmq.wire.batches import Record, build_batch

    batch = bytearray(build_batch([Record(offset=0, timestamp_ms=0, key=None, value=b"v", headers=())]))
    batch[-1] ^= 1
    with pytest.raises(CorruptBatch):
        await cluster.broker.owner.append(tp, bytes(batch), produce_version=9)
    await cluster.stop()


@on_virtual_time
async def test_a_tail_of_many_segments_is_rolled_though_nothing_more_arrives() -> None:
    cluster = Cluster(SimStore(faults=StoreFaults(latency_s_min=0.01, latency_s_max=0.01)))
    await cluster.start()
    (tp,) = await cluster.topic("orders", configs={"segment.bytes": "65536"})
    for _ in range(40):
        await cluster.append(tp, bytes(20_000))
    await asyncio.sleep(5)
    assert (await cluster.broker._ownership.open(tp)).tail.size_bytes < 65_536
    await cluster.stop()

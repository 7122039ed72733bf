"""What a broker does when something unusual happens in the middle of something else: nothing is lost, reordered, or
left waiting.
"""

import asyncio

import pytest
from broker_under_test import Cluster, image_with, partition_log, small
from held_store import HeldStore
from tests.waiting import until_async

from bmq.errors import InvalidProducerEpoch, NotOwner, NotReady, OutOfOrderSequence, UnknownOutcome
from bmq.metadata.image import Image
from bmq.metadata.records import PartitionChange
from bmq.roles.owner import Caller
from bmq.values import Offset, TopicPartition
from bmq.wire.batches import Record, build_batch
from bmq.wire.message import Message
from bmq_sim.loop import on_virtual_time
from bmq_sim.store import SimStore, StoreFaults

SLOW = StoreFaults(latency_s_min=0.05, latency_s_max=0.05)


def moved_to_another_node(image: Image, tp: TopicPartition) -> Image:
    meta = image.partition(tp)
    assert meta is not None
    change = PartitionChange(
        topic_id=tp.topic_id, partition=tp.partition, node_id=9, broker_epoch=9, leader_epoch=meta.leader_epoch + 1
    )
    return image_with(image, change)


@on_virtual_time
async def test_batches_that_waited_for_a_partition_are_not_overtaken_when_it_opens() -> None:
    cluster = Cluster()
    await cluster.start()
    (tp,) = await cluster.topic("orders")
    earlier = cluster.append(tp, b"first")
    await until_async(lambda: tp in cluster.broker._ownership.partitions, "the partition to be opened", every_s=0)
    later = cluster.append(tp, b"second")
    assert (await earlier).base_offset == 0
    assert (await later).base_offset == 1
    await cluster.stop()


@on_virtual_time
async def test_a_partition_that_moves_away_answers_unknown_and_leaves_its_heir_the_wal() -> None:
    cluster = Cluster(SimStore(faults=SLOW), settings=small())
    await cluster.start()
    (tp,) = await cluster.topic("orders")
    await cluster.append(tp, b"durable")
    waiting = cluster.append(tp, b"on its way")
    image = cluster.controller.metadata.image
    cluster.broker._image_changed(image, moved_to_another_node(image, tp))
    with pytest.raises(UnknownOutcome):
        await waiting
    (other,) = await cluster.topic("other")
    for _ in range(30):
        await cluster.append(other, bytes(500))
    await asyncio.sleep(10)
    assert cluster.broker._roller.tail_bytes <= 4000 + 1000
    assert len([key for key in cluster.store.keys("wal/") if key.endswith("0" * 20)]) == 1
    await cluster.kill()


@on_virtual_time
async def test_a_topic_deleted_with_batches_on_their_way_frees_memory_and_wal() -> None:
    cluster = Cluster(SimStore(faults=SLOW))
    await cluster.start()
    (tp,) = await cluster.topic("orders")
    await cluster.append(tp, b"a")
    waiting = [cluster.append(tp, b"b"), cluster.append(tp, b"c")]
    await cluster.controller.controller.delete_topics([tp.topic_id])
    outcomes = await asyncio.gather(*waiting, return_exceptions=True)
    assert all(isinstance(outcome, UnknownOutcome) or not isinstance(outcome, BaseException) for outcome in outcomes)
    await asyncio.sleep(1)
    assert cluster.broker._roller.tail_bytes == 0
    assert cluster.broker._commit.wal_bytes == 0
    await cluster.stop()


@on_virtual_time
async def test_a_roll_under_way_of_a_topic_that_is_deleted_fences_nobody() -> None:
    store = HeldStore()
    cluster = Cluster(store)
    await cluster.start()
    (tp,) = await cluster.topic("orders")
    await cluster.append(tp, b"a")
    store.held.add("/segment/")
    rolling = asyncio.ensure_future(cluster.roll(tp))
    await asyncio.sleep(1)
    await cluster.controller.controller.delete_topics([tp.topic_id])
    await asyncio.sleep(1)
    store.let_go("/segment/")
    with pytest.raises(NotOwner):
        await rolling
    await asyncio.sleep(1)
    assert cluster.fenced == []
    await cluster.stop()


@on_virtual_time
async def test_a_store_that_is_down_fills_the_buffer_and_no_more() -> None:
    store = HeldStore()
    cluster = Cluster(store, settings=small(buffer_max_bytes=10_000))
    await cluster.start()
    (tp,) = await cluster.topic("orders")
    await cluster.append(tp, b"warm")
    store.held.add("wal/")
    taken = []
    with pytest.raises(NotReady):
        for _ in range(1000):
            appended = cluster.append(tp, bytes(500))
            if appended.done():
                await appended
            taken.append(appended)
    assert cluster.broker._commit.buffered_bytes < 10_000 + 1000
    store.let_go("wal/")
    assert [each.base_offset for each in await asyncio.gather(*taken)] == list(range(1, len(taken) + 1))
    assert (await cluster.append(tp, b"on")).base_offset == len(taken) + 1
    await cluster.stop()


@on_virtual_time
async def test_ranges_that_come_with_a_partition_later_are_read_before_it_opens() -> None:
    cluster = Cluster()
    await cluster.start()
    (tp,) = await cluster.topic("orders")
    await cluster.append(tp, b"a")
    await cluster.append(tp, b"b")
    await cluster.kill()
    await cluster.start("again")
    broker, image = cluster.broker, cluster.controller.metadata.image
    meta = image.partition(tp)
    assert meta is not None
    assert meta.ranges
    away = moved_to_another_node(image, tp)
    broker._image_changed(image, away)
    assert tp not in broker._ownership.partitions
    broker._image_changed(away, image)
    assert await cluster.read_all(tp) == [(0, b"a"), (1, b"b")]
    assert (await cluster.append(tp, b"c")).base_offset == Offset(2)
    await cluster.stop()


@on_virtual_time
async def test_times_are_exact_above_a_log_start_in_the_middle_of_a_batch() -> None:
    cluster = Cluster()
    await cluster.start()
    (tp,) = await cluster.topic("orders")
    now_ms = cluster.clock.now_ms()
    times = [now_ms + 5000, now_ms, now_ms + 1000, now_ms + 3000, now_ms + 2000]
    records = [Record(offset=0, timestamp_ms=time_ms, key=None, value=b"v", headers=()) for time_ms in times]
    owner = cluster.broker.owner
    await owner.append(tp, build_batch(records), produce_version=9)
    for log_start in range(1, 5):
        await owner.delete_records(tp, Offset(log_start))
        for asked in (now_ms, now_ms + 500, now_ms + 2500, now_ms + 4000):
            expected = next(
                (offset for offset, time_ms in enumerate(times) if offset >= log_start and time_ms >= asked), -1
            )
            found = await owner.offset_for_time(tp, asked)
            assert (found.offset, found.timestamp_ms) == (expected, times[expected] if expected >= 0 else -1)
        newest_ms = max(times[log_start:])
        newest = await owner.offset_for_time(tp, -3)
        assert (newest.offset, newest.timestamp_ms) == (times.index(newest_ms), newest_ms)
    await cluster.stop()


@on_virtual_time
async def test_a_coordinator_that_cannot_be_loaded_is_loaded_when_it_is_asked_again() -> None:
    cluster = Cluster()
    await cluster.start()
    (tp,) = await cluster.topic("__consumer_offsets", partitions=1)
    caller = Caller(client_id="c", client_host="h")
    request = Message(states_filter=(), types_filter=())
    await cluster.broker.owner.group_call(0, 16, request, caller)
    log = partition_log(cluster, tp)
    await log.append([(b"\x00\x63", b"of a newer version")])
    await cluster.roll(tp)
    (entry,) = cluster.broker._ownership.partitions[tp].manifest.entries
    kept = cluster.store.objects.pop(entry.key)
    cluster.broker._coordinators.partition_closed(cluster.broker._ownership.partitions[tp])
    reply = await cluster.broker.owner.group_call(0, 16, request, caller)
    assert reply["error_code"] != 0
    cluster.store.objects[entry.key] = kept
    reply = await cluster.broker.owner.group_call(0, 16, request, caller)
    assert reply["error_code"] == 0
    await cluster.stop()


@on_virtual_time
async def test_an_idempotent_producer_outlives_its_records() -> None:
    cluster = Cluster()
    await cluster.start()
    (tp,) = await cluster.topic("orders")
    batch = {"producer_id": 5, "producer_epoch": 0}
    await cluster.append(tp, b"a", **batch, base_sequence=0)
    assert (await cluster.append(tp, b"b", **batch, base_sequence=1)).base_offset == 1
    assert await cluster.broker.owner.delete_records(tp, Offset(-1)) == 2
    await asyncio.sleep(700)
    await cluster.kill()
    await cluster.start("again")
    assert (await cluster.append(tp, b"b", **batch, base_sequence=1)).base_offset == 1
    with pytest.raises(OutOfOrderSequence):
        await cluster.append(tp, b"d", **batch, base_sequence=3)
    assert (await cluster.append(tp, b"c", **batch, base_sequence=2)).base_offset == 2
    await cluster.roll(tp)
    await asyncio.sleep(700)
    assert len([key for key in cluster.store.keys("topics/") if "/segment/" in key]) == 1
    await cluster.kill()
    await cluster.start("once more")
    assert (await cluster.append(tp, b"c", **batch, base_sequence=2)).base_offset == 2
    await cluster.stop()


@on_virtual_time
async def test_a_batch_is_not_refused_for_the_sake_of_one_that_is_not_durable() -> None:
    store = HeldStore()
    cluster = Cluster(store)
    await cluster.start()
    (tp,) = await cluster.topic("orders")
    await cluster.append(tp, b"a", producer_id=5, producer_epoch=0, base_sequence=0)
    store.held.add("wal/")
    newer = cluster.append(tp, b"b", producer_id=5, producer_epoch=1, base_sequence=0)
    older = cluster.append(tp, b"c", producer_id=5, producer_epoch=0, base_sequence=1)
    await asyncio.sleep(1)
    assert not older.done()
    store.let_go("wal/")
    await newer
    with pytest.raises(InvalidProducerEpoch):
        await older
    await cluster.stop()

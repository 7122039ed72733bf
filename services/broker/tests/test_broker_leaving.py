"""What a partition does between the begin of a planned move and its closing: its tail becomes a segment while it still
takes batches.
"""

import asyncio

from held_store import HeldStore
from moving_brokers import Brokers, closed_of, until_closed

from bmq.storage.keys import segment_key
from bmq.values import LeaderEpoch, Nonce, Offset, TopicPartition
from bmq_broker.ownership.leaving import ROLLING_S
from bmq_broker.settings import MIB
from bmq_sim.loop import on_virtual_time

BATCH = bytes(MIB // 2)


def segments_of(tp: TopicPartition) -> str:
    """Where the store has them."""
    return segment_key(tp, LeaderEpoch(1), Offset(0), Nonce(bytes(16))).rpartition("/")[0]


async def with_a_tail(brokers: Brokers) -> TopicPartition:
    """A partition of broker 1 with 3 MiB that no segment holds."""
    await brokers.start(1, 2)
    (tp,) = brokers.controller.create_topic("orders", partitions=1, owner=1)
    for _ in range(6):
        await brokers.append(tp, BATCH)
    return tp


@on_virtual_time
async def test_a_large_tail_is_rolled_while_the_partition_takes_batches_and_its_heir_reads_only_what_came_since() -> (
    None
):
    store = HeldStore()
    brokers = Brokers(store)
    tp = await with_a_tail(brokers)
    store.held.add(segments_of(tp))
    brokers.controller.move(tp, to=2)
    await asyncio.sleep(1)
    assert (await brokers.append(tp, b"meanwhile", node=1)).base_offset == 6
    assert closed_of(brokers, tp) == []
    store.let_go(segments_of(tp))
    await brokers.until_owned(tp, by=2)
    closed = await until_closed(brokers, tp)
    assert (closed.start, closed.end) == (6, 7)
    assert (await brokers.append_wherever(tp, b"afterwards")).base_offset == 7
    found = await brokers.read_all(tp)
    assert [offset for offset, _ in found] == list(range(8))
    assert [value for _, value in found[6:]] == [b"meanwhile", b"afterwards"]
    await brokers.stop()


@on_virtual_time
async def test_a_move_does_not_wait_for_a_store_that_takes_no_segments() -> None:
    store = HeldStore()
    brokers = Brokers(store)
    tp = await with_a_tail(brokers)
    store.held.add(segments_of(tp))
    began_s = asyncio.get_running_loop().time()
    await brokers.moved(tp, to=2)
    assert asyncio.get_running_loop().time() - began_s < ROLLING_S + 1
    assert (await brokers.append_wherever(tp, b"afterwards")).base_offset == 6
    store.let_go(segments_of(tp))
    assert [offset for offset, _ in await brokers.read_all(tp)] == list(range(7))
    await brokers.stop()


@on_virtual_time
async def test_moves_in_a_row_leave_each_heir_one_range_to_read() -> None:
    brokers = Brokers()
    tp = await with_a_tail(brokers)
    for to in (2, 1, 2, 1):
        await brokers.moved(tp, to=to)
        assert len(brokers.controller.meta(tp).ranges) <= 1
        for _ in range(6):
            await brokers.append_wherever(tp, BATCH)
    assert [offset for offset, _ in await brokers.read_all(tp)] == list(range(30))
    await brokers.stop()


@on_virtual_time
async def test_a_move_that_is_led_elsewhere_while_the_tail_is_rolled_ends_there() -> None:
    store = HeldStore()
    brokers = Brokers(store)
    tp = await with_a_tail(brokers)
    await brokers.start(3)
    store.held.add(segments_of(tp))
    brokers.controller.move(tp, to=2)
    await asyncio.sleep(1)
    brokers.controller.move(tp, to=3)
    await asyncio.sleep(1)
    store.let_go(segments_of(tp))
    await brokers.until_owned(tp, by=3)
    assert (await brokers.append_wherever(tp, b"afterwards")).base_offset == 6
    assert len(closed_of(brokers, tp)) >= 1
    await brokers.stop()


@on_virtual_time
async def test_a_broker_that_ends_while_it_rolls_what_is_to_leave_ends_at_once() -> None:
    store = HeldStore()
    brokers = Brokers(store)
    tp = await with_a_tail(brokers)
    store.held.add(segments_of(tp))
    brokers.controller.move(tp, to=2)
    await asyncio.sleep(1)
    began_s = asyncio.get_running_loop().time()
    await brokers.roles[1].kill()
    assert asyncio.get_running_loop().time() - began_s < 1
    await brokers.controller.fence(1)
    store.let_go(segments_of(tp))
    assert (await brokers.append_wherever(tp, b"afterwards")).base_offset == 6
    await brokers.stop()

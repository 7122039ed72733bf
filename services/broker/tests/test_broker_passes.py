"""One pass over a living broker's WAL reads for all partitions that moved from it: what happens to one of them
meanwhile is no other's business.
"""

import asyncio
import time
from uuid import UUID

import pytest
from broker_under_test import reading_alone
from held_store import HeldStore
from hypothesis import given
from hypothesis import strategies as st
from moving_brokers import Brokers

from bmq.errors import NotReady, PartitionStopped
from bmq.fairness.crowd import WOKEN_PER_TURN
from bmq.metadata.image import stream_of
from bmq.metadata.records import Range
from bmq.storage.numbered import wal_key
from bmq.values import BrokerEpoch, LeaderEpoch, NodeId, StreamId, TopicId, TopicPartition
from bmq_broker.ended import Ended
from bmq_broker.ownership.inheritance import Inheritance
from bmq_broker.ownership.life import Lives, Ranges
from bmq_broker.ownership.passes import _by_streams
from bmq_sim.loop import on_virtual_time

BETWEEN = 12
"""WAL objects between what the two partitions wrote."""
STREAM = StreamId(NodeId(1), BrokerEpoch(1))
OTHER_STREAM = StreamId(NodeId(2), BrokerEpoch(1))
MANY = 3_000
"""Partitions that are asked for while one pass reads for them; if each looked at all, they took seconds of the
processor."""
MANY_S_MAX = 0.5


async def two_that_lie_apart(brokers: Brokers) -> tuple[TopicPartition, TopicPartition]:
    """Partitions of broker 1: one wrote its first WAL object, the other the last; nothing else pins any."""
    lower, other, upper = (
        brokers.controller.create_topic(name, partitions=1, owner=1)[0] for name in ("lower", "other", "upper")
    )
    await brokers.append(lower, b"x")
    for _ in range(BETWEEN):
        await brokers.append(other, b"pad")
    await brokers.append(upper, b"a")
    await brokers.roll(other)
    assert len(brokers.wal_keys(1)) == BETWEEN + 2
    return lower, upper


@on_virtual_time
@pytest.mark.parametrize(
    "held", [STREAM.prefix, wal_key(STREAM, BETWEEN - 1)], ids=["before-it-is-read", "when-it-was-read"]
)
async def test_a_topic_that_is_deleted_while_an_heir_reads_stops_no_other_partition(held: str) -> None:
    store = HeldStore()
    brokers = Brokers(store)
    await brokers.start(1, 2)
    gone, stays = await two_that_lie_apart(brokers)
    store.held.add(held)
    await brokers.moved(gone, stays, to=2)
    (of_gone,), (of_stays,) = brokers.controller.meta(gone).ranges, brokers.controller.meta(stays).ranges
    assert (of_gone.start, of_stays.start) == (0, BETWEEN + 1)
    await asyncio.sleep(0.1)
    brokers.controller.delete_topic(gone.topic_id)
    await asyncio.sleep(1)
    assert len(brokers.wal_keys(1)) == 1  # what the other one needs
    store.let_go(held)
    assert await brokers.read_all(stays) == [(0, b"a")]
    assert (await brokers.append(stays, b"b")).base_offset == 1
    await brokers.stop()


@on_virtual_time
async def test_a_partition_that_moves_on_while_an_heir_reads_stops_no_other_partition() -> None:
    store = HeldStore()
    brokers = Brokers(store)
    await brokers.start(1, 2, 3)
    gone, stays = await two_that_lie_apart(brokers)
    reads_of_2 = f"node-2:{STREAM.prefix}"
    store.held.add(reads_of_2)
    await brokers.moved(gone, stays, to=2)
    await asyncio.sleep(0.1)
    await brokers.moved(gone, to=3)
    await brokers.append_wherever(gone, b"y")
    await brokers.roll(gone)
    await asyncio.sleep(15)
    assert brokers.controller.meta(gone).ranges == ()
    assert len(brokers.wal_keys(1)) == 1
    store.let_go(reads_of_2)
    assert await brokers.read_all(stays) == [(0, b"a")]
    assert await brokers.read_all(gone) == [(0, b"x"), (1, b"y")]
    await brokers.stop()


@on_virtual_time
async def test_an_object_that_is_lost_stops_the_partition_that_needs_it_and_no_other() -> None:
    brokers = Brokers()
    await brokers.start(1, 2)
    broken, stays = await two_that_lie_apart(brokers)
    del brokers.store.objects[wal_key(STREAM, 0)]
    await brokers.moved(broken, stays, to=2)
    assert await brokers.read_all(stays) == [(0, b"a")]
    with pytest.raises(PartitionStopped, match=r"object 0 of .* is missing; restore the object from a backup"):
        await brokers.append(broken, b"z")
    await brokers.stop()


@on_virtual_time
async def test_thousands_that_wait_for_one_pass_are_not_looked_at_by_each_of_them() -> None:
    passes: list[int] = []
    read = asyncio.Event()

    async def read_ranges(ranges: Ranges) -> dict[TopicPartition, Inheritance]:
        passes.append(len(ranges))
        await read.wait()
        return {}

    lives = Lives(StreamId(NodeId(9), BrokerEpoch(1)))
    reading = reading_alone(read_ranges, lives)
    ranges = (Range(node_id=1, broker_epoch=1, leader_epoch=1, end=10),)
    tps = [TopicPartition(UUID(int=1), index) for index in range(MANY)]
    for tp in tps:
        reading.want(tp, ranges)
    before_s = time.thread_time()
    asked = [asyncio.create_task(reading.when_read(tp)) for tp in tps]
    await asyncio.sleep(1)
    assert time.thread_time() - before_s < MANY_S_MAX
    read.set()
    await asyncio.gather(*asked)
    assert passes == [MANY]
    assert all(lives.has_read(tp, ranges) for tp in tps)
    await reading.close()


@on_virtual_time
async def test_thousands_that_wait_for_a_pass_go_on_some_in_a_turn_and_cost_the_same_while_another_stream_is_read() -> (
    None
):
    reads = {STREAM: asyncio.Event(), OTHER_STREAM: asyncio.Event()}

    async def read_ranges(ranges: Ranges) -> dict[TopicPartition, Inheritance]:
        await reads[stream_of(next(iter(ranges.values()))[0])].wait()
        return {}

    lives = Lives(StreamId(NodeId(9), BrokerEpoch(1)))
    reading = reading_alone(read_ranges, lives)
    tps = [TopicPartition(UUID(int=1), index) for index in range(3 * MANY)]
    for index, tp in enumerate(tps):
        stream = STREAM if index else OTHER_STREAM
        reading.want(tp, (Range(node_id=stream.node_id, broker_epoch=stream.broker_epoch, leader_epoch=1, end=10),))
    went_on: list[int] = []
    """How many in each turn."""

    async def wait(tp: TopicPartition) -> None:
        await reading.when_read(tp)
        went_on[-1] += 1

    asked = [asyncio.create_task(wait(tp)) for tp in tps]
    await asyncio.sleep(1)
    before_s = time.thread_time()
    reads[STREAM].set()
    while sum(went_on) < len(tps) - 1:
        went_on.append(0)
        await asyncio.sleep(0)
    assert time.thread_time() - before_s < MANY_S_MAX
    assert max(went_on) <= WOKEN_PER_TURN
    assert not asked[0].done()
    reads[OTHER_STREAM].set()
    await asyncio.gather(*asked)
    await reading.close()


@on_virtual_time
async def test_all_who_wait_for_a_pass_are_told_that_this_broker_ends() -> None:
    async def read_ranges(ranges: Ranges) -> dict[TopicPartition, Inheritance]:
        await asyncio.Event().wait()
        raise AssertionError

    lives = Lives(StreamId(NodeId(9), BrokerEpoch(1)))
    ended = Ended()
    ended.registered()
    reading = reading_alone(read_ranges, lives, ended=ended)
    tps = [TopicPartition(UUID(int=1), index) for index in range(2 * WOKEN_PER_TURN + 1)]
    for tp in tps:
        reading.want(tp, (Range(node_id=1, broker_epoch=1, leader_epoch=1, end=10),))
    asked = [asyncio.create_task(reading.when_read(tp)) for tp in tps]
    await asyncio.sleep(1)
    asked[3].cancel()
    ended.kill()
    await reading.close()
    outcomes = await asyncio.gather(*asked, return_exceptions=True)
    assert [type(one) for one in outcomes] == [NotReady] * 3 + [asyncio.CancelledError] + [NotReady] * (len(tps) - 4)
    with pytest.raises(NotReady, match="reads no more"):
        await reading.when_read(tps[0])


@given(st.lists(st.sets(st.integers(0, 7), min_size=1, max_size=3), max_size=8))
def test_streams_are_read_together_where_a_partition_needs_both_and_apart_elsewhere(needs: list[set[int]]) -> None:
    ranges = {
        TopicPartition(TopicId(UUID(int=number)), 0): tuple(
            Range(NodeId(node), BrokerEpoch(1), LeaderEpoch(1), 9, 0) for node in sorted(nodes)
        )
        for number, nodes in enumerate(needs)
    }
    groups = _by_streams(ranges)
    assert sorted(tp for _, members in groups for tp in members) == sorted(ranges)
    for streams, members in groups:
        assert streams == {stream_of(part) for tp in members for part in ranges[tp]}
        assert all(members[tp] == ranges[tp] for tp in members)
        reached = {next(iter(members))}
        for _ in members:  # whoever is in a group is in it for a chain of streams that two partitions need
            known = {stream_of(part) for tp in reached for part in ranges[tp]}
            reached |= {tp for tp in members if any(stream_of(part) in known for part in ranges[tp])}
        assert reached == set(members)
    assert sum(len(streams) for streams, _ in groups) == len({node for nodes in needs for node in nodes})

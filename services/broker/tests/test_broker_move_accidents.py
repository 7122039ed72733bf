"""Moves during which something else goes wrong, comes late or changes again: the log stays whole, and nothing is left
behind.
"""

import asyncio

import pytest
from broker_under_test import small
from held_store import HeldStore
from moving_brokers import Brokers, closed_of, until_closed
from tests.waiting import until_async

from bmq.errors import BmqError, NotOwner
from bmq.metadata.records import ConfigsChanged, PartitionMoveBegun
from bmq.storage.keys import manifest_prefix
from bmq.storage.numbered import numbered_key
from bmq.values import Offset
from bmq_sim.loop import on_virtual_time
from bmq_sim.store import SimStore, StoreFaults

SLOW = StoreFaults(latency_s_min=0.005, latency_s_max=0.02)


@on_virtual_time
async def test_a_partition_that_moves_on_while_it_recovers_is_handed_on_untouched() -> None:
    store = HeldStore()
    brokers = Brokers(store)
    await brokers.start(1, 2, 3)
    (tp,) = brokers.controller.create_topic("orders", partitions=1, owner=1)
    await brokers.append(tp, b"a")
    await brokers.roll(tp)
    await brokers.append(tp, b"b")
    store.held.add("/manifest/")  # the heir reads the stream and then waits for the manifest
    await brokers.moved(tp, to=2)
    ranges = brokers.controller.meta(tp).ranges
    assert len(ranges) == 1
    waiting = brokers.append(tp, b"not taken")
    reading = asyncio.ensure_future(brokers.tail(tp, 0, node=2, max_wait_ms=60_000))
    await asyncio.sleep(1)
    assert not waiting.done()
    await brokers.moved(tp, to=3)
    assert brokers.controller.meta(tp).ranges == ranges
    assert closed_of(brokers, tp)[-1].end == 0
    with pytest.raises(NotOwner):
        await waiting
    assert isinstance((await reading).error, NotOwner)
    assert brokers.roles[2]._ownership._waiting.size_bytes == 0
    store.let_go("/manifest/")
    assert await brokers.read_all(tp) == [(0, b"a"), (1, b"b")]
    assert (await brokers.append(tp, b"c")).base_offset == 2
    await brokers.moved(tp, to=2)
    assert await brokers.read_all(tp) == [(0, b"a"), (1, b"b"), (2, b"c")]
    assert brokers.fenced == []
    await brokers.stop()


@on_virtual_time
async def test_a_partition_that_comes_back_while_its_opening_ends_is_opened_again() -> None:
    store = HeldStore()
    brokers = Brokers(store)
    await brokers.start(1, 2)
    (tp,) = brokers.controller.create_topic("orders", partitions=1, owner=1)
    await brokers.append(tp, b"a")
    await brokers.roll(tp)
    await brokers.append(tp, b"b")
    store.held.add("/manifest/")
    for to in (2, 1, 2, 1):
        await brokers.moved(tp, to=to)
    store.let_go("/manifest/")
    assert (await brokers.append_wherever(tp, b"c")).base_offset == 2
    assert await brokers.read_all(tp) == [(0, b"a"), (1, b"b"), (2, b"c")]
    assert len(brokers.roles[2]._ownership._opening) == 0
    await brokers.stop()


@on_virtual_time
async def test_a_topic_that_is_deleted_while_a_partition_of_it_moves_frees_memory_and_wal() -> None:
    store = HeldStore()
    brokers = Brokers(store)
    await brokers.start(1, 2)
    (tp, closed) = brokers.controller.create_topic("orders", partitions=2, owner=1)
    await brokers.append(tp, b"a")
    await brokers.append(closed, b"a")
    brokers.controller.finishes_moves = False
    store.held.add("wal/0000000001/")
    waiting = brokers.append(tp, b"b")
    brokers.controller.move(tp, closed, to=2)
    await until_closed(brokers, closed)
    brokers.controller.delete_topic(tp.topic_id)
    await asyncio.sleep(0.1)
    with pytest.raises(BmqError):
        await waiting
    store.let_go("wal/0000000001/")
    await asyncio.sleep(5)
    assert brokers.roles[1]._lives.left_count == 0
    assert brokers.roles[1]._commit.wal_bytes == 0
    assert brokers.roles[1]._roller.tail_bytes == 0
    assert brokers.fenced == []
    await brokers.stop()


@on_virtual_time
async def test_a_manifest_version_of_the_old_owner_that_arrives_late_is_taken_over_by_the_heir() -> None:
    store = HeldStore()
    brokers = Brokers(store)
    await brokers.start(1, 2)
    (tp,) = brokers.controller.create_topic("orders", partitions=1, owner=1)
    await brokers.append(tp, b"a")
    await brokers.append(tp, b"b")
    store.held.add("/manifest/")
    rolling = asyncio.ensure_future(brokers.roll(tp))
    await asyncio.sleep(0.1)
    await brokers.moved(tp, to=2)
    assert (await brokers.append_wherever(tp, b"c")).base_offset == 2
    store.let_go("/manifest/")
    await asyncio.gather(rolling, return_exceptions=True)
    await brokers.roll(tp)
    await asyncio.sleep(1000)
    assert await brokers.read_all(tp) == [(0, b"a"), (1, b"b"), (2, b"c")]
    assert brokers.fenced == []
    await brokers.stop()


@on_virtual_time
async def test_a_segment_that_the_heir_took_over_stays_though_its_writer_never_learned_that_it_counts() -> None:
    store = HeldStore()
    brokers = Brokers(store)
    await brokers.start(1, 2)
    (tp,) = brokers.controller.create_topic("orders", partitions=1, owner=1)
    await brokers.append(tp, b"a")
    first_version = numbered_key(manifest_prefix(tp), 1)
    store.unknown.add(first_version)
    rolling = asyncio.ensure_future(brokers.roll(tp))
    await until_async(lambda: store.late, "a create that is on its way")
    store.land()  # it is there, and its writer is still told nothing
    await brokers.moved(tp, to=2)
    assert (await brokers.append_wherever(tp, b"b")).base_offset == 1
    await brokers.roll(tp)
    store.unknown.clear()
    outcomes = await asyncio.gather(rolling, return_exceptions=True)
    assert isinstance(outcomes[0], BmqError)
    await asyncio.sleep(1000)
    assert await brokers.read_all(tp) == [(0, b"a"), (1, b"b")]
    assert brokers.fenced == []
    await brokers.stop()


@on_virtual_time
async def test_deleted_records_that_were_confirmed_stay_deleted_at_the_heir() -> None:
    store = HeldStore()
    brokers = Brokers(store)
    await brokers.start(1, 2)
    (tp,) = brokers.controller.create_topic("orders", partitions=1, owner=1)
    for number in range(4):
        await brokers.append(tp, b"%d" % number)
    await brokers.roll(tp)
    store.held.add(numbered_key(manifest_prefix(tp), 2))
    deleting = asyncio.ensure_future(brokers.roles[1].owner.delete_records(tp, Offset(2)))
    await asyncio.sleep(0.1)
    await brokers.moved(tp, to=2)
    assert await brokers.read_all(tp) == [(number, b"%d" % number) for number in range(4)]
    store.let_go(numbered_key(manifest_prefix(tp), 2))
    with pytest.raises(BmqError):  # the heir may not know of it: it is asked again there
        await deleting
    assert await brokers.roles[2].owner.delete_records(tp, Offset(2)) == 2
    assert await brokers.read_all(tp) == [(2, b"2"), (3, b"3")]
    await brokers.stop()


class StaleListing(SimStore):
    """A listing in which a key is missing: it was created after its page was read, and before the last page was."""

    def __init__(self) -> None:
        super().__init__()
        self.missed = ""

    def page(self, prefix: str, *, after: str, count: int) -> list[str]:
        return [key for key in super().page(prefix, after=after, count=count) if key != self.missed]


@on_virtual_time
async def test_a_hole_in_the_listing_of_a_living_stream_is_not_taken_for_the_end_of_what_was_deleted() -> None:
    store = StaleListing()
    brokers = Brokers(store)
    await brokers.start(1, 2)
    (tp, other) = brokers.controller.create_topic("orders", partitions=2, owner=1)
    await brokers.append(tp, b"a")
    for _ in range(5):
        await brokers.append(other, b"x")
    store.missed = brokers.wal_keys(1)[3]
    await brokers.moved(tp, to=2)
    assert await brokers.read_all(tp) == [(0, b"a")]
    assert (await brokers.append(tp, b"b")).base_offset == 1
    await brokers.stop()


@on_virtual_time
async def test_a_moved_partition_does_not_wait_for_what_a_dead_broker_left() -> None:
    store = HeldStore()
    brokers = Brokers(store)
    await brokers.start(1, 2, 3)
    (dead,) = brokers.controller.create_topic("of-the-dead", partitions=1, owner=3)
    (tp,) = brokers.controller.create_topic("orders", partitions=1, owner=2)
    await brokers.append(dead, b"a")
    await brokers.append(tp, b"a")
    await brokers.roles[3].kill()
    brokers.controller.lag_s = lambda: 0.01
    await brokers.controller.fence(3)
    store.held.add("wal/0000000003/")
    brokers.controller.lag_s = lambda: 0.0
    await asyncio.sleep(1)
    await brokers.moved(tp, to=1)
    assert (await asyncio.wait_for(brokers.append_wherever(tp, b"b"), 5)).base_offset == 1
    store.let_go("wal/0000000003/")
    assert await brokers.read_all(dead) == [(0, b"a")]
    await brokers.stop()


@on_virtual_time
async def test_an_heir_that_dies_before_it_has_covered_anything_leaves_both_streams_to_the_next() -> None:
    brokers = Brokers(SimStore(faults=SLOW), settings=small(inherited_roll_ms=10_000_000))
    await brokers.start(1, 2, 3)
    (tp,) = brokers.controller.create_topic("orders", partitions=1, owner=2)
    await brokers.append(tp, b"a")
    await brokers.moved(tp, to=3)
    await brokers.append_wherever(tp, b"b")
    await brokers.roles[3].kill()
    await brokers.controller.fence(3)
    await brokers.until_owned(tp, by=1)
    assert len(brokers.controller.meta(tp).ranges) == 2
    assert await brokers.read_all(tp) == [(0, b"a"), (1, b"b")]
    assert (await brokers.append(tp, b"c")).base_offset == 2
    await brokers.roll(tp)
    await asyncio.sleep(10)
    assert brokers.controller.meta(tp).ranges == ()
    assert [len(brokers.wal_keys(3))] == [1]  # its seal
    assert await brokers.read_all(tp) == [(0, b"a"), (1, b"b"), (2, b"c")]
    await brokers.stop()


@on_virtual_time
async def test_a_configuration_that_only_a_newer_version_can_read_holds_up_no_move_and_leaves_its_topic_as_it_was() -> (
    None
):
    brokers = Brokers()
    await brokers.start(1, 2)
    (newer,) = brokers.controller.create_topic("newer", partitions=1, owner=1, configs={"segment.bytes": "1048576"})
    (moving,) = brokers.controller.create_topic("moving", partitions=1, owner=1)
    await brokers.append(newer, b"a")
    await brokers.append(moving, b"a")
    brokers.controller.commit(
        ConfigsChanged(
            kind="topic",
            name=str(newer.topic_id),
            changes={"message.timestamp.type": "NewerTime", "segment.bytes": "2097152"},
        ),
        PartitionMoveBegun(topic_id=moving.topic_id, partition=0, to_node_id=2),
    )
    async with asyncio.timeout(10):
        await brokers.until_owned(moving, by=2)
    assert (await brokers.append_wherever(moving, b"b")).base_offset == 1
    assert (await brokers.append(newer, b"b")).base_offset == 1
    assert brokers.roles[1]._ownership.partitions[newer].config.segment_bytes == 1048576
    brokers.controller.commit(
        ConfigsChanged(kind="topic", name=str(newer.topic_id), changes={"message.timestamp.type": "CreateTime"})
    )
    await asyncio.sleep(0)
    assert brokers.roles[1]._ownership.partitions[newer].config.segment_bytes == 2097152
    await brokers.stop()

"""Partitions that move from one living broker to another: nothing is lost, given twice or left waiting, whatever
happens in between.
"""

import asyncio
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
from broker_under_test import small
from held_store import HeldStore
from moving_brokers import Brokers, closed_of, until_closed

from bmq.errors import BmqError, NotOwner, NotReady, OutOfOrderSequence
from bmq.metadata.records import PartitionChange, Range
from bmq.naming.names import CONSUMER_OFFSETS
from bmq.roles.controller import ClosedPartition
from bmq.roles.owner import Caller
from bmq.storage.keys import segment_key
from bmq.values import Nonce, Offset, TopicId
from bmq.wire.message import Message
from bmq_broker.ownership.life import Lives
from bmq_broker.wal.commit import GroupCommit
from bmq_sim.loop import VirtualLoop, on_virtual_time, run
from bmq_sim.store import NodeStore, SimStore, StoreFaults

SLOW = StoreFaults(latency_s_min=0.005, latency_s_max=0.02)


@on_virtual_time
async def test_a_partition_that_moves_under_load_loses_nothing_and_gives_no_offset_twice() -> None:
    brokers = Brokers(SimStore(faults=StoreFaults(latency_s_min=0.002, latency_s_max=0.01), page_keys=1000))
    await brokers.start(1, 2)
    (tp,) = brokers.controller.create_topic("orders", partitions=1, owner=1)
    loop = asyncio.get_running_loop()
    acknowledged: dict[int, bytes] = {}
    times_s: list[float] = []
    ending = False

    async def produce(name: str) -> int:
        number = 0
        while not ending:
            value = f"{name} {number}".encode()
            # a planned move leaves no outcome unknown: that would raise
            appended = await brokers.append_wherever(tp, value)
            assert acknowledged.setdefault(appended.base_offset, value) == value, "an offset was given twice"
            times_s.append(loop.time())
            number += 1
        return number

    producers = [asyncio.ensure_future(produce(name)) for name in "abcdefgh"]
    for to in (2, 1, 2, 1, 2):
        await asyncio.sleep(0.5)
        await brokers.moved(tp, to=to)
    await asyncio.sleep(0.5)
    ending = True
    sent = sum(await asyncio.gather(*producers))
    found = await brokers.read_all(tp)
    assert [offset for offset, _ in found] == list(range(sent))
    assert dict(found) == acknowledged
    for name in "abcdefgh":
        numbers = [int(value.split()[1]) for _, value in found if value.startswith(name.encode())]
        assert numbers == list(range(len(numbers)))
    assert max(later - earlier for earlier, later in pairwise(times_s)) < 0.3
    assert brokers.fenced == []
    await brokers.stop()


@on_virtual_time
async def test_what_an_idempotent_producer_sent_is_known_to_the_heir() -> None:
    brokers = Brokers(SimStore(faults=SLOW))
    await brokers.start(1, 2)
    (tp,) = brokers.controller.create_topic("orders", partitions=1, owner=1)
    batch = {"producer_id": 5, "producer_epoch": 0}
    await brokers.append(tp, b"a", **batch, base_sequence=0)
    await brokers.roll(tp)
    await brokers.append(tp, b"b", **batch, base_sequence=1)
    on_its_way = brokers.append(tp, b"c", **batch, base_sequence=2)
    await brokers.moved(tp, to=2)
    assert (await on_its_way).base_offset == 2
    assert (await brokers.append_wherever(tp, b"b", **batch, base_sequence=1)).base_offset == 1
    assert (await brokers.append_wherever(tp, b"c", **batch, base_sequence=2)).base_offset == 2
    with pytest.raises(OutOfOrderSequence):
        await brokers.append(tp, b"e", **batch, base_sequence=4)
    assert (await brokers.append(tp, b"d", **batch, base_sequence=3)).base_offset == 3
    await brokers.moved(tp, to=1)
    assert (await brokers.append_wherever(tp, b"d", **batch, base_sequence=3)).base_offset == 3
    assert (await brokers.append(tp, b"e", **batch, base_sequence=4)).base_offset == 4
    assert [value for _, value in await brokers.read_all(tp)] == [b"a", b"b", b"c", b"d", b"e"]
    await brokers.stop()


@on_virtual_time
async def test_what_was_not_durable_when_the_move_began_is_acknowledged_and_lies_below_the_end() -> None:
    store = HeldStore()
    brokers = Brokers(store)
    brokers.controller.finishes_moves = False
    await brokers.start(1, 2)
    (tp,) = brokers.controller.create_topic("orders", partitions=1, owner=1)
    await brokers.append(tp, b"a")
    store.held.add("wal/0000000001/")
    waiting = brokers.append(tp, b"b")
    brokers.controller.move(tp, to=2)
    await asyncio.sleep(1)
    assert not waiting.done()
    assert closed_of(brokers, tp) == []
    with pytest.raises(NotOwner):
        await brokers.append(tp, b"c", node=1)
    store.let_go("wal/0000000001/")
    assert (await waiting).base_offset == 1
    closed = await until_closed(brokers, tp)
    assert closed == ClosedPartition(tp=tp, leader_epoch=brokers.controller.meta(tp).leader_epoch, end=2, start=0)
    brokers.controller.finish(closed, node=1)
    assert await brokers.read_all(tp) == [(0, b"a"), (1, b"b")]
    assert (await brokers.append(tp, b"c")).base_offset == 2
    await brokers.stop()


@on_virtual_time
async def test_the_old_owner_keeps_its_wal_until_the_heirs_manifest_covers_it() -> None:
    brokers = Brokers(settings=small(inherited_roll_ms=60_000))
    await brokers.start(1, 2)
    (tp, other) = brokers.controller.create_topic("orders", partitions=2, owner=1)
    await brokers.append(tp, b"a")
    await brokers.moved(tp, to=2)
    first = brokers.wal_keys(1)[0]
    for _ in range(60):
        await brokers.append(other, bytes(500))
    await asyncio.sleep(30)
    assert first in brokers.wal_keys(1)
    assert len(brokers.wal_keys(1)) > 20
    await asyncio.sleep(60)  # the heir rolls it, for the sake of the old owner
    assert brokers.controller.meta(tp).ranges == ()
    assert len(brokers.wal_keys(1)) < 20
    assert brokers.roles[1]._lives.left_count == 0
    assert await brokers.read_all(tp) == [(0, b"a")]
    assert len(await brokers.read_all(other)) == 60
    await brokers.stop()


@on_virtual_time
async def test_a_partition_whose_log_is_in_segments_leaves_its_heir_nothing_to_read() -> None:
    brokers = Brokers()
    await brokers.start(1, 2)
    (rolled, never_written, never_opened) = brokers.controller.create_topic("orders", partitions=3, owner=1)
    await brokers.append(rolled, b"a")
    await brokers.roll(rolled)
    await brokers.tail(never_written, 0, node=1)
    await brokers.moved(rolled, never_written, never_opened, to=2)
    for tp in (rolled, never_written, never_opened):
        assert brokers.controller.meta(tp).ranges == ()
    assert await brokers.read_all(rolled) == [(0, b"a")]
    assert (await brokers.append(rolled, b"b")).base_offset == 1
    assert (await brokers.append(never_written, b"b")).base_offset == 0
    assert (await brokers.append(never_opened, b"b")).base_offset == 0
    await brokers.stop()


@on_virtual_time
async def test_a_move_that_is_taken_back_too_late_opens_the_partition_only_under_a_new_leader_epoch() -> None:
    """The report that it is closed may be on its way: an append under the old epoch would lie above the end of the
    range.
    """
    brokers = Brokers()
    brokers.controller.finishes_moves = False
    await brokers.start(1, 2)
    (tp,) = brokers.controller.create_topic("orders", partitions=1, owner=1)
    await brokers.append(tp, b"a")
    before = brokers.controller.meta(tp)
    brokers.controller.move(tp, to=2)
    closed = await until_closed(brokers, tp)
    brokers.controller.move(tp, to=-1)
    with pytest.raises(NotReady):
        await brokers.append(tp, b"b")
    brokers.controller.finish(closed, node=1)
    meta = brokers.controller.meta(tp)
    assert (meta.node_id, meta.leader_epoch) == (1, before.leader_epoch + 1)
    assert meta.ranges == (Range(1, 1, before.leader_epoch, closed.end),)
    assert (await brokers.append_wherever(tp, b"b")).base_offset == 1
    assert await brokers.read_all(tp) == [(0, b"a"), (1, b"b")]
    await brokers.roll(tp)
    await asyncio.sleep(5)
    assert brokers.controller.meta(tp).ranges == ()
    assert brokers.roles[1]._lives.left_count == 0
    await brokers.stop()


@on_virtual_time
async def test_a_move_to_the_owner_itself_ends_with_its_opening_again() -> None:
    brokers = Brokers(SimStore(faults=SLOW))
    await brokers.start(1)
    (tp,) = brokers.controller.create_topic("orders", partitions=1, owner=1)
    for number in range(3):
        assert (await brokers.append_wherever(tp, b"%d" % number)).base_offset == number
        brokers.controller.move(tp, to=1)
        await until_closed(brokers, tp, times=number + 1)
    assert [value for _, value in await brokers.read_all(tp)] == [b"0", b"1", b"2"]
    await brokers.stop()


@on_virtual_time
async def test_what_was_left_unnamed_under_an_earlier_epoch_is_collected_though_the_move_was_never_seen() -> None:
    brokers = Brokers()
    await brokers.start(1)
    (tp,) = brokers.controller.create_topic("orders", partitions=1, owner=1)
    await brokers.append(tp, b"a")
    await brokers.roll(tp)
    await asyncio.sleep(70)
    before = brokers.controller.meta(tp).leader_epoch
    assert tp in brokers.roles[1]._upkeep._collect_again_s
    orphan = segment_key(tp, before, Offset(0), Nonce(bytes(16)))
    brokers.store.apply_create("node-1", orphan, b"left behind")
    again = PartitionChange(topic_id=tp.topic_id, partition=0, node_id=1, broker_epoch=1, leader_epoch=before + 1)
    brokers.controller.commit(again)
    await asyncio.sleep(0)
    assert (await brokers.append_wherever(tp, b"b")).base_offset == 1
    await brokers.roll(tp)
    await asyncio.sleep(700)
    assert orphan not in brokers.store.objects
    assert await brokers.read_all(tp) == [(0, b"a"), (1, b"b")]
    await brokers.stop()


@on_virtual_time
async def test_who_waits_for_records_of_a_partition_that_moves_is_sent_elsewhere() -> None:
    brokers = Brokers(SimStore(faults=SLOW))
    await brokers.start(1, 2)
    (tp,) = brokers.controller.create_topic("orders", partitions=1, owner=1)
    await brokers.append(tp, b"a")
    waiting = asyncio.ensure_future(brokers.tail(tp, 1, node=1, max_wait_ms=60_000))
    await asyncio.sleep(1)
    began_s = asyncio.get_running_loop().time()
    brokers.controller.move(tp, to=2)
    assert isinstance((await waiting).error, NotOwner)
    assert asyncio.get_running_loop().time() == began_s
    with pytest.raises(NotOwner):
        await brokers.roles[1].owner.offset_for_time(tp, -1)
    await brokers.until_owned(tp, by=2)
    assert (await brokers.tail(tp, 0, node=2)).high_watermark == 1
    await brokers.stop()


def commit_offset(topic_id: TopicId, offset: int) -> Message:
    partition = Message(partition_index=0, committed_offset=offset, committed_leader_epoch=-1, committed_metadata=None)
    return Message(
        group_id="g",
        generation_id_or_member_epoch=-1,
        member_id="",
        group_instance_id=None,
        retention_time_ms=-1,
        topics=[Message(name="orders", topic_id=topic_id, partitions=[partition])],
    )


@on_virtual_time
async def test_a_group_coordinator_moves_with_its_partition_and_is_there_before_anybody_asks() -> None:
    brokers = Brokers(SimStore(faults=SLOW))
    await brokers.start(1, 2)
    (orders,) = brokers.controller.create_topic("orders", partitions=1, owner=1)
    (tp,) = brokers.controller.create_topic(CONSUMER_OFFSETS, partitions=1, owner=1)
    caller = Caller(client_id="c", client_host="h")
    topics = [Message(name="orders", topic_id=orders.topic_id, partition_indexes=[0])]
    asked = Message(
        groups=[Message(group_id="g", member_id=None, member_epoch=-1, topics=topics)], require_stable=False
    )

    async def committed(node: int) -> int:
        reply = await brokers.roles[node].owner.group_call(0, 9, asked, caller)
        return int(reply["groups"][0]["topics"][0]["partitions"][0]["committed_offset"])

    for number, to in enumerate((2, 1, 2)):
        await brokers.roles[brokers.owner(tp)].owner.group_call(0, 8, commit_offset(orders.topic_id, number), caller)
        left = brokers.owner(tp)
        brokers.controller.move(tp, to=to)
        await asyncio.sleep(0)
        with pytest.raises(NotOwner):
            await brokers.roles[left].owner.group_call(0, 9, asked, caller)
        await brokers.until_owned(tp, by=to)
        await asyncio.sleep(1)
        assert tp in brokers.roles[to]._coordinators._shards
        assert await committed(to) == number
    await brokers.stop()


class CountingStore(SimStore):
    """Remembers which keys each node read."""

    def __init__(self, **settings: StoreFaults) -> None:
        super().__init__(**settings)  # type: ignore[arg-type]
        self.read: dict[str, list[str]] = {}

    def for_node(self, name: str) -> NodeStore:
        return _CountingNodeStore(self, name)


class _CountingNodeStore(NodeStore):
    def __init__(self, store: CountingStore, node: str) -> None:
        super().__init__(store, node)
        self._read_keys = store.read.setdefault(node, [])

    async def get(self, key: str, *, start: int = 0, length: int | None = None) -> bytes:
        if length is None:
            self._read_keys.append(key)
        return await super().get(key, start=start, length=length)


def wal_reads(store: CountingStore, node: str) -> Iterator[str]:
    return (key for key in store.read[node] if key.startswith("wal/"))


def test_two_hundred_partitions_are_adopted_with_one_reading_of_the_stream() -> None:
    async def main() -> None:
        store = CountingStore(faults=SLOW)
        brokers = Brokers(store)
        await brokers.start(1, 2)
        tps = brokers.controller.create_topic("orders", partitions=300, owner=1)
        moving, unwritten = tps[:200], tps[200:]
        for number in range(5):
            await asyncio.gather(*(brokers.append(tp, b"%d" % number) for tp in moving))
        await brokers.moved(*moving, *unwritten, to=2)
        await asyncio.sleep(10)
        read = list(wal_reads(store, "node-2"))
        assert len(read) == len(set(read)), "an object of the stream was read twice"
        assert read
        assert set(brokers.roles[2]._ownership.partitions) == set(moving)  # at once; the others at their first request
        for tp in moving:
            assert await brokers.read_all(tp) == [(number, b"%d" % number) for number in range(5)]
        assert (await brokers.append(unwritten[0], b"a")).base_offset == 0
        await brokers.stop()

    run(main(), loop=VirtualLoop(virtual_s_max=1000))


@on_virtual_time
async def test_an_heir_of_a_short_tail_does_not_read_the_whole_stream() -> None:
    store = CountingStore(faults=SLOW)
    brokers = Brokers(store)
    await brokers.start(1, 2)
    (tp, other) = brokers.controller.create_topic("orders", partitions=2, owner=1)
    await brokers.append(tp, b"a")
    await brokers.roll(tp)
    for _ in range(50):
        await brokers.append(other, b"x")
    await brokers.append(tp, b"b")
    await brokers.moved(tp, to=2)
    assert await brokers.read_all(tp) == [(0, b"a"), (1, b"b")]
    assert len(list(wal_reads(store, "node-2"))) == 1
    await brokers.stop()


@pytest.mark.parametrize("then", ["moved", "deleted", "moved and deleted"])
@on_virtual_time
async def test_an_image_in_which_many_partitions_go_has_what_waits_looked_through_once_and_not_for_each(
    then: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: Counter[str] = Counter()

    def counting(kind: type, name: str) -> None:
        really = getattr(kind, name)

        def counted(*args: Any) -> Any:
            looks[name] += 1
            return really(*args)

        monkeypatch.setattr(kind, name, counted)

    store = HeldStore()
    brokers = Brokers(store)
    await brokers.start(1, 2)
    tps = brokers.controller.create_topic("orders", partitions=40, owner=1)
    await asyncio.gather(*(brokers.append(tp, b"opened") for tp in tps))
    store.held.add("wal/")
    waiting = [brokers.append(tp, b"not durable yet") for tp in tps]
    await asyncio.sleep(0.05)
    counting(Lives, "close")
    counting(GroupCommit, "abandoned")
    if "moved" in then:
        brokers.controller.move(*tps, to=2)
    if "deleted" in then:
        brokers.controller.delete_topic(tps[0].topic_id)
    await asyncio.sleep(0.01)
    assert looks["close"] <= 5 and looks["abandoned"] <= 2, looks
    if "deleted" in then:
        done = await asyncio.gather(*waiting, return_exceptions=True)
        assert all(isinstance(error, BmqError) for error in done), "whoever waits is told"
    store.let_go("wal/")
    if then == "moved":
        assert {appended.base_offset for appended in await asyncio.gather(*waiting)} == {1}
    await asyncio.sleep(1)
    await brokers.stop()

"""What a broker answers to who names another epoch, sends what it may not, or asks how far behind a group is."""

import asyncio
from typing import Any
from unittest.mock import Mock
from uuid import UUID

import pytest
from broker_under_test import Cluster
from held_store import LISTINGS, HeldStore

from bmq.errors import BmqError, FencedLeaderEpoch, InvalidBatch, NotReady, UnknownLeaderEpoch
from bmq.naming.names import CONSUMER_OFFSETS
from bmq.roles.owner import Caller, Position, TailRequest
from bmq.values import Offset, TopicId, TopicPartition
from bmq.wire import batch_headers
from bmq.wire.apis import ApiKey
from bmq.wire.batches import Record, build_batch
from bmq.wire.message import Message
from bmq_broker.broker import FENCE_PATIENCE_S, FEW_PARTITIONS, Broker
from bmq_sim.loop import on_virtual_time


@on_virtual_time
async def test_who_names_another_leader_epoch_is_told_whether_it_or_this_broker_is_behind_and_gets_nothing() -> None:
    cluster = Cluster()
    await cluster.start()
    (tp,) = await cluster.topic("orders")
    await cluster.append(tp, b"a")
    await cluster.kill()
    await cluster.start("again")
    await cluster.append(tp, b"b")
    owner = cluster.broker.owner
    epoch = (await cluster.broker._ownership.open(tp)).leader_epoch
    assert epoch > 1

    async def answers(current: int) -> list[object]:
        request = TailRequest(tp=tp, offset=Offset(0), max_bytes=1 << 20, current_leader_epoch=current)
        (answer,) = await owner.read_tail([request], min_bytes=1, max_bytes=1 << 20, max_wait_ms=60_000)
        found: list[object] = [answer.error or len(answer.batches)]
        for call in (
            owner.offset_for_time(tp, -1, current_leader_epoch=current),
            owner.epoch_end(tp, epoch, current_leader_epoch=current),
        ):
            try:
                found.append(getattr(await call, "offset", None))
            except BmqError as error:
                found.append(error)
        return found

    began_s = asyncio.get_running_loop().time()
    for right in (-1, epoch):
        assert await answers(right) == [2, 2, None]
    assert [type(one) for one in await answers(epoch - 1)] == [FencedLeaderEpoch] * 3
    assert [type(one) for one in await answers(epoch + 1)] == [UnknownLeaderEpoch] * 3
    assert asyncio.get_running_loop().time() - began_s < 1, "an error is no reason to wait"
    assert (await owner.epoch_end(tp, epoch - 1)).end_offset == 1
    await cluster.stop()


@on_virtual_time
async def test_an_epoch_without_records_ends_at_the_logs_end_and_no_consumer_that_has_it_is_cut_off() -> None:
    cluster = Cluster()
    await cluster.start()
    (tp,) = await cluster.topic("orders")

    async def end(leader_epoch: int) -> tuple[int, int]:
        found = await cluster.broker.owner.epoch_end(tp, leader_epoch)
        return found.leader_epoch, found.end_offset

    first = (await cluster.broker._ownership.open(tp)).leader_epoch
    assert await end(first) == (first, 0)
    assert await end(first - 1) == (first - 1, 0)
    assert await end(first + 1) == (-1, -1), "of this one nothing is known"
    await cluster.append(tp, b"a")
    for name in ("without records", "again"):
        await cluster.kill()
        await cluster.start(name)
        epoch = (await cluster.broker._ownership.open(tp)).leader_epoch
        latest = await cluster.broker.owner.offset_for_time(tp, -1)
        assert (latest.leader_epoch, latest.offset) == (epoch, 1), "with this epoch a consumer begins here"
        assert await end(epoch) == (epoch, 1)
        assert await end(epoch - 1) == (first, 1)
    await cluster.stop()


@on_virtual_time
async def test_of_a_request_with_two_batches_for_a_partition_neither_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster()
    await cluster.start()
    (tp,) = await cluster.topic("orders")
    await cluster.append(tp, b"opened")
    one = build_batch([Record(offset=0, timestamp_ms=cluster.clock.now_ms(), key=None, value=b"x", headers=())])
    monkeypatch.setattr("bmq.wire.batch_headers.read_header", read := Mock(side_effect=batch_headers.read_header))
    for records in (one + one, one * 10_000, b""):
        with pytest.raises(InvalidBatch):
            await cluster.broker.owner.append(tp, records, produce_version=9)
    assert read.call_count == 2 + 2 + 0, "no more than tell that it is refused"
    assert (await cluster.append(tp, b"then")).base_offset == 1
    await cluster.stop()


@on_virtual_time
async def test_what_groups_have_yet_to_read_is_counted_from_the_log_start_at_least_and_unknown_elsewhere() -> None:
    cluster = Cluster()
    await cluster.start()
    one, two = await cluster.topic("orders", partitions=2)
    for number in range(5):
        await cluster.append(one, b"%d" % number)
    await cluster.broker.owner.delete_records(one, Offset(2))
    gone = TopicPartition(TopicId(UUID(int=9)), 0)
    asked = [(one, 0), (one, 3), (one, 5), (one, 9), (two, 0), (gone, 0)]
    found = await cluster.broker.owner.unread([Position(tp=tp, offset=Offset(offset)) for tp, offset in asked])
    assert [None if each is None else each.records for each in found] == [3, 2, 0, 0, 0, None]
    await cluster.stop()


@on_virtual_time
async def test_who_reads_out_of_range_while_nothing_can_be_stored_is_told_to_ask_again() -> None:
    """Only the store knows whether a successor has what this broker has not."""
    store = HeldStore()
    cluster = Cluster(store)
    await cluster.start()
    (tp,) = await cluster.topic("orders")
    await cluster.append(tp, b"a")
    store.held.add("wal/")
    pending = cluster.append(tp, b"b")
    await asyncio.sleep(1)
    began_s = asyncio.get_running_loop().time()
    answers = await asyncio.gather(cluster.tail(tp, 99), cluster.tail(tp, 0))
    assert [type(one.error) for one in answers] == [NotReady, type(None)]
    assert asyncio.get_running_loop().time() - began_s == pytest.approx(FENCE_PATIENCE_S, abs=1)
    assert len(cluster.broker._writer._checks) <= 1, "who has been answered waits no more; the lease's own check does"
    store.let_go("wal/")
    await pending
    assert not isinstance((await cluster.tail(tp, 99)).error, NotReady)
    await cluster.stop()


@on_virtual_time
async def test_who_joins_a_group_whose_coordinator_cannot_be_read_is_told_to_ask_again() -> None:
    store = HeldStore()
    cluster = Cluster(store)
    await cluster.start()
    await cluster.topic(CONSUMER_OFFSETS)
    store.held.add(LISTINGS)
    request = Message(group_id="g", protocols=[], member_id="", group_instance_id=None)
    began_s = asyncio.get_running_loop().time()
    with pytest.raises(NotReady, match="was not opened within"):
        await cluster.broker.owner.group_call(
            0, ApiKey.JOIN_GROUP, request, Caller(client_id="app", client_host="/10.0.0.1")
        )
    assert asyncio.get_running_loop().time() - began_s == pytest.approx(10, abs=1)
    store.let_go(LISTINGS)
    await cluster.kill()


@pytest.mark.parametrize(("count", "at_once"), [(FEW_PARTITIONS, 5), (FEW_PARTITIONS + 1, 1)])
def test_those_who_wait_for_many_partitions_are_woken_together_and_look_in_turns(
    count: int, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = [0]
    """In each turn of the loop in which somebody looked: how many."""
    collect = Broker._collect

    def counted(self: Broker, *arguments: Any, **options: Any) -> Any:
        if not looks[-1]:
            asyncio.get_running_loop().call_soon(looks.append, 0)
        looks[-1] += 1
        return collect(self, *arguments, **options)

    @on_virtual_time
    async def main() -> None:
        cluster = Cluster()
        await cluster.start()
        tps = await cluster.topic("orders", partitions=count)
        wanted = [TailRequest(tp=tp, offset=Offset(0), max_bytes=100) for tp in tps]
        owner = cluster.broker.owner
        readers = [
            asyncio.create_task(owner.read_tail(wanted, min_bytes=1, max_bytes=1_000, max_wait_ms=60_000))
            for _ in range(5)
        ]
        await asyncio.sleep(1)
        monkeypatch.setattr(Broker, "_collect", counted)
        await cluster.append(tps[0], b"a")
        await asyncio.sleep(1)
        assert all(reader.result()[0].size_bytes for reader in readers)
        await cluster.stop()

    main()
    assert max(looks) == at_once


@pytest.mark.parametrize(
    ("count", "min_bytes", "max_bytes"),
    [
        pytest.param(1, 1 << 20, 1 << 20, id="more than will come"),
        pytest.param(1, 100, 1, id="more than it may get of the partition"),
        pytest.param(FEW_PARTITIONS + 1, 1 << 20, 1 << 20, id="many partitions"),
    ],
)
def test_those_who_wait_for_more_than_a_record_brings_look_no_more_often_for_it(
    count: int, min_bytes: int, max_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thousand of them looked at each record."""
    looks = []
    answer = Broker._answer

    def counted(self: Broker, request: TailRequest, *arguments: Any, **options: Any) -> Any:
        looks.append(request.tp)
        return answer(self, request, *arguments, **options)

    @on_virtual_time
    async def main() -> None:
        cluster = Cluster()
        await cluster.start()
        tps = await cluster.topic("orders", partitions=count)
        owner = cluster.broker.owner
        await cluster.append(tps[0], b"a")
        wanted = [TailRequest(tp=tp, offset=Offset(0), max_bytes=max_bytes) for tp in tps]
        monkeypatch.setattr(Broker, "_answer", counted)
        reading = asyncio.create_task(
            owner.read_tail(wanted, min_bytes=min_bytes, max_bytes=1 << 20, max_wait_ms=60_000)
        )
        for _ in range(50):
            await asyncio.sleep(0.5)
            await cluster.append(tps[0], b"a")
        assert not reading.done()
        assert len(looks) <= 2 * count, "once more, when it has all that it may get of the partition"
        answers = await reading
        assert answers[0].size_bytes == (1 if max_bytes == 1 else 51) * len(bytes(answers[0].batches[0]))
        assert len(looks) <= 3 * count
        await cluster.stop()

    main()


@on_virtual_time
async def test_who_waits_for_some_records_gets_them_when_the_last_one_of_them_is_there() -> None:
    cluster = Cluster()
    await cluster.start()
    tps = await cluster.topic("orders", partitions=2)
    owner = cluster.broker.owner
    await cluster.append(tps[0], b"a")
    wanted = [TailRequest(tp=tp, offset=Offset(0), max_bytes=1 << 20) for tp in tps]
    [one, _] = await owner.read_tail(wanted, min_bytes=1, max_bytes=1 << 20, max_wait_ms=0)
    reading = asyncio.create_task(
        owner.read_tail(wanted, min_bytes=5 * one.size_bytes, max_bytes=1 << 20, max_wait_ms=60_000)
    )
    began_s = asyncio.get_running_loop().time()
    for number in range(4):
        await asyncio.sleep(0.5)
        assert not reading.done()
        await cluster.append(tps[number % 2], b"a")
    assert [len(answer.batches) for answer in await reading] == [3, 2]
    assert asyncio.get_running_loop().time() - began_s < 5
    await cluster.stop()


@on_virtual_time
async def test_many_readers_of_many_partitions_at_one_address_are_not_all_before_the_one_at_another() -> None:
    cluster = Cluster()
    await cluster.start()
    tps = await cluster.topic("orders", partitions=FEW_PARTITIONS + 1)
    wanted = [TailRequest(tp=tp, offset=Offset(0), max_bytes=100) for tp in tps]
    answered: list[str] = []

    async def read(address: str, number: int) -> None:
        await cluster.broker.owner.read_tail(
            wanted, min_bytes=1, max_bytes=1_000, max_wait_ms=60_000, party=(address, number)
        )
        answered.append(address)

    readers = [asyncio.create_task(read("many", number)) for number in range(30)]
    await asyncio.sleep(1)
    readers.append(asyncio.create_task(read("other", 0)))
    await asyncio.sleep(1)
    await cluster.append(tps[0], b"a")
    await asyncio.gather(*readers)
    assert answered.index("other") <= 2, answered
    await cluster.stop()

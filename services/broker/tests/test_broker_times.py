"""What the clock decides at a broker: times of the log's own, producers that are forgotten, coordinators' segments that
are no longer needed.
"""

import asyncio
import struct
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest
from broker_under_test import Cluster
from crc32c import crc32c
from typing_extensions import Buffer

from bmq.naming.names import CONSUMER_OFFSETS
from bmq.roles.owner import Appended, Caller, OffsetForTime
from bmq.values import Offset, TopicPartition
from bmq.wire.batch_headers import patched
from bmq.wire.batches import HEADER_SIZE_BYTES, BatchHeader, Record, build_batch, read_header
from bmq.wire.message import Message
from bmq.wire.special_timestamps import MAX_TIMESTAMP
from bmq_broker.coordinators.groups.settings import GroupSettings
from bmq_broker.segments import lookups
from bmq_broker.settings import BrokerSettings
from bmq_sim.loop import on_virtual_time
from bmq_sim.store import Request

DAY_MS = 24 * 3_600_000


class Creates:
    """When WAL objects were sent to the store."""

    def __init__(self) -> None:
        self.of_the_wal_s: list[float] = []

    def began(self, request: Request) -> None:
        if request.key.startswith("wal/"):
            self.of_the_wal_s.append(asyncio.get_running_loop().time())

    def ended(self, request: Request) -> None:
        pass


def of_long_ago(value: bytes) -> bytes:
    """Two records with times of the client's own, which do not even ascend."""
    records = [Record(offset=0, timestamp_ms=time_ms, key=None, value=value, headers=()) for time_ms in (1_000, 500)]
    return build_batch(records)


@on_virtual_time
async def test_log_append_time_is_the_brokers_in_answers_and_in_what_is_found_by_time() -> None:
    cluster = Cluster()
    await cluster.start()
    (tp,) = await cluster.topic("orders", configs={"message.timestamp.type": "LogAppendTime"})
    times_ms: list[int] = []
    for number in range(6):
        await asyncio.sleep(1)
        times_ms += [cluster.clock.now_ms()] * 2
        appended = await cluster.broker.owner.append(tp, of_long_ago(b"%d" % number), produce_version=9)
        assert appended.log_append_time_ms == times_ms[-1]
        if number == 2:
            await cluster.roll(tp)

    async def check() -> None:
        for asked_ms in range(times_ms[0] - 500, times_ms[-1] + 600, 250):
            found = await cluster.broker.owner.offset_for_time(tp, asked_ms)
            expected = next((offset for offset, time_ms in enumerate(times_ms) if time_ms >= asked_ms), -1)
            assert (found.offset, found.timestamp_ms) == (expected, times_ms[expected] if expected >= 0 else -1), (
                asked_ms
            )

    await check()
    await cluster.kill()
    await cluster.start("again")
    await check()
    await cluster.stop()


@on_virtual_time
async def test_where_creates_cost_money_objects_are_a_linger_apart_also_after_a_full_one() -> None:
    cluster = Cluster(settings=BrokerSettings(eager=False, linger_ms=100, flush_bytes=1_000))
    await cluster.start()
    (tp,) = await cluster.topic("orders")
    await asyncio.sleep(1)
    time_s = asyncio.get_running_loop().time
    appended: list[asyncio.Future[Appended]] = []
    creates = Creates()
    cluster.store.watcher = creates
    began_s = time_s()
    for at_s, size_bytes in ((0.0, 10), (0.01, 10), (0.05, 2_000), (0.06, 10), (0.2, 10)):
        await asyncio.sleep(began_s + at_s - time_s())
        appended.append(cluster.append(tp, bytes(size_bytes)))
    await asyncio.gather(*appended)
    assert [round(one - began_s, 3) for one in creates.of_the_wal_s] == [0.0, 0.05, 0.15, 0.25]
    await cluster.stop()


@on_virtual_time
async def test_a_producer_that_was_silent_for_long_is_forgotten() -> None:
    cluster = Cluster(settings=BrokerSettings(producer_expiry_ms=60_000, retention_interval_ms=5_000))
    await cluster.start()
    (tp,) = await cluster.topic("orders")
    await cluster.append(tp, b"a", producer_id=5, producer_epoch=0, base_sequence=0)
    partition = await cluster.broker._ownership.open(tp)
    assert len(partition.live) == 1
    await asyncio.sleep(50)
    assert len(partition.live) == 1
    await asyncio.sleep(20)
    assert len(partition.live) == 0
    await cluster.append(tp, b"b", producer_id=5, producer_epoch=0, base_sequence=41)
    await cluster.stop()


@on_virtual_time
async def test_a_coordinators_segments_below_its_snapshot_go_after_a_day() -> None:
    cluster = Cluster(
        settings=BrokerSettings(retention_interval_ms=60_000), groups=GroupSettings(snapshot_record_interval=20)
    )
    await cluster.start()
    (orders,) = await cluster.topic("orders")
    (tp,) = await cluster.topic(CONSUMER_OFFSETS, configs={"cleanup.policy": "compact"})
    for number in range(100):
        await cluster.broker.owner.group_call(0, 8, committing(orders, number), Caller(client_id="c", client_host="h"))
        if number % 30 == 29:
            await cluster.roll(tp)
    await asyncio.sleep(300)
    partition = await cluster.broker._ownership.open(tp)
    assert partition.log_start == 0
    assert partition.manifest.coordinator_snapshot is not None
    await cluster.stop()
    cluster.clock.skew_ms = cluster.store.clock_offset_ms = DAY_MS
    await cluster.start("a day later")
    partition = await cluster.broker._ownership.open(tp)
    await asyncio.sleep(300)
    assert partition.log_start == 90
    await cluster.stop()


def committing(tp: TopicPartition, offset: int) -> Message:
    """An OffsetCommit of a consumer that is in no group session."""
    part = Message(
        partition_index=tp.partition, committed_offset=offset, committed_leader_epoch=-1, committed_metadata=""
    )
    topic = Message(name="orders", topic_id=tp.topic_id, partitions=[part])
    return Message(
        group_id="g",
        generation_id_or_member_epoch=-1,
        member_id="",
        group_instance_id=None,
        retention_time_ms=-1,
        topics=[topic],
    )


@on_virtual_time
async def test_a_batch_that_cannot_be_opened_hides_nothing_from_who_looks_by_time() -> None:
    """As older versions took them, and topics still do that ask for no proof: in the tail and in segments."""
    cluster = Cluster()
    await cluster.start()
    (tp,) = await cluster.topic("orders")
    now_ms = cluster.clock.now_ms()

    async def put(data: bytes) -> None:
        await cluster.broker.owner.append(tp, data, produce_version=9)

    async def check() -> None:
        assert (await cluster.broker.owner.offset_for_time(tp, now_ms)).offset == 0
        assert (await cluster.broker.owner.offset_for_time(tp, now_ms + 1)).offset == 4
        assert (await cluster.broker.owner.offset_for_time(tp, -3)).offset == 4
        assert (await cluster.broker.owner.offset_for_time(tp, now_ms + 3)).offset == -1

    await put(build_batch([Record(offset=0, timestamp_ms=now_ms, key=None, value=b"good", headers=())]))
    await put(_unreadable(count=3, max_timestamp_ms=now_ms + 9))
    await put(build_batch([Record(offset=0, timestamp_ms=now_ms + 2, key=None, value=b"good", headers=())]))
    await check()
    await cluster.roll(tp)
    await check()
    await cluster.stop()


class Opened:
    """How many batches look-ups opened, of those that a broker has."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        for name in ("first_at_or_after", "with_max_timestamp"):
            monkeypatch.setattr(lookups, name, partial(self._look, getattr(lookups, name)))

    def _look(self, look: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        self.count += 1
        return look(*args, **kwargs)

    async def during(self, looking: Awaitable[OffsetForTime]) -> tuple[int, int, int]:
        """The offset and the time that were found, and how many were opened for it."""
        self.count = 0
        found = await looking
        return found.offset, found.timestamp_ms, self.count


def _lying(*, time_ms: int, says_ms: int) -> bytes:
    """Two records of one time, and a header that says that one is of another."""
    good = build_batch([Record(0, time_ms, None, b"v", ())] * 2)
    return bytes(patched(good, read_header(good), base_offset=0, leader_epoch=-1, max_timestamp_ms=says_ms))


@pytest.mark.parametrize("is_rolled", [False, True], ids=["in the tail", "in segments"])
@on_virtual_time
async def test_a_look_up_opens_few_batches_whose_headers_lie_and_believes_those_behind_them(
    monkeypatch: pytest.MonkeyPatch, *, is_rolled: bool
) -> None:
    """Who looks for a time reads what is older, and misses nothing."""
    cluster = Cluster(settings=BrokerSettings(false_batches_per_look_up=3))
    await cluster.start()
    (tp,) = await cluster.topic("orders", configs={"bmq.validation": "lengths"})
    owner, opened = cluster.broker.owner, Opened(monkeypatch)
    for says_ms in (2_000, 2_001, 2_002, 2_003, 2_004):
        await owner.append(tp, _lying(time_ms=1_000, says_ms=says_ms), produce_version=9)
    await owner.append(tp, build_batch([Record(0, 2_000, None, b"v", ())]), produce_version=9)
    if is_rolled:
        await cluster.roll(tp)
    assert await opened.during(owner.offset_for_time(tp, 1_000)) == (0, 1_000, 1)
    assert await opened.during(owner.offset_for_time(tp, 2_000)) == (6, 2_003, 3)
    assert await opened.during(owner.offset_for_time(tp, MAX_TIMESTAMP)) == (2, 2_001, 3), (
        "the first that was not found to lie"
    )
    await owner.delete_records(tp, Offset(7))
    assert await opened.during(owner.offset_for_time(tp, 2_000)) == (10, 2_000, 3)
    await cluster.stop()


@pytest.mark.parametrize("is_rolled", [False, True], ids=["in the tail", "in segments"])
@on_virtual_time
async def test_the_largest_time_of_many_is_found_with_one_batch_opened(
    monkeypatch: pytest.MonkeyPatch, *, is_rolled: bool
) -> None:
    cluster = Cluster()
    await cluster.start()
    (tp,) = await cluster.topic("orders")
    opened = Opened(monkeypatch)
    for time_ms in range(1_000, 1_040):
        await cluster.broker.owner.append(
            tp, build_batch([Record(0, time_ms, None, bytes(500), ())]), produce_version=9
        )
        if is_rolled and time_ms % 10 == 9:
            await cluster.roll(tp)
    offset, time_ms, count = await opened.during(cluster.broker.owner.offset_for_time(tp, MAX_TIMESTAMP))
    assert (offset, time_ms, count) == (39, 1_039, 1)
    await cluster.stop()


@pytest.mark.parametrize("rolls", [(), (20,), (20, 40)], ids=["in the tail", "in both", "in segments"])
@pytest.mark.parametrize("why", ["deleted", "false"])
@on_virtual_time
async def test_where_the_largest_time_is_said_in_vain_the_next_largest_is_opened_and_not_all(
    monkeypatch: pytest.MonkeyPatch, why: str, rolls: tuple[int, ...]
) -> None:
    """Times ascend: so each is the largest of those before it."""
    cluster = Cluster()
    await cluster.start()
    (tp,) = await cluster.topic("orders", configs={"bmq.validation": "lengths"})
    owner, opened = cluster.broker.owner, Opened(monkeypatch)
    is_deleted = why == "deleted"
    records = [Record(0, time_ms, None, b"v", ()) for time_ms in (9_000, 500)]
    await owner.append(
        tp, build_batch(records) if is_deleted else _lying(time_ms=500, says_ms=9_000), produce_version=9
    )
    for number in range(1, 41):
        await owner.append(tp, build_batch([Record(0, 1_000 + number, None, bytes(500), ())] * 2), produce_version=9)
        if number in rolls:
            await cluster.roll(tp)
    if is_deleted:
        await owner.delete_records(tp, Offset(1))
    assert await opened.during(owner.offset_for_time(tp, MAX_TIMESTAMP)) == (80, 1_040, 2)
    await cluster.stop()


@pytest.mark.parametrize("is_rolled", [False, True], ids=["in the tail", "in segments"])
@on_virtual_time
async def test_the_largest_time_is_the_earliest_record_that_has_it_in_whatever_order_times_come(
    *, is_rolled: bool
) -> None:
    cluster = Cluster()
    await cluster.start()
    (tp,) = await cluster.topic("orders")
    times_ms = [(37 * number) % 101 + 1_000 for number in range(150)]
    for first in range(0, len(times_ms), 3):
        records = [Record(0, time_ms, None, bytes(300), ()) for time_ms in times_ms[first : first + 3]]
        await cluster.broker.owner.append(tp, build_batch(records), produce_version=9)
        if is_rolled and first % 30 == 27:
            await cluster.roll(tp)
    for start in range(0, len(times_ms), 7):
        await cluster.broker.owner.delete_records(tp, Offset(start))
        largest_ms = max(times_ms[start:])
        found = await cluster.broker.owner.offset_for_time(tp, MAX_TIMESTAMP)
        assert (found.offset, found.timestamp_ms) == (times_ms.index(largest_ms, start), largest_ms), start
    await cluster.stop()


@on_virtual_time
async def test_of_records_without_times_none_has_the_largest() -> None:
    cluster = Cluster(settings=BrokerSettings(false_batches_per_look_up=3))
    await cluster.start()
    (tp,) = await cluster.topic("orders")
    for _ in range(5):
        await cluster.broker.owner.append(tp, build_batch([Record(0, -1, None, b"v", ())]), produce_version=9)
    assert (await cluster.broker.owner.offset_for_time(tp, MAX_TIMESTAMP)).offset == -1
    await cluster.stop()


def _unreadable(*, count: int, max_timestamp_ms: int) -> bytes:
    """Garbage that says it is a gzipped batch, with the checksum that it has."""
    good = build_batch([Record(0, max_timestamp_ms, None, b"v")] * count, codec=1)
    data = bytearray(good[:HEADER_SIZE_BYTES] + b"\xff" * (len(good) - HEADER_SIZE_BYTES))
    struct.pack_into(">I", data, 17, crc32c(memoryview(data)[21:]))
    return bytes(data)


@on_virtual_time
async def test_look_ups_by_time_walk_a_long_tail_in_turns_and_skip_what_is_older(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lookups, "TAIL_BATCHES_PER_TURN", 10)
    cluster = Cluster()
    await cluster.start()
    (tp,) = await cluster.topic("orders")
    read: list[int] = []
    turn = 0

    def noted(batch: Buffer) -> BatchHeader:
        read.append(turn)
        return read_header(batch)

    monkeypatch.setattr(lookups, "read_header", noted)
    for time_ms in (1_000, 2_000):
        batch = build_batch([Record(offset=0, timestamp_ms=time_ms, key=None, value=b"a", headers=())])
        await asyncio.gather(*(cluster.broker.owner.append(tp, batch, produce_version=9) for _ in range(60)))
    looking = asyncio.gather(*(cluster.broker.owner.offset_for_time(tp, MAX_TIMESTAMP) for _ in range(4)))
    while not looking.done():
        turn += 1
        await asyncio.sleep(0)
    assert {one.timestamp_ms for one in await looking} == {2_000}
    assert len(read) == 4 * 120
    assert max(map(read.count, read)) <= 20, "a part of one look-up's in a turn, and what was left of the one before"
    read.clear()
    assert (await cluster.broker.owner.offset_for_time(tp, 3_000)).offset == -1
    assert read == []
    assert (await cluster.broker.owner.offset_for_time(tp, 1_500)).offset == 60
    assert len(read) <= 60
    await cluster.stop()

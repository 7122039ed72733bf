"""Quiet partitions beside a load: what they have in the WAL is carried forward, nothing of it is lost, and it costs
hardly any requests.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from uuid import UUID

import pytest
from broker_under_test import Cluster, small
from held_store import HeldStore
from moving_brokers import Brokers

from bmq.config.topic_config import resolve
from bmq.errors import PartitionStopped
from bmq.storage.keys import SHARED_PREFIX
from bmq.storage.manifest import Manifest
from bmq.storage.segment import decode_segment
from bmq.values import LeaderEpoch, Offset, TopicId, TopicPartition
from bmq.wire.batches import Record, build_batch, read_header
from bmq_broker.partitions.partition import Partition
from bmq_broker.partitions.producers import Producers
from bmq_broker.partitions.tail import Run, Slot, TailTotal
from bmq_broker.settings import BrokerSettings
from bmq_broker.wal.commit import BUFFER_MAX_FLUSHES
from bmq_sim.loop import on_virtual_time
from bmq_sim.store import SimStore, StoreFaults

QUIET = 40
PLENTY = 1_000_000


def carrying(**changes: float) -> BrokerSettings:
    """The WAL's length asks all the time, memory never; what is carried is small beside the load."""
    base = small(tail_budget_bytes=PLENTY, tail_limit_bytes=PLENTY, wal_budget_bytes=200_000, flush_bytes=4_000)
    return replace(base, carry_share=1.0, carry_parts=4, **changes)  # type: ignore[arg-type]


async def load(cluster: Cluster, busy: TopicPartition, *, batches: int) -> None:
    for _ in range(batches):
        await cluster.append(busy, bytes(2_000))


def created(cluster: Cluster, *, prefix: str) -> int:
    return sum(1 for key, _ in cluster.store.ever if key.startswith(prefix))


@on_virtual_time
async def test_quiet_partitions_beside_a_load_cost_no_segments_and_no_manifests() -> None:
    cluster = Cluster(SimStore(faults=StoreFaults(latency_s_min=0.001, latency_s_max=0.005)), settings=carrying())
    cluster.store.keep_all = True
    await cluster.start()
    busy, *quiet = await cluster.topic("orders", partitions=QUIET + 1, configs={"segment.bytes": "65536"})
    for number, tp in enumerate(quiet):
        await cluster.append(tp, b"%d" % number)
    await load(cluster, busy, batches=500)
    rolled = {key.split("/")[2] for key, _ in cluster.store.ever if key.startswith("topics/") and "/manifest/" in key}
    assert rolled == {f"{busy.partition:010d}"}
    assert created(cluster, prefix=SHARED_PREFIX) == 0
    assert cluster.broker._commit.wal_bytes <= 200_000 + 30_000
    await cluster.kill()
    await cluster.start("again")
    for number, tp in enumerate(quiet):
        assert await cluster.read_all(tp) == [(0, b"%d" % number)]
    assert len(await cluster.read_all(busy)) == 500
    await cluster.stop()


@on_virtual_time
async def test_what_was_inherited_is_carried_into_the_own_stream_and_the_old_one_goes() -> None:
    cluster = Cluster(settings=carrying(ranges_max=1, retention_interval_ms=10_000_000))
    await cluster.start()
    quiet = await cluster.topic("orders", partitions=QUIET)
    for number in range(4):
        for tp in quiet:
            await cluster.append(tp, b"%d" % number)
        await cluster.kill()
        await cluster.start(f"start {number}")
        await asyncio.sleep(100)
        image = cluster.controller.metadata.image
        assert not any(meta.ranges for topic in image.topics.values() for meta in topic.partitions)
        assert not image.sealed
    assert not [key for key in cluster.store.keys("topics/") if "/manifest/" in key]
    for tp in quiet:
        assert [value for _, value in await cluster.read_all(tp)] == [b"0", b"1", b"2", b"3"]
    epochs = (await cluster.broker._ownership.open(quiet[0])).epochs
    assert [each.start_offset for each in epochs] == [0, 1, 2, 3, 4]
    await cluster.stop()


@on_virtual_time
async def test_a_copy_that_is_not_durable_does_not_let_the_original_go() -> None:
    store = HeldStore()
    cluster = Cluster(store, settings=carrying())
    await cluster.start()
    busy, quiet = await cluster.topic("orders", partitions=2, configs={"segment.bytes": "1000000"})
    await cluster.append(quiet, b"a")
    partition = await cluster.broker._ownership.open(quiet)
    original = next(iter(partition.tail.runs)).slot
    assert original is not None
    store.unknown.add("wal/")
    cluster.broker._roller.carry_or_roll([partition], "test")
    assert partition.carrying
    await asyncio.sleep(10)
    assert cluster.store.keys("wal/")
    assert next(iter(partition.tail.runs)).slot is original
    await cluster.kill()
    store.unknown.clear()
    await cluster.start("again")
    assert await cluster.read_all(quiet) == [(0, b"a")]
    await cluster.append(busy, b"b")
    await cluster.stop()


@on_virtual_time
async def test_a_wal_object_holds_a_few_flushes_at_most_whatever_is_carried() -> None:
    store = HeldStore()
    cluster = Cluster(store, settings=carrying(in_flight_max=1))
    await cluster.start()
    busy, *quiet = await cluster.topic("orders", partitions=QUIET + 1, configs={"segment.bytes": "1000000"})
    await asyncio.gather(*(cluster.append(tp, bytes(2_000)) for tp in quiet))
    partitions = [await cluster.broker._ownership.open(tp) for tp in quiet]
    store.held.add("wal/")
    waiting = cluster.append(busy, b"in flight")
    await asyncio.sleep(0.1)
    cluster.broker._roller.carry_or_roll(partitions, "test")
    assert all(partition.carrying for partition in partitions)
    limit_bytes = BUFFER_MAX_FLUSHES * cluster.settings.flush_bytes
    assert max(group.slot.size_bytes for group in cluster.broker._commit._groups()) < limit_bytes + 2_100
    store.let_go("wal/")
    await waiting
    await asyncio.sleep(1)
    assert not any(partition.carrying for partition in partitions)
    await cluster.kill()
    await cluster.start("again")
    for tp in quiet:
        assert await cluster.read_all(tp) == [(0, bytes(2_000))]
    await cluster.stop()


@on_virtual_time
async def test_a_partition_that_was_carried_and_appended_to_is_whole_at_its_heir() -> None:
    brokers = Brokers(
        SimStore(faults=StoreFaults(latency_s_min=0.002, latency_s_max=0.01), page_keys=1000), settings=carrying()
    )
    await brokers.start(1, 2)
    (tp,) = brokers.controller.create_topic("orders", partitions=1, owner=1)
    values = []
    for number in range(12):
        values.append(b"%d" % number)
        await brokers.append_wherever(tp, values[-1])
        owner = brokers.roles[brokers.controller.meta(tp).node_id]
        owner._roller.carry_or_roll([await owner._ownership.open(tp)], "test")
        if number % 4 == 3:
            await brokers.moved(tp, to=2 if brokers.controller.meta(tp).node_id == 1 else 1)
    assert await brokers.read_all(tp) == list(enumerate(values))
    await brokers.stop()


@on_virtual_time
async def test_small_tails_that_are_rolled_together_share_a_segment() -> None:
    cluster = Cluster(settings=carrying(carry_bytes_max=0))
    cluster.store.keep_all = True
    await cluster.start()
    busy, *quiet = await cluster.topic("orders", partitions=QUIET + 1, configs={"segment.bytes": "65536"})
    for number, tp in enumerate(quiet):
        await cluster.append(tp, b"%d" % number, producer_id=number, producer_epoch=0, base_sequence=0)
    await load(cluster, busy, batches=300)
    await asyncio.sleep(10)
    shared = [decode_segment(data) for key, data in cluster.store.ever if key.startswith(SHARED_PREFIX)]
    assert {run.entry.tp for found in shared for run in found.runs} >= set(quiet)
    assert len(shared) <= QUIET / 4
    await cluster.kill()
    await cluster.start("again")
    for number, tp in enumerate(quiet):
        assert await cluster.read_all(tp) == [(0, b"%d" % number)]
        twice = await cluster.append(tp, b"%d" % number, producer_id=number, producer_epoch=0, base_sequence=0)
        assert twice.base_offset == 0
    await cluster.stop()


def partition_with(*runs: Sequence[bytes]) -> Partition:
    """Opened with these runs, each a row of batches, out of the WAL of earlier owners."""
    tp = TopicPartition(TopicId(UUID(int=7)), 0)
    partition = Partition(tp, leader_epoch=LeaderEpoch(9), config=resolve({}, {}), ranges=(), total=TailTotal())
    recovered = []
    for batches in runs:
        headers = [read_header(batch) for batch in batches]
        run = Run(
            slot=None,
            leader_epoch=LeaderEpoch(8),
            base_offset=Offset(headers[0].base_offset),
            next_offset=Offset(headers[-1].next_offset),
            batches=list(batches),
            size_bytes=sum(map(len, batches)),
            max_timestamp_ms=max(header.max_timestamp_ms for header in headers),
            since_ms=0,
        )
        recovered.append((run, headers))
    recovered.sort(key=lambda pair: pair[0].base_offset)
    partition.start()
    partition.opened(Manifest(), None, Producers(), recovered, now_ms=0)
    partition.recovered()
    return partition


def batch(offset: int, value: bytes, *, leader_epoch: int = 8, timestamp_ms: int = 0) -> bytes:
    record = Record(offset=0, timestamp_ms=timestamp_ms, key=None, value=value, headers=())
    return bytes(build_batch([record], base_offset=offset, leader_epoch=leader_epoch))


def test_of_originals_and_copies_each_batch_is_taken_once() -> None:
    log = [batch(0, b"a", leader_epoch=5), batch(1, b"b"), batch(2, b"c"), batch(3, b"d")]
    partition = partition_with(log[:1], log[0:3], log[1:2], log[1:4], log[3:])
    assert list(partition.tail.durable_batches()) == log
    assert [run.base_offset for run in partition.tail.runs] == [0, 1, 3]
    assert [(each.epoch, each.start_offset) for each in partition.epochs] == [(5, 0), (8, 1), (9, 4)]


@pytest.mark.parametrize(
    "other", [batch(1, b"x"), batch(1, b"b", leader_epoch=7)], ids=["another record", "another leader epoch"]
)
def test_two_different_batches_of_one_offset_stop_the_partition(other: bytes) -> None:
    with pytest.raises(PartitionStopped, match="a second time"):
        partition_with([batch(0, b"a"), batch(1, b"b")], [other])


def test_a_batch_that_begins_below_the_end_that_was_found_and_goes_beyond_it_stops_the_partition() -> None:
    """Neither half of it may be taken: what of it is there already was given to other records."""
    two = bytes(
        build_batch(
            [Record(offset=at, timestamp_ms=0, key=None, value=b"x", headers=()) for at in range(2)],
            base_offset=1,
            leader_epoch=8,
        )
    )
    with pytest.raises(
        PartitionStopped, match="from 1 on, of leader epoch 8, a second time: up to 1 they are there already"
    ):
        partition_with([batch(0, b"a"), batch(1, b"b")], [two])


def test_a_batch_of_an_earlier_epoch_behind_one_of_a_later_one_stops_the_partition() -> None:
    """Nobody of epoch 7 could write there once epoch 8 had begun below it: its readers would be told another end of
    epoch 7 than before.
    """
    with pytest.raises(PartitionStopped, match="from 2 on, of leader epoch 7"):
        partition_with([batch(0, b"a", leader_epoch=7), batch(1, b"b")], [batch(2, b"c", leader_epoch=7)])
    with pytest.raises(PartitionStopped, match="from 2 on, of leader epoch 7"):
        partition_with([batch(0, b"a"), batch(1, b"b"), batch(2, b"c", leader_epoch=7)])


def test_a_roll_that_began_before_its_runs_were_carried_takes_its_part_of_the_copy() -> None:
    log = [batch(number, b"%d" % number) for number in range(4)]
    partition = partition_with(*([each] for each in log))
    plan = partition.plan_roll(target_bytes=len(log[0]) * 2)
    assert plan is not None
    assert partition.begin_carrying()
    copy = partition.carry(Slot(), max_bytes=PLENTY)
    assert copy is not None
    partition.carried(copy)
    assert len(partition.tail.runs) == 1
    assert partition.covers_recovered()
    partition.tail.trim(plan.next_offset)
    assert list(partition.tail.durable_batches()) == log[2:]
    assert [(run.base_offset, run.batches) for run in partition.tail.runs] == [(2, log[2:])]
    assert partition.tail.size_bytes == partition.tail.durable_bytes == sum(map(len, log[2:]))


def test_what_was_inherited_is_covered_when_each_part_of_it_is_carried() -> None:
    log = [batch(number, b"%d" % number) for number in range(5)]
    size_bytes = len(log[0])
    partition = partition_with(log[:1], log[1:4], log[4:])
    assert partition.begin_carrying()
    assert not partition.begin_carrying()
    parts = []
    while (copy := partition.carry(Slot(), max_bytes=2 * size_bytes)) is not None:
        assert not partition.covers_recovered()
        parts.append((copy.base_offset, copy.next_offset, copy.batches))
        assert copy.slot is not None
        assert partition.carried(copy) == [copy.slot], "earlier owners' objects are not this stream's"
        assert list(partition.tail.durable_batches()) == log
    assert parts == [(0, 1, log[:1]), (1, 3, log[1:3]), (3, 5, log[3:])]
    assert partition.covers_recovered()
    assert not partition.carrying


def test_each_object_is_needed_until_all_that_is_in_it_is_carried() -> None:
    log = [batch(number, b"%d" % number) for number in range(4)]
    partition = partition_with(log)
    partition.begin_carrying()
    whole = partition.carry(Slot(), max_bytes=PLENTY)
    assert whole is not None
    assert whole.slot is not None
    partition.carried(whole)
    assert partition.carry(Slot(), max_bytes=PLENTY) is None
    partition.begin_carrying()
    slots = []
    for number in range(4):
        copy = partition.carry(Slot(), max_bytes=1)
        assert copy is not None
        assert copy.slot is not None
        assert copy.batches == [log[number]], "at least a batch"
        copy.slot.runs = 1
        for slot in partition.carried(copy):
            slot.runs -= 1
        slots.append(copy.slot)
        assert whole.slot.runs == (1 if number < 3 else 0)
        assert [slot.runs for slot in slots] == [1] * (number + 1), "the parts before stay needed, too"


def test_each_copy_tells_the_largest_time_of_its_own_batches() -> None:
    """It is written into the directory of the WAL object, which `bmq store check` compares with what is there."""
    times = [7, 9, 3, 8, 2, 1]
    log = [batch(number, b"%d" % number, timestamp_ms=at) for number, at in enumerate(times)]
    partition = partition_with(log)
    partition.tail.trim(1)
    partition.begin_carrying()
    told = []
    while (copy := partition.carry(Slot(), max_bytes=2 * len(log[0]))) is not None:
        told.append((copy.base_offset, copy.max_timestamp_ms))
        partition.carried(copy)
    assert told == [(1, 9), (3, 8), (5, 1)]


def test_what_is_rolled_while_it_is_carried_in_parts_is_carried_no_more() -> None:
    log = [batch(number, b"%d" % number) for number in range(6)]
    partition = partition_with(log)
    partition.begin_carrying()
    copy = partition.carry(Slot(), max_bytes=2 * len(log[0]))
    assert copy is not None
    partition.tail.trim(3)
    partition.carried(copy)
    following = partition.carry(Slot(), max_bytes=2 * len(log[0]))
    assert following is not None
    assert (following.base_offset, following.next_offset, following.batches) == (3, 5, log[3:5])
    partition.tail.trim(6)
    partition.carried(following)
    assert partition.carry(Slot(), max_bytes=PLENTY) is None
    assert not partition.tail.runs


@on_virtual_time
async def test_too_many_wal_objects_cost_no_more_rolls_than_a_sixteenth_of_them() -> None:
    """Many partitions that share a load: a roll for each of them whenever there are a hundred objects would double what
    the WAL costs.
    """
    cluster = Cluster(SimStore(), settings=carrying(wal_objects_max=100, wal_budget_bytes=PLENTY, carry_bytes_max=0))
    cluster.store.keep_all = True
    await cluster.start()
    tps = await cluster.topic("orders", partitions=QUIET)
    for number in range(2_000):
        await cluster.append(tps[number % QUIET], bytes(50))
    rolls = sum(1 for key, _ in cluster.store.ever if "/manifest/" in key)
    assert QUIET < rolls <= 25 + 2_000 / 16
    await cluster.stop()


@on_virtual_time
async def test_the_wal_is_kept_short_in_objects_too_so_that_an_heir_has_few_to_read() -> None:
    """A trickle: each batch is an object of its own, and all of them together never come near the budget of bytes."""
    store = SimStore(faults=StoreFaults(latency_s_min=0.001, latency_s_max=0.005))
    cluster = Cluster(store, settings=replace(carrying(wal_objects_max=100), carry_share=4.0))
    cluster.store.keep_all = True
    await cluster.start()
    quiet = await cluster.topic("orders", partitions=QUIET)
    expected: dict[TopicPartition, list[bytes]] = {tp: [] for tp in quiet}
    longest = 0
    for number in range(1_000):
        tp = quiet[number % QUIET]
        expected[tp].append(b"%d" % number)
        await cluster.append(tp, expected[tp][-1])
        longest = max(longest, cluster.broker._commit.wal_objects)
    assert longest <= 100 + 20
    assert created(cluster, prefix="topics/") + created(cluster, prefix=SHARED_PREFIX) < 100, (
        "it costs a tenth of the WAL's own requests at most"
    )
    await cluster.kill()
    await cluster.start("again")
    assert 0 < cluster.broker._roller._inherited_objects <= 100 + 20
    for tp in quiet:
        assert [value for _, value in await cluster.read_all(tp)] == expected[tp]
    await cluster.stop()

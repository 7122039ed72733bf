"""A partition that cannot be rolled stops alone: it refuses records and says why, the others go on, and the WAL does
not grow for it.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest
from broker_under_test import Cluster
from held_store import HeldStore
from moving_brokers import Brokers
from typing_extensions import Buffer

from bmq.errors import NotReady, PartitionStopped, UnknownOutcome
from bmq.storage.keys import manifest_prefix, segment_prefix
from bmq.storage.numbered import numbered_key
from bmq.values import Offset, TopicPartition
from bmq_broker.partitions.partition import Partition
from bmq_broker.settings import BrokerSettings
from bmq_sim.loop import on_virtual_time
from bmq_sim.store import NodeStore, SimStore

SMALL = BrokerSettings(
    tail_budget_bytes=20_000,
    tail_limit_bytes=40_000,
    wal_budget_bytes=40_000,
    flush_bytes=4_000,
    manifest_entries_max=6,
    shared_below_bytes=500,
    merge_count=1000,
)


def damage_next_version(store: SimStore, tp: TopicPartition, partition: Partition) -> str:
    """Somebody puts what is no manifest where the next one goes."""
    key = numbered_key(manifest_prefix(tp), partition.manifest_version + 1)
    store.apply_create("disaster", key, b"no manifest")
    return key


class SlowStore(SimStore):
    """A store that takes a kilobyte a second: of larger WAL objects than `TAKES_BYTES` nothing is there when a create's
    time is over.
    """

    TAKES_BYTES = 10_000
    TIMEOUT_S = 10.0

    def for_node(self, name: str) -> NodeStore:
        return _SlowNodeStore(self, name)


class _SlowNodeStore(NodeStore):
    async def create(self, key: str, parts: Sequence[Buffer]) -> None:
        size_bytes = sum(memoryview(part).nbytes for part in parts)
        if key.startswith("wal/") and size_bytes > SlowStore.TAKES_BYTES:
            await asyncio.sleep(SlowStore.TIMEOUT_S)
            raise UnknownOutcome(f"create {key}: no answer")
        await super().create(key, parts)


async def stopped(cluster: Cluster, tp: TopicPartition) -> tuple[Partition, str, list[tuple[int, bytes]]]:
    """Has one record in a segment, and a tail that cannot be rolled, until it refuses. Returns what keeps it from that,
    and what it took.
    """
    await cluster.append(tp, b"first")
    await cluster.roll(tp)
    partition = cluster.broker._ownership.partitions[tp]
    key = damage_next_version(cluster.store, tp, partition)
    return partition, key, [(0, b"first"), *await fill(cluster, tp)]


async def check_restored(cluster: Cluster, tp: TopicPartition, key: str, taken: list[tuple[int, bytes]]) -> None:
    """The next broker has all of it, once what was damaged is gone."""
    await cluster.kill()
    cluster.store.apply_delete("operator", key)
    await cluster.start("again")
    assert await cluster.read_all(tp) == taken
    await cluster.kill()


async def fill(cluster: Cluster, tp: TopicPartition) -> list[tuple[int, bytes]]:
    """Appends until the partition refuses and says what to restore; returns what it took."""
    return await fill_until_refused(cluster, tp, saying="restore the object")


async def fill_until_refused(
    cluster: Cluster, tp: TopicPartition, *, saying: str = "", patience_s: float = 60
) -> list[tuple[int, bytes]]:
    """Appends until the partition refuses; returns what it took."""
    taken: list[tuple[int, bytes]] = []
    for number in range(500):
        value = b"%d" % number + bytes(1_000)
        try:
            async with asyncio.timeout(patience_s):
                taken.append(((await cluster.append(tp, value)).base_offset, value))
        except PartitionStopped as stopped:
            assert str(tp) in str(stopped)
            assert saying in str(stopped)
            return taken
    raise AssertionError("nothing was refused")


async def write(cluster: Cluster, tp: TopicPartition, *, count: int) -> None:
    for _ in range(count):
        async with asyncio.timeout(60):
            await cluster.append(tp, bytes(1_000))


@on_virtual_time
async def test_a_partition_that_cannot_be_rolled_refuses_records_alone_and_goes_on_when_that_is_restored() -> None:
    cluster = Cluster(settings=SMALL)
    await cluster.start()
    (hurt, other) = await cluster.topic("orders", partitions=2)
    partition, key, taken = await stopped(cluster, hurt)
    assert partition.tail.size_bytes <= SMALL.tail_limit_bytes
    await write(cluster, other, count=200)
    assert await cluster.read_all(hurt) == taken
    assert cluster.broker._commit.wal_bytes <= SMALL.wal_budget_bytes + 8 * SMALL.tail_budget_bytes
    await asyncio.sleep(600)
    with pytest.raises(PartitionStopped, match="takes no more records"):
        await cluster.append(hurt, b"refused")
    cluster.store.apply_delete("operator", key)
    await asyncio.sleep(60)
    assert (await cluster.append(hurt, b"again")).base_offset == len(taken)
    assert await cluster.read_all(hurt) == [*taken, (len(taken), b"again")]
    await cluster.kill()


@on_virtual_time
async def test_the_wal_stays_bounded_though_a_partition_cannot_be_rolled_and_nothing_of_it_is_lost() -> None:
    cluster = Cluster(settings=SMALL)
    await cluster.start()
    (hurt, other) = await cluster.topic("orders", partitions=2)
    partition, key, taken = await stopped(cluster, hurt)
    most = 0
    for _ in range(20):
        await write(cluster, other, count=50)
        most = max(most, cluster.broker._commit.wal_bytes)
    assert most <= SMALL.wal_budget_bytes + 8 * SMALL.tail_budget_bytes  # a million bytes were appended
    carried_bytes = cluster.broker._commit.sent_bytes / partition.tail.size_bytes
    assert carried_bytes > 4, "it was carried several times"
    await check_restored(cluster, hurt, key, taken)


@on_virtual_time
async def test_a_stopped_partition_is_carried_in_parts_that_a_slow_store_takes_in_time() -> None:
    cluster = Cluster(SlowStore(), settings=replace(SMALL, carry_chunk_bytes=4_000))
    cluster.store.keep_all = True
    await cluster.start()
    (hurt, other) = await cluster.topic("orders", partitions=2)
    partition, key, taken = await stopped(cluster, hurt)
    assert partition.tail.size_bytes > SlowStore.TAKES_BYTES
    for _ in range(10):
        await write(cluster, other, count=50)
        assert cluster.broker._commit.wal_bytes <= SMALL.wal_budget_bytes + 8 * SMALL.tail_budget_bytes
    parts = [name for name, data in cluster.store.ever if name.startswith("wal/") and len(data) > 3_000]
    assert len(parts) > partition.tail.size_bytes / 4_000, "it was carried, more than once"
    assert await cluster.read_all(hurt) == taken
    await check_restored(cluster, hurt, key, taken)


@on_virtual_time
async def test_a_broker_that_dies_between_the_parts_of_a_copy_leaves_all_of_the_tail_to_the_next() -> None:
    for landed in range(1, 6):
        store = HeldStore()
        cluster = Cluster(store, settings=replace(SMALL, carry_chunk_bytes=4_000, wal_budget_bytes=1_000_000))
        await cluster.start()
        (hurt,) = await cluster.topic("orders", partitions=1)
        partition, key, taken = await stopped(cluster, hurt)
        before = [run.slot for run in partition.tail.runs]
        first = cluster.broker._commit.sent_objects
        store.unknown.add(f"/{first + landed:020d}")
        cluster.broker._roller.carry_or_roll([partition], "test")
        await asyncio.sleep(1)
        assert partition.carrying
        slots = [run.slot for run in partition.tail.runs]
        assert len(set(map(id, slots)) - set(map(id, before))) == landed, "each part is needed where it is"
        needed = {slot.number for slot in slots if slot is not None}
        assert min(needed) < first <= max(needed)
        await cluster.kill()
        store.unknown.clear()
        store.apply_delete("operator", key)
        await cluster.start("again")
        assert await cluster.read_all(hurt) == taken
        store.land()  # above the seal, or the sealed number: it counts for nothing
        await cluster.kill()
        await cluster.start("once more")
        assert await cluster.read_all(hurt) == taken
        await cluster.kill()


@on_virtual_time
async def test_a_roll_that_is_tried_again_and_again_writes_its_segment_once() -> None:
    cluster = Cluster(settings=SMALL)
    await cluster.start()
    (hurt,) = await cluster.topic("orders")
    partition, key, taken = await stopped(cluster, hurt)
    await asyncio.sleep(600)
    assert len(cluster.store.keys(segment_prefix(hurt))) == 2
    cluster.store.apply_delete("operator", key)
    await asyncio.sleep(4_000)
    assert await cluster.read_all(hurt) == taken
    assert len(cluster.store.keys(segment_prefix(hurt))) == partition.manifest.segment_count
    await cluster.kill()


@on_virtual_time
async def test_what_a_roll_left_unnamed_is_not_collected_before_the_next_one_names_it() -> None:
    cluster = Cluster(settings=replace(SMALL, collect_again_ms=1_000, segment_linger_ms=0))
    await cluster.start()
    (hurt,) = await cluster.topic("orders")
    for number in range(7):
        await cluster.append(hurt, b"%d" % number)
        await cluster.roll(hurt)
    partition = cluster.broker._ownership.partitions[hurt]
    commit = cluster.broker._manifests.commit

    async def fails(*_: object, **__: object) -> None:
        raise NotReady("before anything was sent: no version is under way")

    cluster.broker._manifests.commit = fails  # type: ignore[method-assign, assignment]
    await cluster.append(hurt, b"7")
    with pytest.raises(NotReady):
        await cluster.roll(hurt)
    assert cluster.broker._manifests.settled(hurt)
    await asyncio.sleep(300)
    cluster.broker._manifests.commit = commit  # type: ignore[method-assign]
    await cluster.roll(hurt)
    assert partition.unnamed is None
    await asyncio.sleep(300)
    assert await cluster.read_all(hurt) == [(number, b"%d" % number) for number in range(8)]
    await cluster.kill()


@on_virtual_time
async def test_a_partition_whose_page_is_lost_takes_records_all_the_same_and_so_do_the_others() -> None:
    brokers = Brokers(settings=SMALL)
    await brokers.start(1, 2)
    (hurt, other) = brokers.controller.create_topic("orders", partitions=2, owner=1)
    for number in range(8):
        await asyncio.gather(brokers.append(hurt, b"%d" % number), brokers.append(other, b"x"))
        await brokers.roll(hurt)
    await brokers.roles[1].owner.delete_records(hurt, Offset(1))
    partition = brokers.roles[1]._ownership.partitions[hurt]
    brokers.store.apply_delete("disaster", partition.manifest.pages[0].key)
    for _ in range(2):  # at its owner, and at the heir
        for _ in range(100):
            async with asyncio.timeout(60):
                await brokers.append(hurt, bytes(1_000))
                await brokers.append(other, bytes(1_000))
        await brokers.roll(hurt)
        if brokers.owner(hurt) == 1:
            await brokers.controller.fence(1)
            await asyncio.sleep(30)
    await brokers.stop()


@on_virtual_time
async def test_an_heir_that_cannot_roll_what_it_inherited_takes_it_out_of_the_first_owners_wal() -> None:
    brokers = Brokers(settings=replace(SMALL, inherited_roll_ms=1_000, carry_share=0.0))
    await brokers.start(1, 2)
    (hurt,) = brokers.controller.create_topic("orders", partitions=1, owner=1)
    (other,) = brokers.controller.create_topic("others", partitions=1, owner=2)
    for number in range(5):
        await brokers.append(hurt, b"%d" % number)
    await brokers.moved(hurt, to=2)
    heir = await brokers.roles[2]._ownership.open(hurt)
    damage_next_version(brokers.store, hurt, heir)
    for number in range(120):
        await brokers.append(other, b"%d" % number + bytes(1_000))
        await asyncio.sleep(1)
    with pytest.raises(PartitionStopped):
        await brokers.append(hurt, b"refused")
    assert brokers.controller.meta(hurt).ranges == ()
    assert await brokers.read_all(hurt) == [(number, b"%d" % number) for number in range(5)]
    await brokers.stop()

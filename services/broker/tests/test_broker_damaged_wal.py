"""WAL objects that are damaged or missing when their broker starts again: who waits, who goes on, and that it ends when they are restored."""

import asyncio

import pytest
from broker_under_test import Cluster

from bmq.errors import BmqError, PartitionStopped
from bmq.storage.wal import WAL_HEADER_SIZE_BYTES
from bmq.values import TopicPartition
from bmq_broker.metrics import PARTITIONS
from bmq_sim.loop import on_virtual_time


async def wal_keys(cluster: Cluster) -> list[str]:
    """Of the data objects: a seal is as short as an object without a directory."""
    return [meta.key async for meta in cluster.store.for_node("test").list("wal/") if meta.size_bytes > WAL_HEADER_SIZE_BYTES]


async def replace(cluster: Cluster, key: str, data: bytes | None) -> bytes:
    """Puts something else there, or (None) nothing. Returns what was there."""
    store = cluster.store.for_node("test")
    before = await store.get(key)
    await store.delete(key)
    if data is not None:
        await store.create(key, [data])
    return before


async def goes_on(cluster: Cluster, tp: TopicPartition) -> bool:
    try:
        await cluster.append(tp, b"more")
    except PartitionStopped as stopped:
        assert "restore" in str(stopped)
        assert "delete the records" not in str(stopped)  # which a stopped partition does not do
        return False
    return True


async def killed(cluster: Cluster) -> tuple[list[TopicPartition], str]:
    """A broker whose newest objects but one hold batches of the first partition; the second has some before and after, the others none."""
    await cluster.start()
    tps = [(await cluster.topic(name))[0] for name in ("one", "two", "rolled", "empty")]
    one, two, rolled, _ = tps
    await cluster.append(rolled, b"r")
    await cluster.roll(rolled)
    await cluster.append(two, b"two")
    await cluster.append(one, b"one")
    await cluster.append(two, b"two")
    await cluster.kill()
    return tps, (await wal_keys(cluster))[-2]


def stopped_partitions() -> float:
    return PARTITIONS.labels("stopped")._value.get()


@on_virtual_time
async def test_a_damaged_batch_stops_its_own_partition_alone_until_the_object_is_restored() -> None:
    cluster = Cluster()
    (one, *others), key = await killed(cluster)
    data = await cluster.store.for_node("test").get(key)
    assert b"one" in data
    await replace(cluster, key, data.replace(b"one", b"oNe"))
    await cluster.start("again")
    assert [await goes_on(cluster, tp) for tp in (one, *others)] == [False, True, True, True]
    await asyncio.sleep(60)
    assert stopped_partitions() == 1
    assert not await goes_on(cluster, one)
    await replace(cluster, key, data)
    await asyncio.sleep(300)
    assert await cluster.read_all(one) == [(0, b"one")]
    assert await goes_on(cluster, one)
    await asyncio.sleep(60)
    assert stopped_partitions() == 0
    await cluster.stop()


@on_virtual_time
async def test_a_damaged_directory_stops_all_that_may_be_in_it_until_the_object_is_restored() -> None:
    cluster = Cluster()
    tps, key = await killed(cluster)
    data = bytearray(await cluster.store.for_node("test").get(key))
    data[WAL_HEADER_SIZE_BYTES] ^= 1
    restored = await replace(cluster, key, bytes(data))
    await cluster.start("again")
    with pytest.raises(PartitionStopped, match="cannot be told"):
        await cluster.append(tps[0], b"more")
    assert [await goes_on(cluster, tp) for tp in tps] == [False] * 4
    (new,) = await cluster.topic("new")
    assert await goes_on(cluster, new)
    await replace(cluster, key, restored)
    await asyncio.sleep(300)
    assert [await goes_on(cluster, tp) for tp in tps] == [True] * 4
    await cluster.stop()


@pytest.mark.parametrize("at", [0, 1])
@pytest.mark.parametrize("cut", [None, 40, WAL_HEADER_SIZE_BYTES + 20], ids=["gone", "in the header", "in the directory"])
def test_a_partition_goes_on_by_itself_when_what_it_lacks_is_restored(at: int, cut: int | None) -> None:
    @on_virtual_time
    async def main() -> None:
        cluster = Cluster()
        await cluster.start()
        (one,) = await cluster.topic("one")
        for number in range(3):
            await cluster.append(one, b"%d" % number)
        await cluster.kill()
        key = (await wal_keys(cluster))[at]
        data = await cluster.store.for_node("test").get(key)
        await replace(cluster, key, None if cut is None else data[:cut])
        await cluster.start("again")
        assert not await goes_on(cluster, one)
        await asyncio.sleep(600)
        assert not await goes_on(cluster, one)
        with pytest.raises(PartitionStopped):
            await cluster.broker.owner.delete_records(one, 2)
        if cut is not None:
            await replace(cluster, key, data)
        else:
            await cluster.store.for_node("test").create(key, [data])
        await asyncio.sleep(300)
        assert await cluster.read_all(one) == [(number, b"%d" % number) for number in range(3)]
        assert await goes_on(cluster, one)
        await cluster.stop()

    main()


@on_virtual_time
async def test_who_asks_while_a_stopped_partition_is_read_again_is_told_as_before() -> None:
    cluster = Cluster()
    (_, two, *_), key = await killed(cluster)
    data = await replace(cluster, key, None)
    await cluster.start("again")
    told = set()
    for _ in range(400):
        try:
            await cluster.append(two, b"more")
        except BmqError as error:
            told.add(type(error))
        await asyncio.sleep(0.097)
    assert told == {PartitionStopped}
    await cluster.store.for_node("test").create(key, [data])
    await asyncio.sleep(300)
    assert await goes_on(cluster, two)
    await cluster.stop()

"""WAL objects that are damaged or missing when their broker starts again: who waits, who goes on, and that it ends when
they are restored.
"""

import asyncio
import dataclasses
from collections.abc import Sequence

import pytest
from broker_under_test import Cluster, repaired
from structlog.testing import capture_logs

from bmq.errors import BmqError, PartitionStopped
from bmq.metadata.records import Range
from bmq.storage.numbered import wal_key
from bmq.storage.wal import WAL_HEADER_SIZE_BYTES, WalRun, decode_wal, encode_wal
from bmq.values import Offset, TopicPartition
from bmq_broker.metrics import PARTITIONS
from bmq_broker.ownership.inheritance import Left
from bmq_broker.ownership.recovery import read_ranges
from bmq_sim.loop import on_virtual_time


async def wal_keys(cluster: Cluster) -> list[str]:
    """Of the data objects: a seal is as short as an object without a directory."""
    return [
        meta.key
        async for meta in cluster.store.for_node("test").list("wal/")
        if meta.size_bytes > WAL_HEADER_SIZE_BYTES
    ]


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
    """A broker whose newest objects but one hold batches of the first partition; the second has some before and after,
    the others none.
    """
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
@pytest.mark.parametrize(
    "cut", [None, 40, WAL_HEADER_SIZE_BYTES + 20], ids=["gone", "in the header", "in the directory"]
)
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


async def carry(cluster: Cluster, originals: Sequence[str]) -> None:
    """What an owner would have written when it carried these forward: one more object of their stream, each of its runs
    as it was.
    """
    store = cluster.store.for_node("test")
    newest = decode_wal(await store.get((await wal_keys(cluster))[-1])).header
    number = newest.number + 1
    runs = []
    for key in originals:
        wal = decode_wal(await store.get(key))
        for entry in wal.entries:
            runs.append(WalRun(*entry[:6], batches=[bytes(wal.run(entry))]))
    header = dataclasses.replace(newest, number=number, durable_below=number)
    await store.create(wal_key(newest.stream, number), encode_wal(header, runs))


async def killed_after_three(cluster: Cluster, *, objects_before: int = 0) -> tuple[TopicPartition, list[str]]:
    """The partition, and its three objects, of which each holds one batch; so many are before them, whose ranges end
    before.
    """
    await cluster.start()
    (other,) = await cluster.topic("other")
    for _ in range(objects_before):
        await cluster.append(other, b"before")
    (one,) = await cluster.topic("one")
    for number in range(3):
        await cluster.append(one, b"%d" % number)
    await cluster.kill()
    return one, (await wal_keys(cluster))[-3:]


@pytest.mark.parametrize("objects_before", [0, 2])
@pytest.mark.parametrize("is_restored", [True, False])
def test_what_lies_below_a_lost_object_and_nowhere_else_proves_the_loss(is_restored: bool, objects_before: int) -> None:
    """All that lies above the lost one follows the manifest, since it is a copy of the oldest: without what is below
    it, nothing would tell.
    """

    @on_virtual_time
    async def main() -> None:
        cluster = Cluster()
        one, (first, _, third) = await killed_after_three(cluster, objects_before=objects_before)
        await carry(cluster, [first])
        data = await replace(cluster, third, None)
        await cluster.start("again")
        with pytest.raises(
            PartitionStopped,
            match=f"{third} is missing, and offsets 1 to 1, .* neither in the manifest 0 nor in the WAL above",
        ):
            await cluster.append(one, b"more")
        await asyncio.sleep(600)
        assert not await goes_on(cluster, one)
        if is_restored:
            await cluster.store.for_node("test").create(third, [data])
            await asyncio.sleep(600)
        else:
            await cluster.stop()
            done = await repaired(cluster)
            assert (done.failed, done.deleted_objects) == ([], 1 + objects_before)
            await cluster.start("repaired")
        assert await goes_on(cluster, one)
        left = [b"0", b"1", b"2"] if is_restored else [b"0"]
        assert [value for _, value in await cluster.read_all(one)] == [*left, b"more"]
        await cluster.stop()

    main()


@on_virtual_time
async def test_what_was_read_below_a_lost_object_counts_no_more_than_what_was_not() -> None:
    """Of a range that was handed over reading begins at its start, and meets what is missing on its way."""
    cluster = Cluster()
    one, (first, _, third) = await killed_after_three(cluster, objects_before=1)
    await carry(cluster, [first])
    await replace(cluster, third, None)
    handed_over = Range(node_id=1, broker_epoch=1, leader_epoch=1, end=5, start=1)
    store = cluster.store.for_node("test")
    found = (
        await read_ranges(store, {one: [handed_over]}, clock=cluster.clock, rng=cluster.rng, is_sealed=lambda _: True)
    )[one]
    assert [run.base_offset for run, _ in found.runs] == [0]
    assert (found.left, found.stopped) == (Left(Offset(2), third), None)


@on_virtual_time
async def test_what_lies_below_a_deleted_object_and_was_carried_is_no_loss() -> None:
    """Its owner was deleting both when it died, and the upper one went first."""
    cluster = Cluster()
    one, keys = await killed_after_three(cluster)
    await carry(cluster, keys)
    await replace(cluster, keys[2], None)
    await cluster.start("again")
    assert await goes_on(cluster, one)
    assert [value for _, value in await cluster.read_all(one)] == [b"0", b"1", b"2", b"more"]
    await cluster.stop()


@on_virtual_time
async def test_what_is_damaged_below_a_deleted_object_stops_nobody() -> None:
    """What cannot be read proves nothing, and nobody needs what its owner was deleting."""
    cluster = Cluster()
    one, keys = await killed_after_three(cluster)
    await carry(cluster, keys)
    data = await replace(cluster, keys[1], None)
    await cluster.store.for_node("test").create(keys[1], [data[:-1] + b"?"])
    await replace(cluster, keys[2], None)
    with capture_logs() as told:
        await cluster.start("again")
        assert await goes_on(cluster, one)
    [line] = [line for line in told if line["log_level"] == "error"]
    assert "below a missing one is damaged" in line["event"]
    assert keys[1] in line["error"]
    await cluster.stop()

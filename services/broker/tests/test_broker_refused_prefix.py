"""A store that refuses the keys of one partition alone (a folder's owner, requests for one prefix) stops that one, and
not who shares its broker.
"""

import asyncio
from dataclasses import replace

import pytest
from broker_under_test import Cluster
from test_broker_stopped_partitions import SMALL, fill_until_refused, write

from bmq.errors import PartitionStopped, StoreUnavailable
from bmq.storage.keys import partition_prefix
from bmq.values import Offset, TopicPartition
from bmq_sim.loop import on_virtual_time


def refuse(cluster: Cluster, tp: TopicPartition | None) -> None:
    """From now on the store refuses what the partition has of its own; None: it takes all again."""
    prefix = "" if tp is None else partition_prefix(tp)
    cluster.store.faults = replace(cluster.store.faults, unavailable_prefix=prefix, refused_prefix=prefix)


@on_virtual_time
async def test_a_partition_whose_keys_are_refused_takes_no_more_records_and_the_others_go_on() -> None:
    cluster = Cluster(settings=SMALL)
    await cluster.start()
    (hurt, other) = await cluster.topic("orders", partitions=2)
    await cluster.append(hurt, b"first")
    refuse(cluster, hurt)
    taken = [(0, b"first"), *await fill_until_refused(cluster, hurt, patience_s=120)]
    with pytest.raises(PartitionStopped, match=partition_prefix(hurt)):
        await cluster.append(hurt, b"refused")
    await write(cluster, other, count=200)
    assert await cluster.read_all(hurt) == taken
    refuse(cluster, None)
    await asyncio.sleep(120)
    assert (await cluster.append(hurt, b"again")).base_offset == len(taken)
    assert await cluster.read_all(hurt) == [*taken, (len(taken), b"again")]
    await cluster.kill()


@on_virtual_time
async def test_a_partition_whose_keys_are_refused_does_not_keep_those_that_share_a_segment_with_it() -> None:
    cluster = Cluster(settings=replace(SMALL, shared_below_bytes=10_000))
    await cluster.start()
    tps = await cluster.topic("orders", partitions=4)
    for tp in tps:
        await cluster.append(tp, b"first")
    refuse(cluster, tps[0])
    partitions = cluster.broker._ownership.partitions
    assert cluster.broker._roller.start_together([partitions[tp] for tp in tps], "test") == 4
    await asyncio.sleep(300)
    assert [partitions[tp].manifest.next_offset for tp in tps] == [0, 1, 1, 1]
    assert not any(cluster.broker._manifests.lock(tp).locked() for tp in tps[1:])
    assert not cluster.broker._roller._rolling & set(tps[1:])
    await cluster.kill()


@on_virtual_time
async def test_a_partition_whose_keys_are_refused_does_not_keep_the_others_from_their_retention() -> None:
    cluster = Cluster(settings=replace(SMALL, retention_interval_ms=1_000))
    await cluster.start()
    (hurt, other) = await cluster.topic("orders", partitions=2, configs={"retention.ms": "1000"})
    for tp in (hurt, other):
        await cluster.append(tp, b"first")
    refuse(cluster, hurt)
    await asyncio.sleep(1_800)
    partitions = cluster.broker._ownership.partitions
    assert [partitions[tp].log_start for tp in (hurt, other)] == [0, 1]
    refuse(cluster, None)
    await asyncio.sleep(1_800)
    assert [partitions[tp].log_start for tp in (hurt, other)] == [1, 1]
    await cluster.kill()


@on_virtual_time
async def test_a_store_that_refuses_everybody_stops_no_partition() -> None:
    cluster = Cluster(settings=SMALL)
    await cluster.start()
    (tp,) = await cluster.topic("orders", partitions=1)
    await cluster.append(tp, b"first")
    cluster.store.faults = replace(cluster.store.faults, not_applied_probability=1.0)
    partition = cluster.broker._ownership.partitions[tp]
    waiting = cluster.append(tp, b"second")
    assert cluster.broker._roller.start(partition, "test")
    await asyncio.sleep(600)
    assert partition.stopped is None
    cluster.store.faults = replace(cluster.store.faults, not_applied_probability=0.0)
    assert (await waiting).base_offset == 1
    await asyncio.sleep(10)
    assert partition.stopped is None
    assert partition.manifest.next_offset >= 1
    await cluster.kill()


@on_virtual_time
async def test_deletes_of_a_partition_whose_keys_are_refused_keep_no_other_from_theirs() -> None:
    cluster = Cluster(settings=SMALL)
    await cluster.start()
    (hurt, other) = await cluster.topic("orders", partitions=2)
    for tp in (hurt, other):
        await cluster.append(tp, b"first")
    refuse(cluster, hurt)
    deletes = [asyncio.create_task(cluster.broker.owner.delete_records(hurt, Offset(1))) for _ in range(2)]
    await asyncio.sleep(1)
    async with asyncio.timeout(300):
        assert await cluster.broker.owner.delete_records(other, Offset(1)) == 1
    for delete in deletes:
        with pytest.raises(StoreUnavailable):
            await delete
    await cluster.kill()


@on_virtual_time
async def test_deletes_of_what_is_rolled_keep_no_lock_of_a_partition_whose_keys_are_refused() -> None:
    cluster = Cluster(settings=SMALL)
    await cluster.start()
    (hurt,) = await cluster.topic("orders", partitions=1)
    await cluster.append(hurt, b"first")
    await cluster.roll(hurt)
    refuse(cluster, hurt)
    with pytest.raises(StoreUnavailable):
        async with asyncio.timeout(300):
            await cluster.broker.owner.delete_records(hurt, Offset(1))
    assert not cluster.broker._manifests.lock(hurt).locked()
    refuse(cluster, None)
    assert await cluster.broker.owner.delete_records(hurt, Offset(1)) == 1
    await cluster.kill()

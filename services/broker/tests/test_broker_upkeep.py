"""What a broker does beside serving: rolls that free the WAL, merges, collection, and going on after each of them
failed.
"""

import asyncio
from dataclasses import replace

import pytest
from broker_under_test import Cluster, small
from held_store import HeldStore

from bmq.errors import Corrupt, Fenced, UnknownOutcome
from bmq.storage.keys import coordinator_snapshot_key, manifest_page_key, segment_key, segment_prefix
from bmq.values import LeaderEpoch, Nonce, Offset
from bmq_broker.partitions.producers import KEPT_BATCHES, SILENT_MS, Producers
from bmq_broker.settings import BrokerSettings
from bmq_sim.loop import on_virtual_time
from bmq_sim.store import SimStore, StoreFaults

SLOW = StoreFaults(latency_s_min=0.05, latency_s_max=0.05)


@on_virtual_time
async def test_the_wal_is_freed_though_a_tail_begins_with_what_was_recovered() -> None:
    cluster = Cluster(settings=small(tail_budget_bytes=1_000_000, tail_limit_bytes=1_000_000))
    await cluster.start()
    (quiet, busy) = await cluster.topic("orders", partitions=2)
    await cluster.append(quiet, b"recovered")
    await cluster.kill()
    await cluster.start("again")
    await cluster.append(quiet, b"pins the new stream")
    for _ in range(40):
        await cluster.append(busy, bytes(500))
    await asyncio.sleep(1)
    assert cluster.broker._commit.wal_bytes <= 4000 + 2000
    await cluster.stop()


@on_virtual_time
async def test_many_quiet_partitions_over_the_limit_are_rolled_until_writing_goes_on() -> None:
    cluster = Cluster(SimStore(faults=SLOW), settings=small(tail_limit_bytes=4000, roll_concurrency=1))
    await cluster.start()
    tps = await cluster.topic("orders", partitions=40)
    appended = await asyncio.wait_for(
        asyncio.gather(*(cluster.append(tp, bytes(300)) for tp in tps for _ in range(3))), 60
    )
    assert len(appended) == 120
    await cluster.stop()


@on_virtual_time
async def test_tiny_batches_use_up_the_budget_with_what_keeping_them_costs() -> None:
    cluster = Cluster(settings=small(tail_budget_bytes=100_000, tail_limit_bytes=100_000, wal_budget_bytes=10**6))
    await cluster.start()
    (tp,) = await cluster.topic("orders")
    for _ in range(300):
        await cluster.append(tp, b"")
    await asyncio.sleep(1)
    partition = cluster.broker._ownership.partitions[tp]
    assert partition.manifest.next_offset > 0, "20 KB of bytes take 180 KB: some were rolled"
    assert cluster.broker._roller.tail_bytes == partition.tail.memory_bytes <= 100_000
    assert cluster.broker._commit.buffered_bytes == 0
    assert len(await cluster.read_all(tp)) == 300
    await cluster.stop()


@on_virtual_time
async def test_tiny_batches_that_come_at_once_are_all_sent_though_they_take_more_than_the_limit() -> None:
    cluster = Cluster(
        SimStore(faults=SLOW), settings=small(tail_limit_bytes=4000, flush_runs_max=10, roll_concurrency=1)
    )
    await cluster.start()
    tps = await cluster.topic("orders", partitions=100)
    appended = await asyncio.wait_for(asyncio.gather(*(cluster.append(tp, b"") for tp in tps for _ in range(5))), 60)
    assert len(appended) == 500
    assert cluster.broker._commit.buffered_bytes == 0
    await cluster.stop()


@on_virtual_time
async def test_a_roll_that_fails_is_tried_again_though_nothing_more_arrives() -> None:
    store = HeldStore()
    cluster = Cluster(store, settings=small(upkeep_interval_ms=10_000_000))
    await cluster.start()
    (tp,) = await cluster.topic("orders")
    store.unknown.add("/segment/")
    for _ in range(12):
        await cluster.append(tp, bytes(500))
    await asyncio.sleep(5)
    store.unknown.clear()
    await asyncio.sleep(5)
    assert cluster.broker._roller.tail_bytes <= 4000
    await cluster.stop()


@on_virtual_time
async def test_a_manifest_whose_outcome_is_unknown_is_found_and_nothing_that_it_names_goes() -> None:
    store = HeldStore()
    cluster = Cluster(store)
    await cluster.start()
    (tp,) = await cluster.topic("orders")
    for number in range(3):
        await cluster.append(tp, b"%d" % number)
        await cluster.roll(tp)
    store.unknown.add("/manifest/")
    await cluster.append(tp, b"3")
    with pytest.raises(UnknownOutcome):
        await cluster.roll(tp)
    await cluster.append(tp, b"4")
    store.unknown.clear()
    store.land()
    await cluster.roll(tp)
    assert await cluster.read_all(tp) == [(number, b"%d" % number) for number in range(5)]
    await asyncio.sleep(700)
    await cluster.kill()
    await cluster.start("again")
    await cluster.append(tp, b"5")
    await cluster.roll(tp)
    await asyncio.sleep(700)
    assert await cluster.read_all(tp) == [(number, b"%d" % number) for number in range(6)]
    partition = await cluster.broker._ownership.open(tp)
    assert {key for key in store.keys("topics/") if "/segment/" in key} == {
        entry.key for entry in partition.manifest.entries
    }
    await cluster.stop()


@on_virtual_time
async def test_upkeep_goes_on_after_it_failed() -> None:
    cluster = Cluster(settings=small())
    await cluster.start()
    (tp,) = await cluster.topic("orders", configs={"retention.ms": "1000"})
    await cluster.append(tp, b"a")
    store = cluster.store
    store.faults = replace(store.faults, unavailable_probability=0.9, not_applied_probability=0.5)
    await asyncio.sleep(200)
    store.faults = StoreFaults()
    await asyncio.sleep(200)
    assert await cluster.read_all(tp) == []
    await cluster.stop()


@on_virtual_time
async def test_an_owner_learns_of_what_an_earlier_owner_merged_and_deleted() -> None:
    """An earlier owner that was replaced deletes nothing; what an earlier release of bmq deleted is found again all the
    same.
    """
    store = SimStore()
    old = Cluster(store, settings=small(segment_linger_ms=0))
    await old.start("old")
    (tp,) = await old.topic("orders")
    for number in range(10):
        await old.append(tp, b"%d" % number)
        await old.roll(tp)
    new = Cluster(store, seed=1)
    await new.start("new")
    partition = await new.broker._ownership.open(tp)
    assert await old.broker._upkeep._merger.merge(old.broker._ownership.partitions[tp])
    with pytest.raises(Fenced):
        await old.broker._upkeep._garbage.sweep()
    assert all(entry.key in store.objects for entry in partition.manifest.entries)
    store.apply_delete("an earlier release", partition.manifest.entries[0].key)
    assert (await new.broker.owner.offset_for_time(tp, 0)).offset == 0
    assert (await new.broker.owner.offset_for_time(tp, -3)).offset == 0
    assert await new.read_all(tp) == [(number, b"%d" % number) for number in range(10)]
    await old.kill()
    await new.stop()


@on_virtual_time
async def test_what_a_killed_owner_left_unnamed_is_collected_by_the_next() -> None:
    cluster = Cluster()
    await cluster.start()
    (tp,) = await cluster.topic("orders")
    await cluster.append(tp, b"a")
    await cluster.roll(tp)
    orphans = [
        segment_key(tp, LeaderEpoch(1), Offset(0), Nonce(bytes(16))),
        coordinator_snapshot_key(tp, LeaderEpoch(1), Offset(7), Nonce(bytes(16))),
        manifest_page_key(tp, Nonce(bytes(16))),
    ]
    await cluster.kill()
    for key in orphans:
        cluster.store.apply_create("node", key, b"left behind")
    await cluster.start("again")
    await asyncio.sleep(700)
    assert set(orphans) <= set(cluster.store.objects)  # the earlier owner may yet wake up: it has met no claim
    await cluster.append(tp, b"b")
    await cluster.roll(tp)
    await asyncio.sleep(700)
    assert not set(orphans) & set(cluster.store.objects)
    assert await cluster.read_all(tp) == [(0, b"a"), (1, b"b")]
    await cluster.stop()


@on_virtual_time
async def test_what_an_owner_itself_left_unnamed_goes_once_all_its_commits_are_known_also_what_arrives_late() -> None:
    store = HeldStore()
    cluster = Cluster(store, settings=replace(BrokerSettings(), collect_again_ms=60_000))
    await cluster.start()
    (tp,) = await cluster.topic("orders")
    await cluster.append(tp, b"a")
    await cluster.roll(tp)
    await cluster.append(tp, b"b")
    store.unknown.add("/manifest/")
    with pytest.raises(UnknownOutcome):
        await cluster.roll(tp)
    (named_by_a_try,) = [key for key in store.keys(segment_prefix(tp)) if "/00000000000000000001-" in key]
    left = segment_key(tp, LeaderEpoch(1), Offset(1), Nonce(bytes(16)))
    store.apply_create("node", left, b"of a merge, whose version may be on its way")
    await asyncio.sleep(700)
    assert {named_by_a_try, left} <= set(store.objects)
    store.unknown.clear()
    await cluster.roll(tp)  # what was tried is named now
    await asyncio.sleep(700)
    assert named_by_a_try in store.objects
    assert left not in store.objects
    late = segment_key(tp, LeaderEpoch(1), Offset(7), Nonce(bytes(16)))
    store.apply_create("node", late, b"a create of this owner's that came through an hour later")
    await asyncio.sleep(800)
    assert late not in store.objects
    assert await cluster.read_all(tp) == [(0, b"a"), (1, b"b")]
    await cluster.stop()


@on_virtual_time
async def test_a_segment_that_was_damaged_is_not_merged() -> None:
    cluster = Cluster(settings=small())
    await cluster.start()
    (tp,) = await cluster.topic("orders")
    for number in range(10):
        await cluster.append(tp, b"%d" % number)
        await cluster.roll(tp)
    partition = await cluster.broker._ownership.open(tp)
    entry = partition.manifest.entries[3]
    stored = cluster.store.objects[entry.key]
    damaged = bytearray(stored.data)
    damaged[entry.position + entry.length - 1] ^= 1
    cluster.store.objects[entry.key] = replace(stored, data=bytes(damaged))
    await asyncio.sleep(70)
    assert entry in partition.manifest.entries
    cluster.store.objects[entry.key] = stored
    await asyncio.sleep(70)
    assert entry not in partition.manifest.entries
    assert await cluster.read_all(tp) == [(number, b"%d" % number) for number in range(10)]
    await cluster.stop()


@on_virtual_time
async def test_segments_far_apart_in_time_are_not_merged() -> None:
    cluster = Cluster(settings=small())
    await cluster.start()
    (tp,) = await cluster.topic("orders", configs={"segment.ms": "100000", "retention.ms": "400000"})
    for _ in range(30):
        await cluster.append(tp, b"x")
        await cluster.roll(tp)
        await asyncio.sleep(30)
    partition = await cluster.broker._ownership.open(tp)
    oldest_ms = cluster.clock.now_ms() - partition.manifest.entries[0].min_timestamp_ms
    assert oldest_ms <= 400_000 + 100_000 + 60_000 + 30_000
    await cluster.stop()


@on_virtual_time
async def test_made_up_producers_are_forgotten_and_who_wrote_last_is_not() -> None:
    cluster = Cluster(settings=small(producers_per_partition=20, producers_per_broker=50, upkeep_interval_ms=1_000))
    await cluster.start()
    tps = await cluster.topic("orders", partitions=4)
    for number in range(40):
        await asyncio.gather(
            *(cluster.append(tp, b"x", producer_id=number, producer_epoch=0, base_sequence=0) for tp in tps)
        )
        await asyncio.sleep(0.01)
    first = await cluster.append(tps[0], b"mine", producer_id=39, producer_epoch=0, base_sequence=1)
    await asyncio.sleep(3)
    partitions = [cluster.broker._ownership.partitions[tp] for tp in tps]
    assert sum(len(partition.live) for partition in partitions) <= 50
    assert all(len(partition.rolled) <= 20 for partition in partitions)
    again = await cluster.append(tps[0], b"mine", producer_id=39, producer_epoch=0, base_sequence=1)
    assert again.base_offset == first.base_offset
    await cluster.stop()


@on_virtual_time
async def test_a_rolled_producer_is_held_once_and_a_silent_one_keeps_its_last_five_batches() -> None:
    cluster = Cluster(settings=small())
    await cluster.start()
    (tp,) = await cluster.topic("orders", configs={"segment.ms": "1000000"})
    first = [
        await cluster.append(tp, b"x", producer_id=7, producer_epoch=0, base_sequence=number) for number in range(20)
    ]
    await cluster.roll(tp)
    partition = await cluster.broker._ownership.open(tp)
    assert partition.rolled._producers[7] is partition.live._producers[7]
    oldest = await cluster.append(tp, b"x", producer_id=7, producer_epoch=0, base_sequence=0)
    assert oldest.base_offset == first[0].base_offset
    await asyncio.sleep(SILENT_MS / 1000 + 120)
    assert (partition.live.further, partition.rolled.further) == (0, 0)
    assert partition.rolled._producers[7] is partition.live._producers[7]
    again = [
        await cluster.append(tp, b"x", producer_id=7, producer_epoch=0, base_sequence=number)
        for number in range(15, 20)
    ]
    assert [each.base_offset for each in again] == [each.base_offset for each in first[15:]]
    await cluster.stop()


@on_virtual_time
async def test_producers_keep_their_last_five_batches_where_there_are_too_many_and_nobody_is_forgotten() -> None:
    cluster = Cluster(settings=small(producers_per_partition=20, producers_per_broker=20, upkeep_interval_ms=1_000))
    await cluster.start()
    (tp,) = await cluster.topic("orders")
    for sequence in range(20):
        await asyncio.gather(
            *(
                cluster.append(tp, b"x", producer_id=number, producer_epoch=0, base_sequence=sequence)
                for number in range(20)
            )
        )
    await asyncio.sleep(3)
    await cluster.roll(tp)
    partition = await cluster.broker._ownership.open(tp)
    for producers in (partition.live, partition.rolled, Producers.decode(partition.rolled.encode())):
        assert len(producers) == 20
        assert producers.further <= 20 * KEPT_BATCHES
    for number in range(20):
        again = await cluster.append(tp, b"x", producer_id=number, producer_epoch=0, base_sequence=15)
        assert again.base_offset < 20 * 16
        await cluster.append(tp, b"x", producer_id=number, producer_epoch=0, base_sequence=20)
    assert len(await cluster.read_all(tp)) == 20 * 21
    await cluster.stop()


@on_virtual_time
async def test_a_segment_in_the_place_of_anothers_is_not_read_as_that() -> None:
    """As whole as its own: by its checksums alone it would pass."""
    cluster = Cluster()
    await cluster.start()
    one, two = await cluster.topic("orders", partitions=2)
    for tp, value in ((one, b"of one"), (two, b"of two")):
        await cluster.append(tp, value)
        await cluster.roll(tp)
    entries = [(await cluster.broker._ownership.open(tp)).manifest.entries[0] for tp in (one, two)]
    objects = cluster.store.objects
    kept = objects[entries[0].key]
    objects[entries[0].key] = objects[entries[1].key]
    with pytest.raises(Corrupt, match="its index is that of"):
        await cluster.read_all(one)
    objects[entries[0].key] = kept
    assert await cluster.read_all(one) == [(0, b"of one")]
    await cluster.stop()

"""What a broker does when something unusual happens in the middle of something else: nothing is lost, reordered, or left waiting."""

import asyncio
from dataclasses import replace

import pytest
from broker_under_test import NODE, Cluster, small
from held_store import HeldStore

from bmq.errors import BmqError, Fenced, InvalidProducerEpoch, NotOwner, NotReady, OutOfOrderSequence, UnknownOutcome
from bmq.metadata.image import Image
from bmq.metadata.records import AnyRecord, NodeRegistered, PartitionChange
from bmq.roles.owner import Caller
from bmq.storage.keys import coordinator_snapshot_key, manifest_page_key, segment_key
from bmq.values import LeaderEpoch, Nonce, Offset, TopicPartition
from bmq.wire.batches import Record, build_batch
from bmq.wire.message import Message
from bmq_broker.coordinator_log import PartitionLog
from bmq_sim.loop import run
from bmq_sim.store import SimStore, StoreFaults

SLOW = StoreFaults(latency_s_min=0.05, latency_s_max=0.05)


def partition_log(cluster: Cluster, tp: TopicPartition) -> PartitionLog:
    broker = cluster.broker
    return PartitionLog(
        broker._ownership.partitions[tp],
        commit=broker._commit,
        segments=broker.segments,
        snapshots=None,
        clock=cluster.clock,  # type: ignore[arg-type]
    )


def image_with(image: Image, *records: AnyRecord) -> Image:
    """What another controller would have committed."""
    from bmq.metadata.image import apply

    return apply(image, image.position + 1, records)


def moved_to_another_node(image: Image, tp: TopicPartition) -> Image:
    meta = image.partition(tp)
    assert meta is not None
    change = PartitionChange(topic_id=tp.topic_id, partition=tp.partition, node_id=9, broker_epoch=9, leader_epoch=meta.leader_epoch + 1)
    return image_with(image, change)


def test_batches_that_waited_for_a_partition_are_not_overtaken_when_it_opens() -> None:
    async def main() -> None:
        cluster = Cluster()
        await cluster.start()
        (tp,) = await cluster.topic("orders")
        earlier = cluster.append(tp, b"first")
        while tp not in cluster.broker._ownership.partitions:
            await asyncio.sleep(0)
        later = cluster.append(tp, b"second")
        assert (await earlier).base_offset == 0
        assert (await later).base_offset == 1
        await cluster.stop()

    run(main())


def test_a_partition_that_moves_away_answers_unknown_and_leaves_its_heir_the_wal() -> None:
    async def main() -> None:
        cluster = Cluster(SimStore(faults=SLOW), settings=small())
        await cluster.start()
        (tp,) = await cluster.topic("orders")
        await cluster.append(tp, b"durable")
        waiting = cluster.append(tp, b"on its way")
        image = cluster.controller.metadata.image
        cluster.broker._image_changed(image, moved_to_another_node(image, tp))
        with pytest.raises(UnknownOutcome):
            await waiting
        (other,) = await cluster.topic("other")
        for _ in range(30):
            await cluster.append(other, bytes(500))
        await asyncio.sleep(10)
        assert cluster.broker._roller.tail_bytes <= 4000 + 1000
        assert len([key for key in cluster.store.keys("wal/") if key.endswith("0" * 20)]) == 1
        await cluster.kill()

    run(main())


def test_a_topic_deleted_with_batches_on_their_way_frees_memory_and_wal() -> None:
    async def main() -> None:
        cluster = Cluster(SimStore(faults=SLOW))
        await cluster.start()
        (tp,) = await cluster.topic("orders")
        await cluster.append(tp, b"a")
        waiting = [cluster.append(tp, b"b"), cluster.append(tp, b"c")]
        await cluster.controller.controller.delete_topics([tp.topic_id])
        outcomes = await asyncio.gather(*waiting, return_exceptions=True)
        assert all(isinstance(outcome, UnknownOutcome) or not isinstance(outcome, BaseException) for outcome in outcomes)
        await asyncio.sleep(1)
        assert cluster.broker._roller.tail_bytes == 0
        assert cluster.broker._commit.wal_bytes == 0
        await cluster.stop()

    run(main())


def test_a_roll_under_way_of_a_topic_that_is_deleted_fences_nobody() -> None:
    async def main() -> None:
        store = HeldStore()
        cluster = Cluster(store)
        await cluster.start()
        (tp,) = await cluster.topic("orders")
        await cluster.append(tp, b"a")
        store.held.add("/segment/")
        rolling = asyncio.ensure_future(cluster.roll(tp))
        await asyncio.sleep(1)
        await cluster.controller.controller.delete_topics([tp.topic_id])
        await asyncio.sleep(1)
        store.let_go("/segment/")
        with pytest.raises(NotOwner):
            await rolling
        await asyncio.sleep(1)
        assert cluster.fenced == []
        await cluster.stop()

    run(main())


def test_a_conflict_in_a_manifest_ends_the_whole_broker() -> None:
    async def main() -> None:
        store = SimStore()
        old = Cluster(store)
        await old.start("old")
        (tp,) = await old.topic("orders")
        await old.append(tp, b"a")
        new = Cluster(store, seed=1)
        await new.start("new")
        await new.append(tp, b"b")
        await new.roll(tp)
        with pytest.raises(Fenced):
            await old.roll(tp)
        assert old.fenced
        with pytest.raises(Fenced):
            await old.append(tp, b"lost")
        with pytest.raises(Fenced):
            await partition_log(old, tp).append([(b"k", b"v")])
        assert await new.read_all(tp) == [(0, b"a"), (1, b"b")]
        await old.kill()
        await new.stop()

    run(main())


def test_an_idle_broker_that_was_replaced_learns_it_within_a_lease() -> None:
    async def main() -> None:
        store = SimStore()
        old = Cluster(store)
        await old.start("old")
        new = Cluster(store, seed=1)
        await new.start("new")
        await asyncio.sleep(old.settings.lease_ms / 1000 + 1)
        assert old.fenced
        await old.kill()
        await new.stop()

    run(main())


def test_a_broker_whose_node_is_registered_again_throws_its_state_away() -> None:
    async def main() -> None:
        cluster = Cluster()
        await cluster.start()
        (tp,) = await cluster.topic("orders")
        await cluster.append(tp, b"a")
        image = cluster.controller.metadata.image
        node = image.nodes[NODE]
        again = NodeRegistered(
            node_id=NODE, broker_epoch=node.broker_epoch + 1, boot=cluster.rng.uuid(), roles=node.roles, host=node.host, port=node.port
        )
        cluster.broker._image_changed(image, image_with(image, again))
        assert isinstance(cluster.fenced[0], Fenced)
        await cluster.kill()

    run(main())


def test_after_the_end_nobody_waits_for_ever() -> None:
    async def main() -> None:
        store = HeldStore()
        cluster = Cluster(store)
        await cluster.start()
        (tp,) = await cluster.topic("orders")
        await cluster.append(tp, b"a")
        store.held.add("wal/")
        waiting = cluster.append(tp, b"b", producer_id=1, producer_epoch=0, base_sequence=0)
        log = partition_log(cluster, tp)
        await asyncio.sleep(1)
        cluster.broker._fenced(Fenced("another one"))
        for each in (waiting, log.barrier(), log.append([(b"k", b"v")]), cluster.broker._commit.when_all_durable(), cluster.append(tp, b"c")):
            with pytest.raises(Fenced):
                await each
        store.let_go("wal/")
        await asyncio.sleep(1)
        assert cluster.broker._commit.buffered_bytes > 0
        await cluster.kill()
        with pytest.raises(BmqError):
            await cluster.append(tp, b"d")

    run(main())


def test_who_waits_for_a_partition_to_open_is_told_when_the_broker_ends() -> None:
    async def main() -> None:
        store = HeldStore()
        cluster = Cluster(store)
        await cluster.start()
        (tp,) = await cluster.topic("orders")
        await cluster.append(tp, b"a")
        await cluster.roll(tp)
        for name in ("again", "once more"):  # the second finds nothing of it in the WAL and opens it when it is asked for
            await asyncio.sleep(30)
            await cluster.kill()
            await cluster.start(name)
        store.held.add("/manifest/")
        reading = asyncio.ensure_future(cluster.tail(tp, 0))
        appending = cluster.append(tp, b"b")
        await asyncio.sleep(1)
        assert not appending.done()
        cluster.broker._fenced(Fenced("another one"))
        with pytest.raises(Fenced):
            await appending
        with pytest.raises(Fenced):
            await reading
        assert cluster.broker._ownership.waiting_bytes == 0
        await cluster.kill()

    run(main())


def test_the_wal_is_freed_though_a_tail_begins_with_what_was_recovered() -> None:
    async def main() -> None:
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

    run(main())


def test_many_quiet_partitions_over_the_limit_are_rolled_until_writing_goes_on() -> None:
    async def main() -> None:
        cluster = Cluster(SimStore(faults=SLOW), settings=small(tail_limit_bytes=4000, roll_concurrency=1))
        await cluster.start()
        tps = await cluster.topic("orders", partitions=40)
        appended = await asyncio.wait_for(asyncio.gather(*(cluster.append(tp, bytes(300)) for tp in tps for _ in range(3))), 60)
        assert len(appended) == 120
        await cluster.stop()

    run(main())


def test_a_roll_that_fails_is_tried_again_though_nothing_more_arrives() -> None:
    async def main() -> None:
        store = HeldStore()
        cluster = Cluster(store, settings=small(maintenance_interval_ms=10_000_000))
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

    run(main())


def test_a_manifest_whose_outcome_is_unknown_is_found_and_nothing_that_it_names_goes() -> None:
    async def main() -> None:
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
        assert {key for key in store.keys("topics/") if "/segment/" in key} == {entry.key for entry in partition.manifest.entries}
        await cluster.stop()

    run(main())


def test_a_store_that_is_down_fills_the_buffer_and_no_more() -> None:
    async def main() -> None:
        store = HeldStore()
        cluster = Cluster(store, settings=small(buffer_max_bytes=10_000))
        await cluster.start()
        (tp,) = await cluster.topic("orders")
        await cluster.append(tp, b"warm")
        store.held.add("wal/")
        taken = []
        with pytest.raises(NotReady):
            for _ in range(1000):
                appended = cluster.append(tp, bytes(500))
                if appended.done():
                    await appended
                taken.append(appended)
        assert cluster.broker._commit.buffered_bytes < 10_000 + 1000
        store.let_go("wal/")
        assert [each.base_offset for each in await asyncio.gather(*taken)] == list(range(1, len(taken) + 1))
        assert (await cluster.append(tp, b"on")).base_offset == len(taken) + 1
        await cluster.stop()

    run(main())


def test_upkeep_goes_on_after_it_failed() -> None:
    async def main() -> None:
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

    run(main())


def test_a_stop_does_not_wait_for_a_store_that_is_down() -> None:
    async def main() -> None:
        cluster = Cluster()
        await cluster.start()
        (tp,) = await cluster.topic("orders")
        await cluster.append(tp, b"a")
        cluster.store.outage(3600)
        waiting = cluster.append(tp, b"b")
        began_s = asyncio.get_running_loop().time()
        await cluster.broker.stop()
        assert asyncio.get_running_loop().time() - began_s < 60
        with pytest.raises(UnknownOutcome):
            await waiting
        cluster.store.heal()
        await cluster.controller.stop()
        await cluster.start("again")
        assert (0, b"a") in await cluster.read_all(tp)
        await cluster.stop()

    run(main())


def test_a_broker_that_could_not_start_can_be_stopped() -> None:
    async def main() -> None:
        cluster = Cluster()
        await cluster.start()
        await cluster.controller.stop()
        await cluster.broker.kill()
        with pytest.raises(BmqError):
            await cluster.broker.start()
        await cluster.broker.stop()
        await cluster.broker.kill()

    run(main())


def test_ranges_that_come_with_a_partition_later_are_read_before_it_opens() -> None:
    async def main() -> None:
        cluster = Cluster()
        await cluster.start()
        (tp,) = await cluster.topic("orders")
        await cluster.append(tp, b"a")
        await cluster.append(tp, b"b")
        await cluster.kill()
        await cluster.start("again")
        broker, image = cluster.broker, cluster.controller.metadata.image
        meta = image.partition(tp)
        assert meta is not None
        assert meta.ranges
        away = moved_to_another_node(image, tp)
        broker._image_changed(image, away)
        assert tp not in broker._ownership.partitions
        broker._image_changed(away, image)
        assert await cluster.read_all(tp) == [(0, b"a"), (1, b"b")]
        assert (await cluster.append(tp, b"c")).base_offset == Offset(2)
        await cluster.stop()

    run(main())


def test_an_owner_learns_of_what_an_earlier_owner_merged_before_it_was_stopped() -> None:
    async def main() -> None:
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
        assert await old.broker._maintenance._merger.merge(old.broker._ownership.partitions[tp])
        await old.broker._maintenance._garbage.sweep()
        assert partition.manifest.entries[0].key not in store.objects
        assert (await new.broker.owner.offset_for_time(tp, 0)).offset == 0
        assert (await new.broker.owner.offset_for_time(tp, -3)).offset == 0
        assert await new.read_all(tp) == [(number, b"%d" % number) for number in range(10)]
        await old.kill()
        await new.stop()

    run(main())


def test_times_are_exact_above_a_log_start_in_the_middle_of_a_batch() -> None:
    async def main() -> None:
        cluster = Cluster()
        await cluster.start()
        (tp,) = await cluster.topic("orders")
        now_ms = cluster.clock.now_ms()
        times = [now_ms + 5000, now_ms, now_ms + 1000, now_ms + 3000, now_ms + 2000]
        records = [Record(offset=0, timestamp_ms=time_ms, key=None, value=b"v", headers=()) for time_ms in times]
        owner = cluster.broker.owner
        await owner.append(tp, build_batch(records), produce_version=9)
        for log_start in range(1, 5):
            await owner.delete_records(tp, Offset(log_start))
            for asked in (now_ms, now_ms + 500, now_ms + 2500, now_ms + 4000):
                expected = next((offset for offset, time_ms in enumerate(times) if offset >= log_start and time_ms >= asked), -1)
                found = await owner.offset_for_time(tp, asked)
                assert (found.offset, found.timestamp_ms) == (expected, times[expected] if expected >= 0 else -1)
            newest_ms = max(times[log_start:])
            newest = await owner.offset_for_time(tp, -3)
            assert (newest.offset, newest.timestamp_ms) == (times.index(newest_ms), newest_ms)
        await cluster.stop()

    run(main())


def test_a_coordinator_that_cannot_be_loaded_is_loaded_when_it_is_asked_again() -> None:
    async def main() -> None:
        cluster = Cluster()
        await cluster.start()
        (tp,) = await cluster.topic("__consumer_offsets", partitions=1)
        caller = Caller(client_id="c", client_host="h")
        request = Message(states_filter=(), types_filter=())
        await cluster.broker.owner.group_call(0, 16, request, caller)
        log = partition_log(cluster, tp)
        await log.append([(b"\x00\x63", b"of a newer version")])
        await cluster.roll(tp)
        (entry,) = cluster.broker._ownership.partitions[tp].manifest.entries
        kept = cluster.store.objects.pop(entry.key)
        cluster.broker._coordinators.partition_closed(cluster.broker._ownership.partitions[tp])
        reply = await cluster.broker.owner.group_call(0, 16, request, caller)
        assert reply["error_code"] != 0
        cluster.store.objects[entry.key] = kept
        reply = await cluster.broker.owner.group_call(0, 16, request, caller)
        assert reply["error_code"] == 0
        await cluster.stop()

    run(main())


def test_what_a_killed_owner_left_unnamed_is_collected_by_the_next() -> None:
    async def main() -> None:
        cluster = Cluster()
        await cluster.start()
        (tp,) = await cluster.topic("orders")
        await cluster.append(tp, b"a")
        await cluster.roll(tp)
        orphans = [
            segment_key(tp, LeaderEpoch(1), Offset(7), Nonce(bytes(16))),
            coordinator_snapshot_key(tp, LeaderEpoch(1), Offset(7), Nonce(bytes(16))),
            manifest_page_key(tp, Nonce(bytes(16))),
        ]
        for key in orphans:
            cluster.store.apply_create("node", key, b"left behind")
        await asyncio.sleep(700)
        assert orphans[0] in cluster.store.objects
        await cluster.kill()
        await cluster.start("again")
        await cluster.append(tp, b"b")
        await cluster.roll(tp)
        await asyncio.sleep(700)
        assert not set(orphans) & set(cluster.store.objects)
        assert await cluster.read_all(tp) == [(0, b"a"), (1, b"b")]
        await cluster.stop()

    run(main())


def test_a_segment_that_was_damaged_is_not_merged() -> None:
    async def main() -> None:
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

    run(main())


def test_segments_far_apart_in_time_are_not_merged() -> None:
    async def main() -> None:
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

    run(main())


def test_an_idempotent_producer_outlives_its_records() -> None:
    async def main() -> None:
        cluster = Cluster()
        await cluster.start()
        (tp,) = await cluster.topic("orders")
        batch = {"producer_id": 5, "producer_epoch": 0}
        await cluster.append(tp, b"a", **batch, base_sequence=0)
        assert (await cluster.append(tp, b"b", **batch, base_sequence=1)).base_offset == 1
        assert await cluster.broker.owner.delete_records(tp, Offset(-1)) == 2
        await asyncio.sleep(700)
        await cluster.kill()
        await cluster.start("again")
        assert (await cluster.append(tp, b"b", **batch, base_sequence=1)).base_offset == 1
        with pytest.raises(OutOfOrderSequence):
            await cluster.append(tp, b"d", **batch, base_sequence=3)
        assert (await cluster.append(tp, b"c", **batch, base_sequence=2)).base_offset == 2
        await cluster.roll(tp)
        await asyncio.sleep(700)
        assert len([key for key in cluster.store.keys("topics/") if "/segment/" in key]) == 1
        await cluster.kill()
        await cluster.start("once more")
        assert (await cluster.append(tp, b"c", **batch, base_sequence=2)).base_offset == 2
        await cluster.stop()

    run(main())


def test_kills_in_a_row_do_not_make_the_wal_longer_and_longer() -> None:
    async def main() -> None:
        cluster = Cluster(settings=small(tail_budget_bytes=1_000_000, tail_limit_bytes=1_000_000, ranges_max=100))
        await cluster.start()
        tps = await cluster.topic("orders", partitions=8)
        for number in range(6):
            for tp in tps:
                await cluster.append(tp, bytes(200))
            await asyncio.sleep(30)
            await cluster.kill()
            await cluster.start(f"start {number}")
        await asyncio.sleep(300)
        assert sum(len(stored.data) for key, stored in cluster.store.objects.items() if key.startswith("wal/")) < 8000
        for tp in tps:
            assert len(await cluster.read_all(tp)) == 6
        await cluster.stop()

    run(main())


def test_kills_seconds_apart_do_not_make_every_start_read_more() -> None:
    """As a crash loop, or an orchestrator's impatience: no incarnation lives until a round of upkeep."""

    async def main() -> None:
        cluster = Cluster(settings=small(tail_budget_bytes=1_000_000, tail_limit_bytes=1_000_000, wal_budget_bytes=1_000_000, ranges_max=4))
        await cluster.start()
        tps = await cluster.topic("orders", partitions=8)
        for number in range(30):
            for tp in tps:
                await cluster.append(tp, bytes(200))
            await asyncio.sleep(2)
            await cluster.kill()
            await cluster.start(f"start {number}")
            image = cluster.controller.metadata.image
            assert max(len(image.topics[tp.topic_id].partitions[tp.partition].ranges) for tp in tps) <= 6
        for tp in tps:
            assert len(await cluster.read_all(tp)) == 30
        await cluster.stop()

    run(main())


def test_a_replaced_broker_has_no_upkeep_any_more() -> None:
    async def main() -> None:
        cluster = Cluster(settings=small())
        await cluster.start()
        (tp,) = await cluster.topic("orders", configs={"retention.ms": "1000", "segment.ms": "1000"})
        await cluster.append(tp, b"a")
        cluster.broker._fenced(Fenced("another one"))
        await asyncio.sleep(300)
        assert cluster.store.keys("topics/") == []
        await cluster.kill()

    run(main())


def test_a_replaced_broker_does_not_refuse_what_its_successor_expects() -> None:
    async def main() -> None:
        store = SimStore()
        old = Cluster(store)
        await old.start("old")
        (tp,) = await old.topic("orders")
        batch = {"producer_id": 5, "producer_epoch": 0}
        await old.append(tp, b"a", **batch, base_sequence=0)
        with pytest.raises(OutOfOrderSequence):
            await old.append(tp, b"c", **batch, base_sequence=2)
        new = Cluster(store, seed=1)
        await new.start("new")
        await new.append(tp, b"b", **batch, base_sequence=1)
        with pytest.raises(NotOwner):
            await old.append(tp, b"c", **batch, base_sequence=2)
        assert (await new.append(tp, b"c", **batch, base_sequence=2)).base_offset == 2
        await old.kill()
        await new.stop()

    run(main())


def test_a_batch_is_not_refused_for_the_sake_of_one_that_is_not_durable() -> None:
    async def main() -> None:
        store = HeldStore()
        cluster = Cluster(store)
        await cluster.start()
        (tp,) = await cluster.topic("orders")
        await cluster.append(tp, b"a", producer_id=5, producer_epoch=0, base_sequence=0)
        store.held.add("wal/")
        newer = cluster.append(tp, b"b", producer_id=5, producer_epoch=1, base_sequence=0)
        older = cluster.append(tp, b"c", producer_id=5, producer_epoch=0, base_sequence=1)
        await asyncio.sleep(1)
        assert not older.done()
        store.let_go("wal/")
        await newer
        with pytest.raises(InvalidProducerEpoch):
            await older
        await cluster.stop()

    run(main())

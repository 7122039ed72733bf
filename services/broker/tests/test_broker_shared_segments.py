"""Shared segments: one goes when none of its partitions names it and none ever can, and not before."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

import pytest
from broker_under_test import Cluster, small
from held_store import HeldStore
from moving_brokers import Brokers

from bmq.errors import UnknownOutcome
from bmq.storage.keys import SHARED_PREFIX, manifest_prefix
from bmq.storage.numbered import numbered_key
from bmq.values import Offset, TopicPartition
from bmq_broker.main import BrokerRole
from bmq_broker.settings import BrokerSettings
from bmq_sim.loop import on_virtual_time
from bmq_sim.store import SimStore

LONG_S = 60.0


def settings(**changes: int) -> BrokerSettings:
    """Nothing is rolled or merged by itself; shared segments are looked at all the time."""
    plenty = {"tail_budget_bytes": 10**6, "tail_limit_bytes": 10**6, "wal_budget_bytes": 10**6, "merge_count": 1000}
    fast = {
        "retention_interval_ms": 1_000,
        "shared_look_ms": 1_000,
        "shared_look_ms_max": 2_000,
        "segment_linger_ms": 2_000,
    }
    return replace(small(), carry_bytes_max=0, stop_roll_bytes=10**6, **plenty, **fast, **changes)  # type: ignore[arg-type]


async def roll_together(broker: BrokerRole, tps: list[TopicPartition]) -> None:
    """Into one segment."""
    partitions = [await broker._ownership.open(tp) for tp in tps]
    assert broker._roller.start_together(partitions, "test") == len(tps)
    await asyncio.gather(*broker._roller._tasks)


async def cluster_with_a_shared_segment(
    store: SimStore, *, partitions: int = 3
) -> tuple[Cluster, list[TopicPartition]]:
    cluster = Cluster(store, settings=settings())
    await cluster.start()
    tps = await cluster.topic("orders", partitions=partitions)
    for tp in tps:
        await cluster.append(tp, b"a", b"b")
    await roll_together(cluster.broker, tps)
    assert len(store.keys(SHARED_PREFIX)) == 1
    return cluster, tps


async def cluster_about_to_roll(store: SimStore) -> tuple[Cluster, list[TopicPartition]]:
    """Two partitions with a segment each, and something that is in none yet."""
    cluster = Cluster(store, settings=settings())
    await cluster.start()
    tps = await cluster.topic("orders", partitions=2)
    for tp in tps:
        await cluster.append(tp, b"a")
        await cluster.roll(tp)
        await cluster.append(tp, b"b")
    return cluster, tps


@on_virtual_time
async def test_it_stays_until_its_last_partition_names_it_no_more() -> None:
    store = SimStore()
    cluster, tps = await cluster_with_a_shared_segment(store)
    for tp in tps[:-1]:
        await cluster.append(tp, b"c")
        await cluster.roll(tp)
        await cluster.broker.owner.delete_records(tp, Offset(2))
    await asyncio.sleep(LONG_S)
    assert len(store.keys(SHARED_PREFIX)) == 1
    assert await cluster.read_all(tps[-1]) == [(0, b"a"), (1, b"b")]
    await cluster.append(tps[-1], b"c")
    await cluster.roll(tps[-1])
    await cluster.broker.owner.delete_records(tps[-1], Offset(2))
    await asyncio.sleep(LONG_S)
    assert store.keys(SHARED_PREFIX) == []
    await cluster.stop()


@on_virtual_time
async def test_a_producer_snapshot_in_it_keeps_it() -> None:
    store = SimStore()
    cluster, tps = await cluster_with_a_shared_segment(store)
    for tp in tps:
        await cluster.broker.owner.delete_records(tp, Offset(2))
    await asyncio.sleep(LONG_S)
    assert len(store.keys(SHARED_PREFIX)) == 1
    for tp in tps:
        await cluster.append(tp, b"c")
    await roll_together(cluster.broker, tps)
    await asyncio.sleep(LONG_S)
    assert len(store.keys(SHARED_PREFIX)) == 1
    assert [await cluster.read_all(tp) for tp in tps] == [[(2, b"c")]] * len(tps)
    await cluster.stop()


@on_virtual_time
async def test_a_merge_of_one_partition_leaves_it_to_the_others() -> None:
    store = SimStore()
    cluster, tps = await cluster_with_a_shared_segment(store)
    await cluster.append(tps[0], b"c")
    await cluster.roll(tps[0])
    cluster.broker._upkeep._merger._settings = replace(settings(), merge_count=2)
    await asyncio.sleep(LONG_S)
    assert await cluster.read_all(tps[0]) == [(0, b"a"), (1, b"b"), (2, b"c")]
    assert await cluster.read_all(tps[1]) == [(0, b"a"), (1, b"b")]
    assert len(store.keys(SHARED_PREFIX)) == 1
    await cluster.stop()


@on_virtual_time
async def test_it_goes_with_its_topics() -> None:
    store = SimStore()
    cluster, tps = await cluster_with_a_shared_segment(store)
    await cluster.controller.controller.delete_topics([tps[0].topic_id])
    await asyncio.sleep(5 * LONG_S)
    assert store.keys(SHARED_PREFIX) == []
    await cluster.stop()


@on_virtual_time
async def test_one_that_nobody_came_to_name_goes_once_all_its_partitions_have_later_owners() -> None:
    store = HeldStore()
    cluster = Cluster(store, settings=settings())
    await cluster.start()
    tps = await cluster.topic("orders", partitions=3)
    for tp in tps:
        await cluster.append(tp, b"a")
    store.held.add("/manifest/")
    partitions = [await cluster.broker._ownership.open(tp) for tp in tps]
    cluster.broker._roller.start_together(partitions, "test")
    await asyncio.sleep(1)
    assert len(store.keys(SHARED_PREFIX)) == 1
    await cluster.kill()
    store.let_go("/manifest/")
    await cluster.start("again")
    await asyncio.sleep(2 * LONG_S)
    assert store.keys(SHARED_PREFIX) == []
    assert [await cluster.read_all(tp) for tp in tps] == [[(0, b"a")]] * 3
    await cluster.stop()


@on_virtual_time
async def test_while_the_outcome_of_a_manifest_is_not_known_it_stays() -> None:
    store = HeldStore()
    cluster, tps = await cluster_about_to_roll(store)
    store.unknown.add("/manifest/")
    partitions = [await cluster.broker._ownership.open(tp) for tp in tps]
    cluster.broker._roller.start_together(partitions, "test")
    await asyncio.sleep(LONG_S / 4)
    (first, *_) = store.keys(SHARED_PREFIX)
    store.unknown.clear()
    store.land()
    await asyncio.sleep(LONG_S)
    assert [await cluster.read_all(tp) for tp in tps] == [[(0, b"a"), (1, b"b")]] * 2
    named = {key for tp in tps for key in (await cluster.broker._ownership.open(tp)).manifest.keys()}  # noqa: SIM118
    assert named <= set(store.keys())
    assert first in named  # its version landed late, and counts
    await cluster.stop()


@on_virtual_time
async def test_partitions_that_moved_away_keep_it_and_let_it_go() -> None:
    brokers = Brokers(SimStore(), settings=settings())
    await brokers.start(1, 2)
    tps = brokers.controller.create_topic("orders", partitions=3, owner=1)
    for tp in tps:
        await brokers.append(tp, b"a")
    await roll_together(brokers.roles[1], tps)
    for tp in tps[:2]:
        await brokers.moved(tp, to=2)
    await brokers.append(tps[2], b"b")
    await brokers.roll(tps[2])
    await brokers.roles[1].owner.delete_records(tps[2], Offset(1))
    await asyncio.sleep(LONG_S)
    assert len(brokers.store.keys(SHARED_PREFIX)) == 1
    assert [await brokers.read_all(tp) for tp in tps[:2]] == [[(0, b"a")]] * 2
    for tp in tps[:2]:
        await brokers.append_wherever(tp, b"b")
        await brokers.roles[2].owner.delete_records(tp, Offset(1))
        await brokers.append_wherever(tp, b"c")
        await brokers.roll(tp)
    await asyncio.sleep(LONG_S)
    assert brokers.store.keys(SHARED_PREFIX) == []
    await brokers.stop()


async def append_and_roll(brokers: Brokers, tps: Sequence[TopicPartition], value: bytes) -> None:
    """A record in a segment of each partition's own."""
    for tp in tps:
        await brokers.append_wherever(tp, value)
        await brokers.roll(tp)


async def deletions_held(
    store: HeldStore, brokers: Brokers, tps: Sequence[TopicPartition], below: Offset
) -> Callable[[], Awaitable[None]]:
    """Node 2 deletes records, and its versions are held up. Returns what lets them come to stand, and waits for what
    becomes of them.
    """
    versions = [
        f"node-2:{numbered_key(manifest_prefix(tp), brokers.roles[2]._ownership.partitions[tp].manifest_version + 1)}"
        for tp in tps
    ]
    store.held.update(versions)
    deleting = [asyncio.ensure_future(brokers.roles[2].owner.delete_records(tp, below)) for tp in tps]
    await asyncio.sleep(0.1)

    async def let_go() -> None:
        for version in versions:
            store.let_go(version)
        await asyncio.gather(*deleting, return_exceptions=True)

    return let_go


@on_virtual_time
async def test_it_stays_while_an_owner_may_serve_with_the_version_before_one_that_came_to_stand_late() -> None:
    store = HeldStore()
    brokers = Brokers(store, settings=settings())
    await brokers.start(1, 2, 3)
    tps = brokers.controller.create_topic("orders", partitions=2, owner=1)
    for tp in tps:
        await brokers.append(tp, b"a")
    await roll_together(brokers.roles[1], tps)
    await brokers.moved(*tps, to=2)
    await append_and_roll(brokers, tps, b"b")
    let_go = await deletions_held(store, brokers, tps, Offset(1))
    await brokers.moved(*tps, to=3)
    assert [await brokers.read_all(tp) for tp in tps] == [[(0, b"a"), (1, b"b")]] * 2
    await let_go()
    await asyncio.sleep(LONG_S)
    assert [await brokers.read_all(tp) for tp in tps] == [[(0, b"a"), (1, b"b")]] * 2
    await append_and_roll(brokers, tps, b"c")
    await asyncio.sleep(LONG_S)
    assert [await brokers.read_all(tp) for tp in tps] == [[(1, b"b"), (2, b"c")]] * 2
    assert store.keys(SHARED_PREFIX) == []
    await brokers.stop()


@on_virtual_time
async def test_who_has_yet_to_hear_of_an_owner_does_not_take_away_what_that_one_serves_with() -> None:
    store = HeldStore()
    brokers = Brokers(store, settings=settings())
    await brokers.start(1, 2, 3)
    tps = brokers.controller.create_topic("orders", partitions=2, owner=1)
    for _ in range(2):
        for tp in tps:
            await brokers.append(tp, b"a")
        await roll_together(brokers.roles[1], tps)
    await brokers.moved(*tps, to=2)
    await append_and_roll(brokers, tps, b"b")
    let_go = await deletions_held(store, brokers, tps, Offset(2))
    behind = brokers.controller._feeds.pop(1)  # node 1, whose segment it is, does not hear of the move
    await brokers.moved(*tps, to=3)
    assert [await brokers.read_all(tp) for tp in tps] == [[(0, b"a"), (1, b"a"), (2, b"b")]] * 2
    await let_go()
    await asyncio.sleep(LONG_S)
    assert [await brokers.read_all(tp) for tp in tps] == [[(0, b"a"), (1, b"a"), (2, b"b")]] * 2
    behind.publish(brokers.controller.image)
    brokers.controller._feeds[1] = behind
    await append_and_roll(brokers, tps, b"c")
    await asyncio.sleep(LONG_S)
    assert [await brokers.read_all(tp) for tp in tps] == [[(2, b"b"), (3, b"c")]] * 2
    assert store.keys(SHARED_PREFIX) == []
    await brokers.stop()


@on_virtual_time
async def test_an_owner_that_does_not_know_what_became_of_a_version_finds_out_before_what_it_serves_with_goes() -> None:
    store = HeldStore()
    brokers = Brokers(store, settings=replace(settings(), segment_linger_ms=10_000))
    await brokers.start(1, 2)
    tps = brokers.controller.create_topic("orders", partitions=2, owner=1)
    for tp in tps:
        await brokers.append(tp, b"a")
    await roll_together(brokers.roles[1], tps)
    await brokers.moved(*tps, to=2)
    await append_and_roll(brokers, tps, b"b")
    store.unknown.add("/manifest/")
    for tp in tps:
        with pytest.raises(UnknownOutcome):
            await brokers.roles[2].owner.delete_records(tp, Offset(1))
    store.unknown.clear()
    store.land()
    await asyncio.sleep(LONG_S)
    assert [await brokers.read_all(tp) for tp in tps] == [[(1, b"b")]] * 2
    assert store.keys(SHARED_PREFIX) == []
    await brokers.stop()


@on_virtual_time
async def test_what_a_node_left_that_is_gone_is_looked_after_by_another() -> None:
    brokers = Brokers(SimStore(), settings=settings())
    await brokers.start(1, 2)
    tps = brokers.controller.create_topic("orders", partitions=2, owner=2)
    for tp in tps:
        await brokers.append(tp, b"a")
    await roll_together(brokers.roles[2], tps)
    await brokers.roles[2].kill()
    await brokers.controller.fence(2)
    del brokers.roles[2]
    for tp in tps:
        await brokers.append_wherever(tp, b"b")
        await brokers.roles[1].owner.delete_records(tp, Offset(2))
        await brokers.append_wherever(tp, b"c")
        await brokers.roll(tp)
    await asyncio.sleep(LONG_S)
    assert brokers.store.keys(SHARED_PREFIX) == []
    assert [await brokers.read_all(tp) for tp in tps] == [[(2, b"c")]] * 2
    await brokers.stop()


@on_virtual_time
async def test_a_replaced_broker_does_not_collect_what_its_successor_writes() -> None:
    store = SimStore()
    old, tps = await cluster_with_a_shared_segment(store)
    new = Cluster(store, settings=settings(), seed=1)
    await new.start("new")
    for tp in tps:
        await new.append(tp, b"c")
    await roll_together(new.broker, tps)
    newest = max(store.keys(SHARED_PREFIX))
    await old.broker._upkeep._shared.sweep()
    assert not old.broker._upkeep._garbage.holds(newest)
    assert not new.broker._upkeep._garbage.holds(newest)
    await old.kill()
    await new.stop()

"""Brokers that are fenced, replaced, killed or cannot go on: they say so, end whole, and leave their heirs
everything.
"""

import asyncio

import pytest
from broker_under_test import NODE, Cluster, image_with, partition_log, small
from held_store import HeldStore

from bmq.errors import BmqError, Fenced, NotOwner, OutOfOrderSequence, UnknownOutcome
from bmq.metadata.records import NodeRegistered
from bmq_sim.loop import on_virtual_time
from bmq_sim.store import SimStore, StoreFaults

SLOW = StoreFaults(latency_s_min=0.05, latency_s_max=0.05)


@on_virtual_time
async def test_a_conflict_in_a_manifest_ends_the_whole_broker() -> None:
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


@on_virtual_time
async def test_an_idle_broker_that_was_replaced_learns_it_within_a_lease() -> None:
    store = SimStore()
    old = Cluster(store)
    await old.start("old")
    new = Cluster(store, seed=1)
    await new.start("new")
    await asyncio.sleep(old.settings.lease_ms / 1000 + 1)
    assert old.fenced
    await old.kill()
    await new.stop()


@on_virtual_time
async def test_a_broker_whose_node_is_registered_again_throws_its_state_away() -> None:
    cluster = Cluster()
    await cluster.start()
    (tp,) = await cluster.topic("orders")
    await cluster.append(tp, b"a")
    image = cluster.controller.metadata.image
    node = image.nodes[NODE]
    again = NodeRegistered(
        node_id=NODE,
        broker_epoch=node.broker_epoch + 1,
        boot=cluster.rng.uuid(),
        roles=node.roles,
        host=node.host,
        port=node.port,
    )
    cluster.broker._image_changed(image, image_with(image, again))
    assert isinstance(cluster.fenced[0], Fenced)
    await cluster.kill()


@on_virtual_time
async def test_after_the_end_nobody_waits_for_ever() -> None:
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
    for each in (
        waiting,
        log.barrier(),
        log.append([(b"k", b"v")]),
        cluster.broker._commit.when_all_durable(),
        cluster.append(tp, b"c"),
    ):
        with pytest.raises(Fenced):
            await each
    store.let_go("wal/")
    await asyncio.sleep(1)
    assert cluster.broker._commit.buffered_bytes > 0
    await cluster.kill()
    with pytest.raises(BmqError):
        await cluster.append(tp, b"d")


@on_virtual_time
async def test_who_waits_for_a_partition_to_open_is_told_when_the_broker_ends() -> None:
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
    reading = asyncio.ensure_future(cluster.tail(tp, 0, max_wait_ms=60_000))
    appending = cluster.append(tp, b"b")
    await asyncio.sleep(1)
    assert not appending.done()
    cluster.broker._fenced(Fenced("another one"))
    with pytest.raises(Fenced):
        await appending
    with pytest.raises(Fenced):
        await reading
    assert cluster.broker._ownership._waiting.size_bytes == 0
    await cluster.kill()


@on_virtual_time
async def test_a_stop_does_not_wait_for_a_store_that_is_down() -> None:
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


@on_virtual_time
async def test_a_broker_that_could_not_start_can_be_stopped() -> None:
    cluster = Cluster()
    await cluster.start()
    await cluster.controller.stop()
    await cluster.broker.kill()
    with pytest.raises(BmqError):
        await cluster.broker.start()
    await cluster.broker.stop()
    await cluster.broker.kill()


@on_virtual_time
async def test_kills_in_a_row_do_not_make_the_wal_longer_and_longer() -> None:
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


@on_virtual_time
async def test_kills_seconds_apart_do_not_make_every_start_read_more() -> None:
    """As a crash loop, or an orchestrator's impatience: no incarnation lives until a round of upkeep."""
    cluster = Cluster(
        settings=small(
            tail_budget_bytes=1_000_000, tail_limit_bytes=1_000_000, wal_budget_bytes=1_000_000, ranges_max=4
        )
    )
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


@on_virtual_time
async def test_a_replaced_broker_has_no_upkeep_any_more() -> None:
    cluster = Cluster(settings=small())
    await cluster.start()
    (tp,) = await cluster.topic("orders", configs={"retention.ms": "1000", "segment.ms": "1000"})
    await cluster.append(tp, b"a")
    cluster.broker._fenced(Fenced("another one"))
    await asyncio.sleep(300)
    assert cluster.store.keys("topics/") == []
    await cluster.kill()


@on_virtual_time
async def test_a_replaced_broker_does_not_refuse_what_its_successor_expects() -> None:
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

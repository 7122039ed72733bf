"""A broker's clock that is wrong for a while, or jumps in the very moment in which something is decided by it: nothing
young is deleted.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest
from broker_under_test import Cluster
from held_store import HeldStore
from typing_extensions import Buffer

from bmq.clocks.clock_guard import ClockGuard
from bmq.errors import NotApplied, NotOwner
from bmq.values import TopicPartition
from bmq_broker.settings import BrokerSettings
from bmq_sim.clock import SimClock
from bmq_sim.loop import on_virtual_time
from bmq_sim.store import NodeStore, SimStore

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


@asynccontextmanager
async def guarded(cluster: Cluster) -> AsyncIterator[ClockGuard]:
    """As in a node: the clock is compared each minute."""
    guard = cluster.broker._clock_guard
    running = asyncio.get_running_loop().create_task(guard.run())
    await asyncio.sleep(1)
    yield guard
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def retain(cluster: Cluster, tp: TopicPartition) -> None:
    await cluster.broker._upkeep._retain(await cluster.broker._ownership.open(tp))


@on_virtual_time
async def test_a_clock_that_jumps_while_it_is_compared_deletes_nothing() -> None:
    store = HeldStore()
    cluster = Cluster(store, settings=BrokerSettings(retention_interval_ms=30_000))
    await cluster.start()
    (tp,) = await cluster.topic("orders", configs={"retention.ms": str(HOUR_MS)})
    await cluster.append(tp, b"young")
    await cluster.roll(tp)
    store.held.add("clock/")
    async with guarded(cluster):
        cluster.clock.skew_ms = DAY_MS
        store.let_go("clock/")
        await asyncio.sleep(100)
        assert await cluster.read_all(tp) == [(0, b"young")]
    await cluster.stop()


@pytest.mark.parametrize("waits_for", ["the manifest's lock", "a roll", "a page"])
@on_virtual_time
async def test_a_clock_that_jumps_while_retention_waits_deletes_nothing(waits_for: str) -> None:
    store = HeldStore()
    settings = BrokerSettings(retention_interval_ms=10 * HOUR_MS, manifest_entries_max=2, merge_below_bytes=0)
    cluster = Cluster(store, settings=settings)
    await cluster.start()
    guard = cluster.broker._clock_guard
    (tp,) = await cluster.topic("orders", configs={"retention.ms": str(HOUR_MS), "segment.ms": str(DAY_MS)})
    for number in range(6 if waits_for == "a page" else 1):
        await cluster.append(tp, b"old %d" % number)
        await asyncio.sleep(1_000 if waits_for == "a page" else 7_200)
        if waits_for != "a roll":
            await cluster.roll(tp)
    await guard.check()
    lock = cluster.broker._manifests.lock(tp)
    if waits_for == "the manifest's lock":
        await lock.acquire()
    else:
        store.held.add("manifest-page/" if waits_for == "a page" else "/segment/")
    retaining = asyncio.get_running_loop().create_task(retain(cluster, tp))
    await asyncio.sleep(1)
    assert not retaining.done()
    await cluster.append(tp, b"young")
    cluster.clock.skew_ms = DAY_MS
    assert not guard.trusted
    if waits_for == "the manifest's lock":
        lock.release()
    else:
        store.let_go(next(iter(store.held)))
    await retaining
    kept = [value for _, value in await cluster.read_all(tp)]
    assert b"young" in kept
    assert b"old 0" in kept, "its age is not known any more"
    cluster.clock.skew_ms = 0
    await cluster.roll(tp)
    await retain(cluster, tp)
    assert b"old 0" not in [value for _, value in await cluster.read_all(tp)]
    assert b"young" in [value for _, value in await cluster.read_all(tp)]
    await cluster.stop()


@pytest.mark.parametrize("ends", ["rolled", "in the tail", "in the WAL of a broker that was killed"])
@on_virtual_time
async def test_a_producer_of_a_minute_ago_is_known_though_the_clock_was_days_behind(ends: str) -> None:
    cluster = Cluster()
    await cluster.start()
    (tp,) = await cluster.topic("orders")
    async with guarded(cluster):
        cluster.clock.skew_ms = -2 * DAY_MS
        await asyncio.sleep(130)
        one = await cluster.append(tp, b"a", producer_id=5, producer_epoch=0, base_sequence=0)
        if ends == "rolled":
            await cluster.roll(tp)
        elif ends != "in the tail":
            await cluster.kill()
            await cluster.start("again")
            await cluster.broker._ownership.open(tp)
    async with guarded(cluster) as guard:
        cluster.clock.skew_ms = 0
        await asyncio.sleep(1_000)
        assert guard.trusted
        two = await cluster.append(tp, b"a", producer_id=5, producer_epoch=0, base_sequence=0)
        assert one.base_offset == two.base_offset
        assert await cluster.read_all(tp) == [(0, b"a")]
    await cluster.stop()


@on_virtual_time
async def test_records_of_a_log_with_its_own_times_are_kept_though_the_clock_was_days_behind() -> None:
    cluster = Cluster()
    await cluster.start()
    async with guarded(cluster) as guard:
        (tp,) = await cluster.topic("orders", configs={"message.timestamp.type": "LogAppendTime"})
        cluster.clock.skew_ms = -8 * DAY_MS
        await asyncio.sleep(130)
        appended = await cluster.append(tp, b"a")
        assert abs(appended.log_append_time_ms - SimClock().now_ms()) <= 2_000
        await cluster.roll(tp)
        await cluster.append(tp, b"b")
        cluster.clock.skew_ms = 0
        await asyncio.sleep(1_000)
        assert guard.trusted
        assert await cluster.read_all(tp) == [(0, b"a"), (1, b"b")]
    await cluster.stop()


class FailingAtFirst(SimStore):
    """Refuses the first comparisons of clocks."""

    def __init__(self, failures: int) -> None:
        super().__init__()
        self.failures = failures

    def for_node(self, name: str) -> NodeStore:
        return _FailingNodeStore(self, name)


class _FailingNodeStore(NodeStore):
    def __init__(self, store: FailingAtFirst, node: str) -> None:
        super().__init__(store, node)
        self._failing = store

    async def create(self, key: str, parts: Sequence[Buffer]) -> None:
        if key.startswith("clock/") and self._failing.failures:
            self._failing.failures -= 1
            raise NotApplied(f"create {key}: HTTP 503")
        await super().create(key, parts)


@on_virtual_time
async def test_a_broker_whose_first_comparisons_fail_stamps_nothing_before_it_knows_the_time() -> None:
    store = FailingAtFirst(0)
    cluster = Cluster(store, compared=False)
    await cluster.start()
    (tp,) = await cluster.topic("orders", configs={"message.timestamp.type": "LogAppendTime"})
    await cluster.stop()
    store.failures = 3
    cluster.clock.skew_ms = -8 * DAY_MS
    await cluster.start("again")
    assert abs((await cluster.append(tp, b"a")).log_append_time_ms - SimClock().now_ms()) <= 2_000
    await cluster.stop()


@on_virtual_time
async def test_a_store_that_refuses_every_comparison_keeps_no_broker_from_serving() -> None:
    cluster = Cluster(FailingAtFirst(10**9), compared=False)
    await cluster.start()
    (tp,) = await cluster.topic("orders")
    await cluster.append(tp, b"a")
    assert not cluster.broker._clock_guard.trusted
    await cluster.stop()


@on_virtual_time
async def test_over_a_folder_a_clock_that_jumps_deletes_nothing_that_is_young() -> None:
    """A folder's clock is this machine's: it jumps along, and agrees."""
    cluster = Cluster(settings=BrokerSettings(upkeep_interval_ms=60_000))
    await cluster.start()
    async with guarded(cluster) as guard:
        (tp,) = await cluster.topic("orders")
        await cluster.append(tp, b"young")
        await cluster.roll(tp)
        cluster.clock.skew_ms = cluster.store.clock_offset_ms = 30 * DAY_MS
        await asyncio.sleep(20 * 3_600)
        assert await cluster.read_all(tp) == [(0, b"young")]
        assert not guard.differs, "it may have partitions: nobody else knows better"
        cluster.clock.skew_ms = cluster.store.clock_offset_ms = 0
        await asyncio.sleep(3_600)
        assert guard.trusted
        assert await cluster.read_all(tp) == [(0, b"young")]
    await cluster.stop()


@on_virtual_time
async def test_a_topic_made_while_the_only_broker_has_a_wrong_clock_is_served_once_it_is_right() -> None:
    cluster = Cluster()
    await cluster.start()
    async with guarded(cluster):
        cluster.clock.skew_ms = DAY_MS
        await asyncio.sleep(10)
        (tp,) = await cluster.topic("orders")
        with pytest.raises(NotOwner):
            await cluster.append(tp, b"too early")
        cluster.clock.skew_ms = 0
        await asyncio.sleep(10)
        await cluster.append(tp, b"a")
        assert await cluster.read_all(tp) == [(0, b"a")]
    await cluster.stop()

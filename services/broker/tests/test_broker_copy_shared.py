"""Partitions that are rolled together while a store is copied: over the copy none of them looks as if versions of its
manifest had been lost.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from random import Random

import pytest
from broker_under_test import Cluster
from held_store import HeldStore
from test_broker_copies import OPTIONS
from test_broker_shared_segments import LONG_S, cluster_with_a_shared_segment, roll_together, settings
from test_coordinator_log_life import FEW, commit, fetched

from bmq.naming.names import CONSUMER_OFFSETS
from bmq.ports import ObjectMeta
from bmq.storage.keys import SHARED_PREFIX, manifest_prefix
from bmq.values import TopicPartition
from bmq_audit.audit import audit_store
from bmq_audit.findings import Level
from bmq_audit.reading import Progress, Reader
from bmq_backup.copied import Copied
from bmq_backup.copying import Copier
from bmq_sim.clock import SimRng
from bmq_sim.loop import on_virtual_time
from bmq_sim.store import SimStore


class Listened(Reader):
    """Something happens before these prefixes are listed; meanwhile nothing more does."""

    def __init__(
        self, store: SimStore, prefixes: list[str], happens: Callable[[], Awaitable[None]], *, times: int
    ) -> None:
        super().__init__(store.for_node("copier"), rng=SimRng(Random(1)), at_once=1, progress=Progress())
        self._prefixes = prefixes
        self._happens = happens
        self.times_left = times
        self._is_happening = False

    async def list(self, prefix: str) -> AsyncIterator[ObjectMeta]:
        if prefix in self._prefixes and self.times_left and not self._is_happening:
            self.times_left -= 1
            self._is_happening = True
            await self._happens()
            self._is_happening = False
        async for meta in super().list(prefix):
            yield meta


async def copied(source: Reader) -> tuple[SimStore, Copied]:
    copy = SimStore(page_keys=3)
    return copy, await Copier(source, copy.for_node("copier"), rng=SimRng(Random(1))).run()


async def faults_of(store: SimStore) -> list[object]:
    found = await audit_store(store.for_node("audit"), rng=SimRng(Random(0)), options=OPTIONS)
    return list(found.report.findings[Level.FAULT])


async def check(copy: SimStore, tps: list[TopicPartition], acknowledged: bytes) -> None:
    """Whichever run of a shared segment is looked at first, all partitions take records, and nothing is wrong with the
    store afterwards.
    """
    assert await faults_of(copy) == []
    for seed in range(6):
        store = SimStore()
        for key in copy.keys(""):
            store.apply_create("copier", key, copy.objects[key].data)
        restored = Cluster(store, settings=settings(), seed=seed)
        await restored.start("another")
        logs = [await restored.read_all(tp) for tp in tps]
        for log in logs:
            assert [offset for offset, _ in log] == list(range(len(log)))
            assert b"".join(value for _, value in log).startswith(acknowledged)
        await asyncio.sleep(LONG_S)
        for tp, log in zip(tps, logs, strict=True):
            assert (await restored.append(tp, b"new")).base_offset == len(log)
            assert await restored.read_all(tp) == [*log, (len(log), b"new")]
        await restored.stop()
        assert await faults_of(store) == []


@pytest.mark.parametrize("times", [1, 30])
@on_virtual_time
async def test_partitions_that_are_rolled_together_between_their_manifests_are_even_in_the_copy(times: int) -> None:
    store = SimStore()
    cluster, tps = await cluster_with_a_shared_segment(store, partitions=4)

    async def rolled() -> None:
        for tp in tps:
            await cluster.append(tp, b"c")
        await roll_together(cluster.broker, tps)

    source = Listened(store, [manifest_prefix(tp) for tp in tps[2:]], rolled, times=times)
    copy, done = await copied(source)
    assert done.passes == 1
    assert len(copy.keys(SHARED_PREFIX)) > 1
    await cluster.stop()
    await check(copy, tps, b"ab")


@on_virtual_time
async def test_a_copy_waits_for_a_partition_that_is_about_to_name_its_part_of_a_shared_segment() -> None:
    store = HeldStore()
    cluster, tps = await cluster_with_a_shared_segment(store, partitions=2)
    rolling: list[asyncio.Task[None]] = []

    async def rolled() -> None:
        for tp in tps:
            await cluster.append(tp, b"c")
        held = f"node:{manifest_prefix(tps[0])}"
        store.held.add(held)
        rolling.append(asyncio.get_running_loop().create_task(roll_together(cluster.broker, tps)))
        await asyncio.sleep(1)
        asyncio.get_running_loop().call_later(3, store.let_go, held)

    copy, done = await copied(Listened(store, [manifest_prefix(tps[1])], rolled, times=1))
    assert done.passes == 1
    await asyncio.gather(*rolling)
    assert len(copy.keys(SHARED_PREFIX)) == 2
    await cluster.stop()
    await check(copy, tps, b"abc")


@pytest.mark.parametrize("commits", [1, 12])
@on_virtual_time
async def test_a_coordinators_log_follows_too_though_it_was_copied_before_all_others(commits: int) -> None:
    store = SimStore()
    cluster = Cluster(store, settings=settings(), groups=FEW)
    await cluster.start()
    [offsets] = await cluster.topic(CONSUMER_OFFSETS)
    [tp] = await cluster.topic("orders")
    assert await commit(cluster, 1) == 0

    async def rolled() -> None:
        await cluster.append(tp, b"a")
        for number in range(commits):
            assert await commit(cluster, 10 + number) == 0
        await asyncio.sleep(1)
        await roll_together(cluster.broker, [offsets, tp])

    copy, done = await copied(Listened(store, [manifest_prefix(tp)], rolled, times=1))
    assert done.passes == 1
    await cluster.stop()
    restored = Cluster(copy, settings=settings(), groups=FEW, seed=9)
    await restored.start("another")
    assert await fetched(restored) == (0, 9 + commits)
    await asyncio.sleep(LONG_S)
    for offset in (1_000, 1_001):
        assert await commit(restored, offset) == 0
    await restored.kill()
    await restored.start("again")
    assert await fetched(restored) == (0, 1_001)
    await restored.stop()
    assert await faults_of(copy) == []

"""A copy of a store that is made while a cluster works on it is what a crash would have left: nothing is wrong with it,
and nothing is missing that was acknowledged before the copy began."""

import asyncio
from collections.abc import Callable
from random import Random
from unittest.mock import patch

import pytest
from broker_under_test import Cluster, small

from bmq.errors import BmqError
from bmq.values import TopicPartition
from bmq_audit.audit import AuditOptions, audit_store
from bmq_audit.findings import Level
from bmq_audit.metadata import NoMetadata
from bmq_audit.reading import Progress, Reader
from bmq_backup import copying
from bmq_backup.copied import Copied, NotCopied
from bmq_backup.copying import Copier
from bmq_broker.coordinators.groups.snapshot import decode_state
from bmq_broker.partitions.producers import Producers
from bmq_broker.segments.manifests import KEPT_VERSIONS
from bmq_sim.clock import SimRng
from bmq_sim.loop import on_virtual_time
from bmq_sim.store import SimStore, StoreFaults

OPTIONS = AuditOptions(
    decode_producers=Producers.decode,
    decode_state=lambda topic, data: decode_state(data) if topic == "__consumer_offsets" else None,
    versions_kept=KEPT_VERSIONS,
    at_once=4,
)
COPIES = 2
Logs = dict[TopicPartition, list[bytes]]


def settings_of(rng: Random) -> dict[str, int]:
    """Small, so that rolls, merges, pages and deletions happen all the time; segments go soon after nothing names
    them.
    """
    return {
        "wal_budget_bytes": rng.choice((1_000, 4_000)),
        "tail_budget_bytes": rng.choice((5_000, 20_000)),
        "segment_linger_ms": rng.choice((50, 2_000)),
        "upkeep_interval_ms": 100,
        "manifest_entries_max": rng.choice((2, 1_024)),
        "merge_count": 3,
    }


class Busy:
    """A cluster under load."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.store = SimStore(
            faults=StoreFaults(latency_s_min=0.001, latency_s_max=self.rng.choice((0.01, 0.1))),
            page_keys=self.rng.choice((3, 1_000)),
        )
        self.cluster = Cluster(self.store, settings=small(**settings_of(self.rng)), seed=seed)
        self.acknowledged: Logs = {}
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        await self.cluster.start()
        tps = await self.cluster.topic(
            "orders", partitions=3, configs={"segment.ms": self.rng.choice(("500", "604800000"))}
        )
        for at, tp in enumerate(tps):
            self._write(tp, pace_s=(0.02, 0.1, 1.0)[at])

    def _write(self, tp: TopicPartition, *, pace_s: float) -> None:
        self.acknowledged[tp] = []
        self._tasks.append(asyncio.get_running_loop().create_task(self._writing(tp, pace_s)))

    async def _writing(self, tp: TopicPartition, pace_s: float) -> None:
        number = 0
        while True:
            value = b"%d" % number
            try:
                await self.cluster.append(tp, value)
            except BmqError:
                return
            self.acknowledged[tp].append(value)
            number += 1
            await asyncio.sleep(pace_s * self.rng.random())

    async def more_topics(self) -> None:
        for number in range(12):
            await asyncio.sleep(self.rng.random())
            (tp,) = await self.cluster.topic(f"new-{number}")
            self._write(tp, pace_s=0.05)

    async def restart(self) -> None:
        await self.cluster.kill()
        await self.cluster.start()
        for tp in self.acknowledged:
            self._tasks.append(asyncio.get_running_loop().create_task(self._again(tp)))

    async def _again(self, tp: TopicPartition) -> None:
        """What was on its way when the broker was killed may be there or not: what is there is what counts."""
        self.acknowledged[tp] = [value for _, value in await self.cluster.read_all(tp)]
        await self._writing(tp, 0.05)

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.cluster.kill()


async def copy_of(
    store: SimStore, target: SimStore | None = None, *, told: Callable[[Copied], None] = lambda _: None
) -> SimStore:
    target = target or SimStore(page_keys=7)
    reader = Reader(store.for_node("copier"), rng=SimRng(Random(1)), at_once=3, progress=Progress())
    await Copier(reader, target.for_node("copier"), rng=SimRng(Random(1)), told=told).run()
    return target


async def check(copy: SimStore, before: Logs, after: Logs) -> None:
    """`before`: what was acknowledged when the copy began; `after`: when it was made."""
    found = await audit_store(copy.for_node("audit"), rng=SimRng(Random(0)), options=OPTIONS)
    assert found.report.findings[Level.FAULT] == []
    restored = Cluster(copy, seed=99)
    await restored.start()
    for tp, values in before.items():
        log = [value for _, value in await restored.read_all(tp)]
        assert log[: len(values)] == values
        assert log == after[tp][: len(log)] or len(log) <= len(after[tp]) + 20, "more than was ever sent"
        assert [int(value) for value in log] == list(range(len(log)))
    await restored.kill()


def snapshot(acknowledged: Logs) -> Logs:
    return {tp: list(values) for tp, values in acknowledged.items()}


@pytest.mark.parametrize("seed", range(5))
def test_a_copy_of_a_busy_store_is_whole(seed: int) -> None:
    @on_virtual_time
    async def main() -> None:
        busy = Busy(seed)
        await busy.start()
        for _ in range(COPIES):
            await asyncio.sleep(busy.rng.random() * 6)
            before = snapshot(busy.acknowledged)
            copy = await copy_of(busy.store)
            await check(copy, before, snapshot(busy.acknowledged))
        await busy.stop()

    main()


@pytest.mark.parametrize("seed", range(2))
def test_topics_that_are_made_meanwhile_are_in_the_copy_or_not_but_never_half(seed: int) -> None:
    @on_virtual_time
    async def main() -> None:
        busy = Busy(seed)
        await busy.start()
        making = asyncio.get_running_loop().create_task(busy.more_topics())
        for _ in range(COPIES):
            await asyncio.sleep(busy.rng.random() * 4)
            before = snapshot(busy.acknowledged)
            copy = await copy_of(busy.store)
            await check(copy, before, snapshot(busy.acknowledged))
        making.cancel()
        await busy.stop()

    main()


def test_a_broker_that_dies_meanwhile_is_followed() -> None:
    @on_virtual_time
    async def main() -> None:
        busy = Busy(5)
        await busy.start()
        await asyncio.sleep(4)
        passes: list[int] = []
        copying_it = asyncio.get_running_loop().create_task(
            copy_of(busy.store, told=lambda done: passes.append(done.passes))
        )
        await asyncio.sleep(0.2)
        assert not copying_it.done()
        before = snapshot(busy.acknowledged)
        await busy.restart()
        copy = await copying_it
        assert max(passes) > 1
        del before  # values that were on their way may have taken the place of others
        found = await audit_store(copy.for_node("audit"), rng=SimRng(Random(0)), options=OPTIONS)
        assert found.report.findings[Level.FAULT] == []
        await busy.stop()

    main()


def test_what_was_interrupted_is_no_store_and_goes_on_where_it_ended() -> None:
    @on_virtual_time
    async def main() -> None:
        busy = Busy(2)
        await busy.start()
        await asyncio.sleep(4)
        target = SimStore()
        started = asyncio.Event()
        interrupted = asyncio.get_running_loop().create_task(
            copy_of(busy.store, target, told=lambda done: started.set() if done.objects > 20 else None)
        )
        await started.wait()
        interrupted.cancel()
        await asyncio.gather(interrupted, return_exceptions=True)
        with pytest.raises(NoMetadata):
            await audit_store(target.for_node("audit"), rng=SimRng(Random(0)), options=OPTIONS)
        await asyncio.sleep(5)
        before = snapshot(busy.acknowledged)
        await check(await copy_of(busy.store, target), before, snapshot(busy.acknowledged))
        await busy.stop()

    main()


def test_a_copy_goes_nowhere_where_a_store_is() -> None:
    @on_virtual_time
    async def main() -> None:
        busy, other = Busy(2), Busy(3)
        await busy.start()
        await other.start()
        copy = await copy_of(busy.store)
        with pytest.raises(NotCopied, match="an older copy of the same cluster"):
            await copy_of(busy.store, copy)
        with pytest.raises(NotCopied, match="the store of cluster"):
            await copy_of(busy.store, other.store)
        await busy.stop()
        await other.stop()

    main()


def test_partitions_that_never_rest_are_told_of() -> None:
    @on_virtual_time
    async def main() -> None:
        busy = Busy(2)
        await busy.start()
        with (
            patch.object(copying, "is_harmless", return_value=False),
            pytest.raises(NotCopied, match="balance_interval_ms: 0"),
        ):
            await copy_of(busy.store)
        await busy.stop()

    main()

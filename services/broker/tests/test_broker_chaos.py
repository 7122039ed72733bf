"""Brokers that are killed, stopped, replaced and told to delete, over a store that fails: what they acknowledged is
there, once and in order.

Beside the simulator's scenarios, which go through the wire: here an incarnation and its successor get requests at the
same time, and DeleteRecords, deleted topics and segments by the dozen come into it. A failing seed is replayed by its
number alone.
"""

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random

import pytest
from broker_under_test import Cluster, small

from bmq.errors import BmqError, NotOwner, NotReady, RequestError
from bmq.values import Offset, TopicPartition
from bmq_sim.loop import VirtualLoop, run
from bmq_sim.store import SimStore, StoreFaults

SEEDS = 25
PARTITIONS = 3
BATCHES = 40


@dataclass
class Expected:
    """What one partition has been told and has answered."""

    acknowledged: dict[int, bytes] = field(default_factory=dict)
    deleted_below: int = 0
    """No DeleteRecords asked for more."""
    surely_deleted_below: int = 0
    sent: list[bytes] = field(default_factory=list)
    """By the idempotent producer, in order."""


class Chaos:
    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        level = self.rng.choice((0.0, 0.02, 0.1))
        self.store = SimStore(
            rng=Random(seed + 1),
            faults=StoreFaults(
                latency_s_min=0.001,
                latency_s_max=self.rng.choice((0.01, 0.2)),
                not_applied_probability=level,
                unknown_applied_probability=level,
                unknown_not_applied_probability=level,
                unknown_late_probability=level,
                late_s_max=20.0,
                unavailable_probability=level,
                timeout_s=self.rng.choice((0.5, 5.0)),
            ),
        )
        self.settings = small(
            tail_budget_bytes=self.rng.choice((2_500, 20_000)),
            wal_budget_bytes=self.rng.choice((500, 4000)),
            tail_limit_bytes=self.rng.choice((20_000, 250_000)),
            buffer_max_bytes=self.rng.choice((5_000, 250_000)),
            ranges_max=self.rng.choice((1, 4)),
            merge_count=2,
            segment_linger_ms=self.rng.choice((0, 20_000)),
            upkeep_interval_ms=500,
            retention_interval_ms=2_000,
            stop_timeout_ms=3_000,
        )
        self.living: list[Cluster] = []
        self.gone: Cluster
        self.started = 0
        self.expected: dict[TopicPartition, Expected] = {}

    async def start(self) -> Cluster:
        """One more incarnation; until it serves, tried again and again."""
        while True:
            self.started += 1
            cluster = Cluster(self.store, settings=self.settings, seed=self.rng.getrandbits(32))
            try:
                async with asyncio.timeout(600):  # listings of three keys a page begin again at each failure
                    await cluster.start(f"node-{self.started}")
            except (BmqError, TimeoutError):
                if hasattr(cluster, "broker"):
                    await cluster.broker.kill()
                if hasattr(cluster, "controller"):
                    await cluster.controller.stop()
                continue
            self.living.append(cluster)
            return cluster

    def any(self) -> Cluster:
        """One that runs, or one that has just ended."""
        return self.rng.choice(self.living) if self.living else self.gone

    async def run(self) -> None:
        cluster = await self.start()
        tps = await cluster.topic("orders", partitions=PARTITIONS, configs={"segment.bytes": "1048576"})
        self.expected = {tp: Expected() for tp in tps}
        producers = [asyncio.ensure_future(program) for tp in tps for program in (self.plain(tp), self.idempotent(tp))]
        accidents = asyncio.ensure_future(self.accidents())
        await asyncio.gather(*producers)
        accidents.cancel()
        await asyncio.gather(accidents, return_exceptions=True)
        self.store.faults = StoreFaults()
        self.store.heal()
        last = await self.start()
        for tp in tps:
            await self.check(last, tp)
        for each in self.living:
            await each.kill()

    async def plain(self, tp: TopicPartition) -> None:
        for number in range(BATCHES):
            await self.append(tp, b"plain %d" % number)

    async def append(self, tp: TopicPartition, value: bytes) -> None:
        while True:
            try:
                async with asyncio.timeout(30):
                    appended = await self.any().append(tp, value)
            except (NotOwner, NotReady):
                await asyncio.sleep(0.2)
            except (BmqError, TimeoutError):
                return  # unknown
            else:
                self.acknowledge(tp, appended.base_offset, value)
                return

    async def idempotent(self, tp: TopicPartition) -> None:
        expected = self.expected[tp]
        for number in range(BATCHES):
            value = b"once %d" % number
            expected.sent.append(value)
            while True:
                await asyncio.sleep(self.rng.random() * 0.5)
                sending = self.any().append(tp, value, producer_id=tp.partition, producer_epoch=0, base_sequence=number)
                try:
                    async with asyncio.timeout(30):
                        appended = await sending
                except (BmqError, TimeoutError) as error:
                    assert not isinstance(error, RequestError), error
                    continue
                self.acknowledge(tp, appended.base_offset, value)
                break

    def acknowledge(self, tp: TopicPartition, offset: int, value: bytes) -> None:
        acknowledged = self.expected[tp].acknowledged
        assert acknowledged.setdefault(offset, value) == value, f"offset {offset} was given twice"

    async def accidents(self) -> None:
        while True:
            await asyncio.sleep(self.rng.random() * 3)
            accident = self.rng.choice(
                (self.kill, self.stop, self.replace, self.delete_records, self.delete_records, self.roll, self.topic)
            )
            with suppress(BmqError, TimeoutError):
                await accident()
            if not self.living:
                await self.start()

    async def kill(self) -> None:
        self.gone = cluster = self.living.pop(0)
        await cluster.broker.kill()
        await cluster.controller.stop()
        if not self.living:
            await self.start()

    async def stop(self) -> None:
        self.gone = cluster = self.living.pop(0)
        await cluster.broker.stop()
        await cluster.controller.stop()
        if not self.living:
            await self.start()

    async def replace(self) -> None:
        """A second one starts; the first goes on and may be asked, for a while."""
        if len(self.living) == 1:
            await self.start()
            await asyncio.sleep(self.rng.random() * 10)
        await self.kill()

    async def delete_records(self) -> None:
        tp = self.rng.choice(list(self.expected))
        expected = self.expected[tp]
        if expected.acknowledged:
            before = self.rng.choice(list(expected.acknowledged))
            expected.deleted_below = max(expected.deleted_below, before)
            async with asyncio.timeout(40):
                log_start = await self.any().broker.owner.delete_records(tp, Offset(before))
            assert log_start >= before
            expected.surely_deleted_below = max(expected.surely_deleted_below, log_start)

    async def roll(self) -> None:
        cluster, tp = self.any(), self.rng.choice(list(self.expected))
        async with asyncio.timeout(40):
            await cluster.roll(tp)

    async def topic(self) -> None:
        """One that comes, is written to, and goes while that is under way."""
        cluster = self.living[-1]
        async with asyncio.timeout(40):
            (tp,) = await cluster.topic("passing")
        for number in range(5):
            cluster.append(tp, b"%d" % number).add_done_callback(lambda done: done.exception())
        await asyncio.sleep(self.rng.random())
        async with asyncio.timeout(40):
            await cluster.controller.controller.delete_topics([tp.topic_id])

    async def check(self, cluster: Cluster, tp: TopicPartition) -> None:
        expected = self.expected[tp]
        found = await cluster.read_all(tp)
        log_start = (await cluster.broker._ownership.open(tp)).log_start
        assert expected.surely_deleted_below <= log_start <= expected.deleted_below
        assert [offset for offset, _ in found] == list(range(log_start, log_start + len(found)))
        by_offset = dict(found)
        for offset, value in expected.acknowledged.items():
            if offset >= log_start:
                assert by_offset.get(offset) == value, f"offset {offset}"
        once = [value for _, value in found if value.startswith(b"once")]
        assert once == expected.sent[len(expected.sent) - len(once) :]


@pytest.mark.parametrize("seed", range(SEEDS))
def test_what_was_acknowledged_is_there_once_and_in_order(seed: int) -> None:
    run(Chaos(seed).run(), loop=VirtualLoop(virtual_s_max=20_000))

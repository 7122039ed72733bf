"""Brokers between which partitions move all the time, and that are killed, fenced and started again, over a store that
fails.

What they acknowledged is there, once and in order, at whoever owns it in the end. A failing seed is replayed by its
number alone.
"""

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random

import pytest
from broker_under_test import small
from moving_brokers import Brokers

from bmq.errors import BmqError, NotOwner, NotReady, RequestError, StoreError
from bmq.values import TopicPartition
from bmq_sim.loop import VirtualLoop, run
from bmq_sim.store import SimStore, StoreFaults

SEEDS = 25
NODES = (1, 2, 3)
PARTITIONS = 6
BATCHES = 40


@dataclass
class Expected:
    """What one partition was sent and has answered."""

    acknowledged: dict[int, bytes] = field(default_factory=dict)
    sent: list[bytes] = field(default_factory=list)
    """By the idempotent producer, in order."""


class Chaos:
    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        level = self.rng.choice((0.0, 0.02, 0.1))
        self.store = SimStore(
            rng=Random(seed + 1),
            page_keys=3 if level < 0.1 else 1000,  # a listing of many pages that fail begins again and again
            faults=StoreFaults(
                latency_s_min=0.001,
                latency_s_max=self.rng.choice((0.01, 0.1)),
                not_applied_probability=level,
                unknown_applied_probability=level,
                unknown_not_applied_probability=level,
                unknown_late_probability=level,
                late_s_max=20.0,
                unavailable_probability=level,
                timeout_s=self.rng.choice((0.5, 2.0)),
            ),
        )
        settings = small(
            tail_budget_bytes=self.rng.choice((2_500, 20_000, 250_000)),
            wal_budget_bytes=self.rng.choice((500, 4000, 50_000)),
            tail_limit_bytes=250_000,
            merge_count=2,
            segment_linger_ms=self.rng.choice((0, 20_000)),
            upkeep_interval_ms=500,
            retention_interval_ms=2_000,
            inherited_roll_ms=self.rng.choice((100, 5_000)),
            stop_timeout_ms=3_000,
        )
        self.brokers = Brokers(self.store, settings=settings, seed=seed)
        lag_s = self.rng.choice((0.0, 0.05, 1.0))
        self.brokers.controller.lag_s = lambda: self.rng.random() * lag_s
        self.expected: dict[TopicPartition, Expected] = {}
        self.passing = 0
        self.ending = False

    async def run(self) -> None:
        brokers = self.brokers
        for node in NODES:
            await self.start(node)
        tps = brokers.controller.create_topic("orders", partitions=PARTITIONS, owner=1)
        await asyncio.sleep(2)  # everyone has heard of it
        self.expected = {tp: Expected() for tp in tps}
        producers = [asyncio.ensure_future(program) for tp in tps for program in (self.plain(tp), self.idempotent(tp))]
        accidents = asyncio.ensure_future(self.accidents(tps))
        await asyncio.gather(*producers)
        self.ending = True
        await accidents
        self.store.faults = StoreFaults()
        self.store.heal()
        await self.revive()
        for tp in tps:
            await self.check(tp)
        await brokers.stop()

    async def start(self, node: int) -> None:
        """Until it serves, tried again and again."""
        while True:
            try:
                async with asyncio.timeout(600):
                    await self.brokers.start(node)
            except (BmqError, TimeoutError):
                continue
            return

    async def plain(self, tp: TopicPartition) -> None:
        for number in range(BATCHES):
            value = b"plain %d" % number
            await asyncio.sleep(self.rng.random() * 0.3)
            while True:
                try:
                    async with asyncio.timeout(30):
                        appended = await self.brokers.append(tp, value)
                except (NotOwner, NotReady, KeyError):
                    await asyncio.sleep(0.05)
                except (BmqError, TimeoutError):
                    break  # unknown
                else:
                    self.acknowledge(tp, appended.base_offset, value)
                    break

    async def idempotent(self, tp: TopicPartition) -> None:
        expected = self.expected[tp]
        for number in range(BATCHES):
            value = b"once %d" % number
            expected.sent.append(value)
            while True:
                await asyncio.sleep(self.rng.random() * 0.3)
                try:
                    async with asyncio.timeout(30):
                        appended = await self.brokers.append(
                            tp, value, producer_id=tp.partition, producer_epoch=0, base_sequence=number
                        )
                except (BmqError, KeyError, TimeoutError) as error:
                    assert not isinstance(error, RequestError), error
                    continue
                self.acknowledge(tp, appended.base_offset, value)
                break

    def acknowledge(self, tp: TopicPartition, offset: int, value: bytes) -> None:
        acknowledged = self.expected[tp].acknowledged
        assert acknowledged.setdefault(offset, value) == value, f"offset {offset} was given twice"

    async def accidents(self, tps: list[TopicPartition]) -> None:
        while not self.ending:
            await asyncio.sleep(self.rng.random() * 0.7)
            await self.revive()
            accident = self.rng.choice(
                (
                    self.move,
                    self.move,
                    self.move,
                    self.move_back,
                    self.kill,
                    self.fence,
                    self.drain,
                    self.roll,
                    self.topic,
                )
            )
            with suppress(BmqError, TimeoutError, KeyError):
                await accident(tps)
            self.brokers.controller.reachable = self.rng.random() > 0.1

    async def revive(self) -> None:
        """As a broker does that learns that it was replaced."""
        self.brokers.controller.reachable = True
        for node in NODES:
            role = self.brokers.roles.get(node)
            if role is not None and not role._ended.may_hand_over:
                del self.brokers.roles[node]
                await role.kill()
            if node not in self.brokers.roles:
                await self.start(node)

    async def move(self, tps: list[TopicPartition]) -> None:
        chosen = self.rng.sample(tps, self.rng.randint(1, len(tps)))
        owned = [tp for tp in chosen if self.brokers.owner(tp) != -1]
        self.brokers.controller.move(*owned, to=self.rng.choice(NODES))

    async def move_back(self, tps: list[TopicPartition]) -> None:
        """Another target before the owner has closed, or after."""
        tp = self.rng.choice(tps)
        for _ in range(3):
            if (owner := self.brokers.owner(tp)) != -1:
                self.brokers.controller.move(tp, to=self.rng.choice((owner, *NODES)))
            await asyncio.sleep(self.rng.random() * 0.05)

    async def kill(self, tps: list[TopicPartition]) -> None:
        node = self.rng.choice(NODES)
        await self.brokers.roles.pop(node).kill()
        await asyncio.sleep(self.rng.random())

    async def fence(self, tps: list[TopicPartition]) -> None:
        """It lives, and may go on for a while."""
        node = self.rng.choice(NODES)
        async with asyncio.timeout(60):
            await self.brokers.controller.fence(node)
        await asyncio.sleep(self.rng.random())

    async def drain(self, tps: list[TopicPartition]) -> None:
        node = self.rng.choice(NODES)
        await self.brokers.roles[node].stop()

    async def roll(self, tps: list[TopicPartition]) -> None:
        async with asyncio.timeout(40):
            await self.brokers.roll(self.rng.choice(tps))

    async def topic(self, tps: list[TopicPartition]) -> None:
        """One that comes, is written to, moves, and goes while that is under way."""
        owner = self.rng.choice(list(self.brokers.roles))
        self.passing += 1
        (tp,) = self.brokers.controller.create_topic(f"passing-{self.passing}", partitions=1, owner=owner)
        for number in range(5):
            self.brokers.append(tp, b"%d" % number).add_done_callback(lambda done: done.exception())
        await asyncio.sleep(self.rng.random() * 0.1)
        self.brokers.controller.move(tp, to=self.rng.choice(NODES))
        await asyncio.sleep(self.rng.random() * 0.1)
        self.brokers.controller.delete_topic(tp.topic_id)

    async def check(self, tp: TopicPartition) -> None:
        expected = self.expected[tp]
        self.brokers.controller.reachable = True
        async with asyncio.timeout(120):
            while True:
                try:
                    found = await self.brokers.read_all(tp)
                    break
                except (NotOwner, NotReady, StoreError, KeyError):  # some answers are still on their way from before
                    await asyncio.sleep(0.1)
        assert [offset for offset, _ in found] == list(range(len(found)))
        by_offset = dict(found)
        for offset, value in expected.acknowledged.items():
            assert by_offset.get(offset) == value, f"offset {offset}"
        assert [value for _, value in found if value.startswith(b"once")] == expected.sent


@pytest.mark.parametrize("seed", range(SEEDS))
def test_what_was_acknowledged_is_there_once_and_in_order_wherever_it_moved(seed: int) -> None:
    async def main() -> None:
        await Chaos(seed).run()

    run(main(), loop=VirtualLoop(virtual_s_max=20_000))

"""How much partitions take in: as an obvious way of measuring says it, though idle ones cost nearly nothing."""

import asyncio
import math
from dataclasses import dataclass
from random import Random
from typing import Any
from uuid import UUID

import pytest

from bmq.values import TopicId, TopicPartition
from bmq_broker.loads import LOAD_MIN_BYTES_PER_S, SMOOTHED_OVER_S, Loads
from bmq_sim.loop import on_virtual_time


@dataclass(slots=True)
class Written:
    """All that is asked of a partition here."""

    written_bytes: int = 0


class Obvious:
    """Everything anew each time."""

    def __init__(self) -> None:
        self.known: dict[TopicPartition, tuple[int, float]] = {}

    def measure(self, partitions: dict[TopicPartition, Any], elapsed_s: float) -> dict[TopicPartition, float]:
        weight = 1 - math.exp(-elapsed_s / SMOOTHED_OVER_S)
        measured = {}
        for tp, partition in partitions.items():
            before, rate = self.known.get(tp, (0, 0.0))
            before = 0 if partition.written_bytes < before else before
            measured[tp] = (
                partition.written_bytes,
                rate + weight * ((partition.written_bytes - before) / elapsed_s - rate),
            )
        self.known = measured
        return {tp: rate for tp, (_, rate) in measured.items() if rate >= LOAD_MIN_BYTES_PER_S}


@pytest.mark.parametrize("seed", range(5))
def test_loads_are_those_of_the_obvious_way(seed: int) -> None:
    @on_virtual_time
    async def main() -> None:
        rng = Random(seed)
        topic = TopicId(UUID(int=1))
        partitions: dict[TopicPartition, Any] = {}
        loads, obvious = Loads(partitions, count_max=1_000), Obvious()
        for _ in range(300):
            tp = TopicPartition(topic, rng.randrange(30))
            match rng.randrange(6):
                case 0:
                    partitions.pop(tp, None)
                case 1:
                    partitions[tp] = Written()
                case _ if tp in partitions:
                    partitions[tp].written_bytes += rng.choice((1, 100, 100_000))
            elapsed_s = rng.choice((1.0, 2.5, 60.0))
            await asyncio.sleep(elapsed_s)
            found = {load.tp: load.bytes_per_s for load in loads.current()}
            expected = obvious.measure(partitions, elapsed_s)
            near = {tp: rate for tp, rate in expected.items() if rate > 2 * LOAD_MIN_BYTES_PER_S}
            assert near.keys() <= found.keys() <= partitions.keys()
            for tp, rate in near.items():
                assert found[tp] == pytest.approx(rate, rel=0.05, abs=0.1)

    main()

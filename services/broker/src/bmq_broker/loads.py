"""How much each partition takes in: what placement balances by."""

import asyncio
import math
from collections.abc import Mapping
from heapq import nlargest

from bmq.roles.controller import PartitionLoad
from bmq.values import TopicPartition
from bmq_broker.partitions.partition import Partition

MEASURE_EVERY_S = 1.0
SMOOTHED_OVER_S = 10.0
"""A load that begins or ends shows to two thirds after so long."""
LOAD_MIN_BYTES_PER_S = 1.0
FORGOTTEN_BYTES_PER_S = 0.01


class Loads:
    """How many bytes per second each of one broker's open partitions takes in, measured when somebody asks."""

    def __init__(self, partitions: Mapping[TopicPartition, Partition], *, count_max: int) -> None:
        self._partitions = partitions
        self._count_max = count_max
        self._written: dict[TopicPartition, int] = {}
        """Bytes at the last measurement, of those that have any."""
        self._rates: dict[TopicPartition, float] = {}
        """Bytes per second, of those that took something in not long ago."""
        self._at_s = asyncio.get_running_loop().time()
        self._current: tuple[PartitionLoad, ...] = ()

    def current(self) -> tuple[PartitionLoad, ...]:
        """The busiest, busiest first; those without any load are left out."""
        now_s = asyncio.get_running_loop().time()
        if now_s - self._at_s >= MEASURE_EVERY_S:
            self._measure(now_s - self._at_s)
            self._at_s = now_s
        return self._current

    def _measure(self, elapsed_s: float) -> None:
        """Most partitions are idle, and there may be a hundred thousand: they cost a look each, and nothing is made for
        them.
        """
        weight = 1 - math.exp(-elapsed_s / SMOOTHED_OVER_S)
        before, rates = self._written, self._rates
        changed = [
            (tp, written)
            for tp, partition in self._partitions.items()
            if (written := partition.written_bytes) != before.get(tp, 0)
        ]
        for tp, rate in list(rates.items()):
            if rate < FORGOTTEN_BYTES_PER_S or tp not in self._partitions:
                del rates[tp]
            else:
                rates[tp] = rate - weight * rate
        for tp, written in changed:
            had = before.get(tp, 0)
            more = written - had if written >= had else written  # less: it left and came back
            rates[tp] = rates.get(tp, 0.0) + weight * more / elapsed_s
            before[tp] = written
        if len(before) > len(self._partitions):
            self._written = {tp: written for tp, written in before.items() if tp in self._partitions}
        busy = ((rate, tp) for tp, rate in rates.items() if rate >= LOAD_MIN_BYTES_PER_S)
        self._current = tuple(
            PartitionLoad(tp=tp, bytes_per_s=rate)
            for rate, tp in nlargest(self._count_max, busy, key=lambda each: each[0])
        )

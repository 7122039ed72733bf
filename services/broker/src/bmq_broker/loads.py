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


class Loads:
    """Of one broker's open partitions, measured when somebody asks."""

    def __init__(self, partitions: Mapping[TopicPartition, Partition], *, count_max: int) -> None:
        self._partitions = partitions
        self._count_max = count_max
        self._written: dict[TopicPartition, tuple[int, float]] = {}
        """By partition: the bytes at the last measurement, and bytes per second."""
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
        weight = 1 - math.exp(-elapsed_s / SMOOTHED_OVER_S)
        measured: dict[TopicPartition, tuple[int, float]] = {}
        for tp, partition in self._partitions.items():
            written = partition.written_bytes
            before, rate = self._written.get(tp, (0, 0.0))
            if written < before:  # it left and came back
                before = 0
            measured[tp] = written, rate + weight * ((written - before) / elapsed_s - rate)
        self._written = measured
        busy = ((rate, tp) for tp, (_, rate) in measured.items() if rate >= LOAD_MIN_BYTES_PER_S)
        self._current = tuple(PartitionLoad(tp=tp, bytes_per_s=rate) for rate, tp in nlargest(self._count_max, busy, key=lambda each: each[0]))

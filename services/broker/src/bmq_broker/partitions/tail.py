"""A partition's tail: the batches that are in the owner's memory because no segment holds them yet.

Batches come in *runs*: those of the partition in one WAL object. What is durable is a prefix of the runs.
"""

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, islice
from typing import Final

from typing_extensions import Buffer

from bmq.values import LeaderEpoch, Offset, TopicPartition

OF_ONE_AGE_MS: Final = 10_000
OF_ONE_AGE_SHARE: Final = 8
"""Carried runs that came within so many ms of each other, or within this part of their age, become one: what is said of
their age stays about right, and a partition that is carried for days has a dozen runs, not thousands."""
BATCH_MEMORY_BYTES: Final = 136
"""What a batch takes in memory beside its bytes: the `bytearray`'s head, two numbers, four places in lists. RSS of
CPython 3.11, 64 bits: 132 with a thousand batches a run. One that was recovered is a view of its WAL object, and takes
about 110 more."""
RUN_MEMORY_BYTES: Final = 400
"""And a run with its list and its slot: 532 with one batch a run. Whoever writes one record at a time fills memory with
these."""


@dataclass(slots=True)
class Slot:
    """One WAL object as the tails see it: `number` -1 until it is sent; `runs` of it that no segment covers yet; whose
    runs it holds.
    """

    size_bytes: int = 0
    number: int = -1
    durable: bool = False
    runs: int = 0
    tps: tuple[TopicPartition, ...] = ()


@dataclass(slots=True)
class Run:
    """Consecutive batches of one partition in one WAL object. `slot` None: recovered from an earlier owner's stream."""

    slot: Slot | None
    leader_epoch: LeaderEpoch
    base_offset: Offset
    next_offset: Offset
    batches: list[Buffer]
    size_bytes: int
    max_timestamp_ms: int
    """None of its batches has a larger one. Where a run was divided, each part has that of the whole."""
    since_ms: int
    """When its first batch came, by the owner's clock."""


@dataclass(slots=True)
class TailTotal:
    """What all tails of a broker hold together, as `Tail.memory_bytes` counts it."""

    memory_bytes: int = 0


def memory_bytes(size_bytes: int, *, batches: int, runs: int) -> int:
    """What so many bytes in so many batches and runs take in memory."""
    return size_bytes + batches * BATCH_MEMORY_BYTES + runs * RUN_MEMORY_BYTES


class Tail:
    """Runs and batches in offset order."""

    __slots__ = ("_bases", "_batches", "_durable_batches", "_sizes", "_total", "durable_bytes", "runs", "size_bytes")

    def __init__(self, total: TailTotal) -> None:
        self._total = total
        self.runs: deque[Run] = deque()
        self.size_bytes = 0
        self.durable_bytes = 0
        """How many of `size_bytes` are durable: what may be rolled."""
        self._bases: list[int] = []
        self._batches: list[Buffer] = []
        self._sizes: list[int] = []
        self._durable_batches = 0

    @property
    def memory_bytes(self) -> int:
        """What the tail takes in memory: its bytes, its batches and its runs."""
        return memory_bytes(self.size_bytes, batches=len(self._batches), runs=len(self.runs))

    @property
    def durable_memory_bytes(self) -> int:
        """What leaves memory once all that is durable is rolled. The few runs count that are not durable yet, too."""
        return memory_bytes(self.durable_bytes, batches=self._durable_batches, runs=len(self.runs))

    def add(self, run: Run, batch: Buffer, *, base_offset: int, size_bytes: int) -> None:
        """Appends a batch to `run`, which is the last one or a new one."""
        if not self.runs or self.runs[-1] is not run:
            self.runs.append(run)
            self._total.memory_bytes += RUN_MEMORY_BYTES
        self._bases.append(base_offset)
        self._batches.append(batch)
        self._sizes.append(size_bytes)
        self.size_bytes += size_bytes
        self._total.memory_bytes += size_bytes + BATCH_MEMORY_BYTES

    def durable(self, batches: int) -> None:
        """So many more batches, from the oldest on, are durable."""
        begin = self._durable_batches
        assert begin + batches <= len(self._batches), (
            f"{begin} and {batches} more batches are durable, and there are {len(self._batches)}"
        )
        self._durable_batches += batches
        self.durable_bytes += sum(self._sizes[begin : self._durable_batches])

    def read(self, offset: int, *, max_bytes: int, at_least_one: bool = True) -> tuple[tuple[Buffer, ...], int]:
        """(durable batches from the one that holds `offset` on, their size in bytes).

        Up to `max_bytes`; with `at_least_one` the first batch comes whole whatever its size.
        """
        end = self._durable_batches
        first = max(bisect_right(self._bases, offset, 0, end) - 1, 0)
        size_bytes = 0
        last = first
        while last < end and (size_bytes + self._sizes[last] <= max_bytes or (last == first and at_least_one)):
            size_bytes += self._sizes[last]
            last += 1
        return tuple(self._batches[first:last]), size_bytes

    def durable_batches(self) -> Sequence[Buffer]:
        """All that are durable, oldest first."""
        return self._batches[: self._durable_batches]

    def durable_from(self, timestamp_ms: int) -> Sequence[Buffer]:
        """Those of durable runs that have a record of that time or later, oldest first."""
        found: list[Buffer] = []
        left = self._durable_batches
        for run in self.runs:
            if not left:
                break
            left -= len(run.batches)
            if run.max_timestamp_ms >= timestamp_ms:
                found += run.batches
        return found

    def part(self, base_offset: int, next_offset: int, *, max_bytes: int) -> list[Run]:
        """The first runs of those from `base_offset` on that end at or below `next_offset`: up to `max_bytes`, and at
        least a batch.

        What of the first run is too much becomes a run of its own, in the same object.
        """
        first = bisect_left(self.runs, base_offset, key=_base_offset)
        if first < len(self.runs) and self.runs[first].next_offset <= next_offset:
            self._split(first, max_bytes=max_bytes)
        part: list[Run] = []
        size_bytes = 0
        for run in islice(self.runs, first, None):
            if run.next_offset > next_offset or (part and size_bytes + run.size_bytes > max_bytes):
                break
            part.append(run)
            size_bytes += run.size_bytes
        return part

    def _split(self, at: int, *, max_bytes: int) -> None:
        """Makes two runs of run number `at` where it is larger: the first has up to `max_bytes`, and at least a
        batch.
        """
        run = self.runs[at]
        if run.size_bytes <= max_bytes or len(run.batches) == 1:
            return
        begin = bisect_left(self._bases, run.base_offset)
        ends_bytes = list(accumulate(self._sizes[begin : begin + len(run.batches)]))
        count = max(1, bisect_right(ends_bytes, max_bytes))
        size_bytes = ends_bytes[count - 1]
        middle = Offset(self._bases[begin + count])
        self.runs[at] = replace(run, next_offset=middle, batches=run.batches[:count], size_bytes=size_bytes)
        rest = replace(run, base_offset=middle, batches=run.batches[count:], size_bytes=run.size_bytes - size_bytes)
        self.runs.insert(at + 1, rest)
        if run.slot is not None:
            run.slot.runs += 1
        self._total.memory_bytes += RUN_MEMORY_BYTES

    def carried(self, base_offset: int, next_offset: int, slot: Slot) -> list[Slot]:
        """The runs from `base_offset` on that end at or below `next_offset` are in `slot`'s object as well, and from
        now on needed there.

        Returns the slots where they were needed, one for each run that was. Neighbours of about one age become one run.
        """
        before_bytes = self.memory_bytes
        below: list[Run] = []
        while self.runs and self.runs[0].base_offset < base_offset:
            below.append(self.runs.popleft())
        before: list[Run] = []
        while self.runs and self.runs[0].next_offset <= next_offset:
            before.append(self.runs.popleft())
        after: list[Run] = []
        for run in before:
            last = after[-1] if after else None
            if last is not None and run.since_ms - last.since_ms <= max(
                OF_ONE_AGE_MS, (before[-1].since_ms - run.since_ms) // OF_ONE_AGE_SHARE
            ):
                last.batches += run.batches
                last.size_bytes += run.size_bytes
                last.next_offset = run.next_offset
                last.max_timestamp_ms = max(last.max_timestamp_ms, run.max_timestamp_ms)
            else:
                after.append(replace(run, slot=slot, batches=list(run.batches)))
        slot.runs += len(after)
        self.runs.extendleft(reversed([*below, *after]))
        self._total.memory_bytes -= before_bytes - self.memory_bytes
        return [run.slot for run in before if run.slot is not None]

    def trim(self, next_offset: int) -> list[Run]:
        """Drops the batches below `next_offset`, where one of them ends; returns the runs that have gone whole."""
        before_bytes = self.memory_bytes
        dropped = []
        batches = 0
        while self.runs and self.runs[0].next_offset <= next_offset:
            run = self.runs.popleft()
            batches += len(run.batches)
            self.size_bytes -= run.size_bytes
            self.durable_bytes -= run.size_bytes
            dropped.append(run)
        # it was carried, and is larger now than when the roll began
        if self.runs and self.runs[0].base_offset < next_offset:
            batches += self._cut(next_offset, begin=batches)
        assert batches <= self._durable_batches, (
            f"{batches} batches below {next_offset} are in segments, and {self._durable_batches} are durable"
        )
        self._durable_batches -= batches
        del self._bases[:batches]
        del self._batches[:batches]
        del self._sizes[:batches]
        self._total.memory_bytes -= before_bytes - self.memory_bytes
        assert 0 <= self.durable_bytes <= self.size_bytes, (
            f"{self.durable_bytes} bytes of {self.size_bytes} are durable below {next_offset}"
        )
        assert self._total.memory_bytes >= 0, f"all tails together take {self._total.memory_bytes} bytes"
        return dropped

    def _cut(self, next_offset: int, *, begin: int) -> int:
        """Takes the batches below `next_offset` out of the first run, whose first one is batch `begin`; returns how
        many.
        """
        run = self.runs[0]
        count = bisect_left(self._bases, next_offset, begin) - begin
        size_bytes = sum(self._sizes[begin : begin + count])
        size_left_bytes = run.size_bytes - size_bytes
        self.runs[0] = replace(
            run, base_offset=Offset(next_offset), batches=run.batches[count:], size_bytes=size_left_bytes
        )
        self.size_bytes -= size_bytes
        self.durable_bytes -= size_bytes
        return count

    def drop(self) -> list[Run]:
        """Forgets everything, durable or not: the partition leaves. Returns the runs."""
        dropped = list(self.runs)
        self._total.memory_bytes -= self.memory_bytes
        self.size_bytes = self.durable_bytes = self._durable_batches = 0
        self.runs.clear()
        self._bases.clear()
        self._batches.clear()
        self._sizes.clear()
        return dropped


def _base_offset(run: Run) -> int:
    return run.base_offset

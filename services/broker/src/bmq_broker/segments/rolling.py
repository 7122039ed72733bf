"""Rolls: which partition's oldest durable batches become a segment, and when.

At the segment size or age; the largest tails when the memory budget asks; the partitions that pin the oldest WAL
objects when the WAL's length asks, unless they are small enough to be carried forward (bmq_broker.wal.carrying). Small
tails that are rolled at the same time share a segment. How a roll is written is bmq_broker.segments.roll_writing's.
"""

import asyncio
import contextlib
import heapq
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from typing import Final

import structlog

from bmq.errors import BmqError, NotOwner, StoreUnavailable
from bmq.storage.durable import cancelled
from bmq.storage.keys import partition_prefix
from bmq.values import Offset, TopicPartition
from bmq_broker.metrics import RECOVERED_BYTES
from bmq_broker.partitions.partition import Partition
from bmq_broker.partitions.states import PartitionState
from bmq_broker.partitions.tail import TailTotal
from bmq_broker.segments.manifests import Manifests
from bmq_broker.segments.roll_writing import (
    PATIENCE_S,
    SHARED_BYTES_MAX,
    SHARED_RUNS_MAX,
    Outcomes,
    RollWriter,
    roll_s,
    within,
)
from bmq_broker.segments.stopped_partitions import Stalled, StoppedPartitions
from bmq_broker.settings import BrokerSettings
from bmq_broker.wal.carrying import PARTITIONS_AT_ONCE, Carrier
from bmq_broker.wal.commit import GroupCommit

log = structlog.get_logger()

RETRY_AFTER_S: Final = 1.0
RELIEF_PARTS: Final = 8
"""Where the WAL is too long, this part of its budget more than need be is freed at once."""
REFUSED_MAX: Final = 32
"""Partitions in a row that can be neither carried nor rolled now: then others cannot either."""
LOOKED_AT_PER_OBJECT: Final = 4
LOOK_INTERVAL_S: Final = 0.1
"""Where the WAL is too long, what pins it is looked for again once an object was sent for each so many partitions that
were looked at, or after so long."""
OBJECTS_PER_ROLL: Final = 16
"""Where the WAL is short in bytes and has too many objects, a partition is rolled for each so many of them: a thousand
partitions that share a load evenly would otherwise cost as many requests as the WAL."""
ROLLS_SAVED_PARTS: Final = 4
"""And so many at once, as a part of the number of objects, if none were for a while."""
TOGETHER_PARTS: Final = 16
"""Where tails are too large and all of them are small, this part of their budget is rolled at once."""


class Roller:
    """Rolls the partitions of one broker, a few at a time."""

    def __init__(
        self,
        *,
        writer: RollWriter,
        carrier: Carrier,
        settings: BrokerSettings,
        partitions: Mapping[TopicPartition, Partition],
        manifests: Manifests,
        commit: GroupCommit,
        total: TailTotal,
        covered: Callable[[], None],
    ) -> None:
        """`covered` is called when a partition's manifest, or this broker's own stream, covers what it inherited from
        earlier owners.
        """
        self._writer = writer
        self._carrier = carrier
        self._settings = settings
        self._partitions = partitions
        self._manifests = manifests
        self._commit = commit
        self._total = total
        self._covered = covered
        self._places = asyncio.Semaphore(settings.roll_concurrency)
        self._places_of_stopped = asyncio.Semaphore(1)
        """Theirs alone: they wait for a store that may refuse them for days."""
        self._tasks: set[asyncio.Task[Outcomes]] = set()
        self._tasks_of_stopped: set[asyncio.Task[Outcomes]] = set()
        self._rolling: set[TopicPartition] = set()
        self._stopped = StoppedPartitions(carrier, commit)
        self._retries: dict[TopicPartition, asyncio.TimerHandle] = {}
        """Partitions whose roll failed, and when it is tried again."""
        self._inherited: deque[Partition] = deque()
        """Partitions that hold what was inherited, in the order in which they were opened."""
        self._inherited_bytes = 0
        self._inherited_objects = 0
        self._seen_objects = self._look_at_object = 0
        self._look_at_s = 0.0
        self._rolls_earned = settings.wal_objects_max / ROLLS_SAVED_PARTS
        self._ending = False

    @property
    def tail_bytes(self) -> int:
        """What all partitions' batches take in memory, buffers included."""
        return self._total.memory_bytes

    @property
    def stopped_bytes(self) -> int:
        """What those of partitions that cannot be rolled take of it."""
        return self._stopped.tail_bytes

    @property
    def stopped_count(self) -> int:
        """Partitions that cannot be rolled."""
        return len(self._stopped)

    def grown(self, partition: Partition) -> None:
        """Starts the roll that is due once there is a whole segment."""
        if partition.tail.durable_bytes >= partition.config.segment_bytes:
            self.start(partition, "size")

    def consider(self) -> None:
        """Starts what the budgets of memory and WAL ask for."""
        while self._places_left() and self._over_budget():
            if not self._start_largest():
                break
        self._forget_covered()
        self._stopped.forget_left()
        if self._carrier.under_way or not self._may_look():
            return
        budget_bytes, objects_max = self._settings.wal_budget_bytes, self._settings.wal_objects_max
        excess_bytes = self._commit.wal_bytes + self._inherited_bytes - budget_bytes
        excess_objects = self._commit.wal_objects + self._inherited_objects - objects_max
        if excess_bytes > 0:
            self._relieve(
                excess_bytes + budget_bytes // RELIEF_PARTS,
                excess_objects + max(1, objects_max // RELIEF_PARTS),
                rolls_max=SHARED_RUNS_MAX,
            )
        elif excess_objects > 0:
            self._relieve(0, excess_objects + max(1, objects_max // RELIEF_PARTS), rolls_max=self._affordable_rolls())

    def carry_or_roll(self, partitions: Sequence[Partition], cause: str) -> None:
        """Takes these out of the WAL objects that they pin, without hurry: what finds no place comes again at the next
        round of upkeep.
        """
        for partition in (partition for partition in partitions if partition in self._stopped):
            self._stopped.carry(partition)
        self.start_together(
            [partition for partition in partitions[:PARTITIONS_AT_ONCE] if not self._carry(partition)], cause
        )

    def carried(self, partitions: Sequence[Partition]) -> None:
        """Copies of parts of these are durable, and their inheritance may so be covered."""
        self._carrier.carried(partitions)
        self._look_at_s = 0.0
        if any(partition.covers_ranges() for partition in partitions):
            self._covered()

    def read(self, size_bytes: int) -> None:
        """An object of an earlier owner's WAL, of this size, was read, and would be again."""
        self._inherited_bytes += size_bytes
        self._inherited_objects += 1
        RECOVERED_BYTES.inc(size_bytes)

    def inherited(self, partition: Partition) -> None:
        """Its manifest does not cover yet what an earlier owner left in the WAL."""
        self._inherited.append(partition)

    def _forget_covered(self) -> None:
        while self._inherited and (
            self._inherited[0].covers_recovered() or self._inherited[0].state is not PartitionState.APPENDING
        ):
            self._inherited.popleft()
        if not self._inherited:
            self._inherited_bytes = self._inherited_objects = 0

    def end(self) -> None:
        """Starts nothing more in the background."""
        self._ending = True
        for retry in self._retries.values():
            retry.cancel()
        self._retries.clear()

    def start(self, partition: Partition, cause: str) -> bool:
        """Rolls what the partition has, in the background; False where that cannot begin now."""
        if not self._may_start(partition):
            return False
        self._start(
            [partition],
            self._roll_one(partition, cause),
            cause,
            self._tasks_of_stopped if partition in self._stopped else self._tasks,
        )
        return True

    def start_together(self, partitions: Iterable[Partition], cause: str) -> int:
        """Begins to roll of these as many as there is room for, small ones together; returns how many."""
        small: list[Partition] = []
        began = 0
        for partition in filter(self._may_start, partitions):
            if partition.tail.durable_bytes < self._settings.shared_below_bytes:
                small.append(partition)
            elif self._places_left() and self.start(partition, cause):
                began += 1
        while small and self._places_left():
            group, small = _first_segment(small)
            self._start(group, self._roll_together(group, cause), cause, self._tasks)
            began += len(group)
        return began

    async def roll_to(self, partition: Partition, offset: Offset, cause: str) -> None:
        """Returns when everything below `offset` (not above the high watermark) is in segments. Raises BmqError."""
        assert offset <= partition.high_watermark
        while partition.manifest.next_offset < offset:
            async with self._places_for(partition), self._locked(partition):
                if partition.manifest.next_offset < offset and not await within(
                    self._writer.roll(partition, cause), roll_s(partition)
                ):
                    raise NotOwner(f"partition {partition.tp} was let go of")

    async def close(self) -> None:
        """Starts nothing more in the background and ends what is under way."""
        self.end()
        await cancelled(self._tasks | self._tasks_of_stopped)

    def _over_budget(self) -> bool:
        """What is being rolled is about to go, and what cannot be rolled would not."""
        rolling = [
            partition
            for tp in self._rolling
            if (partition := self._partitions.get(tp)) is not None and partition.cannot_roll is None
        ]
        rolling_bytes = sum(partition.tail.memory_bytes for partition in rolling)
        return self._total.memory_bytes - rolling_bytes - self.stopped_bytes > self._settings.tail_budget_bytes

    def _places_left(self) -> bool:
        return len(self._tasks) < self._settings.roll_concurrency

    def _may_start(self, partition: Partition) -> bool:
        tp = partition.tp
        return (
            not self._ending
            and tp not in self._rolling
            and tp not in self._retries
            and partition.state is PartitionState.APPENDING
        )

    def _startable(self) -> Iterator[Partition]:
        return (
            partition
            for partition in self._partitions.values()
            if partition.tail.durable_bytes and self._may_start(partition)
        )

    def _start_largest(self) -> bool:
        largest = max(self._startable(), key=_durable_memory_bytes, default=None)
        if largest is None:
            return False
        if largest.tail.durable_bytes >= self._settings.shared_below_bytes:
            return self.start(largest, "memory")
        room_bytes = self._settings.tail_budget_bytes // TOGETHER_PARTS
        chosen = []
        for partition in heapq.nlargest(SHARED_RUNS_MAX, self._startable(), key=_durable_memory_bytes):
            chosen.append(partition)
            room_bytes -= partition.tail.durable_memory_bytes
            if room_bytes <= 0:
                break
        return self.start_together(chosen, "memory") > 0

    def _may_look(self) -> bool:
        """Looking for what pins the WAL costs time with its length: what is sent, carried or rolled pays for it."""
        return self._commit.sent_objects >= self._look_at_object or asyncio.get_running_loop().time() >= self._look_at_s

    def _affordable_rolls(self) -> int:
        """How many partitions may be rolled only because of how many WAL objects there are: each costs requests of its
        own.
        """
        earned = (self._commit.sent_objects - self._seen_objects) / OBJECTS_PER_ROLL
        self._seen_objects = self._commit.sent_objects
        self._rolls_earned = min(self._rolls_earned + earned, self._settings.wal_objects_max / ROLLS_SAVED_PARTS)
        return int(self._rolls_earned)

    def _relieve(self, room_bytes: int, room_objects: int, *, rolls_max: int) -> None:
        """Carries, or rolls, what pins the oldest objects, and what was inherited: until so much of the WAL will be
        free, as far as is seemly now.
        """
        carried = refused = looked_at = 0
        to_roll: list[Partition] = []
        rolls_max = rolls_max if self._places_left() else 0
        for partition in self._pinning(room_bytes, room_objects):
            looked_at += 1
            if partition in self._stopped:
                self._stopped.carry(partition)
                continue
            if not self._may_start(partition):
                continue
            if self._carry(partition):
                carried += 1
                refused = 0
            elif len(to_roll) < rolls_max:
                to_roll.append(partition)
            else:
                refused += 1
            if carried == PARTITIONS_AT_ONCE or refused == REFUSED_MAX:
                break
        self._rolls_earned -= self.start_together(to_roll, "wal-length")
        self._look_at_object = self._commit.sent_objects + looked_at // LOOKED_AT_PER_OBJECT
        self._look_at_s = asyncio.get_running_loop().time() + LOOK_INTERVAL_S

    def _pinning(self, room_bytes: int, room_objects: int) -> Iterator[Partition]:
        """Who was inherited, then who needs the oldest objects, each once."""
        seen = set()
        for inherited in self._inherited:
            if not inherited.covers_recovered():
                seen.add(inherited.tp)
                yield inherited
        oldest: dict[TopicPartition, int] = {}
        for slot in self._commit.needed():
            if (room_bytes <= 0 and room_objects <= 0) or not slot.durable:
                return
            room_bytes -= slot.size_bytes
            room_objects -= 1
            for tp in slot.tps:
                partition = self._partitions.get(tp)
                if partition is None or tp in seen:
                    continue
                if tp not in oldest:
                    oldest[tp] = partition.oldest_needed()
                if 0 <= oldest[tp] <= slot.number:
                    seen.add(tp)
                    yield partition

    def _carry(self, partition: Partition) -> bool:
        return not self._ending and self._carrier.carry(partition)

    def _places_for(self, partition: Partition) -> asyncio.Semaphore:
        return self._places_of_stopped if partition in self._stopped else self._places

    @contextlib.asynccontextmanager
    async def _locked(self, partition: Partition) -> AsyncIterator[None]:
        """Holds the partition's lock. Raises StoreUnavailable where whoever has it does not get on."""
        lock = self._manifests.lock(partition.tp)
        await within(lock.acquire(), PATIENCE_S)
        try:
            yield
        finally:
            lock.release()

    async def _rolled_in_time(self, partition: Partition, cause: str) -> bool:
        """As the writer's roll. Raises Stalled where the store does not take it, and all the while what others
        write.
        """
        limit_s = roll_s(partition)
        halfway: list[bool] = []
        look = asyncio.get_running_loop().call_later(limit_s / 2, lambda: halfway.append(self._commit.is_taken))
        limit = asyncio.timeout(limit_s)
        try:
            async with limit:
                return await self._writer.roll(partition, cause)
        except TimeoutError as error:
            if not limit.expired():
                raise
            reason = f"the store has not taken what begins with {partition_prefix(partition.tp)} for {limit_s:.0f} s"
            if all(halfway) and self._commit.is_taken:
                raise Stalled(f"{reason}, and takes all else") from error
            raise StoreUnavailable(reason) from error
        finally:
            look.cancel()

    def _start(
        self,
        partitions: Sequence[Partition],
        work: Coroutine[None, None, Outcomes],
        cause: str,
        tasks: "set[asyncio.Task[Outcomes]]",
    ) -> None:
        task = asyncio.get_running_loop().create_task(
            work, name=f"roll {', '.join(str(partition.tp) for partition in partitions[:3])}"
        )
        tasks.add(task)
        self._rolling.update(partition.tp for partition in partitions)
        task.add_done_callback(tasks.discard)
        task.add_done_callback(lambda done: self._over(partitions, cause, done))

    async def _roll_one(self, partition: Partition, cause: str) -> Outcomes:
        try:
            async with self._places_for(partition), self._locked(partition):
                return {partition.tp: await self._rolled_in_time(partition, cause)}
        except BmqError as error:
            return {partition.tp: error}

    async def _roll_together(self, partitions: Sequence[Partition], cause: str) -> Outcomes:
        async with self._places:
            try:
                return await self._writer.roll_together(partitions, cause)
            except BmqError as error:
                return {partition.tp: error for partition in partitions}

    def _over(self, partitions: Sequence[Partition], cause: str, task: "asyncio.Task[Outcomes]") -> None:
        """After a roll: what waited for room is sent, what else is due begins, and what failed is tried again in a
        while.
        """
        self._look_at_s = 0.0
        self._rolling.difference_update(partition.tp for partition in partitions)
        if task.cancelled():
            return
        error = task.exception()
        for partition in partitions:
            self._rolled(partition, cause, error or task.result()[partition.tp], alone=len(partitions) == 1)
        self._commit.poke()
        self.consider()
        if error is not None and not isinstance(error, OSError):
            raise error  # a bug: the loop's handler says so

    def _rolled(self, partition: Partition, cause: str, outcome: bool | BaseException, *, alone: bool) -> None:
        if isinstance(outcome, BaseException):
            if partition.state is PartitionState.APPENDING and not self._ending:
                retry_s = RETRY_AFTER_S
                if alone and self._stopped.failed(partition, outcome):  # what fails together is tried again alone
                    retry_s = self._settings.stopped_retry_ms / 1000
                else:
                    log.warning("roll failed, tried again later", partition=str(partition.tp), error=repr(outcome))
                self._retries[partition.tp] = asyncio.get_running_loop().call_later(
                    retry_s, self._again, partition, cause
                )
            return
        self._stopped.rolled(partition)
        if outcome:  # one roll writes one segment: there may be more to do, though nothing arrives any more
            self.grown(partition)
        if partition.covers_ranges():
            self._covered()

    def _again(self, partition: Partition, cause: str) -> None:
        self._retries.pop(partition.tp, None)
        self.start(partition, cause)
        self.consider()


def _first_segment(partitions: list[Partition]) -> tuple[list[Partition], list[Partition]]:
    """(those that share the next segment, the others)."""
    size_bytes = 0
    for count, partition in enumerate(partitions):
        if count == SHARED_RUNS_MAX or size_bytes >= SHARED_BYTES_MAX:
            return partitions[:count], partitions[count:]
        size_bytes += partition.tail.durable_bytes
    return partitions, []


def _durable_memory_bytes(partition: Partition) -> int:
    return partition.tail.durable_memory_bytes

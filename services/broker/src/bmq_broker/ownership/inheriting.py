"""What the WAL of earlier owners holds of the partitions that this broker has yet to open, and reading it.

Each stream is read once for all partitions that are wanted from it. Passes over streams that have nothing to do with
each other run side by side, so that a partition that was moved here does not wait for what a dead broker left; what is
wanted of a stream that is being read follows in the next pass over it, together.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import structlog

from bmq.errors import BmqError, NotReady, PartitionStopped
from bmq.fairness.crowd import Crowd
from bmq.metadata.image import stream_of
from bmq.metadata.records import Range
from bmq.values import StreamId, TopicPartition
from bmq_broker.ownership.inheritance import Inheritance

log = structlog.get_logger()

Ranges = Mapping[TopicPartition, tuple[Range, ...]]

PASSES_AT_ONCE = 2
"""Each holds a few WAL objects in memory."""
RETRY_S = 1.0
"""After so long it is tried again to read a stream, or to open a partition of which streams held something, where that
failed."""
AGAIN_TIMES_MAX = 16
"""What is still missing or damaged is read again after twice as long as the last time, up to so many times the first:
each time is a whole pass."""


@dataclass(slots=True, eq=False)
class _Pass:
    """Streams that are read together, and for whom."""

    streams: frozenset[StreamId]
    ranges: dict[TopicPartition, tuple[Range, ...]]
    task: "asyncio.Task[None] | None" = None


class Inheriting:
    """Has streams of earlier owners read for one broker incarnation, and holds what they have until it opens the
    partitions.
    """

    def __init__(
        self, read_ranges: Callable[[Ranges], Awaitable[dict[TopicPartition, Inheritance]]], *, again_s: float
    ) -> None:
        """`again_s`: how long until what stops a partition is read again, for it may have been restored."""
        self._read_ranges = read_ranges
        self._again_s = again_s
        self._again_times = 1
        self._again: asyncio.TimerHandle | None = None
        self._wanted: dict[TopicPartition, tuple[Range, ...]] = {}
        self._read: dict[TopicPartition, tuple[Range, ...]] = {}
        self._held: dict[TopicPartition, Inheritance] = {}
        self._restoring: set[TopicPartition] = set()
        """Those that stopped, while what stopped them is read again."""
        self._passes: list[_Pass] = []
        self._waiting = Crowd()
        """For the end of a pass, whichever."""
        self._places = asyncio.Semaphore(PASSES_AT_ONCE)
        self._looked = True
        """Whether `start` has looked at what is wanted and read as it is now: thousands wait for one pass, and each of
        them asks for it."""
        self._ended = False
        self.found: Callable[[Sequence[TopicPartition]], None] = lambda _: None
        """Called with the partitions of which a pass found something, and with those that are to be tried again."""
        self.still_named: Callable[[TopicPartition, tuple[Range, ...]], tuple[Range, ...]] = lambda _, ranges: ranges
        """Asked before ranges are read again. One that held nothing was covered, and its stream may be gone since."""
        self.held_nothing: Callable[[Ranges], None] = lambda _: None
        """Called with ranges that were read and held nothing of their partitions."""

    def want(self, tp: TopicPartition, ranges: tuple[Range, ...]) -> None:
        """These have to be read before the partition opens. `start` begins with it."""
        if self._wanted.get(tp) != ranges and not self.has_read(tp, ranges):
            self._wanted[tp] = ranges
            self._looked = False

    def has_read(self, tp: TopicPartition, ranges: Iterable[Range]) -> bool:
        """Whether what the ranges hold is known. Ranges are covered, and leave the image, while others are still to be
        read.
        """
        return set(ranges) <= set(self._read.get(tp, ()))

    def knows(self, tp: TopicPartition) -> bool:
        """Whether anything was wanted or read for the partition."""
        return tp in self._wanted or tp in self._read

    def held(self, tp: TopicPartition) -> Inheritance:
        """What was found of the partition."""
        return self._held.get(tp) or Inheritance()

    def holds(self, tp: TopicPartition) -> bool:
        """Whether something was found that the partition has yet to take over."""
        return tp in self._held

    def stop(self, tp: TopicPartition, stopped: PartitionStopped) -> None:
        """What was found cannot be explained. It is read again after a while."""
        self._held[tp] = Inheritance(stopped=stopped)
        self._restoring.discard(tp)
        self._read_again_later()

    @property
    def stopped_count(self) -> int:
        """Partitions that cannot be opened, because something that they need is missing or damaged."""
        return sum(1 for held in self._held.values() if held.stopped is not None) + len(self._restoring)

    def opened(self, tp: TopicPartition) -> None:
        """The partition has taken over what was found."""
        self._held.pop(tp, None)
        self._restoring.discard(tp)

    def forget(self, tp: TopicPartition) -> None:
        """The partition is not this broker's any more."""
        if self._wanted.pop(tp, None) is not None:
            self._looked = False
        self._read.pop(tp, None)
        self._held.pop(tp, None)
        self._restoring.discard(tp)

    def start(self) -> None:
        """Begins to read what is wanted, but for streams that are being read already."""
        if self._ended or self._looked:
            return
        self._looked = True
        under_way = {(tp, ranges) for each in self._passes for tp, ranges in each.ranges.items()}
        unread = {tp: ranges for tp, ranges in self._wanted.items() if (tp, ranges) not in under_way}
        for streams, wanted in _by_streams(unread):
            if not any(streams & each.streams for each in self._passes):
                each = _Pass(streams, wanted)
                self._passes.append(each)
                each.task = asyncio.get_running_loop().create_task(
                    self._run(each), name=f"read {len(streams)} streams of earlier owners"
                )
                each.task.add_done_callback(self._pass_ended)
                each.task.add_done_callback(_reap)

    async def when_read(self, tp: TopicPartition) -> None:
        """Returns when nothing is left to read of what is wanted for the partition. Raises NotReady where it could not
        be read.
        """
        while tp in self._wanted:
            await self._next_pass()

    async def read_all(self) -> None:
        """Reads all that is wanted. Raises NotReady."""
        while self._wanted:
            await self._next_pass()

    def end(self) -> None:
        """Reads no more."""
        self._ended = True
        if self._again is not None:
            self._again.cancel()
        for each in self._passes:
            if each.task is not None:
                each.task.cancel()

    async def close(self) -> None:
        """Waits for the end of what was being read."""
        self.end()
        await asyncio.gather(*self._tasks(), return_exceptions=True)
        self._held.clear()

    def _read_again_later(self) -> None:
        if self._again is None and not self._ended:
            self._again = asyncio.get_running_loop().call_later(self._again_s * self._again_times, self._read_again)

    def _read_again(self) -> None:
        """All that are stopped, together: each stream is read once for them. Where there is nothing to read, the
        manifest may have been restored.
        """
        self._again = None
        stopped = [tp for tp, held in self._held.items() if held.stopped is not None]
        self._again_times = min(2 * self._again_times, AGAIN_TIMES_MAX) if stopped else 1
        for tp in stopped:
            del self._held[tp]
            self._restoring.add(tp)
            if ranges := self.still_named(tp, self._read.pop(tp, ())):
                self._wanted[tp] = ranges
                self._looked = False
        self.start()
        self.found([tp for tp in stopped if tp not in self._wanted])

    def _tasks(self) -> "list[asyncio.Task[None]]":
        return [each.task for each in self._passes if each.task is not None]

    async def _next_pass(self) -> None:
        """Returns when one of the passes has ended, whichever."""
        self.start()
        if not self._passes:
            raise NotReady("this broker reads no more of what earlier owners left")
        await self._waiting.wait()

    def _pass_ended(self, task: "asyncio.Task[None]") -> None:
        """Whoever waits goes on: also for another pass, as what is wanted may be another one's by now."""
        error = None if task.cancelled() else task.exception()
        if task.cancelled():
            self._waiting.wake(lambda: NotReady("what earlier owners left was not read"))
        elif error is not None:
            self._waiting.wake(lambda: NotReady(f"what earlier owners left could not be read: {error}"))
        else:
            self._waiting.wake()

    async def _run(self, this: _Pass) -> None:
        try:
            async with self._places:
                found = await self._read_ranges(this.ranges)
        except BmqError as error:
            log.error(
                "streams of earlier owners cannot be read",
                streams=sorted(stream.prefix for stream in this.streams),
                error=str(error),
            )
            asyncio.get_running_loop().call_later(RETRY_S, self.start)
            raise
        finally:
            self._passes.remove(this)
            self._looked = False
        self._take(this, found)
        self.start()

    def _take(self, this: _Pass, found: dict[TopicPartition, Inheritance]) -> None:
        """Keeps what is still wanted as it was when the pass began."""
        current = {tp: ranges for tp, ranges in this.ranges.items() if self._wanted.get(tp) == ranges}
        for tp, ranges in current.items():
            del self._wanted[tp]
            self._read[tp] = ranges
            if tp in found:
                self._held[tp] = found[tp]
                if found[tp].stopped is not None:
                    self._read_again_later()
                    self._restoring.discard(tp)
        nothing = {tp: ranges for tp, ranges in current.items() if tp not in found}
        if nothing:
            self.held_nothing(nothing)
        self.found([tp for tp in current if tp in found or tp in self._restoring])


def _by_streams(ranges: Ranges) -> list[tuple[frozenset[StreamId], dict[TopicPartition, tuple[Range, ...]]]]:
    """The partitions in groups that have no stream in common."""
    groups: list[tuple[set[StreamId], dict[TopicPartition, tuple[Range, ...]]]] = []
    for tp, named in ranges.items():
        streams = {stream_of(found) for found in named}
        members = {tp: named}
        apart = []
        for group in groups:
            if group[0].isdisjoint(streams):
                apart.append(group)
                continue
            streams |= group[0]
            group[1].update(members)
            members = group[1]
        groups = [*apart, (streams, members)]
    return [(frozenset(streams), members) for streams, members in groups]


def _reap(task: "asyncio.Task[None]") -> None:
    """What was not read is still wanted: it is tried again soon, or when somebody asks for the partition."""
    if not task.cancelled() and (error := task.exception()) is not None and not isinstance(error, BmqError):
        raise error  # a bug: the loop's handler says so

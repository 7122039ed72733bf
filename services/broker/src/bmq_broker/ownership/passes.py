"""What the WAL of earlier owners holds of the partitions that this broker has yet to open, and reading it.

Each stream is read once for all partitions that are wanted from it. Passes over streams that have nothing to do with
each other run side by side, so that a partition that was moved here does not wait for what a dead broker left; what is
wanted of a stream that is being read follows in the next pass over it, together.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import structlog

from bmq.errors import BmqError, NotReady, PartitionStopped
from bmq.fairness.crowd import Crowd
from bmq.metadata.image import stream_of
from bmq.metadata.records import Range
from bmq.values import StreamId, TopicPartition
from bmq_broker.ended import Ended
from bmq_broker.ownership.inheritance import Inheritance
from bmq_broker.ownership.life import Lives, Ranges

log = structlog.get_logger()

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


class Passes:
    """Has streams of earlier owners read for the lives of one broker incarnation."""

    def __init__(
        self,
        read_ranges: Callable[[Ranges], Awaitable[dict[TopicPartition, Inheritance]]],
        *,
        ended: Ended,
        lives: Lives,
        again_s: float,
        found: Callable[[Sequence[TopicPartition]], None],
        still_named: Callable[[TopicPartition, tuple[Range, ...]], tuple[Range, ...]],
        held_nothing: Callable[[], None],
    ) -> None:
        """`again_s`: how long until what stops a partition is read again, for it may have been restored.

        `found` is called with the partitions of which a pass found something, and with those that are to be tried
        again; `still_named` is asked before ranges are read again (Lives.look_again); `held_nothing` is called when
        ranges were read that held nothing of their partitions.
        """
        self._ended = ended
        self._lives = lives
        self._found = found
        self._still_named = still_named
        self._held_nothing = held_nothing
        self._read_ranges = read_ranges
        self._again_s = again_s
        self._again_times = 1
        self._again: asyncio.TimerHandle | None = None
        self._passes: list[_Pass] = []
        self._waiting = Crowd()
        """For the end of a pass, whichever."""
        self._places = asyncio.Semaphore(PASSES_AT_ONCE)
        self._looked = True
        """Whether `start` has looked at what is wanted and read as it is now: thousands wait for one pass, and each of
        them asks for it."""

    def want(self, tp: TopicPartition, ranges: tuple[Range, ...]) -> None:
        """These have to be read before the partition opens. `start` begins with it."""
        if self._lives.want(tp, ranges):
            self._looked = False

    def stop(self, tp: TopicPartition, stopped: PartitionStopped) -> None:
        """What was found cannot be explained. It is read again after a while."""
        self._lives.stop(tp, stopped)
        self._read_again_later()

    def forget(self, tp: TopicPartition) -> None:
        """The partition is not this broker's any more."""
        if tp in self._lives.unread:
            self._looked = False
        self._lives.forget(tp)

    def start(self) -> None:
        """Begins to read what is wanted, but for streams that are being read already."""
        if self._ended.refusal is not None or self._looked:
            return
        self._looked = True
        under_way = {(tp, ranges) for each in self._passes for tp, ranges in each.ranges.items()}
        unread = {tp: ranges for tp, ranges in self._lives.unread.items() if (tp, ranges) not in under_way}
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
        while tp in self._lives.unread:
            await self._next_pass()

    async def read_all(self) -> None:
        """Reads all that is wanted. Raises NotReady."""
        while self._lives.unread:
            await self._next_pass()

    def end(self) -> None:
        """Reads no more."""
        if self._again is not None:
            self._again.cancel()
        for each in self._passes:
            if each.task is not None:
                each.task.cancel()

    async def close(self) -> None:
        """Waits for the end of what was being read."""
        self.end()
        await asyncio.gather(*self._tasks(), return_exceptions=True)

    def _read_again_later(self) -> None:
        if self._again is None and self._ended.refusal is None:
            self._again = asyncio.get_running_loop().call_later(self._again_s * self._again_times, self._read_again)

    def _read_again(self) -> None:
        """All that are stopped, together: each stream is read once for them. Where there is nothing to read, the
        manifest may have been restored.
        """
        self._again = None
        stopped = self._lives.look_again(self._still_named)
        self._again_times = min(2 * self._again_times, AGAIN_TIMES_MAX) if stopped else 1
        if any(tp in self._lives.unread for tp in stopped):
            self._looked = False
        self.start()
        self._found([tp for tp in stopped if tp not in self._lives.unread])

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
        """Has those opened that held something."""
        now = self._lives.read(this.ranges, found)
        if any(tp in found and found[tp].stopped is not None for tp in now.to_open):
            self._read_again_later()
        if now.held_nothing:
            self._held_nothing()
        self._found(now.to_open)


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

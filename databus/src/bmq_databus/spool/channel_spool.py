"""One channel's messages that were accepted and are not in the cluster yet: taken, handed on in their order, given up.

What `accept` returned for is on disk. Who sends reads from disk alone (what was just written is in the page cache), so
memory is the same after a day without a cluster. A new process begins a new segment: it never writes behind what a dead
one may have torn.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal

import msgspec
import structlog

from bmq.ports import Clock
from bmq.runtime.blocking_calls import BlockingCalls
from bmq.runtime.file_io import REMEDIES, sync_file, sync_folder
from bmq.runtime.system import SystemRng
from bmq_databus.errors import EntryTooLarge, SpoolFailed, SpoolFull
from bmq_databus.metrics import SpoolCounts, SpoolMetrics
from bmq_databus.spool.appending import Appended, Appending, Entering
from bmq_databus.spool.aside import DEFAULT_LIMITS, Aside, AsideLimits
from bmq_databus.spool.folder import SpoolFolder
from bmq_databus.spool.frames import BEGUN, DAMAGED, FRAME_BYTES_MAX, REFUSED, SENT, Once, Spooled, Step
from bmq_databus.spool.giving_back import PROBE
from bmq_databus.spool.identity import id_made
from bmq_databus.spool.reading import Lost, Read, Reading
from bmq_databus.spool.refused import Refused
from bmq_databus.spool.settling import Outcome, Settling, steps_of, write_steps
from bmq_databus.spool.sizes import entry_bytes
from bmq_databus.spool.undone import UndoneSegment, undone_in

WhenFull = Literal["block", "reject", "drop_oldest"]
GROUP_BYTES: Final = 8 << 20
"""So much is written with one fsync, or one message."""
PROBE_BYTES: Final = 64 << 10
AGAIN_S: Final = 1.0
"""A disk that did not take something is asked again after so long."""

log = structlog.get_logger()
_rng: Final = SystemRng()  # each lives as long as the process


@dataclass(frozen=True, slots=True, kw_only=True)
class SpoolLimits:
    """How large and old what waits may become. Times in seconds."""

    bytes_max: int = 1 << 30
    age_s_max: float = 7 * 86_400.0
    when_full: WhenFull = "block"
    segment_bytes: int = 32 << 20
    """A segment is full then; space is given back by whole segments."""


class ChannelSpool:
    """Use `opened`; one process at a time has a folder."""

    def __init__(
        self,
        folder: Path,
        *,
        limits: SpoolLimits,
        clock: Clock,
        aside: AsideLimits,
        refused_in: Path | None,
        counts: SpoolCounts | None,
    ) -> None:
        self.limits = limits
        self._metrics = SpoolMetrics(folder.name) if counts is None else counts
        self._aside = Aside(refused_in or folder, limits=aside, counts=self._metrics)
        self.trouble = ""
        """Why the disk does not take what is to be accepted; empty: it does."""
        self._folder = folder
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._held: SpoolFolder | None = None
        self.are_keys_read = False
        """Whether `read_keys` has told those that earlier processes kept."""
        self._appending = Appending(folder, segment_bytes=lambda: self.limits.segment_bytes, clock=clock)
        self._segments: list[UndoneSegment] = []
        self._entering: deque[Entering] = deque()
        self._entering_bytes = 0
        self._lacked_bytes = 0
        """What there was no room for last; 0: there always was."""
        self._settling = Settling()
        self._lost: list[Lost] = []
        """What reading found to be damaged, since that was looked at."""
        self._is_closing = False
        self._users = 0
        """How many wait for room in it, for its keys, or for what is done with to be given back."""
        self._writes = BlockingCalls(1, name=f"write {folder.name}")
        self._disk = BlockingCalls(1, name=f"read {folder.name}")
        """For everything that is not written to the newest segment."""
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._reading = Reading(begin=self._begun, lose=self._lose)
        self._more = asyncio.Event()
        self._is_interrupted = False
        self._room = asyncio.Event()
        self._settled_some = asyncio.Event()

    @classmethod
    async def opened(
        cls,
        folder: Path,
        *,
        limits: SpoolLimits,
        clock: Clock,
        aside: AsideLimits = DEFAULT_LIMITS,
        refused_in: Path | None = None,
        counts: SpoolCounts | None = None,
    ) -> "ChannelSpool":
        """With what earlier processes left. A segment that nobody can read is set aside and named. Refused
        messages go to `refused_in`, and `counts` counts: the spool's folder and the channel's metrics, unless said.
        Raises SpoolInUse, SpoolFailed, OSError.
        """
        spool = cls(folder, limits=limits, clock=clock, aside=aside, refused_in=refused_in, counts=counts)
        spool._metrics.tell(spool)
        try:
            await spool._take_up()
        except BaseException:
            spool._let_go()
            raise
        if spool._segments:
            log.info("spool has messages", folder=str(folder), messages=spool.waiting, bytes=spool.size_bytes)
        return spool

    async def _take_up(self) -> None:
        """What is in the folder."""
        self._held = await self._disk.run(partial(SpoolFolder, self._folder))
        spool_id = await self._disk.run(partial(id_made, self._folder, bytes(_rng.nonce())))
        await self._disk.run(self._appending.recover_keys)
        self._segments, next_number = await self._disk.run(partial(undone_in, self._folder))
        self._appending.begin(spool_id, next_number)
        await self._disk.run(self._aside.recover)
        self._aside.tell(self._loop.time())

    @property
    def is_idle(self) -> bool:
        """Whether nobody loses anything by its being closed: nothing waits in it, enters it or is being written."""
        is_busy = self.waiting or self._entering or self._settling or self._users
        return not is_busy and not any(map(self._is_under_way, self._tasks))

    @property
    def size_bytes(self) -> int:
        """On disk, or about to be."""
        return self._entering_bytes + sum(segment.size_bytes for segment in self._segments)

    @property
    def waiting(self) -> int:
        """How many messages are on disk that need something yet."""
        return sum(segment.undone for segment in self._segments)

    @property
    def trouble_now(self) -> str:
        """Why nothing is accepted for now; empty: it is."""
        if self.trouble:
            return f"its spool takes nothing: {self.trouble}"
        is_full = self._lacked_bytes and self.size_bytes + self._lacked_bytes > self.limits.bytes_max
        return str(self._full()) if is_full and self.limits.when_full != "drop_oldest" else ""

    def bound(self, limits: SpoolLimits) -> None:
        """By these limits from now on; who waits for room looks again."""
        self.limits = limits
        self._room.set()

    async def accept(self, messages: Sequence[Spooled], *, patience_s: float) -> None:
        """Durable when it returns, all of them. Raises SpoolFull, SpoolFailed, EntryTooLarge: none was accepted."""
        await (await self.enter(messages, patience_s=patience_s))

    async def read_keys(self) -> list[Once]:
        """Those that are kept on disk, the oldest first; once. Raises SpoolFailed: they may be read later."""
        if self.are_keys_read:
            return []
        try:
            with self._used():
                keys = await self._writes.run(self._appending.keys)  # which nobody writes meanwhile
        except OSError as error:
            self._tell(error)
            raise SpoolFailed(f"keys of earlier requests cannot be read: {self.trouble}") from error
        self.are_keys_read = True
        return keys

    async def room_for(self, messages: Sequence[Spooled], *, patience_s: float, once: Once | None = None) -> None:
        """Returns when there is room for what is to `enter`. Raises SpoolFull, EntryTooLarge."""
        await self._room_for(entry_bytes(messages, once), patience_s)

    async def enter(
        self, messages: Sequence[Spooled], *, patience_s: float, once: Once | None = None
    ) -> "asyncio.Future[None]":
        """Behind what entered before, once there is room; raises SpoolFull where there is none, EntryTooLarge. The
        future is done when they are durable, all of them, or has SpoolFailed: none was accepted. `once`, of the request
        that has written them, is durable with them.
        """
        size_bytes = entry_bytes(messages, once)
        if once is not None:
            messages = [msgspec.structs.replace(messages[0], once=once), *messages[1:]]
        await self._room_for(size_bytes, patience_s)
        done: asyncio.Future[None] = self._loop.create_future()
        self._entering.append(Entering(messages, size_bytes, done, once))
        self._entering_bytes += size_bytes
        self._begin("write", self._write)
        return done

    async def read(self) -> list[Read]:
        """The next messages, in their order; waits until there are some, or `interrupt`: none. One reads at a time."""
        while True:
            self._more.clear()
            try:
                found = await self._disk.run(partial(self._reading.some, list(self._segments)))
            except OSError as error:
                self._tell(error)
                await asyncio.sleep(AGAIN_S)
                continue
            self._note_lost()
            if found:
                return found
            if not any(segment.end > self._reading.to for segment in self._segments):
                await self._more.wait()
            if self._is_interrupted:
                self._is_interrupted = False
                return []

    def interrupt(self) -> None:
        """Whoever waits for more to read has something else to do."""
        self._is_interrupted = True
        self._more.set()

    async def rewind(self) -> None:
        """Reads again from the first message on that has no outcome. To be called when nothing is under way."""
        await self._ended("settle")
        await self._disk.run(self._reading.close)
        for segment in self._segments:
            segment.begun = max(segment.begun, min(segment.end, self._reading.to))
        self._reading.to = min((one.done.low for one in self._segments if one.undone), default=self._reading.to)

    def settle(self, numbers: Iterable[int], kind: int) -> None:
        """Those that were read need nothing more: SENT, or REFUSED by the cluster for good."""
        self._settling.add(numbers, kind)
        self._begin("settle", self._settle)

    def refuse(self, number: int, message: Spooled, why: str) -> None:
        """The cluster takes it never: it is kept in the file of refused ones, and needs nothing more then."""
        self._settling.keep(Refused(number, why, msgspec.structs.replace(message, once=None)))
        self.settle([number], REFUSED)

    async def expire(self) -> int:
        """Gives up segments that are too old, and gives back what is done with; how many messages were given up."""
        with self._used():
            return await self._expire()

    async def _expire(self) -> int:
        oldest_ms = self._clock.now_ms() - int(1000 * self.limits.age_s_max)
        given_up = 0
        while self._segments and self._segments[0].newest_ms < oldest_ms:
            if len(self._segments) == 1:
                await self._roll()  # what is being written to it makes it younger
                if self._segments[0].newest_ms >= oldest_ms:
                    break
            given_up += await self._drop_oldest()
        await self._delete_done(also_newest=True)
        if self.trouble:
            await self._probe()
        return given_up

    async def _probe(self) -> None:
        """Whether the disk takes something again: while this spool is in trouble perhaps nobody writes to it."""
        try:
            await self._disk.run(partial(_write_probe, self._folder / PROBE))
        except OSError as error:
            self._tell(error)
        else:
            self.trouble = ""

    async def emptied(self) -> None:
        """Returns once no message needs anything more, and what they took is given back."""
        while self.waiting:
            self._settled_some.clear()
            await self._settled_some.wait()
        await self._ended("settle")
        await self._delete_done(also_newest=True)

    async def sync(self) -> None:
        """What became of messages outlasts the machine's power then, too; where the disk fails, that is told."""
        try:
            await self._disk.run(partial(_sync, self._folder, list(self._segments)))
        except OSError as error:
            self._tell(error)

    async def close(self) -> None:
        """Waits for what is being written."""
        self._is_closing = True
        while under_way := [task for task in self._tasks.values() if not task.done()]:
            await asyncio.gather(*under_way)
        await self.sync()
        self._let_go()

    def _let_go(self) -> None:
        """Its files and threads are nobody's then."""
        self._writes.close()
        self._disk.close()
        for segment in self._segments:
            segment.close()
        self._appending.close()
        self._reading.close()
        if self._held is not None:
            self._held.leave()

    @contextmanager
    def _used(self) -> Iterator[None]:
        """Somebody waits for it, who is to find it open."""
        self._users += 1
        try:
            yield
        finally:
            self._users -= 1

    def _begin(self, name: str, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        if not self._is_under_way(name):
            self._tasks[name] = self._loop.create_task(work(), name=f"{name} in {self._folder.name}")

    def _is_under_way(self, name: str) -> bool:
        return name in self._tasks and not self._tasks[name].done()

    async def _ended(self, name: str) -> None:
        while self._is_under_way(name):
            await asyncio.wait([self._tasks[name]])

    async def _room_for(self, size_bytes: int, patience_s: float) -> None:
        if size_bytes > FRAME_BYTES_MAX:
            raise EntryTooLarge(
                f"it takes {size_bytes} bytes on disk, each target of its channel counted: {FRAME_BYTES_MAX} are the "
                "most at once; send fewer or smaller messages at a time"
            )
        if self.size_bytes + size_bytes > self.limits.bytes_max:
            with self._used():
                await self._make_room(size_bytes, patience_s)

    async def _make_room(self, size_bytes: int, patience_s: float) -> None:
        if size_bytes > self.limits.bytes_max:
            raise SpoolFull(f"{size_bytes} bytes are more than the whole spool may have ({self.limits.bytes_max})")
        deadline_s = self._loop.time() + patience_s
        while self.size_bytes + size_bytes > self.limits.bytes_max:
            await self._delete_done(also_newest=True)
            if self.size_bytes + size_bytes <= self.limits.bytes_max:
                return
            self._room.clear()
            self._lacked_bytes = size_bytes
            if self.limits.when_full == "reject":
                raise self._full()
            if self.limits.when_full == "drop_oldest" and self._segments:
                await self._drop_oldest()
                continue
            try:
                async with asyncio.timeout_at(deadline_s):
                    await self._room.wait()
            except TimeoutError:
                raise self._full() from None

    def _full(self) -> SpoolFull:
        return SpoolFull(
            f"the spool has {self.size_bytes} bytes of the {self.limits.bytes_max} that it may, and {self.waiting} "
            "messages wait for the cluster: see that it takes them, or raise spool.maxBytes"
        )

    async def _write(self) -> None:
        """Groups of what waits, each with one fsync."""
        while self._entering:
            group = [self._entering.popleft()]
            group_bytes = group[0].size_bytes
            while self._entering and group_bytes + self._entering[0].size_bytes <= GROUP_BYTES:
                group.append(self._entering.popleft())
                group_bytes += group[-1].size_bytes
            try:
                appended = await self._writes.run(partial(self._appending.append, group))
            except OSError as error:
                self._refuse(group, error)
            else:
                self.trouble = ""
                self._appended(appended, group)
            finally:
                self._entering_bytes -= group_bytes
                self._room.set()

    def _appended(self, appended: Appended, group: Sequence[Entering]) -> None:
        if appended.made is not None:
            self._segments.append(appended.made)
        segment = self._segments[-1]
        segment.size_bytes, segment.end = appended.size_bytes, appended.end
        segment.newest_ms = self._clock.now_ms()
        for one in group:
            if not one.done.done():
                one.done.set_result(None)
        self._more.set()

    def _refuse(self, group: Sequence[Entering], error: OSError) -> None:
        self._tell(error)
        for one in group:
            if not one.done.done():
                one.done.set_exception(SpoolFailed(f"not accepted: {self.trouble}"))

    def _tell(self, error: OSError) -> None:
        remedy = REMEDIES.get(error.errno or 0, "look at the disk")
        self.trouble = f"{self._folder}: {error.strerror or error}: {remedy}"
        log.error("spool cannot be used", folder=str(self._folder), why=error.strerror or str(error), remedy=remedy)

    def _begun(self, segment: UndoneSegment, first: int, end: int) -> None:
        """Blocking."""
        segment.add([Step(BEGUN, first, end - first)])

    def _lose(self, lost: Lost) -> None:
        """Blocking. The others go on, and the segment is kept aside in the end."""
        segment, first, end, why = lost
        segment.is_damaged = True
        log.error("spool is damaged", segment=str(segment.file.path), why=why, messages=end - first)
        if end > first:
            self._lost.append(lost)
            with suppress(OSError):
                segment.add([Step(DAMAGED, first, end - first)])

    def _note_lost(self) -> None:
        lost, self._lost = self._lost, []
        for segment, first, end, _ in lost:
            self._metrics.damaged.inc(sum(number not in segment.done for number in range(first, end)))
            segment.done.add(range(first, end))
        if lost:
            self._begin("settle", self._settle)

    async def _settle(self) -> None:
        """Writes down what became of messages, and gives back what is done with. Where the disk takes nothing, again
        and again.
        """
        while True:
            taken, refused = self._settling.take()
            try:
                if refused:
                    await self._disk.run(partial(self._aside.keep, refused))
                written = steps_of(self._segments, taken)
                await self._disk.run(partial(write_steps, written))
            except OSError as error:
                self._settling.put_back(taken, refused)
                self._tell(error)
                if self._is_closing:
                    return
                await asyncio.sleep(AGAIN_S)
                continue
            self._aside.tell(self._loop.time())
            for segment, steps in written:
                for step in steps:
                    segment.done.add(range(step.first, step.first + step.count))
            for outcome in taken:
                self._count(outcome)
            await self._delete_done()
            self._settled_some.set()
            if not self._settling:
                return

    def _count(self, outcome: Outcome) -> None:
        count = outcome.end - outcome.first
        if outcome.kind != SENT:
            self._metrics.refused.inc(count)
            return
        self._metrics.sent.inc(count)
        for segment in self._segments:
            again = min(outcome.end, segment.begun) - max(outcome.first, segment.file.first)
            if again > 0:
                self._metrics.sent_again.inc(again)

    async def _delete_done(self, *, also_newest: bool = False) -> None:
        """Gives back segments that nothing is left to do of; the newest only where it is asked for and nothing is
        being written.
        """
        if also_newest and self._appending.newest is not None and not self._is_under_way("write"):
            last = self._segments[-1]
            if last.end > last.file.first and not last.undone:
                self._appending.end_segment()
        newest = self._appending.newest
        over = [one for one in self._segments if not one.undone and one.file != newest]
        for segment in over:
            self._segments.remove(segment)
        for segment in over:
            await self._give_back(segment)
        if over:
            self._room.set()

    async def _drop_oldest(self) -> int:
        """Gives up the oldest segment with all that is not sent of it; how many messages that were."""
        if self._appending.newest is not None and len(self._segments) == 1:
            await self._roll()
        if not self._segments:
            return 0
        segment = self._segments.pop(0)
        given_up = segment.undone
        self._metrics.dropped.inc(given_up)
        log.warning("spooled messages given up", segment=str(segment.file.path), messages=given_up)
        await self._give_back(segment)
        self._room.set()
        return given_up

    async def _give_back(self, segment: UndoneSegment) -> None:
        try:
            await self._disk.run(partial(_give_back, segment, self._reading))
            if segment.is_damaged:
                await self._disk.run(self._aside.bound_damaged)
                self._aside.tell(self._loop.time())
        except OSError as error:  # the next start finds it
            self._tell(error)

    async def _roll(self) -> None:
        """What comes next goes to a new segment."""
        await self._ended("write")
        self._appending.end_segment()


def _sync(folder: Path, segments: Iterable[UndoneSegment]) -> None:
    for segment in segments:
        segment.sync()
    sync_folder(folder)


def _give_back(segment: UndoneSegment, reading: Reading) -> None:
    """A file that is open yet keeps its space."""
    reading.let_go(segment)
    segment.give_back()


def _write_probe(path: Path) -> None:
    try:
        with path.open("wb") as probe:
            probe.write(bytes(PROBE_BYTES))
            probe.flush()
            sync_file(probe.fileno())
    finally:
        path.unlink(missing_ok=True)

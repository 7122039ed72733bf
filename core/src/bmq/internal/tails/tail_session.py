"""The owner's side of following tails: one session per connection, whose partitions change by and by and whose news one
poll collects.

A partition is read when it changed, and read on when its news were taken: what is kept for a client that takes nothing
is one answer per partition, and bounded in all. So a commit costs what it changed and not what is followed.
"""

import asyncio
from collections.abc import Callable, Coroutine
from itertools import islice
from typing import Any, Final

from bmq.errors import BmqError, NotReady
from bmq.internal import limits
from bmq.internal.calls.follow_calls import ChangeCall, PollCall
from bmq.internal.tails.tail_cache import end_of
from bmq.roles.owner import OwnerHere, TailAnswer, TailRequest, Tails
from bmq.values import Offset, TopicPartition

NEWS_AT_ONCE: Final = 5_000
"""Partitions of which one answer to a poll tells."""
_OVER = -1
"""How many changes a session has had that is no client's any more."""

Facts = tuple[int, int, int, int]


class _Followed:
    """One partition. `offset` is the next that its follower has not got; `facts` are what it was told last."""

    __slots__ = ("facts", "has_more", "number", "offset", "tp")

    def __init__(self, number: int, tp: TopicPartition, offset: Offset) -> None:
        self.number = number
        self.tp = tp
        self.offset = offset
        self.facts: Facts | None = None
        self.has_more = False
        """Since its news were read, which are yet to be taken."""


class TailSession:
    """Follows tails for the client of one connection. `began` is told of its task: somebody awaits it when the server
    stops.
    """

    def __init__(self, owner: OwnerHere, began: Callable[["asyncio.Task[Any]"], None]) -> None:
        self._owner = owner
        self._began = began
        self._loop = asyncio.get_running_loop()
        self._tails: Tails | None = None
        self._followed: dict[int, _Followed] = {}
        self._numbers: dict[TopicPartition, int] = {}
        self._changes = 0
        self._due: dict[int, None] = {}
        """Those to be read."""
        self._is_reading = False
        self._ready: dict[int, TailAnswer] = {}
        self._ready_bytes = 0
        self._news: asyncio.Future[None] | None = None
        """What wakes the poll that waits; None: none does."""
        self._polled_at = self._loop.time()
        self._looking: asyncio.Task[None] | None = None

    def change(self, call: ChangeCall) -> None:
        """Raises NotReady where an earlier change did not reach this session: its client begins anew."""
        if call.changes_before == 0:
            self.close()
            self._changes = 0
        self._check(call.changes_before)
        self._changes += 1
        for number in call.leaves:
            self._leave(number)
        if len(self._followed) + len(call.follows) + self._left > limits.FOLLOWED_MAX:
            raise NotReady(f"{limits.FOLLOWED_MAX} partitions are followed over one connection already")
        if self._tails is None:
            self._tails = self._owner.tails(self._changed)
        for one in call.follows:
            self._leave(one.number)
            tp = one.tp
            if tp in self._numbers:
                raise NotReady(f"{tp} is followed over this connection already")
            self._followed[one.number] = _Followed(one.number, tp, Offset(one.offset))
            self._numbers[tp] = one.number
            self._tails.watch(tp)
            self._due[one.number] = None
        self._read_soon()
        self._polled_at = self._loop.time()
        if self._followed and self._looking is None:
            self._looking = self._loop.create_task(self._look(), name="look at followed tails")
            self._began(self._looking)
            self._looking.add_done_callback(self._look_ended)

    def poll(self, call: PollCall) -> Coroutine[Any, Any, list[tuple[int, TailAnswer]]]:
        """News by number, up to `max_bytes` (the first comes whole), once there are some; none when the time is up.
        Raises NotReady at once.
        """
        self._check(call.changes_before)
        return self._poll(call)

    async def _poll(self, call: PollCall) -> list[tuple[int, TailAnswer]]:
        if self._news is not None:
            raise NotReady("another poll of this session waits already")
        if self._changes == _OVER:
            raise NotReady("this session is over: it begins anew")
        self._polled_at = self._loop.time()
        if not self._ready:
            self._news = self._loop.create_future()
            try:
                async with asyncio.timeout(call.max_wait_ms / 1000):
                    await self._news
            except TimeoutError:
                pass
            finally:
                self._news = None
                self._polled_at = self._loop.time()
        return self._take(call.max_bytes)

    def close(self) -> None:
        """Follows nothing more."""
        for number in list(self._followed):
            self._leave(number)
        self._ready.clear()
        self._ready_bytes = 0
        self._tails = None
        looking, self._looking = self._looking, None
        if looking is not None:
            looking.cancel()

    @property
    def _left(self) -> int:
        """How many partitions are followed no more of which it is yet to be told why."""
        return sum(number not in self._followed for number in self._ready)

    def _check(self, changes_before: int) -> None:
        if changes_before != self._changes:
            raise NotReady(f"this session has had {self._changes} changes and not {changes_before}: it begins anew")

    def _leave(self, number: int) -> None:
        followed = self._followed.get(number)
        if followed is not None:
            self._forget(followed)
            self._forget_ready(number)

    def _forget(self, followed: _Followed) -> None:
        """What is ready of it can still be taken."""
        del self._followed[followed.number]
        del self._numbers[followed.tp]
        self._due.pop(followed.number, None)
        if self._tails is not None:
            self._tails.leave(followed.tp)

    def _end(self) -> None:
        """Whoever follows is not left waiting for what would never come: its next poll is refused, and it begins
        anew.
        """
        self.close()
        self._changes = _OVER
        self._tell()

    def _fail(self, why: BaseException) -> None:
        if not isinstance(why, BmqError):  # an owner that has ended says so
            self._loop.call_exception_handler({"message": "following tails failed", "exception": why})
        self._end()

    def _changed(self, tp: TopicPartition) -> None:
        """Within whatever changed it: it is read in the loop's next turn, with what else changed in this one."""
        number = self._numbers.get(tp)
        if number is not None:
            self._due[number] = None
            self._read_soon()

    def _read_soon(self) -> None:
        if self._due and not self._is_reading and self._ready_bytes < limits.FOLLOWED_READY_BYTES:
            self._is_reading = True
            self._loop.call_soon(self._read_some)

    def _read_some(self) -> None:
        self._is_reading = False
        try:
            for number in list(islice(self._due, limits.FOLLOWED_LOOKED_AT)):
                if self._ready_bytes >= limits.FOLLOWED_READY_BYTES:
                    break
                del self._due[number]
                self._read(self._followed[number])
        except Exception as bug:  # noqa: BLE001 - whatever it is, it must not leave anybody waiting
            self._fail(bug)
        else:
            self._tell()
            self._read_soon()

    def _read(self, followed: _Followed) -> None:
        """Until an error, or until its offset is not in the tail any more: who follows hears of it, and asks anew."""
        number = followed.number
        if (ready := self._ready.get(number)) is not None and ready.batches:
            followed.has_more = True
            return
        assert self._tails is not None
        answer = self._tails.read(
            TailRequest(tp=followed.tp, offset=followed.offset, max_bytes=limits.FOLLOWED_PARTITION_BYTES)
        )
        if answer.error is not None or followed.offset < answer.tail_start:
            self._leave_ready(followed, answer)
            self._forget(followed)
        elif answer.batches:
            followed.offset = end_of(answer.batches)
            followed.has_more = followed.offset < answer.high_watermark
            self._leave_ready(followed, answer)

    def _leave_ready(self, followed: _Followed, answer: TailAnswer) -> None:
        self._forget_ready(followed.number)  # what the look found; this is newer
        self._ready[followed.number] = answer
        self._ready_bytes += answer.size_bytes
        followed.facts = _facts(answer)

    def _tell(self) -> None:
        """There are news, or there never will be."""
        if self._news is not None and not self._news.done() and (self._ready or self._changes == _OVER):
            self._news.set_result(None)

    def _take(self, max_bytes: int) -> list[tuple[int, TailAnswer]]:
        news: list[tuple[int, TailAnswer]] = []
        size_bytes = 0
        for number, answer in list(islice(self._ready.items(), NEWS_AT_ONCE)):
            if news and size_bytes + answer.size_bytes > max_bytes:
                break
            news.append((number, answer))
            size_bytes += answer.size_bytes
            self._forget_ready(number)
            followed = self._followed.get(number)
            if followed is not None and followed.has_more:
                followed.has_more = False
                self._due[number] = None
        self._read_soon()
        return news

    def _forget_ready(self, number: int) -> None:
        answer = self._ready.pop(number, None)
        if answer is not None:
            self._ready_bytes -= answer.size_bytes

    async def _look(self) -> None:
        """Some of the partitions at a time: what changed of them without a record. Ends a session whose client polls no
        more.
        """
        at = 0
        while self._followed:
            await asyncio.sleep(limits.FOLLOWED_LOOK_S)
            if self._loop.time() - self._polled_at > limits.FOLLOWED_UNPOLLED_S and self._news is None:
                self._looking = None
                self._end()
                return
            at = at if at < len(self._followed) else 0
            looked_at = list(islice(self._followed.values(), at, at + limits.FOLLOWED_LOOKED_AT))
            at += len(looked_at)
            for one in looked_at:
                if one.number not in self._ready:
                    self._look_at(one)
            self._tell()
        self._looking = None

    def _look_at(self, one: _Followed) -> None:
        assert self._tails is not None
        answer = self._tails.read(TailRequest(tp=one.tp, offset=one.offset, max_bytes=0))
        if answer.error is not None or one.offset < answer.tail_start:
            self._due[one.number] = None
            self._read_soon()
        elif not answer.batches and _facts(answer) != one.facts:
            self._leave_ready(one, answer)

    def _look_ended(self, task: "asyncio.Task[None]") -> None:
        if not task.cancelled() and (bug := task.exception()) is not None:
            self._fail(bug)


def _facts(answer: TailAnswer) -> Facts:
    """What news are made of besides records."""
    return answer.leader_epoch, answer.manifest_version, answer.log_start, answer.tail_start

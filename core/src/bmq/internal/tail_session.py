"""The owner's side of following tails: one session per connection, whose partitions change by and by and whose news one poll collects.

Each partition has a task that waits for records behind what was told, so a commit costs what it changed and not what is followed. It reads on
when its news were taken: what is kept for a client that takes nothing is one answer per partition, and bounded in all.
"""

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from itertools import islice
from typing import Any

from bmq.errors import BmqError, NotReady
from bmq.internal import limits
from bmq.internal.follow_calls import ChangeCall, PollCall
from bmq.internal.tail_cache import end_of
from bmq.roles.owner import Owner, TailAnswer, TailRequest
from bmq.values import Offset, TopicPartition

_WAIT_MS = 600_000
"""How long a partition's task waits at a time; news end it at once."""

_OVER = -1
"""How many changes a session has had that is no client's any more."""

Facts = tuple[int, int, int, int]


class _Followed:
    """One partition. `offset` is the next that its follower has not got; `facts` are what it was told last."""

    __slots__ = ("facts", "number", "offset", "taken", "task", "tp")

    def __init__(self, number: int, tp: TopicPartition, offset: Offset) -> None:
        self.number = number
        self.tp = tp
        self.offset = offset
        self.facts: Facts | None = None
        self.taken: asyncio.Future[None] | None = None
        """Resolves when the news that its task left were taken."""
        self.task: asyncio.Task[None] | None = None


class TailSession:
    """Of one connection. `began` is told of each task: somebody awaits it when the server stops."""

    def __init__(self, owner: Owner, began: Callable[["asyncio.Task[Any]"], None]) -> None:
        self._owner = owner
        self._began = began
        self._loop = asyncio.get_running_loop()
        self._followed: dict[int, _Followed] = {}
        self._changes = 0
        self._ready: dict[int, TailAnswer] = {}
        self._ready_bytes = 0
        self._room = asyncio.Event()
        self._room.set()
        self._news: asyncio.Future[None] | None = None
        """Of the poll that waits."""
        self._told = False
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
        if len(self._followed) + len(call.follows) > limits.FOLLOWED_MAX:
            raise NotReady(f"{limits.FOLLOWED_MAX} partitions are followed over one connection already")
        for one in call.follows:
            self._leave(one.number)
            followed = self._followed[one.number] = _Followed(one.number, one.tp, Offset(one.offset))
            followed.task = self._run(self._follow(followed), f"follow {one.tp}")
            followed.task.add_done_callback(partial(self._follow_ended, followed))
        self._polled_at = self._loop.time()
        if self._followed and self._looking is None:
            self._looking = self._run(self._look(), "look at followed tails")
            self._looking.add_done_callback(self._look_ended)

    def poll(self, call: PollCall) -> Coroutine[Any, Any, list[tuple[int, TailAnswer]]]:
        """News by number, up to `max_bytes` (the first comes whole), once there are some; none when the time is up. Raises NotReady at once."""
        self._check(call.changes_before)
        return self._poll(call)

    async def _poll(self, call: PollCall) -> list[tuple[int, TailAnswer]]:
        if self._news is not None:
            raise NotReady("another poll of this session waits already")
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
                self._told = False
                self._polled_at = self._loop.time()
        return self._take(call.max_bytes)

    def close(self) -> None:
        """Follows nothing more."""
        for number in list(self._followed):
            self._leave(number)
        looking, self._looking = self._looking, None
        if looking is not None:
            looking.cancel()

    def _check(self, changes_before: int) -> None:
        if changes_before != self._changes:
            raise NotReady(f"this session has had {self._changes} changes and not {changes_before}: it begins anew")

    def _run(self, work: Coroutine[Any, Any, None], name: str) -> "asyncio.Task[None]":
        task: asyncio.Task[None] = self._loop.create_task(work, name=name)
        self._began(task)
        return task

    def _leave(self, number: int) -> None:
        followed = self._followed.pop(number, None)
        if followed is None:
            return
        self._forget_ready(number)
        if followed.task is not None:
            followed.task.cancel()

    # --- news ---

    async def _follow(self, followed: _Followed) -> None:
        """Until an error, or until its offset is not in the tail any more: who follows hears of it, and asks anew."""
        tp = followed.tp
        while True:
            await self._room.wait()
            offset = followed.offset
            request = TailRequest(tp=tp, offset=offset, max_bytes=limits.FOLLOWED_PARTITION_BYTES)
            try:
                [answer] = await self._owner.read_tail([request], min_bytes=1, max_bytes=limits.FOLLOWED_PARTITION_BYTES, max_wait_ms=_WAIT_MS)
            except BmqError as error:
                answer = TailAnswer(tp=tp, error=error)
            ended = answer.error is not None or offset < answer.tail_start
            if not ended and not answer.batches:
                continue
            if not ended:
                followed.offset = end_of(answer.batches)
            followed.taken = self._loop.create_future()
            self._leave_ready(followed, answer)
            if ended:
                del self._followed[followed.number]
                return
            await followed.taken

    def _follow_ended(self, followed: _Followed, task: "asyncio.Task[None]") -> None:
        """Whoever follows is not left waiting for what would never come."""
        if task.cancelled() or (bug := task.exception()) is None:
            return
        self._loop.call_exception_handler({"message": f"following {followed.tp} failed", "exception": bug})
        if self._followed.get(followed.number) is followed:
            self._leave_ready(followed, TailAnswer(tp=followed.tp, error=NotReady(f"{followed.tp} is followed no more: {bug!r}")))
            del self._followed[followed.number]

    def _look_ended(self, task: "asyncio.Task[None]") -> None:
        if task.cancelled() or (bug := task.exception()) is None:
            return
        self._loop.call_exception_handler({"message": "looking at followed tails failed", "exception": bug})
        self.close()
        self._changes = _OVER
        self._tell()

    def _leave_ready(self, followed: _Followed, answer: TailAnswer) -> None:
        self._forget_ready(followed.number)  # what the look found; this is newer
        self._ready[followed.number] = answer
        self._ready_bytes += answer.size_bytes
        followed.facts = _facts(answer)
        if self._ready_bytes >= limits.FOLLOWED_READY_BYTES:
            self._room.clear()
        if self._news is not None and not self._told:
            # What else came with the same commit goes with it.
            self._told = True
            self._loop.call_soon(self._tell)

    def _tell(self) -> None:
        if self._news is not None and not self._news.done():
            self._news.set_result(None)

    def _take(self, max_bytes: int) -> list[tuple[int, TailAnswer]]:
        news: list[tuple[int, TailAnswer]] = []
        size_bytes = 0
        for number, answer in list(self._ready.items()):
            if news and size_bytes + answer.size_bytes > max_bytes:
                break
            news.append((number, answer))
            size_bytes += answer.size_bytes
            self._forget_ready(number)
            followed = self._followed.get(number)
            if followed is not None and followed.taken is not None and not followed.taken.done():
                followed.taken.set_result(None)
        return news

    def _forget_ready(self, number: int) -> None:
        answer = self._ready.pop(number, None)
        if answer is not None:
            self._ready_bytes -= answer.size_bytes
            if self._ready_bytes < limits.FOLLOWED_READY_BYTES:
                self._room.set()

    # --- facts ---

    async def _look(self) -> None:
        """Some of the partitions at a time: what changed of them without a record. Ends a session whose client polls no more."""
        at = 0
        while self._followed:
            await asyncio.sleep(limits.FOLLOWED_LOOK_S)
            if self._loop.time() - self._polled_at > limits.FOLLOWED_UNPOLLED_S and self._news is None:
                self._changes = _OVER
                break
            at = at if at < len(self._followed) else 0
            looked_at = list(islice(self._followed.values(), at, at + limits.FOLLOWED_LOOKED_AT))
            at += len(looked_at)
            asked = [(one, one.offset) for one in looked_at if one.number not in self._ready]
            requests = [TailRequest(tp=one.tp, offset=offset, max_bytes=0) for one, offset in asked]
            if not requests:
                continue
            try:
                answers = await self._owner.read_tail(requests, min_bytes=0, max_bytes=0, max_wait_ms=0)
            except BmqError:
                continue  # each partition's task says so
            for (one, offset), answer in zip(asked, answers, strict=True):
                news = answer.error is None and not answer.batches and _facts(answer) != one.facts
                if news and one.offset == offset and one.number not in self._ready and self._followed.get(one.number) is one:
                    self._leave_ready(one, answer)
        self._looking = None
        self.close()


def _facts(answer: TailAnswer) -> Facts:
    """What news are made of besides records."""
    return answer.leader_epoch, answer.manifest_version, answer.log_start, answer.tail_start

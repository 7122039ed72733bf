"""The proxy's side of following tails: one session with one owner, however many consumers wait for however many
partitions.

A tail is followed from the moment on in which a reader has come to its end, for as long as somebody reads it. Its news
are waited for by one poll, and kept in a TailCache; readers are answered from there and wait here. Whatever ends the
session ends it for all its tails: their readers ask the owner itself, and what they find there begins it anew.
"""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from bmq.errors import BmqError, CorruptBatch
from bmq.fairness.waiters import Waiters
from bmq.internal import limits
from bmq.internal.calls.follow_calls import CHANGE_CALL, POLL_CALL, ChangeCall, Follow, PollCall, decode_news, follow
from bmq.internal.framing.apis import Api, Purpose
from bmq.internal.framing.frames import Frame
from bmq.internal.links.client import InternalClient
from bmq.internal.tails.tail_cache import CachedTail, TailCache, end_of
from bmq.roles.owner import TailAnswer, TailRequest
from bmq.storage.durable import cancelled
from bmq.values import Offset, TopicPartition

POLL_GRACE_S = 10.0
CHANGED_AT_ONCE: Final = 1_000
"""Partitions that one call names."""
RETRY_S = 1.0
"""How long nothing is followed after a session ended."""


class _Tail:
    """One that is followed. `known_end`: records below it are durable, whether they have come yet or not."""

    __slots__ = ("cached", "heard_at", "known_end", "number", "used_at")

    def __init__(self, number: int, cached: CachedTail, used_at: float) -> None:
        self.number = number
        self.cached = cached
        self.known_end = cached.end
        self.used_at = self.heard_at = used_at


class TailFollower:
    """Follows tails at the owner that `client` calls; its purpose is FOLLOW. `cache` may be shared by all of a
    proxy's.
    """

    def __init__(self, client: InternalClient, cache: TailCache) -> None:
        assert client.purpose is Purpose.FOLLOW
        self._client = client
        self._cache = cache
        self._loop = asyncio.get_running_loop()
        self._tails: dict[TopicPartition, _Tail] = {}
        self._by_number: dict[int, _Tail] = {}
        self.waiters = Waiters()
        """Readers: woken by news of a tail, and where it is followed no more."""
        self._numbers = 0
        self._changes = 0
        """How many change calls the session has had."""
        self._follows: list[Follow] = []
        self._leaves: list[int] = []
        self._change_due = False
        self._polling: asyncio.Task[None] | None = None
        self._follow_at = 0.0
        """Not before this time."""
        self._is_closed = False

    async def close(self) -> None:
        """Follows nothing more, and ends the connection."""
        self._is_closed = True
        polling, self._polling = self._polling, None
        if polling is not None:
            await cancelled([polling])
        self._end()
        await self._client.close()

    def look(
        self, requests: Sequence[TailRequest], *, max_bytes: int, may_wait: bool, known_bytes: int = 0
    ) -> list[TailAnswer | None]:
        """What is known here, in the order and within the bytes in which an owner answers, of which `known_bytes` are
        taken; None: ask the owner.

        Of a tail that is known to have more than has come, where the reader would not wait for it, None too.
        """
        answers: list[TailAnswer | None] = []
        now = self._loop.time()
        size_bytes = known_bytes
        for request in requests:
            tail = self._tails.get(request.tp)
            if tail is None or not tail.cached.covers(request) or now - tail.heard_at > limits.FOLLOWED_DOUBTED_S:
                answers.append(None)
                continue
            tail.used_at = now
            answer = tail.cached.answer(request, max_bytes=max_bytes - size_bytes, at_least_one=not size_bytes)
            behind = not may_wait and request.offset == tail.cached.end < max(
                tail.known_end, tail.cached.high_watermark
            )
            answers.append(None if behind else answer)
            size_bytes += 0 if behind else answer.size_bytes
        return answers

    def end(self, answer: TailAnswer) -> Offset:
        """Up to where answers for its partition are known here; -1 where it is not followed."""
        tail = self._tails.get(answer.tp)
        return Offset(-1) if tail is None else tail.cached.end

    def begin(self, found: Iterable[tuple[TailRequest, TailAnswer]]) -> bool:
        """Follows those whose owner's answer has brought its reader to the end. False: not all of them are followed
        now.
        """
        all_followed = True
        now = self._loop.time()
        for request, answer in found:
            if answer.error is not None or request.offset < answer.tail_start:
                continue
            tail = self._tails.get(request.tp)
            if (
                tail is not None
                and now - tail.heard_at > limits.FOLLOWED_DOUBTED_S
                and answer.high_watermark > tail.cached.end
            ):
                self._leave(tail)  # its news do not come; followed anew it will be by the next who asks
                self._leaves.append(tail.number)
                self._change_soon()
                all_followed = False
            elif tail is not None:
                tail.heard_at = now
                tail.known_end = max(tail.known_end, answer.high_watermark)
                all_followed = all_followed and tail.cached.covers(request)
            else:
                try:
                    all_followed = self._follow(request, answer) and all_followed
                except CorruptBatch:
                    all_followed = False  # the reader is told what it is told
        return all_followed

    def appended(self, tp: TopicPartition, base_offset: Offset) -> None:
        """A batch was acknowledged: who reads without waiting finds it."""
        tail = self._tails.get(tp)
        if tail is not None:
            tail.known_end = max(tail.known_end, Offset(base_offset + 1))

    def deleted_before(self, tp: TopicPartition, log_start: Offset) -> None:
        """Records were deleted."""
        tail = self._tails.get(tp)
        if tail is not None:
            tail.cached.deleted_before(log_start)

    def _follow(self, request: TailRequest, answer: TailAnswer) -> bool:
        """From the end of the answer on, where that is the high watermark: a reader far from it reads on by itself."""
        if self._is_closed or self._loop.time() < self._follow_at or len(self._tails) >= limits.FOLLOWED_MAX:
            return False
        end = end_of(answer.batches) if answer.batches else request.offset
        if end < answer.high_watermark:
            return False
        if answer.size_bytes <= limits.FOLLOWED_PARTITION_BYTES:
            # Kept for who comes next; as a copy, because its buffer may hold much else.
            cached = CachedTail(request.tp, request.offset)
            self._cache.add([(cached, replace(answer, batches=tuple(map(bytes, answer.batches))))])
        else:
            cached = CachedTail(request.tp, end)
            self._cache.add([(cached, replace(answer, batches=(), size_bytes=0))])
        self._numbers += 1
        tail = _Tail(self._numbers, cached, self._loop.time())
        self._tails[request.tp] = self._by_number[tail.number] = tail
        self._follows.append(follow(tail.number, request.tp, cached.end))
        self._change_soon()
        if self._polling is None:
            self._polling = self._loop.create_task(self._poll(), name=f"follow tails at node {self._client.peer}")
        return True

    def _leave(self, tail: _Tail) -> None:
        del self._tails[tail.cached.tp]
        self._by_number.pop(tail.number, None)
        self.waiters.wake(tail.cached.tp)

    def _change_soon(self) -> None:
        """What changes in one turn of the loop goes in one call, of thousands some in each turn."""
        if not self._change_due:
            self._change_due = True
            self._loop.call_soon(self._change)

    def _change(self) -> None:
        if not self._change_due:
            return
        self._change_due = False
        leaves, self._leaves = self._leaves[:CHANGED_AT_ONCE], self._leaves[CHANGED_AT_ONCE:]
        follows: list[Follow] = []
        if not self._leaves:  # a partition is left before it is followed anew
            follows, self._follows = self._follows[:CHANGED_AT_ONCE], self._follows[CHANGED_AT_ONCE:]
        call = ChangeCall(self._changes, [one for one in follows if one.number in self._by_number], leaves)
        self._changes += 1
        future = self._client.submit(Api.FOLLOW_CHANGE, CHANGE_CALL.encode(call), _nothing)
        future.add_done_callback(self._changed)
        if self._follows or self._leaves:
            self._change_soon()

    def _changed(self, future: "asyncio.Future[None]") -> None:
        if not future.cancelled() and future.exception() is not None:
            self._end()

    async def _poll(self) -> None:
        """While something is followed."""
        try:
            while self._tails:
                await self._poll_once()
                self._leave_unused()
        except BmqError:
            self._end()
        finally:
            if self._polling is asyncio.current_task():
                self._polling = None

    async def _poll_once(self) -> None:
        self._change()
        header = POLL_CALL.encode(
            PollCall(self._changes, limits.FOLLOWED_ANSWER_BYTES, int(limits.FOLLOWED_POLL_S * 1000))
        )
        news = await self._client.call(
            Api.FOLLOW_POLL, header, self._decode, timeout_s=limits.FOLLOWED_POLL_S + POLL_GRACE_S
        )
        known = [(tail, answer) for number, answer in news if (tail := self._by_number.get(number)) is not None]
        going_on = []
        now = self._loop.time()
        for tail, answer in known:
            tail.heard_at = now
            if answer.error is not None or tail.cached.end < answer.tail_start:
                self._leave(tail)
            else:
                going_on.append((tail.cached, answer))
        self._cache.add(going_on)
        for tail, answer in known:
            # What is news without bytes (a log start, a segment) is nobody's who has come to the end.
            if grown_bytes := answer.size_bytes + answer.unsent_bytes:
                self.waiters.wake(tail.cached.tp, grown_bytes=grown_bytes)

    def _decode(self, frame: Frame) -> list[tuple[int, TailAnswer]]:
        return decode_news(frame, self._partition_of)

    def _partition_of(self, number: int) -> TopicPartition | None:
        tail = self._by_number.get(number)
        return None if tail is None else tail.cached.tp

    def _leave_unused(self) -> None:
        since = self._loop.time() - limits.FOLLOWED_UNUSED_S
        for tail in [
            tail for tail in self._tails.values() if tail.used_at < since and not self.waiters.has(tail.cached.tp)
        ]:
            self._leave(tail)
            self._leaves.append(tail.number)
        if self._leaves:
            self._change_soon()

    def _end(self) -> None:
        """The session is over: its readers ask the owner itself."""
        self._follow_at = self._loop.time() + RETRY_S
        self._changes = 0
        self._change_due = False
        self._follows, self._leaves = [], []
        self._tails, self._by_number = {}, {}
        self.waiters.wake_all()


def _nothing(_: Frame) -> None:
    return None

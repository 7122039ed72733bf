"""Appends of several proxies to one broker: the greedy partitions' wait here for their turn, so that those of the modest need not.

A partition's appends stay in their order: what comes behind one that waits waits too, and what waits behind one that was refused is refused.
Each proxy sees to its own clients (bmq.fair_shares); only here are all of them seen.
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable
from functools import partial
from typing import Final

from bmq.errors import BmqError, NotOwner, NotReady
from bmq.fair_shares import Admitted, FairShares, Share
from bmq.roles.owner import Appended
from bmq.values import TopicPartition

SHARES_MAX: Final = 20_000
"""Partitions that are remembered; the one not written to for longest is forgotten first."""

Submit = Callable[[], "asyncio.Future[Appended]"]
"""To the owner. Raises BmqError, or its future does."""


class _Waiting:
    """An append that has yet to be submitted; `done` is what its caller got."""

    __slots__ = ("done", "size_bytes", "submit")

    def __init__(self, submit: Submit, size_bytes: int, done: "asyncio.Future[Appended]") -> None:
        self.submit = submit
        self.size_bytes = size_bytes
        self.done = done


class _Lane:
    """One partition's."""

    __slots__ = ("share", "waiting")

    def __init__(self) -> None:
        self.share: Share
        self.waiting: deque[_Waiting] = deque()


class FairAppends:
    """All appends of one broker."""

    def __init__(self, *, bytes_max: int) -> None:
        """`bytes_max`: what the broker takes of all proxies together."""
        self._loop = asyncio.get_running_loop()  # kept: asking for it is a system call
        self._shares = FairShares(sender_bytes_max=bytes_max, window_bytes_max=bytes_max)
        self._lanes: OrderedDict[TopicPartition, _Lane] = OrderedDict()

    def append(self, tp: TopicPartition, size_bytes: int, submit: Submit) -> "asyncio.Future[Appended]":
        """Submits now, or in its turn. Raises what `submit` raises, or the future does."""
        lane = self._lanes.get(tp)
        if lane is None:
            lane = self._open(tp)
        if not lane.waiting:
            now = self._loop.time()
            admitted = self._shares.admit(lane.share, size_bytes, now)
            if admitted is not None:
                return self._submit(lane, size_bytes, submit, admitted, now)
        done: asyncio.Future[Appended] = self._loop.create_future()
        lane.waiting.append(_Waiting(submit, size_bytes, done))
        return done

    def _open(self, tp: TopicPartition) -> _Lane:
        lane = _Lane()
        lane.share = self._shares.open(tp.topic_id, partial(self._go_on, lane))
        self._lanes[tp] = lane
        if len(self._lanes) > SHARES_MAX:
            oldest, idle = next(iter(self._lanes.items()))
            if idle.waiting or idle.share.held_bytes:
                self._lanes.move_to_end(oldest)
            else:
                del self._lanes[oldest]
                self._shares.close(idle.share, self._loop.time())
        return lane

    def _submit(self, lane: _Lane, size_bytes: int, submit: Submit, admitted: Admitted, now: float) -> "asyncio.Future[Appended]":
        try:
            future = submit()
        except BmqError:
            self._shares.over(lane.share, size_bytes, admitted, took_s=None, now=now)
            raise
        if future.done():
            self._shares.over(lane.share, size_bytes, admitted, took_s=None, now=now)
        else:
            future.add_done_callback(partial(self._over, lane, size_bytes, admitted, now))
        return future

    def _over(self, lane: _Lane, size_bytes: int, admitted: Admitted, began_s: float, future: "asyncio.Future[Appended]") -> None:
        if lane.waiting and not future.cancelled() and isinstance(future.exception(), NotOwner | NotReady):
            self._refuse_waiting(lane)
        now = self._loop.time()
        self._shares.over(lane.share, size_bytes, admitted, took_s=now - began_s, now=now)

    def _refuse_waiting(self, lane: _Lane) -> None:
        """An earlier batch is to be sent again: these must not be taken before it."""
        waiting, lane.waiting = lane.waiting, deque()
        for one in waiting:
            if not one.done.done():
                one.done.set_exception(NotReady("an earlier batch of the partition was refused and has to be sent again first"))
        self._shares.withdraw(lane.share, self._loop.time())

    def _go_on(self, lane: _Lane) -> None:
        """What waits, as far as it is let in."""
        while lane.waiting:
            first = lane.waiting[0]
            now = self._loop.time()
            admitted = self._shares.admit(lane.share, first.size_bytes, now)
            if admitted is None:
                return
            lane.waiting.popleft()
            try:
                future = self._submit(lane, first.size_bytes, first.submit, admitted, now)
            except BmqError as error:
                _fail(first, error)
                if isinstance(error, NotOwner | NotReady):
                    self._refuse_waiting(lane)
                continue
            if not future.done():
                future.add_done_callback(partial(_answered, first))
                continue
            _answered(first, future)
            if not future.cancelled() and isinstance(future.exception(), NotOwner | NotReady):
                self._refuse_waiting(lane)


def _answered(one: _Waiting, future: "asyncio.Future[Appended]") -> None:
    if future.cancelled():
        one.done.cancel()
    elif (error := future.exception()) is not None:
        _fail(one, error)
    elif not one.done.done():
        one.done.set_result(future.result())


def _fail(one: _Waiting, error: BaseException) -> None:
    if not one.done.done():
        one.done.set_exception(error)

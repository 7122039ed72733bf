"""Time-outs of very many requests, nearly all of which are answered long before.

A timer of the loop for each would be made and cancelled each time. Those of one length are due in the order in which
they were asked for, so they stand in one queue, with a timer for its first.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

WITHDRAWN_MAX: Final = 64
"""So many withdrawn ones stay in a queue, or as many as others are in it."""


class TimeOut:
    """One of them."""

    __slots__ = ("at_s", "call", "queue")

    def __init__(self, queue: "_Queue", at_s: float, call: Callable[[], None]) -> None:
        self.queue: _Queue | None = queue
        """None: it is due."""
        self.at_s = at_s
        """The loop's time."""
        self.call: Callable[[], None] | None = call
        """None: it was told, or is withdrawn."""

    def cancel(self) -> None:
        """It is waited for no more."""
        if self.call is not None:
            self.call = None
            if self.queue is not None:
                self.queue.is_withdrawn()

    def tell(self) -> None:
        """It is due."""
        call, self.call = self.call, None
        if call is not None:
            call()


class TimeOuts:
    """One proxy's."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._queues: dict[int, _Queue] = {}
        """By their length, in ms. A client says it, so one that nothing is waited for in is forgotten."""

    def add(self, after_ms: int, call: Callable[[], None]) -> TimeOut:
        """Calls it after so long, unless it is cancelled before."""
        queue = self._queues.get(after_ms)
        if queue is None:
            queue = self._queues[after_ms] = _Queue(self._loop, lambda: self._queues.pop(after_ms))
        return queue.add(self._loop.time() + after_ms / 1000, call)


class _Queue:
    """Those of one length."""

    __slots__ = ("_emptied", "_loop", "_timer", "_times", "_withdrawn")

    def __init__(self, loop: asyncio.AbstractEventLoop, emptied: Callable[[], object]) -> None:
        self._loop = loop
        self._emptied = emptied
        self._times: deque[TimeOut] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._withdrawn = 0

    def add(self, at_s: float, call: Callable[[], None]) -> TimeOut:
        if self._timer is None:
            self._timer = self._loop.call_at(at_s, self._due)
        one = TimeOut(self, at_s, call)
        self._times.append(one)
        return one

    def is_withdrawn(self) -> None:
        """One more of them. The first stays, for which there is a timer."""
        self._withdrawn += 1
        if self._withdrawn == len(self._times):
            assert self._timer is not None
            self._timer.cancel()
            self._times.clear()
            self._emptied()
        elif self._withdrawn > WITHDRAWN_MAX and 2 * self._withdrawn > len(self._times):
            first = self._times.popleft()
            self._times = deque((first, *(one for one in self._times if one.call is not None)))
            self._withdrawn = int(first.call is None)

    def _due(self) -> None:
        now_s = self._loop.time()
        while self._times and (self._times[0].call is None or self._times[0].at_s <= now_s):
            one = self._times.popleft()
            one.queue = None
            if one.call is None:
                self._withdrawn -= 1
            else:
                self._loop.call_soon(one.tell)  # each by itself, whatever comes of the others
        if self._times:
            self._timer = self._loop.call_at(self._times[0].at_s, self._due)
        else:
            self._emptied()

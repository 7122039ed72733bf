"""Counted memory: who wants bytes asks first and waits its turn. Owns no memory itself."""

import asyncio
from collections import deque
from collections.abc import Callable


class MemoryBudget:
    """Bytes that may be held at one time, for all connections of a process together.

    `hold` never fails and may overdraw: it is for what is already there (a frame that was read). Who reads asks `has_room` first and
    leaves a callback with `when_room`. `reserve` waits, first come first served, and is for what is about to be allocated.
    """

    def __init__(self, limit_bytes: int) -> None:
        assert limit_bytes > 0
        self.limit_bytes = limit_bytes
        self.held_bytes = 0
        self._callbacks: deque[Callable[[], None]] = deque()
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @property
    def has_room(self) -> bool:
        """Whether more may be read."""
        return self.held_bytes < self.limit_bytes

    def hold(self, size_bytes: int) -> None:
        """Counts bytes that are already there."""
        self.held_bytes += size_bytes

    def when_room(self, callback: Callable[[], None]) -> None:
        """Calls back once, as soon as there is room; never at once."""
        self._callbacks.append(callback)

    def take_up_to(self, wanted_bytes: int, least_bytes: int) -> int:
        """Holds and returns between `least_bytes` and `wanted_bytes`; 0 where there is not even that much or somebody waits."""
        room = self.limit_bytes - self.held_bytes
        if self._waiting or room < min(least_bytes, wanted_bytes):
            return 0
        taken = min(wanted_bytes, room)
        self.held_bytes += taken
        return taken

    async def reserve(self, size_bytes: int) -> None:
        """Holds `size_bytes` once they fit. More than the whole budget is given when nothing else is held."""
        if not self._waiting and self._fits(size_bytes):
            self.held_bytes += size_bytes
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append((size_bytes, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.release(size_bytes)
            else:
                self._waiting = deque(entry for entry in self._waiting if entry[1] is not turn)
                self._wake()
            raise

    def release(self, size_bytes: int) -> None:
        """Gives bytes back."""
        self.held_bytes -= size_bytes
        assert self.held_bytes >= 0
        self._wake()

    def _fits(self, size_bytes: int) -> bool:
        return self.held_bytes + size_bytes <= self.limit_bytes or self.held_bytes == 0

    def _wake(self) -> None:
        while self._waiting and (self._waiting[0][1].done() or self._fits(self._waiting[0][0])):
            size_bytes, turn = self._waiting.popleft()
            if not turn.done():
                self.held_bytes += size_bytes
                turn.set_result(None)
        while self._callbacks and self.has_room:
            self._callbacks.popleft()()

"""Counted memory: who wants bytes asks first and waits its turn. Owns no memory itself."""

import asyncio
from collections import deque
from collections.abc import Callable


class MemoryBudget:
    """Bytes that may be held at one time, for all connections of a process together.

    Who wants some `ask`s or `reserve`s, first come first served. `hold` never fails and may overdraw: it is for what is
    already there. More than the whole budget is given when nothing else is held.
    """

    def __init__(self, limit_bytes: int) -> None:
        assert limit_bytes > 0
        self.limit_bytes = limit_bytes
        self.held_bytes = 0
        self.refusals = 0
        """How often somebody could not have at once what it wanted: who looks how this grows knows whether memory is
        short."""
        self._waiting: deque[tuple[int, Callable[[], bool]]] = deque()

    @property
    def has_room(self) -> bool:
        """Whether more may be read: something is left, and nobody waits for it."""
        return self.held_bytes < self.limit_bytes and not self._waiting

    @property
    def is_waited_for(self) -> bool:
        """Whether somebody wants more than there is."""
        return bool(self._waiting)

    def hold(self, size_bytes: int) -> None:
        """Counts bytes that are already there."""
        self.held_bytes += size_bytes

    def correct(self, held_bytes: int, size_bytes: int) -> None:
        """Counts what there really is, `size_bytes`, instead of the `held_bytes` that were held for it."""
        if size_bytes > held_bytes:
            self.hold(size_bytes - held_bytes)
        elif size_bytes < held_bytes:
            self.release(held_bytes - size_bytes)

    def take_up_to(self, wanted_bytes: int, least_bytes: int) -> int:
        """Holds and returns between `least_bytes` and `wanted_bytes`; 0 where there is not even that much or somebody
        waits.
        """
        room = self.limit_bytes - self.held_bytes
        if self._waiting or room < min(least_bytes, wanted_bytes):
            self.refusals += 1
            return 0
        taken = min(wanted_bytes, room)
        self.held_bytes += taken
        return taken

    def ask(self, size_bytes: int, granted: Callable[[], bool]) -> bool:
        """Holds `size_bytes` now and says True, or later and calls `granted`; which says False where they are not
        wanted any more.
        """
        if not self._waiting and self._fits(size_bytes):
            self.held_bytes += size_bytes
            return True
        self._waiting.append((size_bytes, granted))
        return False

    def withdraw(self, granted: Callable[[], bool]) -> None:
        """Who asked with this callback does not want it any more, and holds up nobody."""
        self._waiting = deque(entry for entry in self._waiting if entry[1] != granted)
        self._wake()

    async def reserve(self, size_bytes: int) -> None:
        """Holds `size_bytes` once they fit."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def granted() -> bool:
            if turn.done():
                return False
            turn.set_result(None)
            return True

        if self.ask(size_bytes, granted):
            return
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.release(size_bytes)
            else:
                self.withdraw(granted)
            raise

    def release(self, size_bytes: int) -> None:
        """Gives bytes back."""
        self.held_bytes -= size_bytes
        assert self.held_bytes >= 0
        self._wake()

    def _fits(self, size_bytes: int) -> bool:
        return self.held_bytes + size_bytes <= self.limit_bytes or self.held_bytes == 0

    def _wake(self) -> None:
        while self._waiting and self._fits(self._waiting[0][0]):
            size_bytes, granted = self._waiting.popleft()
            self.held_bytes += size_bytes
            if not granted():
                self.held_bytes -= size_bytes

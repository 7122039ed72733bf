"""Counted memory: who wants bytes asks first and waits its turn. Owns no memory itself."""

import asyncio
from collections import OrderedDict


class MemoryBudget:
    """Bytes that may be held at one time, for all connections of a process together.

    Who wants some `reserve`s it, first come first served. `hold` never fails and may overdraw: it is for what is
    already there. More than the whole budget is given when nothing else is held.
    """

    def __init__(self, limit_bytes: int) -> None:
        assert limit_bytes > 0
        self.limit_bytes = limit_bytes
        self.held_bytes = 0
        self.refusals = 0
        """How often somebody could not have at once what it wanted: who looks how this grows knows whether memory is
        short."""
        self._waiting: OrderedDict[asyncio.Future[None], int] = OrderedDict()
        """How much each wants, who waits longest first."""

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

    async def reserve(self, size_bytes: int) -> None:
        """Holds `size_bytes` once they fit."""
        if not self._waiting and self._fits(size_bytes):
            self.held_bytes += size_bytes
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[turn] = size_bytes
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.held_bytes -= size_bytes
            else:
                self._waiting.pop(turn, None)
            self._wake()  # who gave up holds up nobody
            raise

    def release(self, size_bytes: int) -> None:
        """Gives bytes back."""
        self.held_bytes -= size_bytes
        assert self.held_bytes >= 0
        self._wake()

    def _fits(self, size_bytes: int) -> bool:
        return self.held_bytes + size_bytes <= self.limit_bytes or self.held_bytes == 0

    def _wake(self) -> None:
        while self._waiting:
            turn, size_bytes = next(iter(self._waiting.items()))
            if not self._fits(size_bytes):
                return
            del self._waiting[turn]
            if not turn.done():
                self.held_bytes += size_bytes
                turn.set_result(None)

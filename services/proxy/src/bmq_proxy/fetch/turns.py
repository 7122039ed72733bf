"""Turns of those who read much from segments, or from owners in other processes, while there is anybody modest to
protect: what they read takes the store's, the connections' and the machine's time.

Each address has its turn after every other one, and each client in those of its address: who makes up many client ids
has no more turns than who has one. Who reads little, or what is here of the tail, never waits here.
"""

import asyncio

from bmq.fairness.greedy_window import Modest
from bmq.fairness.turns import Party, Rotation
from bmq_proxy import metrics


class Turn:
    """So many bytes that are being read. To be told when it is `over`, once."""

    __slots__ = ("_began_s", "_turns", "size_bytes")

    def __init__(self, turns: "ReadTurns", size_bytes: int, began_s: float) -> None:
        self._turns = turns
        self._began_s = began_s
        self.size_bytes = size_bytes

    def over(self) -> None:
        """It is read, or failed."""
        self._turns.over(self.size_bytes, self._began_s)


class ReadTurns:
    """All reads of one proxy."""

    def __init__(self, modest: Modest, *, bytes_max: int) -> None:
        """`bytes_max`: what may be read at one time while there are others to protect; what is larger by itself."""
        self._loop = asyncio.get_running_loop()
        self._modest = modest
        self.window = modest.window(bytes_max=bytes_max, call_at=self._loop.call_at)
        metrics.FETCH_WINDOW.set_function(lambda: self.window.size_bytes)
        self._waiting: Rotation[tuple[int, asyncio.Future[Turn]]] = Rotation()

    @property
    def are_due(self) -> bool:
        """Whether there is anybody to protect: who reads much takes a turn first."""
        return self._modest.are_there(self._loop.time())

    def at_most(self, size_bytes: int) -> int:
        """How much of so much should be read in one turn."""
        return min(size_bytes, self.window.size_bytes) if self.are_due else size_bytes

    def begin(self, size_bytes: int) -> Turn | None:
        """A turn at once, or None: there is one to be waited for."""
        now = self._loop.time()
        if self._modest.are_there(now) and (self._waiting or not self.window.fits(size_bytes, now)):
            return None
        return self._begin(size_bytes, now)

    async def wait(self, party: Party, size_bytes: int) -> Turn:
        """A turn, behind those of the others: of other addresses, and of other clients of the same."""
        turn: asyncio.Future[Turn] = self._loop.create_future()
        self._waiting.push((size_bytes, turn), party=party[0], sender=party[1])
        self._let_in(self._loop.time())
        try:
            return await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                turn.result().over()
            else:
                self._waiting.discard((size_bytes, turn), party=party[0], sender=party[1])
            raise

    def over(self, size_bytes: int, began_s: float) -> None:
        """A turn's."""
        now = self._loop.time()
        self.window.over(size_bytes, took_s=now - began_s, now=now)
        self._let_in(now)

    def _begin(self, size_bytes: int, now: float) -> Turn:
        self.window.began(size_bytes)
        return Turn(self, size_bytes, now)

    def _let_in(self, now: float) -> None:
        while self._waiting:
            size_bytes, turn = self._waiting.first
            if not turn.cancelled():
                if self._modest.are_there(now) and not self.window.fits(size_bytes, now):
                    self.window.tell_rested(self._let_in)
                    break
                turn.set_result(self._begin(size_bytes, now))
            self._waiting.pop()

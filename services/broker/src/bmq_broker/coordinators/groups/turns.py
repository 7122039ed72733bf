"""Steps of groups that are much work for a few bytes of a request: to write a whole generation anew, to describe it, to
delete what a group has.

So much of them in each turn of the loop, whoever asks for them.
"""

import asyncio
from collections.abc import Callable, Hashable
from typing import Final

from bmq.fairness.turns import Rotation

TURN_BYTES: Final = 256 * 1024
"""As many bytes of generations are written in one turn, a few ms; one alone may have more."""


class Turns:
    """Gives steps of all coordinators of a broker their turns. Who waits goes by turns of parties, the addresses of
    clients; coordinators themselves are one party.
    """

    def __init__(self) -> None:
        self._used_bytes = 0
        self._waiting: Rotation[tuple[int, asyncio.Future[None]]] = Rotation()
        self._is_running = False

    async def take(self, size_bytes: int, *, party: Hashable = None) -> None:
        """Returns in a turn that has room for so much."""
        if not size_bytes:
            return
        if not self._waiting and self._has_room(size_bytes):
            self.spend(size_bytes)
            return
        await self._enter(size_bytes, party)

    def then(self, size_bytes: int, step: Callable[[], None]) -> None:
        """Does a coordinator's own step in a turn that has room for so much: now, or later."""
        if not self._waiting and self._has_room(size_bytes):
            self.spend(size_bytes)
            step()
        else:
            self._enter(size_bytes, None).add_done_callback(lambda _: step())

    def spend(self, size_bytes: int) -> None:
        """So much of this turn is used."""
        self._used_bytes += size_bytes
        if not self._is_running:
            self._is_running = True
            asyncio.get_running_loop().call_soon(self._next)

    @property
    def is_spent(self) -> bool:
        """Whether nothing more is to be done in this turn."""
        return self._used_bytes >= TURN_BYTES

    def _enter(self, size_bytes: int, party: Hashable) -> "asyncio.Future[None]":
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.push((size_bytes, turn), party=party)
        return turn

    def _has_room(self, size_bytes: int) -> bool:
        return not self._used_bytes or self._used_bytes + size_bytes <= TURN_BYTES

    def _next(self) -> None:
        self._is_running = False
        self._used_bytes = 0
        while self._waiting and self._has_room(self._waiting.first[0]):
            size_bytes, turn = self._waiting.pop()
            if not turn.done():
                turn.set_result(None)
                self.spend(size_bytes)

"""How much wide work is under way, and whose is let in next: by turns of addresses, and of their connections."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final, TypeVar

from bmq.fairness.fair_room import FairRoom
from bmq.fairness.turns import Places, Rotation
from bmq_proxy.calls import Call

T = TypeVar("T")

PASSED_OVER_MAX: Final = 100
"""So many addresses that have their part already are passed over at a time."""


class Admission:
    """So much at a time; what is larger than that alone. An address has no more of it than it leaves, as it may be held
    for long. Nobody passes who waits, but by its turn, or where it waits for what its own address has.
    """

    def __init__(self, limit: int) -> None:
        assert limit > 0
        self._limit = limit
        self._room = FairRoom(limit)
        self._waiting: Rotation[tuple[int, asyncio.Future[None]]] = Rotation()

    def has_room(self, call: Call, size: int) -> bool:
        """Whether a call that enters with so much does so at once."""
        return not self._waiting and self._fits(size, call.client_host)

    async def enter(self, call: Call, size: int) -> "Admitted":
        """Once there is room for so much of a call's work; who enters says `keep(0)` in the end."""
        await self._enter(call, size)
        return Admitted(self, size, call.client_host)

    @asynccontextmanager
    async def admitted(self, call: Call, size: int) -> AsyncIterator["Admitted"]:
        """While so much of a call's work is done."""
        admitted = await self.enter(call, size)
        try:
            yield admitted
        finally:
            admitted.keep(0)

    def release(self, size: int, *, address: str) -> None:
        """For what was admitted."""
        self._room.give_back(size, address=address)
        self._let_in()

    async def _enter(self, call: Call, size: int) -> None:
        address = call.client_host
        if self.has_room(call, size):
            self._room.take(size, address=address)
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.push((size, turn), party=address, sender=call.origin)
        self._let_in()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._room.give_back(size, address=address)
            else:
                # Whose turn comes late may be many, and all of them gone: nothing is kept of those.
                self._waiting.discard((size, turn), party=address, sender=call.origin)
            self._let_in()
            raise

    def _fits(self, size: int, address: str) -> bool:
        return self._room.left == self._limit or self._room.has(size, address=address)

    def _let_in(self) -> None:
        passed_over, parties = 0, self._waiting.parties
        while self._waiting and passed_over < min(parties, PASSED_OVER_MAX):
            size, turn = self._waiting.first
            address = self._waiting.first_party
            assert isinstance(address, str)
            if turn.done():
                self._waiting.pop()
            elif self._fits(size, address):
                self._waiting.pop()
                self._room.take(size, address=address)
                turn.set_result(None)
            elif size > self._room.left:
                return  # what is large has its turn, too: the others wait until there is room for it
            else:
                self._waiting.pass_over()
                passed_over += 1


class ByAddress:
    """So many pieces of work of each address at a time. What waits is let in by turns of connections, and holds up no
    other address.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._places: dict[str, Places] = {}

    async def run(self, call: Call, work: Callable[[], Awaitable[T]]) -> T:
        """The result of one piece of a call's work. Raises what it raises."""
        address = call.client_host
        places = self._places.get(address)
        if places is None:
            places = self._places[address] = Places(self._limit)
        try:
            async with places.holding(sender=call.origin):
                return await work()
        finally:
            if places.is_idle:
                self._places.pop(address, None)


class Admitted:
    """What one piece of work holds."""

    __slots__ = ("_address", "_admission", "_size")

    def __init__(self, admission: Admission, size: int, address: str) -> None:
        self._admission = admission
        self._size = size
        self._address = address

    def keep(self, size: int) -> None:
        """It needs no more than this of what it asked for."""
        if size < self._size:
            before, self._size = self._size, size
            self._admission.release(before - size, address=self._address)

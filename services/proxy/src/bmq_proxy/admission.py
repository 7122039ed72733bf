"""How much wide work is under way, and whose is let in next: by turns of addresses, and of their connections."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final, TypeVar

from bmq.fairness.fair_room import FairRoom
from bmq.fairness.turns import Places, Rotation
from bmq_proxy.calls import Call

T = TypeVar("T")

PASSED_OVER_MAX: Final = 100
"""So many addresses that have their part already are passed over at a time."""
SMALL_SHARE: Final = 32
"""What is no more than this part of the room is small."""
BESIDE_SHARE: Final = 8
"""Room for what is small and would have to wait, beside all else: such a part more."""


@dataclass(slots=True, eq=False)
class _Waiting:
    size: int
    address: str
    sender: Hashable
    turn: asyncio.Future[None]
    room: FairRoom
    """Where it is let in."""


class Admission:
    """So much at a time. What is larger than half of it counts as half: however much one piece of work is, and however
    long it takes, there is room for others beside it. An address has no more of it than it leaves, as it may be held
    for long. Nobody passes who waits, but by its turn, or where it waits for what its own address has; and what is
    small, for which there is some room beside: who may hold up others by as much as it wants holds up no small thing.
    """

    def __init__(self, limit: int) -> None:
        assert limit > 0
        self._limit = limit
        self._most = max(1, limit // 2)
        """As how much one piece of work counts at most."""
        self._room = FairRoom(limit)
        self._beside = FairRoom(limit // BESIDE_SHARE)
        self._waiting: Rotation[_Waiting] = Rotation()
        self._small: Rotation[_Waiting] = Rotation()
        """Those of them that are small."""

    def has_room(self, call: Call, size: int) -> bool:
        """Whether a call that enters with so much does so at once."""
        return self._room_for(min(size, self._most), call.client_host) is not None

    async def enter(self, call: Call, size: int) -> "Admitted":
        """Once there is room for so much of a call's work; who enters says `keep(0)` in the end."""
        size = min(size, self._most)
        room = await self._enter(call, size)
        return Admitted(self, room, size, call.client_host)

    @asynccontextmanager
    async def admitted(self, call: Call, size: int) -> AsyncIterator["Admitted"]:
        """While so much of a call's work is done."""
        admitted = await self.enter(call, size)
        try:
            yield admitted
        finally:
            admitted.keep(0)

    def release(self, room: FairRoom, size: int, *, address: str) -> None:
        """For what was admitted."""
        room.give_back(size, address=address)
        self._let_in()

    async def _enter(self, call: Call, size: int) -> FairRoom:
        address = call.client_host
        room = self._room_for(size, address)
        if room is not None:
            room.take(size, address=address)
            return room
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting = _Waiting(size, address, call.origin, turn, self._room)
        for queue in self._queues(size):
            queue.push(waiting, party=address, sender=call.origin)
        self._let_in()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                waiting.room.give_back(size, address=address)
            else:
                # Whose turn comes late may be many, and all of them gone: nothing is kept of those.
                self._take_out(waiting)
            self._let_in()
            raise
        return waiting.room

    def _room_for(self, size: int, address: str) -> FairRoom | None:
        """Where so much finds room at once."""
        if not self._waiting and self._room.has(size, address=address):
            return self._room
        return self._beside if self._is_small(size) and self._beside.has(size, address=address) else None

    def _is_small(self, size: int) -> bool:
        return size * SMALL_SHARE <= self._limit

    def _queues(self, size: int) -> tuple[Rotation[_Waiting], ...]:
        return (self._waiting, self._small) if self._is_small(size) else (self._waiting,)

    def _take_out(self, waiting: _Waiting, *, popped: Rotation[_Waiting] | None = None) -> None:
        """It waits in no queue any more; of one it may have been popped."""
        for queue in self._queues(waiting.size):
            if queue is not popped:
                queue.discard(waiting, party=waiting.address, sender=waiting.sender)

    def _let_in(self) -> None:
        self._let_in_by_turn()
        passed_over, parties = 0, self._small.parties
        while self._small and passed_over < min(parties, PASSED_OVER_MAX):
            waiting = self._small.first
            if waiting.turn.done():
                self._take_out(waiting)
            elif self._beside.has(waiting.size, address=waiting.address):
                self._begin(self._small.pop(), self._beside, popped=self._small)
            else:
                self._small.pass_over()
                passed_over += 1

    def _let_in_by_turn(self) -> None:
        passed_over, parties = 0, self._waiting.parties
        while self._waiting and passed_over < min(parties, PASSED_OVER_MAX):
            waiting = self._waiting.first
            if waiting.turn.done():
                self._take_out(waiting)
            elif self._room.has(waiting.size, address=waiting.address):
                self._begin(self._waiting.pop(), self._room, popped=self._waiting)
            elif waiting.size > self._room.left and self._room.has_beside_own(waiting.size, address=waiting.address):
                return  # what is large has its turn, too: the others wait until there is room for it
            else:
                self._waiting.pass_over()
                passed_over += 1

    def _begin(self, waiting: _Waiting, room: FairRoom, *, popped: Rotation[_Waiting]) -> None:
        self._take_out(waiting, popped=popped)
        waiting.room = room
        room.take(waiting.size, address=waiting.address)
        waiting.turn.set_result(None)


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

    __slots__ = ("_address", "_admission", "_room", "_size")

    def __init__(self, admission: Admission, room: FairRoom, size: int, address: str) -> None:
        self._admission = admission
        self._room = room
        self._size = size
        self._address = address

    def keep(self, size: int) -> None:
        """It needs no more than this of what it asked for."""
        if size < self._size:
            before, self._size = self._size, size
            self._admission.release(self._room, before - size, address=self._address)

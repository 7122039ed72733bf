"""The memory of whole requests, or of answers, for all connections of a proxy: while it is short an address that has
much of it is not read, or gets no further ones, and others are, and do.

A whole request is held until it is answered, which may take as long as the cluster and the store do, also where its
client has gone; an answer until it is taken, as slowly as a client may. A bound over all of them alone would let one
address keep everybody else waiting.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Final

from bmq.fairness.turns import Rotation

OWN_SHARE: Final = 3
"""An address is read while it has less than so many times what is free: one alone takes three quarters, so that its
greedy producers, who have half, leave something to its others; two that take all they can leave a seventh to a third
one."""
ROOMS_AT_ONCE: Final = 8
"""Who hears that there is room takes nothing at once: so many hear it in one turn of the loop, and the next when those
have read."""
PASSED_OVER_MAX: Final = 64
"""Addresses without room that are passed over at a time: each of them gives something back later, and then the next
ones are looked at."""


class FairMemory:
    """Counts; owns no memory itself. What is there is held, and may overdraw; room is only ever asked for to read
    on. One request may be larger than all of it: what an address overdraws is not taken from the others.
    """

    def __init__(self, limit_bytes: int) -> None:
        assert limit_bytes > 0
        self.limit_bytes = limit_bytes
        self.held_bytes = 0
        self._own_max = limit_bytes * OWN_SHARE // (OWN_SHARE + 1)
        """What an address takes of the others' at most."""
        self._counted_bytes = 0
        """What all have, without what they overdraw."""
        self._held: dict[str, int] = {}
        self._waiting: Rotation[Callable[[], None]] = Rotation()
        self._waits: Counter[str] = Counter()
        self._rooms = 0

    @property
    def is_waited_for(self) -> bool:
        """Whether somebody wants more than there is."""
        return bool(self._waiting)

    @property
    def has_room(self) -> bool:
        """Whether an address that has nothing yet is read."""
        return self._counted_bytes < self.limit_bytes

    def of(self, address: str) -> "OwnMemory":
        """What connections of an address have to do with it."""
        return OwnMemory(self, address)

    def has_room_for(self, address: str) -> bool:
        """Whether more may be read of it. Its connections that wait are first."""
        return address not in self._waits and self.fits(address)

    def hold(self, address: str, size_bytes: int) -> None:
        """Counts bytes that are there."""
        before_bytes = self._held.get(address, 0)
        self._held[address] = before_bytes + size_bytes
        self.held_bytes += size_bytes
        if before_bytes + size_bytes > self._own_max:
            size_bytes = max(0, self._own_max - before_bytes)
        self._counted_bytes += size_bytes

    def release(self, address: str, size_bytes: int) -> None:
        """Gives bytes back."""
        before_bytes = self._held[address]
        assert before_bytes >= size_bytes
        if before_bytes == size_bytes:
            del self._held[address]
        else:
            self._held[address] = before_bytes - size_bytes
        self.held_bytes -= size_bytes
        if before_bytes > self._own_max:  # what was beyond that did not count
            size_bytes = max(0, self._own_max - (before_bytes - size_bytes))
        self._counted_bytes -= size_bytes
        if self._waiting:
            self._wake()

    async def room_for(self, address: str) -> None:
        """Returns when the address may have more."""
        if self.has_room_for(address):
            return
        turn = asyncio.Event()
        self.wait(address, turn.set)
        try:
            await turn.wait()
        except asyncio.CancelledError:
            if not turn.is_set():
                self.withdraw(address, turn.set)
            raise

    def wait(self, address: str, room: Callable[[], None]) -> None:
        """Calls it, once, when there is room."""
        self._waits[address] += 1
        self._waiting.push(room, party=address, sender=room)

    def withdraw(self, address: str, room: Callable[[], None]) -> None:
        """Who waits does not want it any more."""
        self._waiting.discard(room, party=address, sender=room)
        self._waited(address)
        self._wake()

    def fits(self, address: str) -> bool:
        """Whether it may have more, whoever of it waits."""
        return self._held.get(address, 0) < OWN_SHARE * (self.limit_bytes - self._counted_bytes)

    def _waited(self, address: str) -> None:
        self._waits[address] -= 1
        if not self._waits[address]:
            del self._waits[address]

    def _wake(self) -> None:
        passed_over, parties = 0, self._waiting.parties
        while (
            self._waiting
            and self.has_room
            and self._rooms < ROOMS_AT_ONCE
            and passed_over < min(parties, PASSED_OVER_MAX)
        ):
            address = self._waiting.first_party
            assert isinstance(address, str)
            if not self.fits(address):
                passed_over += 1
                self._waiting.pass_over()
                continue
            if not self._rooms:
                asyncio.get_running_loop().call_soon(self._next_rooms)
            self._rooms += 1
            room = self._waiting.pop()
            self._waited(address)
            room()

    def _next_rooms(self) -> None:
        self._rooms = 0
        self._wake()


class OwnMemory:
    """An address's part of it, as a connection asks for it."""

    __slots__ = ("_address", "_memory", "hold", "release")

    def __init__(self, memory: FairMemory, address: str) -> None:
        self._memory = memory
        self._address = address
        self.hold: Callable[[int], None] = partial(memory.hold, address)
        """Counts bytes that are there."""
        self.release: Callable[[int], None] = partial(memory.release, address)
        """Gives bytes back."""

    @property
    def has_room(self) -> bool:
        """Whether more may be read: `has_room_for`, asked some times for each request."""
        memory, address = self._memory, self._address
        return address not in memory._waits and memory._held.get(address, 0) < OWN_SHARE * (
            memory.limit_bytes - memory._counted_bytes
        )

    def wait(self, room: Callable[[], None]) -> None:
        """Calls it, once, when there is room."""
        self._memory.wait(self._address, room)

    def withdraw(self, room: Callable[[], None]) -> None:
        """Who waits does not want it any more."""
        self._memory.withdraw(self._address, room)

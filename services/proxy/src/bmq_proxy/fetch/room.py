"""Memory of one read beyond what is planned: for what owners in other processes send, counted before it is fetched
until it is counted with the answer, and for first batches, which come whole however large they are.
"""

import asyncio
from typing import Final, Protocol

from bmq.fairness.turns import Party
from bmq_proxy.budget import MemoryBudget
from bmq_proxy.fetch.answers import Result
from bmq_proxy.fetch.turns import ReadTurns, Turn


class Asked:
    """Implements TailRoom: one read's. Where more than `small_bytes` are only read in turns there is no room for them
    before.
    """

    __slots__ = ("_held_bytes", "_memory", "_small_bytes", "_turns")

    def __init__(self, memory: MemoryBudget, turns: ReadTurns, *, small_bytes: int) -> None:
        self._memory = memory
        self._turns = turns
        self._small_bytes = small_bytes
        self._held_bytes = 0

    def take(self, size_bytes: int) -> bool:
        """Holds so much; False where there is no room, or so much is only read in turns."""
        if size_bytes > self._small_bytes and self._turns.are_due:
            return False
        if not self._memory.take_up_to(size_bytes, size_bytes):
            return False
        self._held_bytes += size_bytes
        return True

    def settle(self, taken_bytes: int, size_bytes: int) -> None:
        """Counts `size_bytes`, which came, instead of the `taken_bytes` that were taken for them."""
        self._held_bytes += size_bytes - taken_bytes
        self._memory.correct(taken_bytes, size_bytes)

    def leave(self) -> None:
        """Gives back all that this read holds."""
        held, self._held_bytes = self._held_bytes, 0
        if held:
            self._memory.release(held)


class NoRoom:
    """Implements TailRoom: for who only wants to know what there is."""

    def take(self, size_bytes: int) -> bool:
        """There is never room."""
        return False

    def settle(self, taken_bytes: int, size_bytes: int) -> None:
        """Counts nothing."""

    def leave(self) -> None:
        """Has nothing to give back."""


NO_ROOM: Final = NoRoom()


class LargerRoom(Protocol):
    """Room for a first batch that is larger than what was planned for it."""

    refused: bool
    """Whether there was none."""

    async def take(self, size_bytes: int) -> bool:
        """Whether so many bytes more may be read, which count from now on."""


class Larger:
    """Implements LargerRoom: what it takes counts with the answer, and much of it is read in a turn."""

    def __init__(
        self, result: Result, turns: ReadTurns | None, party: Party, *, small_bytes: int, wait_s: float
    ) -> None:
        """`turns`: None where it is read in one already."""
        self.refused = False
        self._result = result
        self._turns = turns
        self._party = party
        self._small_bytes = small_bytes
        self._wait_s = wait_s
        self._turn: Turn | None = None

    async def take(self, size_bytes: int) -> bool:
        """Waits its turn, and for the memory; not for longer than it may."""
        try:
            async with asyncio.timeout(self._wait_s):
                if self._turns is not None and self._turn is None and size_bytes > self._small_bytes:
                    self._turn = self._turns.begin(size_bytes) or await self._turns.wait(self._party, size_bytes)
                await self._result.memory.reserve(size_bytes)
        except TimeoutError:
            self.refused = True
            return False
        self._result.held_bytes += size_bytes
        return True

    def over(self) -> None:
        """It is read, or was not."""
        turn, self._turn = self._turn, None
        if turn is not None:
            turn.over()


class Spare:
    """Implements LargerRoom: of an answer that has memory for so many bytes more, and waits for none."""

    def __init__(self, left_bytes: int) -> None:
        self.refused = False
        self._left_bytes = left_bytes

    def take_at_once(self, size_bytes: int) -> bool:
        """Whether they fit."""
        self.refused = size_bytes > self._left_bytes
        if not self.refused:
            self._left_bytes -= size_bytes
        return not self.refused

    async def take(self, size_bytes: int) -> bool:
        """Whether they fit; nobody waits here."""
        return self.take_at_once(size_bytes)

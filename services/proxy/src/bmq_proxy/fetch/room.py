"""Memory of one read, for what owners in other processes send: counted before it is fetched, until it is counted with
the answer.
"""

from typing import Final

from bmq_proxy.budget import MemoryBudget
from bmq_proxy.fetch.turns import ReadTurns


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

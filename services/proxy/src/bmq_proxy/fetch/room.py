"""Memory of one read, for what owners in other processes send: counted before it is fetched, until it is counted with the answer."""

from typing import Final

from bmq_proxy.budget import MemoryBudget


class Asked:
    """Implements TailRoom: one read's."""

    __slots__ = ("_held_bytes", "_memory")

    def __init__(self, memory: MemoryBudget) -> None:
        self._memory = memory
        self._held_bytes = 0

    def take(self, size_bytes: int) -> bool:
        """See TailRoom."""
        if not self._memory.take_up_to(size_bytes, size_bytes):
            return False
        self._held_bytes += size_bytes
        return True

    def settle(self, taken_bytes: int, size_bytes: int) -> None:
        """See TailRoom."""
        self._held_bytes += size_bytes - taken_bytes
        self._memory.correct(taken_bytes, size_bytes)

    def leave(self) -> None:
        """See TailRoom."""
        held, self._held_bytes = self._held_bytes, 0
        if held:
            self._memory.release(held)


class NoRoom:
    """Implements TailRoom: for who only wants to know what there is."""

    def take(self, size_bytes: int) -> bool:
        """See TailRoom."""
        return False

    def settle(self, taken_bytes: int, size_bytes: int) -> None:
        """See TailRoom."""

    def leave(self) -> None:
        """See TailRoom."""


NO_ROOM: Final = NoRoom()

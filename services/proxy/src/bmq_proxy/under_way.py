"""How many Produce requests a proxy has under way, and which connections wait until there are fewer. Pure.

Each takes some KiB however few bytes it has, until its outcome is known, also when its client is gone: while the store is slow, bytes alone would
bound nothing. Whoever waits here is not begun, and takes what it was sent.
"""

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

T = TypeVar("T")


class UnderWay(Generic[T]):
    """Of all connections. Those that wait go on by turns of addresses: as long as some do, no room is left unused."""

    def __init__(self, most: int) -> None:
        assert most > 0
        self._most = most
        self._count = 0
        self._waiting: OrderedDict[Hashable, OrderedDict[T, None]] = OrderedDict()
        """By address."""

    @property
    def count(self) -> int:
        """How many there are."""
        return self._count

    @property
    def has_room(self) -> bool:
        """Whether one more may begin."""
        return self._count < self._most

    def began(self) -> None:
        """One more."""
        self._count += 1

    def over(self) -> None:
        """One less."""
        self._count -= 1
        assert self._count >= 0

    def wait(self, connection: T, *, address: Hashable) -> None:
        """It is `next` once, when there is room."""
        self._waiting.setdefault(address, OrderedDict())[connection] = None

    def forget(self, connection: T, *, address: Hashable) -> None:
        """It is gone; what it has under way still counts."""
        waiting = self._waiting.get(address)
        if waiting is not None:
            waiting.pop(connection, None)
            if not waiting:
                del self._waiting[address]

    def next(self) -> T | None:
        """Who may go on; None: nobody waits, or there is no room."""
        if not self._waiting or not self.has_room:
            return None
        address, waiting = self._waiting.popitem(last=False)
        connection, _ = waiting.popitem(last=False)
        if waiting:
            self._waiting[address] = waiting
        return connection

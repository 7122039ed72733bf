"""How many Produce requests a proxy has under way, and which connections wait until there are fewer. Pure.

Each takes some KiB however few bytes it has, until its outcome is known, also when its client is gone: while the store is slow, bytes alone would
bound nothing. Whoever waits here is not begun, and takes what it was sent.

How long one is under way may be in the client's hands: batches that are to be opened wait for their turn, for as long as their time-out says. So
an address has no more of them than are free: one that takes all it can leaves half to the others, two leave a third.
"""

from collections import Counter, OrderedDict
from collections.abc import Hashable
from typing import Final, Generic, TypeVar

T = TypeVar("T")

LOOKED_AT_MAX: Final = 64
"""How many addresses that have too many are passed over when one is over: thousands may wait. When the next one is over, others are looked at."""


class UnderWay(Generic[T]):
    """Of all connections. Those that wait go on by turns of addresses."""

    def __init__(self, most: int) -> None:
        assert most > 0
        self._most = most
        self._count = 0
        self._by_address: Counter[Hashable] = Counter()
        self._waiting: OrderedDict[Hashable, OrderedDict[T, None]] = OrderedDict()
        """By address."""

    @property
    def count(self) -> int:
        """How many there are."""
        return self._count

    def has_room(self, address: Hashable) -> bool:
        """Whether one more of this address may begin. Where none is under way any address may: whoever waits goes on in the end."""
        return self._by_address[address] < self._most - self._count

    def began(self, address: Hashable) -> None:
        """One more."""
        self._count += 1
        self._by_address[address] += 1

    def over(self, address: Hashable) -> None:
        """One less."""
        self._count -= 1
        self._by_address[address] -= 1
        assert self._by_address[address] >= 0
        if not self._by_address[address]:
            del self._by_address[address]

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
        """Who may go on; None: nobody waits, or there is no room for those that were looked at."""
        for _ in range(min(len(self._waiting), LOOKED_AT_MAX)):
            address, waiting = self._waiting.popitem(last=False)
            if not self.has_room(address):
                self._waiting[address] = waiting
                continue
            connection, _ = waiting.popitem(last=False)
            if waiting:
                self._waiting[address] = waiting
            return connection
        return None

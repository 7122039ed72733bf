"""How many Produce requests a proxy has under way, and which connections wait until there are fewer. Pure.

Each takes some KiB however few bytes it has, until its outcome is known, also when its client is gone: while the store
is slow, bytes alone would bound nothing. Whoever waits here is not begun, and takes what it was sent.

How long one is under way may be in the client's hands: batches that are to be opened wait for their turn, for as long
as their time-out says. So an address has no more of them than are free (`bmq.fairness.fair_room`).
"""

from collections.abc import Hashable
from typing import Final, Generic, TypeVar

from bmq.fairness.fair_room import FairRoom
from bmq.fairness.turns import Rotation

T = TypeVar("T", bound=Hashable)

LOOKED_AT_MAX: Final = 64
"""How many addresses that have too many are passed over when one is over: thousands may wait. When the next one is
over, others are looked at."""


PARTITIONS_PER_REQUEST: Final = 4
"""A batch that is under way takes a quarter of what a request with one does."""


def _weight(partitions: int) -> int:
    return 1 if partitions <= 1 else 1 + (partitions - 1) // PARTITIONS_PER_REQUEST


class UnderWay(Generic[T]):
    """Counts the Produce requests that all connections have under way, those with batches for many partitions as
    several. Those that wait go on by turns of addresses.
    """

    def __init__(self, most: int) -> None:
        assert most > 0
        self._most = most
        self._room = FairRoom(most)
        self._waiting: Rotation[T] = Rotation()
        self._addresses: dict[T, Hashable] = {}
        """The address of each connection that waits."""

    @property
    def count(self) -> int:
        """As how many those count that there are."""
        return self._most - self._room.left

    @property
    def is_waited_for(self) -> bool:
        """Whether a connection waits."""
        return bool(self._addresses)

    def has_room(self, address: Hashable) -> bool:
        """Whether one more of this address may begin."""
        return self._room.has(1, address=address)

    def began(self, address: Hashable, *, partitions: int = 1) -> None:
        """One more, with batches for so many partitions."""
        self._room.take(_weight(partitions), address=address)

    def over(self, address: Hashable, *, partitions: int = 1) -> None:
        """One less."""
        self._room.give_back(_weight(partitions), address=address)

    def wait(self, connection: T, *, address: Hashable) -> None:
        """It is `next` once, when there is room."""
        if connection not in self._addresses:
            self._addresses[connection] = address
            self._waiting.push(connection, party=address, sender=connection)

    def forget(self, connection: T) -> None:
        """It is gone; what it has under way still counts."""
        if connection in self._addresses:
            self._waiting.discard(connection, party=self._addresses.pop(connection), sender=connection)

    def next(self) -> T | None:
        """Who may go on; None: nobody waits, or there is no room for those that were looked at."""
        for _ in range(min(self._waiting.parties, LOOKED_AT_MAX)):
            if self.has_room(self._addresses[self._waiting.first]):
                connection = self._waiting.pop()
                del self._addresses[connection]
                return connection
            self._waiting.pass_over()
        return None

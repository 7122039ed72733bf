"""Which connections of clients there are, and which one gives way where there are as many as there may be."""

from collections.abc import Iterator
from typing import Final

from bmq.fairness.fullest import Fullest
from bmq_proxy.connection import Connection

LOOKED_AT: Final = 16
"""So many of an address are looked at for the one that did nothing for longest: to look at all would take longer than
to open one."""


class OpenConnections:
    """In the order of their opening, which a seed replays."""

    def __init__(self) -> None:
        self._all: dict[Connection, None] = {}
        self._of: dict[str, dict[Connection, None]] = {}
        """Each address's, those first that were not looked at for longest."""
        self._counts: Fullest[str] = Fullest()

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[Connection]:
        return iter(self._all)

    def count_of(self, address: str) -> int:
        """How many an address has."""
        return len(self._of.get(address, ()))

    def add(self, connection: Connection) -> None:
        """It is open."""
        self._all[connection] = None
        self._of.setdefault(connection.peer, {})[connection] = None
        self._counts.take(connection.peer)

    def discard(self, connection: Connection) -> None:
        """It is open no more; nothing where that is known."""
        if connection not in self._all:
            return
        del self._all[connection]
        own = self._of[connection.peer]
        del own[connection]
        if not own:
            del self._of[connection.peer]
        self._counts.give_back(connection.peer)

    def gives_way_to(self, address: str) -> Connection | None:
        """One of the address that has most, for one more of `address`; None where that has as many itself."""
        if not self._all:
            return None
        own = self._of[self._counts.fullest]
        if len(own) <= self.count_of(address) + 1:
            return None
        looked_at = [connection for connection, _ in zip(own, range(LOOKED_AT), strict=False)]
        for connection in looked_at:
            own[connection] = own.pop(connection)  # others are looked at next
        return min(looked_at, key=lambda one: (not one.idle or one.is_answering, one.active_at))

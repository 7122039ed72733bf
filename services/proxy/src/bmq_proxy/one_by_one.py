"""Calls of one party, one after the other. What a member of a group is told may be megabytes, its coordinator says it
again as often as it is asked, and how much it is nobody knows before it is here.
"""

import asyncio
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager
from weakref import WeakValueDictionary


class OneByOne:
    """Keeps nothing of who has no call under way."""

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[Hashable, asyncio.Lock] = WeakValueDictionary()

    @asynccontextmanager
    async def alone(self, party: Hashable) -> AsyncIterator[None]:
        """Waits until those of the party before it are over; None: of nobody, and beside all."""
        if party is None:
            yield
            return
        lock = self._locks.get(party)
        if lock is None:
            lock = self._locks[party] = asyncio.Lock()
        async with lock:
            yield

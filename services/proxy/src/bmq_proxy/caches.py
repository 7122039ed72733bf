"""Caches that are bounded together: each lane has some of its own, and there may be a thousand lanes."""

from collections import OrderedDict
from typing import Final, Protocol

TOGETHER_BYTES: Final = 48 << 20
"""Of all of a proxy's."""


class Cache(Protocol):
    """One of them."""

    held_bytes: int

    def clear(self) -> None:
        """Lets go of everything."""


class CachesTogether:
    """The one that was used longest ago is emptied first. Pure."""

    def __init__(self) -> None:
        self.held_bytes = 0
        self._known: OrderedDict[Cache, int] = OrderedDict()

    def used(self, cache: Cache) -> None:
        """It was looked into, or has more, or less."""
        self.held_bytes += cache.held_bytes - self._known.pop(cache, 0)
        self._known[cache] = cache.held_bytes
        while self.held_bytes > TOGETHER_BYTES:
            oldest, held_bytes = self._known.popitem(last=False)
            self.held_bytes -= held_bytes
            oldest.clear()

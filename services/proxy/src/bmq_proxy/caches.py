"""Caches that are bounded together: each lane has some of its own, and there may be a thousand lanes."""

from collections import OrderedDict
from functools import partial
from typing import Final, Protocol
from weakref import ref

TOGETHER_BYTES: Final = 48 << 20
"""How many bytes all caches of a proxy hold together, at most."""


class Cache(Protocol):
    """One of them."""

    held_bytes: int

    def clear(self) -> None:
        """Lets go of everything."""


class CachesTogether:
    """The one that was used longest ago is emptied first; those that nobody has any more count no longer. Pure."""

    def __init__(self) -> None:
        self.held_bytes = 0
        self._known: OrderedDict[int, tuple[ref[Cache], int]] = OrderedDict()

    def used(self, cache: Cache) -> None:
        """It was looked into, or has more, or less."""
        key = id(cache)
        known = self._known.pop(key, None)
        itself, held_bytes = known or (ref(cache, partial(self._gone, key)), 0)
        self.held_bytes += cache.held_bytes - held_bytes
        self._known[key] = itself, cache.held_bytes
        while self.held_bytes > TOGETHER_BYTES:
            _, (oldest, held_bytes) = self._known.popitem(last=False)
            self.held_bytes -= held_bytes
            if (one := oldest()) is not None:
                one.clear()

    def _gone(self, key: int, _: object) -> None:
        known = self._known.pop(key, None)
        self.held_bytes -= 0 if known is None else known[1]

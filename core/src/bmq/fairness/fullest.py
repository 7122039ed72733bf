"""Who of many has most of something: it gives up first, so that who has little keeps it however many others there are.
Pure.
"""

from collections import Counter
from collections.abc import Hashable
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)


class Fullest(Generic[T]):
    """Holders and how many pieces each has. Whatever is asked takes the same time with any number of them."""

    def __init__(self) -> None:
        self._held: Counter[T] = Counter()
        self._holders: dict[int, dict[T, None]] = {}
        """Those that have so many, in the order in which they came to have them."""
        self._most = 0
        self.total = 0

    @property
    def fullest(self) -> T:
        """Who has most, and of several the one that has had so many for longest. Raises KeyError where nobody has
        anything.
        """
        return next(iter(self._holders[self._most]))

    def take(self, holder: T) -> None:
        """It has one more."""
        self._move(holder, 1)
        self._most = max(self._most, self._held[holder])

    def give_back(self, holder: T) -> None:
        """It has one less."""
        self._move(holder, -1)
        if self._most and self._most not in self._holders:
            self._most -= 1  # which is what it has now

    def _move(self, holder: T, more: int) -> None:
        before = self._held[holder]
        now = before + more
        assert now >= 0
        if before:
            holders = self._holders[before]
            del holders[holder]
            if not holders:
                del self._holders[before]
        if now:
            self._holders.setdefault(now, {})[holder] = None
            self._held[holder] = now
        else:
            del self._held[holder]
        self.total += more

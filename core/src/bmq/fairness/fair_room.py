"""Room that an address has no more of than is free: one that takes all it can leaves half to the others, two leave a
third. Pure.

For what its holders may keep as long as they like: a bound over all of them alone would let one keep the others out.
"""

from collections import Counter
from collections.abc import Hashable, Iterator
from contextlib import contextmanager


class FairRoom:
    """Room for bytes, or for pieces, that addresses share. Where nothing is taken any address has room for one: whoever
    waits goes on in the end.
    """

    def __init__(self, size: int, *, times: int = 1) -> None:
        """`times`: an address may have so many times what is free."""
        self.left = size
        self._size = size
        self._times = times
        self._held: Counter[Hashable] = Counter()

    def has(self, size: int, *, address: Hashable) -> bool:
        """Whether the address may take so much."""
        return size <= self.left and self._held[address] + size <= self._times * self.left

    def has_beside_own(self, size: int, *, address: Hashable) -> bool:
        """Whether the address might take so much if nobody else held anything."""
        return self._held[address] + size <= self._times * (self._size - self._held[address])

    def take(self, size: int, *, address: Hashable) -> None:
        """It holds so much more."""
        self.left -= size
        self._held[address] += size

    @contextmanager
    def holding(self, size: int, *, address: Hashable) -> Iterator[None]:
        """While it holds so much more, of which it was asked whether there is room."""
        self.take(size, address=address)
        try:
            yield
        finally:
            self.give_back(size, address=address)

    def give_back(self, size: int, *, address: Hashable) -> None:
        """It holds so much less."""
        self.left += size
        self._held[address] -= size
        assert self._held[address] >= 0
        if not self._held[address]:
            del self._held[address]

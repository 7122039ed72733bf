"""What one client's address has left of something that fills with time, for very many addresses. Pure."""

from collections import OrderedDict
from typing import Final

ADDRESSES_MAX: Final = 10_000
"""Addresses remembered; the one that took nothing for longest is forgotten first."""


class AddressBuckets:
    """A bucket for each address. Who is not known has all of it. Times are of one clock that never goes back, in the
    unit of the caller's rates.
    """

    def __init__(self) -> None:
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()
        """What an address had left, and when."""

    def left(self, address: str, now: float, *, burst: int, per_time: float) -> float:
        """What an address has left: at most `burst`, after `per_time` came back for each unit of time; below 0 for who
        took more than it had.
        """
        known = self._left.get(address)
        if known is None:
            return burst
        left, at = known
        return min(burst, left + (now - at) * per_time)

    def take(self, address: str, now: float, *, left: float, taken: float) -> None:
        """So much of what was left now is taken."""
        self._left[address] = left - taken, now
        self._left.move_to_end(address)
        if len(self._left) > ADDRESSES_MAX:
            self._left.popitem(last=False)

    def give_back(self, address: str, taken: float) -> None:
        """So much was taken for nothing."""
        known = self._left.get(address)
        if known is not None:
            left, at = known
            self._left[address] = left + taken, at

"""How long each connection of gRPC's was still, and which one gives way where there are as many as there may be. Pure.

One with a call does not: of calls there are far fewer than of connections, and each has its own time. One that never
had a call gives way before one that had, unless that was still for much longer: so neither those who open connections
and leave them, nor those who made one call by each, keep others out.
"""

from dataclasses import dataclass
from typing import Final, Generic, TypeVar

CALLED_COUNTS: Final = 10
"""One that had a call was still for so many times less than it was."""

T = TypeVar("T")


@dataclass(eq=False, slots=True)
class Still(Generic[T]):
    """One connection's."""

    of: T
    since_s: float
    calls: int = 0
    was_called: bool = False


class Stillness(Generic[T]):
    """Those of one relay. Times are of one clock that never goes back."""

    def __init__(self) -> None:
        self._order: dict[Still[T], None] = {}
        """The one that moved last at the end."""

    def __len__(self) -> int:
        return len(self._order)

    def enter(self, of: T, now_s: float) -> Still[T]:
        """One more."""
        one = Still(of, now_s)
        self._order[one] = None
        return one

    def leave(self, one: Still[T]) -> None:
        """It is gone, or is to go."""
        self._order.pop(one, None)

    def moved(self, one: Still[T], now_s: float) -> None:
        """Its client did something, or can from now on."""
        if one in self._order:
            del self._order[one]
            self._order[one] = None
            one.since_s = now_s

    def begin_call(self, one: Still[T]) -> None:
        """It has one more."""
        one.calls += 1
        one.was_called = True

    def end_call(self, one: Still[T], now_s: float) -> None:
        """It has one less, and its client is to begin the next one."""
        one.calls -= 1
        self.moved(one, now_s)

    def gives_way(self, now_s: float) -> Still[T] | None:
        """None: each has a call."""
        called: Still[T] | None = None
        for one in self._order:
            if one.calls:
                continue
            if one.was_called:
                called = called or one
            elif called is None or (now_s - called.since_s) <= CALLED_COUNTS * (now_s - one.since_s):
                return one
            else:
                break
        return called

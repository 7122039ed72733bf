"""Whose Produce requests are begun bit by bit: what their connections send meanwhile is begun behind them, in the order
of arrival.
"""

import asyncio
from collections.abc import Hashable


class Beginnings:
    """One proxy's. A connection is here as long as something of it is being begun, or waits to be."""

    def __init__(self) -> None:
        self._last: dict[Hashable, Place] = {}

    def is_open(self, origin: Hashable) -> bool:
        """Whether something of that connection is still being begun: what comes now has to `enter`."""
        return origin in self._last

    def enter(self, origin: Hashable) -> "Place":
        """A place behind all that came over this connection before. Whoever has it says when it is `over`, however that
        came.
        """
        place = Place(self, origin, self._last.get(origin))
        self._last[origin] = place
        return place

    def leave(self, place: "Place") -> None:
        """A place's own."""
        if self._last.get(place.origin) is place:
            del self._last[place.origin]


class Place:
    """One request's, in its connection's queue."""

    __slots__ = ("_before", "_beginnings", "_over", "origin")

    def __init__(self, beginnings: Beginnings, origin: Hashable, before: "Place | None") -> None:
        self.origin = origin
        self._beginnings = beginnings
        self._before = before
        self._over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def reached(self) -> None:
        """Returns once everything before it is begun."""
        if self._before is not None:
            await asyncio.shield(self._before._over)
            self._before = None

    def over(self) -> None:
        """It is begun, or never will be; what is behind it may begin once what is before it is over too."""
        before, self._before = self._before, None
        if before is not None and not before._over.done():
            before._over.add_done_callback(lambda _: self._end())  # it was given up while it waited
        else:
            self._end()

    def _end(self) -> None:
        self._over.set_result(None)
        self._beginnings.leave(self)

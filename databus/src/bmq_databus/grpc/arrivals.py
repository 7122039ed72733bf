"""Requests while they come. Nobody can tell how large one is, or how much of it is there, before all of it is: so few
of them come at a time, and those that are slow give way where others wait.

What came of a request that waits for its place is not read from its connection, but for the first of it
(`bmq_databus.grpc.listening`), so a small one is there as soon as it has a place.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from bmq.fairness.turns import Places
from bmq_databus.grpc.errors import TooSlow
from bmq_databus.requests.room import TooMuchAtOnce

AT_ONCE: Final = 16
"""So many come at a time: of 4 MiB each."""
WITHIN_S: Final = 30.0
"""One comes within so long…"""
WHILE_OTHERS_WAIT_S: Final = 0.25
"""…and within so long where others wait for its place: a small one comes at once, but for a processor that is busy."""
PLACE_WITHIN_S: Final = 10.0


class Arrivals:
    """Those of all calls of a kind."""

    def __init__(self, *, at_once: int = AT_ONCE) -> None:
        self._at_once = at_once
        self._places = Places(at_once)
        self._waiting = 0
        self._coming: dict[asyncio.Timeout, float] = {}
        """Since when, the oldest first; those that have to hurry are not there."""
        self._hurried: set[asyncio.Timeout] = set()

    async def whole(self, read: Callable[[], Awaitable[bytes | None]], *, party: str) -> bytes | None:
        """What `read` gives. `party`: whose it is: its connection. Raises TooSlow, TooMuchAtOnce."""
        loop = asyncio.get_running_loop()
        await self._enter(party)
        until = asyncio.timeout(WITHIN_S)
        try:
            async with until:
                self._coming[until] = loop.time()
                self._hurry()
                return await read()
        except TimeoutError:
            if until in self._hurried:
                raise TooMuchAtOnce(
                    f"{self._at_once} requests were coming already, and others waited for this one: try again"
                ) from None
            raise TooSlow(f"the request did not come within {WITHIN_S:g} s") from None
        finally:
            self._coming.pop(until, None)
            self._hurried.discard(until)
            self._places.leave(party=party)

    async def _enter(self, party: str) -> None:
        """Raises TooMuchAtOnce."""
        self._waiting += 1
        try:
            self._hurry()
            async with asyncio.timeout(PLACE_WITHIN_S):
                await self._places.enter(party=party)
        except TimeoutError:
            raise TooMuchAtOnce("too many requests come at a time: try again in a moment") from None
        finally:
            self._waiting -= 1

    def _hurry(self) -> None:
        """As many of the oldest as others wait for give way soon."""
        if len(self._coming) + len(self._hurried) < self._at_once:
            return
        for until, since_s in list(self._coming.items())[: max(0, self._waiting - len(self._hurried))]:
            del self._coming[until]
            self._hurried.add(until)
            until.reschedule(since_s + WHILE_OTHERS_WAIT_S)

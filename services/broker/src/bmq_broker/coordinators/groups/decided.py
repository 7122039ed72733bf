"""Answers that are there and wait for the store: no longer than clients wait for them."""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from bmq_broker.coordinators.groups.requests import Ticket

STORED_WITHIN_S: Final = 10.0
"""What is decided may still become durable later: who asks again finds it."""


class Decided:
    """By ticket since when, the oldest first; one timer of the loop for all of them."""

    def __init__(self, late: Callable[[Ticket], None]) -> None:
        """`late` is told of each that waited too long."""
        self._late = late
        self._since_s: dict[Ticket, float] = {}
        self._timer: asyncio.Handle | None = None

    def __iter__(self) -> Iterator[Ticket]:
        return iter(self._since_s)

    def add(self, tickets: Iterable[Ticket]) -> None:
        """Their answers are there now."""
        loop = asyncio.get_running_loop()
        now_s = loop.time()
        for ticket in tickets:
            self._since_s.setdefault(ticket, now_s)
        if self._timer is None and self._since_s:
            self._timer = loop.call_at(now_s + STORED_WITHIN_S, self._look)

    def discard(self, ticket: Ticket) -> None:
        """It was answered, or its asker is gone."""
        self._since_s.pop(ticket, None)

    def end(self) -> None:
        """Nobody waits any more."""
        self._since_s.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        loop = asyncio.get_running_loop()
        now_s = loop.time()
        # By the very sum that the timer was set to: a difference may be rounded to just before it, for ever.
        for ticket in [ticket for ticket, since_s in self._since_s.items() if since_s + STORED_WITHIN_S <= now_s]:
            del self._since_s[ticket]
            self._late(ticket)
        self._timer = None
        for since_s in self._since_s.values():  # the oldest that is left
            self._timer = loop.call_at(since_s + STORED_WITHIN_S, self._look)
            break

"""When the group machine is asked what is due: one timer of the loop for all its deadlines, a bounded part of them in each turn."""

import asyncio
from collections.abc import Callable
from typing import Final

_LATE_S: Final = 1.0
"""A deadline looked at this late means that the process stood still: what arrived meanwhile is heard first."""
_DEADLINES_PER_TURN: Final = 50


class Deadlines:
    """`next_ms` says when the earliest is, None where there is none; `fire` does what is due first, and says whether anything was."""

    def __init__(self, next_ms: Callable[[], int | None], fire: Callable[[], bool]) -> None:
        self._next_ms = next_ms
        self._fire = fire
        self._timer: asyncio.Handle | None = None
        self._timer_at_s = 0.0

    def arm(self) -> None:
        """The earliest may have changed."""
        next_ms = self._next_ms()
        if next_ms is None:
            return
        # Half a millisecond later than asked, so that a rounded clock never shows it as not yet due.
        when_s = (next_ms + 0.5) / 1000
        if self._timer is not None:
            if self._timer_at_s <= when_s:
                return
            self._timer.cancel()
        self._set(when_s)

    def end(self) -> None:
        """Looks no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _set(self, at_s: float) -> None:
        # The time is kept here because uvloop's handle does not tell it when the deadline has already passed.
        self._timer_at_s = at_s
        self._timer = asyncio.get_running_loop().call_at(at_s, self._look)

    def _look(self) -> None:
        now_s = asyncio.get_running_loop().time()
        if now_s - self._timer_at_s > _LATE_S:
            self._set(now_s + _LATE_S)
            return
        self._timer = None
        for _ in range(_DEADLINES_PER_TURN):
            if not self._fire():
                break
        self.arm()

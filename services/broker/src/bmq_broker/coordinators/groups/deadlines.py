"""When the group machine is asked what is due: one timer of the loop for all its deadlines, a bounded part of them in
each turn.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from bmq_broker.coordinators.groups.tally import ELEMENT_WORK_BYTES
from bmq_broker.coordinators.groups.turns import Turns

_LATE_S: Final = 1.0
"""A deadline looked at this late means that the process stood still: what arrived meanwhile is heard first."""
_DEADLINES_PER_TURN: Final = 50


class Deadlines:
    """`next_ms` says when the earliest is, None where there is none; `fire` does what is due first, and says how much
    of a turn it was, None where nothing was due.
    """

    def __init__(self, next_ms: Callable[[], int | None], fire: Callable[[], int | None], turns: Turns) -> None:
        self._next_ms = next_ms
        self._fire = fire
        self._turns = turns
        self._timer: asyncio.Handle | None = None
        self._timer_at_s = 0.0
        self._is_waiting = False
        """For its turn, with something that is due."""
        self._is_over = False

    def arm(self) -> None:
        """The earliest may have changed."""
        next_ms = None if self._is_waiting else self._next_ms()
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
        self._is_over = True
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
        self._is_waiting = True
        self._turns.then(ELEMENT_WORK_BYTES, self._fire_some)

    def _fire_some(self) -> None:
        """As many as a turn has room for; one of them may end the rebalance of a large group."""
        self._is_waiting = False
        if self._is_over:
            return
        for _ in range(_DEADLINES_PER_TURN):
            size_bytes = self._fire()
            if size_bytes is None:
                break
            self._turns.spend(size_bytes)
            if self._turns.is_spent:
                break
        self.arm()

"""Steps of what comes over connections: so many in each turn of the event loop, however many connections have one to
take.
"""

import asyncio
from collections.abc import Callable, Hashable

from bmq.fairness.turns import Rotation


class Steps:
    """Who finds none left takes its step in a later turn of the loop, by turns of parties."""

    def __init__(self, per_turn: int) -> None:
        assert per_turn > 0
        self._per_turn = self._left = per_turn
        self._waiting: Rotation[Callable[[], None]] = Rotation()
        self._is_due = False

    def may_take(self, step: Callable[[], None], *, party: Hashable, sender: Hashable = None) -> bool:
        """Whether a step may be taken now; False: `step` is called when it may."""
        if self._left > 0:
            self._left -= 1
            return True
        self._waiting.push(step, party=party, sender=sender)
        self._come_round()
        return False

    def _come_round(self) -> None:
        if not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        """The loop has come round since there was no more to take."""
        self._is_due = False
        self._left = self._per_turn
        while self._waiting and self._left > 0:
            self._left -= 1
            self._waiting.pop()()
        if self._waiting:
            self._come_round()

"""Long work in a thread that gives up the interpreter now and then.

A thread that walks records keeps it until another one has waited for the switch interval, once for each time that the
event loop asks the system for something. Who gives way of itself takes longer, and others wait for less.
"""

from time import sleep  # noqa: TID251 - which gives up the interpreter, for no time at all
from typing import Final

STEPS: Final = 64
"""Records, roughly: some tenths of a ms."""


class GivingWay:
    """One piece of work's."""

    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left = STEPS

    def step(self) -> None:
        """One was done."""
        self._left -= 1
        if not self._left:
            self._left = STEPS
            sleep(0)

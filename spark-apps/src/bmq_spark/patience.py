"""How long the jobs ask again for what passes by itself: brokers that move, a store that turns requests away, a catalog
or a registry that is started anew. It is the same for all of them.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeVar

WAIT_S: Final = 30

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """What is asked again, and when it is given up. A value: it may be sent to other processes."""

    wait_s: float = WAIT_S
    """No question is begun later than this after the first one."""
    pause_s: float = 0.25
    """Before the second question; doubled for each further one, up to `pause_max_s`."""
    pause_max_s: float = 2.0
    clock_s: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep

    def ask(self, question: Callable[[], T], passes: Callable[[Exception], bool]) -> T:
        """The first answer. Raises the last error, or the first one that does not pass."""
        until = self.clock_s() + self.wait_s
        pause_s = self.pause_s
        while True:
            try:
                return question()
            except Exception as error:
                if not passes(error) or self.clock_s() + pause_s > until:
                    raise
            self.sleep(pause_s)
            pause_s = min(2 * pause_s, self.pause_max_s)


PATIENCE: Final = Patience()
AT_ONCE: Final = Patience(wait_s=0)
"""Asks once."""

"""Those who wait for the same: a thing's end, whatever it is.

Thousands may. A task of which they wait by themselves takes as long to forget one of them as there are, and has all of
them go on in one turn of the loop; here who leaves costs the same however many there are, and some go on in each turn.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from bmq.fairness.overdue import Overdue

WOKEN_PER_TURN: Final = 500


class Crowd:
    """`patience_s`: how long each waits; None: until it is woken."""

    def __init__(self, *, patience_s: float | None = None) -> None:
        self._waiting: Overdue[asyncio.Future[None]] = Overdue(patience_s, go_on)

    def __len__(self) -> int:
        """How many wait."""
        return len(self._waiting)

    async def wait(self) -> None:
        """Returns at the next `wake`, or when patience is over. Raises what `wake` was given."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(waiter)
        try:
            await waiter
        finally:
            self._waiting.discard(waiter)

    def wake(self, error: Callable[[], Exception] | None = None) -> None:
        """All who wait now go on; `error` makes for each what it raises."""
        go_on(self._waiting.clear(), error)


def go_on(waiters: "Sequence[asyncio.Future[None]]", error: Callable[[], Exception] | None = None) -> None:
    """They do, in their order, `WOKEN_PER_TURN` in each turn of the loop; with what `error` makes for each, where it is
    given.
    """
    for waiter in waiters[:WOKEN_PER_TURN]:
        if waiter.done():
            continue  # who waited is gone
        if error is None:
            waiter.set_result(None)
        else:
            waiter.set_exception(error())
            waiter.exception()  # seen, also where who waited is cancelled in this very turn
    if left := waiters[WOKEN_PER_TURN:]:
        asyncio.get_running_loop().call_soon(go_on, left, error)

"""Those who wait for the same: a thing's end, whatever it is.

Thousands may. A task of which they wait by themselves takes as long to forget one of them as there are, and has all of them go on in one turn of
the loop; here who leaves costs the same however many there are, and some go on in each turn.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

WOKEN_PER_TURN: Final = 500


class Crowd:
    """`patience_s`: how long each waits; None: until it is woken."""

    def __init__(self, *, patience_s: float | None = None) -> None:
        self._patience_s = patience_s
        self._waiting: dict[asyncio.Future[None], float] = {}
        """Since when, the first ones first."""
        self._timer: asyncio.Handle | None = None

    def __len__(self) -> int:
        """How many wait."""
        return len(self._waiting)

    async def wait(self) -> None:
        """Returns at the next `wake`, or when patience is over. Raises what `wake` was given."""
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = loop.create_future()
        self._waiting[waiter] = loop.time()
        self._arm()
        try:
            await waiter
        finally:
            self._waiting.pop(waiter, None)

    def wake(self, error: Callable[[], Exception] | None = None) -> None:
        """All who wait now go on; `error` makes for each what it raises."""
        waiting, self._waiting = self._waiting, {}
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        _go_on(deque(waiting), error)

    def _arm(self) -> None:
        if self._timer is None and self._patience_s is not None and self._waiting:
            since_s = next(iter(self._waiting.values()))
            self._timer = asyncio.get_running_loop().call_at(since_s + self._patience_s, self._look)

    def _look(self) -> None:
        assert self._patience_s is not None
        self._timer = None
        # By the very sum that the timer was set to: a difference may be rounded to just before it, for ever.
        late: deque[asyncio.Future[None]] = deque(_late(self._waiting.items(), self._patience_s, asyncio.get_running_loop().time()))
        for waiter in late:
            del self._waiting[waiter]
        self._arm()
        _go_on(late, None)


def _late(waiting: "Iterable[tuple[asyncio.Future[None], float]]", patience_s: float, now_s: float) -> "Iterable[asyncio.Future[None]]":
    for waiter, since_s in waiting:
        if since_s + patience_s > now_s:
            return
        yield waiter


def _go_on(waiters: "deque[asyncio.Future[None]]", error: Callable[[], Exception] | None) -> None:
    for _ in range(min(len(waiters), WOKEN_PER_TURN)):
        waiter = waiters.popleft()
        if waiter.done():
            continue  # who waited is gone
        if error is None:
            waiter.set_result(None)
        else:
            waiter.set_exception(error())
            waiter.exception()  # seen, also where who waited is cancelled in this very turn
    if waiters:
        asyncio.get_running_loop().call_soon(_go_on, waiters, error)

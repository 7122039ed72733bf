"""What takes long to make and is the same for all who ask: made once for those who asked before it began, and anew for
later ones after a rest, so that who asks without a pause takes a bounded share of the time.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, Generic, TypeVar

T = TypeVar("T")

REST: Final = 4
"""A rest, in times of what the making before took: it has a fifth of the time at most…"""
REST_S_MAX: Final = 2.0
"""…and no longer one: what takes long waits for others as a rule. None after what failed."""


class MadeForAll(Generic[T]):
    """One thing, for any number of tasks of one event loop."""

    def __init__(self, make: Callable[[], Awaitable[T]], *, name: str, rest: float = REST) -> None:
        self._make = make
        self._name = name
        self._rest = rest
        self._next: asyncio.Task[T] | None = None
        """Has not begun to be made: whoever asks now has that one."""
        self._ended = asyncio.Event()
        """Nothing is being made."""
        self._ended.set()
        self._rests_until_s = float("-inf")

    async def get(self) -> T:
        """As of now, or a moment later. Raises what `make` does."""
        if self._next is None or self._next.done():
            self._next = asyncio.get_running_loop().create_task(self._made(), name=self._name)
            self._next.add_done_callback(_heard)
        return await asyncio.shield(self._next)

    async def _made(self) -> T:
        await self._ended.wait()
        loop = asyncio.get_running_loop()
        if (rest_s := self._rests_until_s - loop.time()) > 0:
            await asyncio.sleep(rest_s)
        self._next = None
        self._ended.clear()
        began_s = loop.time()
        try:
            made = await self._make()
            now_s = loop.time()
            self._rests_until_s = now_s + min(REST_S_MAX, self._rest * (now_s - began_s))
            return made
        finally:
            self._ended.set()


def _heard(made: "asyncio.Task[T]") -> None:
    """Where nobody waits any more its error is no bug."""
    if not made.cancelled():
        made.exception()

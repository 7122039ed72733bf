"""What anybody may ask for, and costs as much as there are channels or series: one is made at a time, for all who ask
meanwhile, and the next one after a rest.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, Generic, TypeVar

REST: Final = 4
"""A rest, in times of what the one before took: whoever asks without a pause has a fifth of the time."""

T = TypeVar("T")


class Shared(Generic[T]):
    """One thing of a sidecar's."""

    def __init__(self, make: Callable[[], Awaitable[T]]) -> None:
        """`make` begins, in the loop, behind everybody who is told what it makes."""
        self._make = make
        self._loop = asyncio.get_running_loop()
        self._making: asyncio.Task[T] | None = None
        self._rests_until_s = float("-inf")

    async def get(self) -> T:
        """As of now, or a moment later. Raises what making it does."""
        if self._making is None:
            self._making = self._loop.create_task(self._made(), name="shared by all who ask")
        return await asyncio.shield(self._making)

    async def _made(self) -> T:
        try:
            if (rest_s := self._rests_until_s - self._loop.time()) > 0:
                await asyncio.sleep(rest_s)
            began_s = self._loop.time()
            made = await self._make()
            now_s = self._loop.time()
            self._rests_until_s = now_s + REST * (now_s - began_s)
            return made
        finally:
            self._making = None

"""The metrics as text. Nobody is asked who they are there, and each text takes Python's lock for as long as there are
series: one is made at a time, for all who ask meanwhile, and the next one after a rest.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from prometheus_client import generate_latest

REST: Final = 4
"""A rest, in times of what the text before took: whoever asks without a pause has a fifth of the time."""


class Exposition:
    """One sidecar's."""

    def __init__(self, tell: Callable[[], None]) -> None:
        """`tell` sets, in the loop, what is known by asking alone."""
        self._tell = tell
        self._loop = asyncio.get_running_loop()
        self._making: asyncio.Task[bytes] | None = None
        self._rests_until_s = float("-inf")

    async def text(self) -> bytes:
        """As of now, or a moment later."""
        if self._making is None:
            self._making = self._loop.create_task(self._made(), name="metrics")
        return await asyncio.shield(self._making)

    async def _made(self) -> bytes:
        try:
            if (rest_s := self._rests_until_s - self._loop.time()) > 0:
                await asyncio.sleep(rest_s)
            self._tell()
            began_s = self._loop.time()
            text = await self._loop.run_in_executor(None, generate_latest)
            now_s = self._loop.time()
            self._rests_until_s = now_s + REST * (now_s - began_s)
            return text
        finally:
            self._making = None

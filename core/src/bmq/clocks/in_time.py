"""Waiting no longer than somebody else would wait for the answer."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")


async def in_time(until_s: float, ask: Callable[[], Awaitable[T]], late: Callable[[], Exception]) -> T:
    """What `ask` answers until `until_s` of the loop's time; it is cancelled then, and not begun where the time is up.
    Raises what `ask` raises, and what `late` makes.
    """
    if asyncio.get_running_loop().time() < until_s:
        limit = asyncio.timeout_at(until_s)
        try:
            async with limit:
                return await ask()
        except TimeoutError:
            if not limit.expired():
                raise
    raise late()

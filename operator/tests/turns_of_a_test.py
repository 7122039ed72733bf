"""How much CPU a look takes in one turn of the event loop, in which nobody else's work goes on, without what the tests'
own API server takes.
"""

import asyncio
import time
from collections.abc import Coroutine
from typing import Any


class Turns:
    """`longest_s`: the longest turn so far."""

    def __init__(self) -> None:
        self.longest_s = 0.0
        self.aside_s = 0.0
        """Of the turn under way: what does not count."""

    def task(self, loop: asyncio.AbstractEventLoop, work: Any, **more: Any) -> asyncio.Task[Any]:
        """A task factory."""
        return asyncio.Task(_Timed(work, self), loop=loop, **more)

    async def api_server(self, answer: Coroutine[Any, Any, Any]) -> Any:
        """What the tests' own answers, in another turn than what asks."""
        await asyncio.sleep(0)
        began_s = time.process_time()
        try:
            return await answer
        finally:
            self.aside_s += time.process_time() - began_s


class _Timed(Coroutine[Any, Any, Any]):
    def __init__(self, work: Coroutine[Any, Any, Any], turns: Turns) -> None:
        self._work, self._turns = work, turns

    def send(self, value: Any) -> Any:
        self._turns.aside_s, began_s = 0.0, time.process_time()
        try:
            return self._work.send(value)
        finally:
            took_s = time.process_time() - began_s - self._turns.aside_s
            self._turns.longest_s = max(self._turns.longest_s, took_s)

    def throw(self, *error: Any) -> Any:
        return self._work.throw(*error)

    def close(self) -> None:
        self._work.close()

    def __await__(self) -> Any:
        return self._work.__await__()


class Suspends:
    """An API server of a test each answer of which takes a turn."""

    turns: Turns

    async def get(self, *about: Any, **more: Any) -> Any:
        return await self.turns.api_server(super().get(*about, **more))  # type: ignore[misc]

    async def list(self, *about: Any, **more: Any) -> Any:
        return await self.turns.api_server(super().list(*about, **more))  # type: ignore[misc]

    async def apply(self, *about: Any, **more: Any) -> Any:
        return await self.turns.api_server(super().apply(*about, **more))  # type: ignore[misc]

    async def create(self, *about: Any, **more: Any) -> Any:
        return await self.turns.api_server(super().create(*about, **more))  # type: ignore[misc]

    async def merge(self, *about: Any, **more: Any) -> Any:
        return await self.turns.api_server(super().merge(*about, **more))  # type: ignore[misc]

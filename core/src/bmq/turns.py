"""Turns at the event loop for work that has many elements: one short turn of one request in each turn of the loop, however many are at it."""

import asyncio
from collections import deque


class Turns:
    """First come first served."""

    def __init__(self) -> None:
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._is_due = False

    async def turn(self) -> None:
        """Lets the loop go on, until it is this work's turn again."""
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = loop.create_future()
        self._waiting.append(waiter)
        if not self._is_due:
            self._is_due = True
            loop.call_soon(self._next)
        await waiter

    def _next(self) -> None:
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
                break
        self._is_due = bool(self._waiting)
        if self._is_due:
            asyncio.get_running_loop().call_soon(self._next)

"""Folders of spools that no channel has: they go when nothing of them is to be kept any more.

A folder that has keys of requests stays until their windows are over, as its channel may come again.
"""

import asyncio
from collections.abc import Container
from functools import partial
from pathlib import Path
from typing import Final

import structlog

from bmq.ports import Clock
from bmq_databus.spool.giving_back import give_back, idle_in

REMEMBERED_MAX: Final = 10_000
"""What is beyond that stays until the next start."""
LOOK_EVERY_S: Final = 60.0

log = structlog.get_logger()


class LeftFolders:
    """Those of one sidecar."""

    def __init__(self, root: Path, *, clock: Clock) -> None:
        self._root = root
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self.are_known = False
        """Whether it is known which channels there are."""
        self._is_looked_through = False
        self._over_at_ms: dict[str, int] = {}

    @property
    def next_s(self) -> float | None:
        """In how many seconds `give_back` may find some; None: there are none."""
        if self.are_known and not self._is_looked_through:
            return 0.0
        return LOOK_EVERY_S if self._over_at_ms else None

    async def left(self, name: str) -> None:
        """The spool of this name is closed."""
        now_ms = self._clock.now_ms()
        over_at_ms = await self._loop.run_in_executor(None, partial(give_back, self._root, name, now_ms=now_ms))
        self._over_at_ms.pop(name, None)
        if over_at_ms and len(self._over_at_ms) < REMEMBERED_MAX:
            self._over_at_ms[name] = over_at_ms

    async def give_back(self, changing: asyncio.Lock, *used: Container[str]) -> None:
        """Those whose time is over; once it is known which channels there are, also what earlier processes left. Not
        those that are `used`. While `changing` is held nobody opens one.
        """
        now_ms = self._clock.now_ms()
        names = [name for name, over_at_ms in self._over_at_ms.items() if over_at_ms <= now_ms]
        if self.are_known and not self._is_looked_through:
            self._is_looked_through = True
            try:
                names += await self._loop.run_in_executor(None, idle_in, self._root)
            except OSError as error:
                log.warning("spools that no channel has stay", why=str(error))
        for name in names:
            async with changing:
                if any(name in some for some in used):
                    self._over_at_ms.pop(name, None)
                else:
                    await self.left(name)

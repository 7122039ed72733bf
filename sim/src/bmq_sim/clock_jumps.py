"""A machine's clock that is weeks off for moments: as retention decides, as it is compared, as the program starts. The
store's is right.

In every second seed, by randomness of its own: whatever else a seed does stays as it is where the clock is right.
"""

import asyncio
from typing import Final

from bmq_sim.clock import SimClock
from bmq_sim.store import Request
from bmq_sim.world import World

JUMP_MS_MAX: Final = 20 * 24 * 60 * 60 * 1000
SEEDS_SHARE: Final = 0.5
COMPARED: Final = "clock/"
"""Where the scratch objects of comparisons are."""
AIMED_SHARE: Final = 0.3
LASTS_S: Final = (0.002, 0.02, 0.5, 6.0)


class ClockJumps:
    """Sets the clock of one machine off for moments, in every second seed."""

    def __init__(self, world: World, clock: SimClock) -> None:
        self._world = world
        self._clock = clock
        self._rng = world.rng("jumps")
        self._ended = self._rng.random() >= SEEDS_SHARE
        self._back: asyncio.TimerHandle | None = None
        if not self._ended:
            world.store.watcher = self

    async def run(self) -> None:
        """Until cancelled; then the clock is right, and stays so."""
        try:
            while not self._ended:
                await asyncio.sleep(8 * self._rng.random())
                self._jump()
        finally:
            self._ended = True
            self._be_right()

    def began(self, request: Request) -> None:
        """A comparison may begin with the clock off, or have it go off or back between its steps."""
        self._aim(request)

    def ended(self, request: Request) -> None:
        """As a comparison ends, the clock may go off or back, too."""
        self._aim(request)

    def _aim(self, request: Request) -> None:
        if self._ended or not request.key.startswith(COMPARED):
            return
        if self._back is not None and self._rng.random() < AIMED_SHARE:
            self._be_right()
        elif self._rng.random() < AIMED_SHARE:
            self._jump()

    def _jump(self) -> None:
        self._be_right()
        self._world.work.injected["clock"] += 1
        self._clock.skew_ms = round(JUMP_MS_MAX * (2 * self._rng.random() - 1))
        self._world.work.faults["clock"] += 1
        lasts_s = self._rng.choice(LASTS_S) * self._rng.random()
        self._back = asyncio.get_running_loop().call_later(lasts_s, self._be_right)

    def _be_right(self) -> None:
        if self._back is not None:
            self._back.cancel()
            self._back = None
        self._clock.skew_ms = 0

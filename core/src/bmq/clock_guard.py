"""Whether this node's wall clock may decide that something is old enough to delete, or to take partitions.

Each minute it is compared with the store's clock. More than 60 s apart, or jumped since the last comparison: not trusted, and a line says so.
"""

import asyncio
from typing import Final

import structlog
from prometheus_client import Gauge

from bmq.errors import StoreError
from bmq.ports import Clock, ObjectStore, Rng
from bmq.store_clock import measure_skew_ms
from bmq.values import NodeId

PERIOD_S: Final = 60.0
SKEW_MS_MAX: Final = 60_000

SKEW_SECONDS: Final = Gauge("bmq_clock_skew_seconds", "How far the object store's clock is ahead of this node's.")
TRUSTED: Final = Gauge("bmq_clock_trusted", "1 where this node deletes by time, 0 where its clock and the store's are more than 60 s apart.")

_log = structlog.get_logger()


class ClockGuard:
    """Not trusted until the first comparison. `run` belongs to a task of the node's; `check` may also be awaited directly."""

    def __init__(self, store: ObjectStore, clock: Clock, rng: Rng, *, node_id: NodeId, skew_ms_max: int = SKEW_MS_MAX) -> None:
        self._store = store
        self._clock = clock
        self._rng = rng
        self._prefix = f"clock/{node_id:010d}/"
        self._skew_ms_max = skew_ms_max
        self._skew_ms: int | None = None
        self._wall_minus_loop_ms = 0.0
        self._said_trusted = True

    @property
    def skew_ms(self) -> int | None:
        """How far the store's clock is ahead of ours, as last compared; None before that."""
        return self._skew_ms

    @property
    def trusted(self) -> bool:
        """Whether to delete by time: the clocks agree within 60 s, and ours has not jumped since they were compared."""
        if self._skew_ms is None:
            return False
        jumped_ms = self._wall_now_minus_loop_ms() - self._wall_minus_loop_ms
        return abs(self._skew_ms - jumped_ms) <= self._skew_ms_max

    @property
    def differs(self) -> bool:
        """Whether the clocks are known not to agree: not before the first comparison."""
        return self._skew_ms is not None and not self.trusted

    def now_ms(self) -> int:
        """Wall time to be stored: this node's while it is trusted or not compared yet, else what the store's clock would say."""
        now_ms = self._clock.now_ms()
        if self._skew_ms is None or self.trusted:
            return now_ms
        return now_ms + self._skew_ms - round(self._wall_now_minus_loop_ms() - self._wall_minus_loop_ms)

    async def check(self) -> None:
        """Compares now. Raises StoreError; the last verdict then stands."""
        self._take(await measure_skew_ms(self._store, self._clock, key=f"{self._prefix}{self._rng.uuid()}"))

    async def run(self) -> None:
        """Clears what an earlier process of this node left, then compares each minute, until cancelled."""
        await self._clear()
        while True:
            try:
                await self.check()
            except StoreError as error:
                _log.warning("clock not compared with the store's", error=str(error), trusted=self.trusted)
            await asyncio.sleep(PERIOD_S)

    def _take(self, skew_ms: int) -> None:
        self._skew_ms = skew_ms
        self._wall_minus_loop_ms = self._wall_now_minus_loop_ms()
        trusted = abs(skew_ms) <= self._skew_ms_max
        SKEW_SECONDS.set(skew_ms / 1000)
        TRUSTED.set(trusted)
        if trusted != self._said_trusted:
            self._said_trusted = trusted
            if trusted:
                _log.info("clock agrees with the store's again: deletion by time goes on", skew_ms=skew_ms)
            else:
                _log.error(
                    "clock differs from the store's: nothing is deleted by time and no partitions are taken; set this machine's clock (NTP)",
                    skew_ms=skew_ms,
                    skew_ms_max=self._skew_ms_max,
                )

    async def _clear(self) -> None:
        try:
            async for meta in self._store.list(self._prefix):
                await self._store.delete(meta.key)
        except StoreError as error:
            _log.warning("scratch objects of the clock comparison not cleared", error=str(error))

    def _wall_now_minus_loop_ms(self) -> float:
        return self._clock.now_ms() - asyncio.get_running_loop().time() * 1000

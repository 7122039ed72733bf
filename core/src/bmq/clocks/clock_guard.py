"""Whether this node's wall clock may decide that something is old enough to delete, or to take partitions.

Each minute it is compared with the store's clock. More than 60 s apart, or jumped since the last comparison: not
trusted, and a line says so. A store's clock that jumped along says nothing (a folder's is this machine's own): then it
is trusted again where it goes back, or after a day.
"""

import asyncio
import contextlib
from typing import Final

import structlog
from prometheus_client import Gauge

from bmq.clocks.store_clock import Comparison, compared
from bmq.errors import StoreError
from bmq.ports import Clock, ObjectStore, Rng
from bmq.storage.keys import clock_prefix, is_scratch
from bmq.values import NodeId

PERIOD_S: Final = 60.0
RETRY_S: Final = 1.0
"""Until the first comparison."""
FIRST_S: Final = 10.0
"""So long a broker waits for the first comparison before it serves: a store that refuses these objects alone keeps
nobody from working."""
SKEW_MS_MAX: Final = 60_000
TRIES: Final = 3
SETTLE_MS: Final = 24 * 3_600_000
"""A day in which NTP, or somebody whom the alert has woken, may set right what jumped."""

SKEW_SECONDS: Final = Gauge("bmq_clock_skew_seconds", "How far the object store's clock is ahead of this node's.")
TRUSTED: Final = Gauge(
    "bmq_clock_trusted",
    "1 where this node deletes by time, 0 where its clock and the store's are more than 60 s apart, or jumped "
    "together.",
)

_log = structlog.get_logger()


class ClockGuard:
    """Not trusted until the first comparison. `run` belongs to a task of the node's; `check` may also be awaited
    directly.

    What it believes is a line: the true time is `_line_ms` more than the time that has elapsed. The wall clock is asked
    each time how far it is from there, so a jump is noticed in the very call that would be misled by it.
    """

    def __init__(
        self,
        store: ObjectStore,
        clock: Clock,
        rng: Rng,
        *,
        node_id: NodeId,
        skew_ms_max: int = SKEW_MS_MAX,
        settle_ms: int = SETTLE_MS,
    ) -> None:
        """`settle_ms`: for how long nothing is deleted by time after the clock jumped, and the store's with it."""
        self._store = store
        self._clock = clock
        self._rng = rng
        self._prefix = clock_prefix(node_id)
        self._skew_ms_max = skew_ms_max
        self._settle_ms = settle_ms
        self._skew_ms: int | None = None
        self._line_ms = 0.0
        self._seen_ms = 0.0
        """The line by the last comparison alone."""
        self._new_line_since_ms: float | None = None
        """In elapsed time; None: the last comparison bore out the line that was believed before."""
        self._said = "trusted"
        self._comparing = asyncio.Lock()
        """An object made for a comparison is not taken for what an earlier process left."""

    @property
    def skew_ms(self) -> int | None:
        """How far the store's clock is ahead of ours, as last compared; None before that."""
        return self._skew_ms

    @property
    def trusted(self) -> bool:
        """Whether to delete by time: the clocks agree within 60 s, and ours has not jumped since they were compared.

        True now says nothing about the next turn of the loop: who decides by time takes `trusted_now_ms`.
        """
        return self.trusted_now_ms() is not None

    @property
    def differs(self) -> bool:
        """Whether the clocks are known not to agree: not before the first comparison."""
        return (
            self._skew_ms is not None
            and abs(self._clock.now_ms() - self._clock.elapsed_ms() - self._seen_ms) > self._skew_ms_max
        )

    def trusted_now_ms(self) -> int | None:
        """Wall time by which something may be deleted, in this turn of the loop and no later one; None: by none."""
        now_ms = self._clock.now_ms()
        if self._skew_ms is None or self._new_line_since_ms is not None:
            return None
        return now_ms if abs(now_ms - self._clock.elapsed_ms() - self._line_ms) <= self._skew_ms_max else None

    def now_ms(self) -> int:
        """Wall time to be stored: this node's while it is trusted or not compared yet, else what the store's clock
        would say.

        Where both have jumped, the later of the times before and after: what is stored with too late a time is kept for
        longer.
        """
        now_ms = self._clock.now_ms()
        if self._skew_ms is None:
            return now_ms
        elapsed_ms = self._clock.elapsed_ms()
        if abs(now_ms - elapsed_ms - self._line_ms) <= self._skew_ms_max:
            return now_ms
        return round(
            elapsed_ms + (self._line_ms if self._new_line_since_ms is None else max(self._line_ms, self._seen_ms))
        )

    async def check(self) -> None:
        """Compares now. Raises StoreError; the last verdict then stands, as where the clock jumps while it is
        compared.
        """
        async with self._comparing:
            await self._check()

    async def until_compared(self) -> None:
        """Returns once it is known what the time is, or after ten seconds: until then this node's own clock is all
        there is.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FIRST_S):
                while self._skew_ms is None:
                    async with self._comparing:
                        if self._skew_ms is None:
                            await self._check_or_say()
                    if self._skew_ms is None:
                        await asyncio.sleep(RETRY_S)

    async def run(self) -> None:
        """Clears what an earlier process of this node left, then compares each minute, until cancelled."""
        async with self._comparing:
            await self._clear()
        while True:
            async with self._comparing:
                await self._check_or_say()
            await asyncio.sleep(PERIOD_S if self._skew_ms is not None else RETRY_S)

    async def _check(self) -> None:
        for _ in range(TRIES):
            found = await compared(self._store, self._clock, key=f"{self._prefix}{self._rng.uuid()}")
            if found is not None:
                self._take(found)
                return
        _log.warning(
            "clock not compared with the store's: it jumped meanwhile, or the store was slow",
            tries=TRIES,
            trusted=self.trusted,
        )

    async def _check_or_say(self) -> None:
        try:
            await self._check()
        except StoreError as error:
            _log.warning("clock not compared with the store's", error=str(error), trusted=self.trusted)

    def _take(self, found: Comparison) -> None:
        seen_ms = found.wall_minus_elapsed_ms + found.skew_ms
        elapsed_ms = self._clock.elapsed_ms()
        if self._skew_ms is None or abs(seen_ms - self._line_ms) <= self._skew_ms_max:
            self._line_ms, self._new_line_since_ms = seen_ms, None
        else:  # the store's time has jumped, so it bears nothing out: it may be this machine's
            if self._new_line_since_ms is None or abs(seen_ms - self._seen_ms) > self._skew_ms_max:
                self._new_line_since_ms = elapsed_ms
            if elapsed_ms - self._new_line_since_ms >= self._settle_ms:
                self._line_ms, self._new_line_since_ms = seen_ms, None
        self._seen_ms, self._skew_ms = seen_ms, found.skew_ms
        SKEW_SECONDS.set(found.skew_ms / 1000)
        self._say()

    def _say(self) -> None:
        trusted = self.trusted
        TRUSTED.set(trusted)
        verdict = "trusted" if trusted else "differs" if self.differs else "jumped"
        if verdict == self._said:
            return
        self._said = verdict
        if trusted:
            _log.info("clock agrees with the store's again: deletion by time goes on", skew_ms=self._skew_ms)
        elif verdict == "differs":
            _log.error(
                "clock differs from the store's: nothing is deleted by time and no partitions are taken; set this "
                "machine's clock (NTP)",
                skew_ms=self._skew_ms,
                skew_ms_max=self._skew_ms_max,
            )
        else:
            _log.error(
                "clock jumped, and the store's with it: which time is right cannot be told, so nothing is deleted "
                "by time for a while; look at this machine's clock, and start bmq again if it is right",
                jumped_ms=round(self._seen_ms - self._line_ms),
                settles_after_s=self._settle_ms // 1000,
            )

    async def _clear(self) -> None:
        try:
            async for meta in self._store.list(self._prefix):
                if is_scratch(meta.key):
                    await self._store.delete(meta.key)
        except StoreError as error:
            _log.warning("scratch objects of the clock comparison not cleared", error=str(error))

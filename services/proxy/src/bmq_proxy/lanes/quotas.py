"""What a lane's clients may write and read on this proxy in a second. What is written is written, and who wrote it is
not heard for as long as it was too much; what is read waits, in the order in which it was asked for.
"""

import asyncio
from collections.abc import Callable

from bmq.fairness.turns import NOBODY, Party, Places
from bmq.metadata.records import NO_QUOTA, LaneQuota
from bmq.roles.controller import Metadata
from bmq_proxy import metrics
from bmq_proxy.lanes.rate import RateCap

LOOK_S = 1.0
"""How long a rate that was raised may not be noticed."""
LEAST_S = 0.001
"""A debt is waited for so long at least: less may be no time at all by the loop's clock."""
THROTTLE_MS_MAX = 20_000
"""How long a client is told to send nothing, and not heard, at most: it gives up a request that is not answered for 30
s."""


class Pace:
    """One lane's writes, or reads. What is over its rate is paid for by those that come after."""

    def __init__(self, lane: str, direction: str, bytes_per_s: Callable[[], int], *, owed_s_max: float) -> None:
        """`bytes_per_s`: the rate now, 0 for no bound. `direction`: write or read. `owed_s_max`: so much of the rate is
        owed at most.
        """
        self._lane = lane
        self._direction = direction
        self._bytes_per_s = bytes_per_s
        self._owed_s_max = owed_s_max
        self._cap = RateCap(1)
        self._line = Places(1)

    def debt_s(self) -> float:
        """How long until nothing is owed any more; 0: now."""
        cap = self._now()
        return 0.0 if cap is None else cap.debt_s(_now_s())

    def left_bytes(self, size_bytes: int) -> int:
        """As much of so many bytes as may come now, 1 at least."""
        cap = self._now()
        return size_bytes if cap is None else max(1, min(size_bytes, cap.left(_now_s())))

    def take(self, size_bytes: int) -> None:
        """So many bytes came."""
        cap = self._now()
        if cap is not None:
            cap.take(size_bytes, _now_s(), owed_bytes_max=self._owed_s_max * cap.bytes_per_s)

    def _now(self) -> RateCap | None:
        """That of the rate as it is; None: there is none."""
        bytes_per_s = self._bytes_per_s()
        if not bytes_per_s:
            return None
        if bytes_per_s != self._cap.bytes_per_s:
            self._cap = RateCap(bytes_per_s)
        return self._cap

    @property
    def is_due(self) -> bool:
        """Whether who comes now has to wait."""
        return not self._line.is_idle or self.debt_s() > 0

    async def grant(self, bytes_max: int, until_s: float, *, party: Party = NOBODY) -> int:
        """As many of so many bytes as may come now, to one after the other, by turns of addresses and their
        connections; 0: none before the loop's time was `until_s`. What came of it says `settle`.
        """
        began_s = _now_s()
        address, connection = party
        try:
            async with asyncio.timeout_at(until_s), self._line.holding(party=address, sender=connection):
                while True:
                    cap = self._now()
                    if cap is None:
                        return bytes_max
                    if granted := cap.grant(_now_s(), bytes_max=bytes_max):
                        return granted
                    await asyncio.sleep(max(LEAST_S, min(cap.wait_s(_now_s()), LOOK_S)))
        except TimeoutError:
            return 0
        finally:
            if (waited_s := _now_s() - began_s) > 0:
                metrics.LANE_THROTTLED.labels(self._lane, self._direction).inc(waited_s)

    def settle(self, granted: int, used: int) -> None:
        """What came of a grant; a batch comes whole, so it may be more."""
        if (cap := self._now()) is not None:
            cap.settle(granted, used, owed_bytes_max=self._owed_s_max * cap.bytes_per_s)

    def throttle_ms(self) -> int:
        """How long a client whose request has come is told to send nothing."""
        time_ms = min(THROTTLE_MS_MAX, round(self.debt_s() * 1000))
        if time_ms:
            metrics.LANE_THROTTLED.labels(self._lane, self._direction).inc(time_ms / 1000)
        return time_ms


class Paces:
    """One lane's."""

    def __init__(self, real: Metadata, lane: str) -> None:
        def quota() -> LaneQuota:
            found = real.image.lanes.get(lane)
            return NO_QUOTA if found is None else found.quota

        self.write = Pace(lane, "write", lambda: quota().write_bytes_per_s, owed_s_max=THROTTLE_MS_MAX / 1000)
        self.read = Pace(lane, "read", lambda: quota().read_bytes_per_s, owed_s_max=THROTTLE_MS_MAX / 1000)


def _now_s() -> float:
    return asyncio.get_running_loop().time()

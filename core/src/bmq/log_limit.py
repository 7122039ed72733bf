"""How often a line may be logged: once per key and interval, with the number of those left out. Pure: the caller gives loop time."""

from collections import OrderedDict
from collections.abc import Hashable
from typing import Final

KEYS_MAX: Final = 1_000
"""Keys remembered; the one not logged for longest is forgotten first, and may then speak early."""


class RateLimited:
    """`if (left_out := limit.due(key, now=loop.time())) is not None: log.warning(…, left_out=left_out)`."""

    def __init__(self, *, interval_s: float = 1.0) -> None:
        self._interval_s = interval_s
        self._last: OrderedDict[Hashable, tuple[float, int]] = OrderedDict()

    def due(self, key: Hashable, *, now: float) -> int | None:
        """None where the line has to wait, else how many of this key were left out since its last one. `now` in seconds of the loop's clock."""
        at, left_out = self._last.get(key, (float("-inf"), 0))
        if now - at < self._interval_s:
            self._last[key] = (at, left_out + 1)
            return None
        self._last[key] = (now, 0)
        self._last.move_to_end(key)
        if len(self._last) > KEYS_MAX:
            self._last.popitem(last=False)
        return left_out

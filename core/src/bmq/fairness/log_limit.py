"""How often a line may be logged: once per key and interval, or so often, with the number of those left out. Pure: the
caller gives the time.
"""

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
        """None where the line has to wait, else how many of this key were left out since its last one. `now` in seconds
        of the loop's clock.
        """
        at, left_out = self._last.get(key, (float("-inf"), 0))
        if now - at < self._interval_s:
            self._last[key] = (at, left_out + 1)
            return None
        self._last[key] = (now, 0)
        self._last.move_to_end(key)
        if len(self._last) > KEYS_MAX:
            self._last.popitem(last=False)
        return left_out


class Bursts:
    """So many lines of a key in each interval. Beneath RateLimited, for all that is logged: what nobody thought of is
    bounded too.
    """

    def __init__(self, *, lines_max: int, interval_s: float) -> None:
        assert lines_max > 0
        self._lines_max = lines_max
        self._interval_s = interval_s
        self._seen: OrderedDict[Hashable, tuple[float, int, int]] = OrderedDict()
        """By key: when its interval began, how many lines it had in it, and how many were left out since the last
        one."""

    def due(self, key: Hashable, *, now: float) -> int | None:
        """None where the line is left out, else how many of this key were before it. `now` in seconds of a steady
        clock.
        """
        since, lines, left_out = self._seen.get(key, (float("-inf"), 0, 0))
        if now - since >= self._interval_s:
            since, lines = now, 0
        if lines >= self._lines_max:
            self._seen[key] = (since, lines, left_out + 1)
            return None
        self._seen[key] = (since, lines + 1, 0)
        self._seen.move_to_end(key)
        if len(self._seen) > KEYS_MAX:
            self._seen.popitem(last=False)
        return left_out

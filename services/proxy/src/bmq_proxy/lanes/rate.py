"""How much may be read now where the rate is capped: a bucket that fills with time, and may be overdrawn by what came
whole. Pure.
"""

import math
from dataclasses import dataclass


@dataclass(slots=True)
class RateCap:
    """At most `bytes_per_s` in the long run, and a second's worth at once after a rest. Times in seconds of one
    clock.
    """

    bytes_per_s: int
    left_bytes: float = 0.0
    at_s: float | None = None

    def grant(self, now_s: float, *, bytes_max: float = math.inf) -> int:
        """How many bytes, of so many, may be read now, taken from the bucket; 0: none. What was not used goes back with
        `settle`.
        """
        self._fill(now_s)
        granted = max(0, int(min(self.left_bytes, bytes_max)))
        self.left_bytes -= granted
        return granted

    def settle(self, granted: int, used: int, *, owed_bytes_max: float = math.inf) -> None:
        """What came of a grant; a batch comes whole, so it may be more. No more than `owed_bytes_max` are owed."""
        self.left_bytes = max(self.left_bytes + granted - used, -owed_bytes_max)

    def take(self, size_bytes: int, now_s: float, *, owed_bytes_max: float) -> None:
        """So many bytes came, granted or not; no more than `owed_bytes_max` are owed."""
        self._fill(now_s)
        self.left_bytes = max(self.left_bytes - size_bytes, -owed_bytes_max)

    def debt_s(self, now_s: float) -> float:
        """How long until nothing is owed; 0 where nothing is."""
        self._fill(now_s)
        return max(0.0, -self.left_bytes / self.bytes_per_s)

    def left(self, now_s: float) -> int:
        """How many bytes may be read now; nothing is taken."""
        self._fill(now_s)
        return max(0, int(self.left_bytes))

    def wait_s(self, now_s: float) -> float:
        """How long until there is something to grant."""
        self._fill(now_s)
        return max(0.0, (1 - self.left_bytes) / self.bytes_per_s)

    def _fill(self, now_s: float) -> None:
        if self.at_s is None:
            self.left_bytes = float(self.bytes_per_s)
        else:
            self.left_bytes = min(float(self.bytes_per_s), self.left_bytes + (now_s - self.at_s) * self.bytes_per_s)
        self.at_s = now_s

"""How much may be read now where the rate is capped: a bucket that fills with time, and may be overdrawn by what came
whole. Pure.
"""

from dataclasses import dataclass


@dataclass(slots=True)
class RateCap:
    """At most `bytes_per_s` in the long run, and a second's worth at once after a rest. Times in seconds of one
    clock.
    """

    bytes_per_s: int
    left_bytes: float = 0.0
    at_s: float | None = None

    def grant(self, now_s: float) -> int:
        """How many bytes may be read now, taken from the bucket; 0: none. What was not used goes back with `settle`."""
        self._fill(now_s)
        granted = max(0, int(self.left_bytes))
        self.left_bytes -= granted
        return granted

    def settle(self, granted: int, used: int) -> None:
        """What came of a grant; a batch comes whole, so it may be more."""
        self.left_bytes += granted - used

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

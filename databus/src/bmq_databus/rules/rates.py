"""How much may be written: a bucket of messages and one of bytes, which fill with time. Pure."""

from dataclasses import dataclass
from typing import Final

_NOTHING: Final = 1e-9
"""What rounding leaves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """A rate of 0 bounds nothing."""

    messages_per_second: float = 0.0
    bytes_per_second: float = 0.0
    burst_s: float = 1.0
    """What was not written in so long may be made up for at once."""


@dataclass(slots=True)
class Ahead:
    """What of one request was refused already, and is to come before what follows: the order of its messages."""

    messages: int = 0
    size_bytes: int = 0


class Bucket:
    """Times are seconds of one clock that never goes back.

    In any time t there is let through at most burst + rate × t, and of a message that is larger than the burst itself
    as much more as it has beyond that, which is made up for.
    """

    def __init__(self, *, per_second: float, burst: float, now_s: float) -> None:
        self._per_second = per_second
        self._burst = burst
        self._left = burst
        self._at_s = now_s

    def wait_s(self, amount: float, now_s: float, *, ahead: float = 0.0) -> float:
        """How long until there is so much, after `ahead`: 0 where there is."""
        self._fill(now_s)
        missing = ahead + min(amount, self._burst) - self._left
        return missing / self._per_second if missing > _NOTHING else 0.0

    def take(self, amount: float) -> None:
        """So much of it, as of the last `wait_s`; what is missing is below 0 then."""
        self._left -= amount

    def _fill(self, now_s: float) -> None:
        if now_s > self._at_s:
            self._left = min(self._burst, self._left + (now_s - self._at_s) * self._per_second)
            self._at_s = now_s


class RateLimit:
    """One channel's."""

    def __init__(self, rate: Rate, *, now_s: float) -> None:
        self.rate = rate
        self._last_s = now_s
        """When the last one that waits is let through."""
        self._messages = self._bytes = None
        if rate.messages_per_second:
            burst = max(1.0, rate.messages_per_second * rate.burst_s)
            self._messages = Bucket(per_second=rate.messages_per_second, burst=burst, now_s=now_s)
        if rate.bytes_per_second:
            burst = max(1.0, rate.bytes_per_second * rate.burst_s)
            self._bytes = Bucket(per_second=rate.bytes_per_second, burst=burst, now_s=now_s)

    def admit(self, size_bytes: int, now_s: float, ahead: Ahead) -> float:
        """0: it is let through. Else in how many seconds it would be, and `ahead` has it."""
        wait_s = self._wait_s(size_bytes, now_s, ahead)
        if wait_s or ahead.messages:
            ahead.messages += 1
            ahead.size_bytes += size_bytes
            return max(wait_s, 1e-9)
        self._take(size_bytes)
        return 0.0

    def reserve(self, size_bytes: int, now_s: float) -> float:
        """It is let through in so many seconds, and whoever comes behind it no sooner."""
        wait_s = self._wait_s(size_bytes, now_s, Ahead())
        if wait_s:
            self._last_s = now_s + wait_s
            self._wait_s(size_bytes, self._last_s, Ahead())  # both are taken from as of then
        self._take(size_bytes)
        return wait_s

    def _wait_s(self, size_bytes: int, now_s: float, ahead: Ahead) -> float:
        from_s = max(now_s, self._last_s)
        of_messages = of_bytes = 0.0
        if self._messages is not None:
            of_messages = self._messages.wait_s(1.0, from_s, ahead=ahead.messages)
        if self._bytes is not None:
            of_bytes = self._bytes.wait_s(size_bytes, from_s, ahead=ahead.size_bytes)
        return from_s - now_s + max(of_messages, of_bytes)

    def _take(self, size_bytes: int) -> None:
        if self._messages is not None:
            self._messages.take(1.0)
        if self._bytes is not None:
            self._bytes.take(size_bytes)

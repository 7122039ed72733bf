"""How much the greedy may have under way while there is anybody modest to protect. Pure: times are the loop's.

The bound is found, not set: it shrinks while the modest wait for longer beside the greedy than they do by themselves,
and grows while they do not. Where even the least there can be under way is too much the greedy rest in between. What a
proxy writes and what it reads for those who are far behind have a window each, which follow the same signal.

How long the modest wait by themselves is known from what of theirs met nothing greedy: it has the store's latency in it
and the linger, of which a proxy knows nothing else. Where nothing did for a while, the greedy pause for a moment.
"""

from collections.abc import Callable
from functools import partial
from math import exp, log
from typing import Final

WINDOW_FIRST_BYTES: Final = 4 << 20
WINDOW_MIN_BYTES: Final = 512 << 10
SLOWER_MAX: Final = 1.25
"""The modest may wait so many times longer beside the greedy, in the geometric mean."""
SHRINK_MIN: Final = 0.6
GROW_MAX: Final = 1.1
GROW_EVERY_S: Final = 0.1
"""It shrinks as fast as it is known to be too large, and grows slowly: what is too much under way is there for as long
as it takes."""
REST_MIN: Final = 0.25
REST_MAX: Final = 4.0
"""A rest, in times of what was just under way took: so the greedy keep a fifth of the time at least."""
REST_S_MAX: Final = 0.5
"""What was under way while the store did not answer says nothing of what the modest need."""
REMEMBERED_S: Final = 1.0
"""For so long the modest count as being there, and one as greedy, after they last were."""
SMOOTHING: Final = 0.2
ALONE_SMOOTHING: Final = 0.05
TICK_S: Final = 0.001
"""What a loop's clock can tell apart: what took less took as much."""
ALONE_KEPT_S: Final = 10.0
"""For so long what the modest wait by themselves is known: a store may get slower."""
PAUSE_WAITS: Final = 3
"""How long the greedy pause, in times of what the modest wait: what is under way ends, and what comes then meets
nothing."""


class GreedyWindow:
    """Bytes of the greedy that are under way, and how many there may be."""

    __slots__ = (
        "_bytes_max",
        "_call_at",
        "_free_since",
        "_rest",
        "_rests_until",
        "_will_tell",
        "held_bytes",
        "size_bytes",
    )

    def __init__(self, *, bytes_max: int, call_at: Callable[[float, Callable[[], None]], object]) -> None:
        """`call_at`: the loop's."""
        self._bytes_max = bytes_max
        self._call_at = call_at
        self.size_bytes = min(WINDOW_FIRST_BYTES, bytes_max)
        self.held_bytes = 0
        self._free_since = self._rests_until = float("-inf")
        self._rest = 0.0
        self._will_tell = False

    def was_free(self, took_s: float, now: float) -> bool:
        """Whether nothing was under way for so long."""
        return not self.held_bytes and now - self._free_since >= took_s

    def pause(self, until: float) -> None:
        """Nothing more starts until then."""
        self._rests_until = max(self._rests_until, until)

    def fits(self, size_bytes: int, now: float) -> bool:
        """Whether so much more may start now; what is larger than the window may by itself."""
        return now >= self._rests_until and (not self.held_bytes or self.held_bytes + size_bytes <= self.size_bytes)

    def began(self, size_bytes: int) -> None:
        """So much more is under way."""
        self.held_bytes += size_bytes

    def over(self, size_bytes: int, *, took_s: float | None, now: float) -> None:
        """So much is not under way any more, after so long; None: at once, because it was refused."""
        self.held_bytes -= size_bytes
        assert self.held_bytes >= 0
        if not self.held_bytes:
            self._free_since = now
        if self._rest and took_s is not None:
            self.pause(now + min(REST_S_MAX, self._rest * took_s))

    def tell_rested(self, tell: Callable[[float], None]) -> None:
        """Where something did not fit: calls `tell` with the time once a rest is over. While anything is under way its
        end is what tells.
        """
        if not self.held_bytes and not self._will_tell:
            self._will_tell = True
            self._call_at(self._rests_until, partial(self._rested, self._rests_until, tell))

    def _rested(self, due: float, tell: Callable[[float], None]) -> None:
        self._will_tell = False
        if self._rests_until > due:
            self.tell_rested(tell)  # there was a pause meanwhile
        else:
            self._rests_until = float("-inf")  # timers are not exact
            tell(due)

    def adapt(self, ratio: float) -> None:
        """The modest wait so many times longer than they need to."""
        change = min(GROW_MAX, max(SHRINK_MIN, SLOWER_MAX / ratio))
        if self._rest or (change < 1 and self.size_bytes <= WINDOW_MIN_BYTES):
            rest = max(REST_MIN, self._rest) / change
            self._rest = 0.0 if rest < REST_MIN else min(REST_MAX, rest)
        else:
            self.size_bytes = int(min(self._bytes_max, max(WINDOW_MIN_BYTES, self.size_bytes * change)))


class Modest:
    """Those who are to be protected: whether there are any, how long they wait, and the windows that follow from it."""

    def __init__(self) -> None:
        self._windows: list[GreedyWindow] = []
        self.under_way = 0
        """Their appends."""
        self._last_at = float("-inf")
        self._alone = _Mean(ALONE_SMOOTHING)
        self._beside = _Mean(SMOOTHING)
        self._alone_at = self._paused_at = self._changed_at = float("-inf")

    def window(self, *, bytes_max: int, call_at: Callable[[float, Callable[[], None]], object]) -> GreedyWindow:
        """One more that follows them."""
        window = GreedyWindow(bytes_max=bytes_max, call_at=call_at)
        self._windows.append(window)
        return window

    def are_there(self, now: float) -> bool:
        """Whether something of theirs is under way, or was just now."""
        return self.under_way > 0 or self.were_there(now)

    def were_there(self, now: float) -> bool:
        """Whether something of theirs began or was answered just now."""
        return now - self._last_at < REMEMBERED_S

    def began(self, now: float) -> None:
        """An append of theirs."""
        self.under_way += 1
        self._last_at = now

    def over(self, took_s: float | None, now: float) -> None:
        """It was answered, after so long; None: at once, because it was refused."""
        self.under_way -= 1
        self._last_at = now
        if took_s is None:
            return
        took_s = max(took_s, TICK_S)
        busy = [window for window in self._windows if not window.was_free(took_s, now)]
        if not busy:
            if now - self._alone_at >= ALONE_KEPT_S:
                self._alone.forget()
            self._alone.add(took_s)
            self._alone_at = now
            return
        self._beside.add(took_s)
        if now - max(self._alone_at, self._paused_at) >= ALONE_KEPT_S:
            self._paused_at = now
            for window in self._windows:
                window.pause(now + min(REST_S_MAX, PAUSE_WAITS * self._beside.value_s))
        elif self._alone.is_known:
            self._adapt(busy, now)

    def _adapt(self, busy: list[GreedyWindow], now: float) -> None:
        """Once in the time that an append takes, and with good news not even so often."""
        ratio = self._beside.value_s / self._alone.value_s
        if now - self._changed_at >= (
            self._beside.value_s if ratio > SLOWER_MAX else max(self._beside.value_s, GROW_EVERY_S)
        ):
            self._changed_at = now
            for window in busy:
                window.adapt(ratio)


class _Mean:
    """A geometric mean of the newest times: one that took a hundred times as long does not hide the others."""

    __slots__ = ("_count", "_log", "_smoothing")

    def __init__(self, smoothing: float) -> None:
        self._smoothing = smoothing
        self._count = 0
        self._log = 0.0

    @property
    def is_known(self) -> bool:
        return self._count > 0

    @property
    def value_s(self) -> float:
        return exp(self._log)

    def add(self, took_s: float) -> None:
        self._count += 1
        self._log += (log(took_s) - self._log) * max(self._smoothing, 1 / self._count)

    def forget(self) -> None:
        """What comes now counts as the first."""
        self._count = 0

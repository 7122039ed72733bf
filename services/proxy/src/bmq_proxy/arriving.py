"""The memory of requests that are still arriving, for all connections of a process: what has come of them, never what they claim to be.

Apart from the memory of whole requests, so that who sends half a request never holds up who sends a small one. When there is none left, the address
that holds more than half of it gives way to another one at once. One request at a time
may go beyond the limit, so that memory always comes back; who sends nothing then is cut off (`stuck`).
"""

from collections import Counter
from collections.abc import Iterator
from typing import Final, Protocol

STILL_S_MAX: Final = 1.0
"""While others wait for memory, a request that is not whole has to go on arriving at least this often…"""
BYTES_PER_S_MIN: Final = 64 << 10
"""…and never at less than this for long."""
SHORT_WITHIN_S: Final = 5.0
"""How long, while others wait for memory; `half_sent_within_ms` at other times."""


class Incoming(Protocol):
    """One connection's request that is not whole yet."""

    frame_since: float
    """Since when it has been arriving, in the loop's time."""
    whole_bytes: int
    """What it claims to come to."""
    arrived_at: float
    """When its newest bytes came, or it got leave to read on."""

    @property
    def peer(self) -> str:
        """The address of its other side."""

    @property
    def is_read(self) -> bool:
        """Whether it is for the peer to send more; False: it is not read on for the time being."""

    def go_on(self) -> None:
        """It has the memory that it waited for."""

    def make_room(self, reason: str) -> None:
        """It is to end at once."""


class ArrivingMemory:
    """Grants memory: to the address that has least of it first, of its requests to the one that claims least, then first come first served."""

    def __init__(self, limit_bytes: int, *, whole_within_s: float = 60.0) -> None:
        assert limit_bytes > 0
        self.limit_bytes = limit_bytes
        self.held_bytes = 0
        self._whole_within_s = whole_within_s
        self._held: dict[Incoming, int] = {}
        self._held_by: Counter[str] = Counter()
        """By address."""
        self._waiting: dict[Incoming, int] = {}
        self._ahead: Incoming | None = None
        """The one that may go beyond the limit, up to its whole size: the one that has waited longest."""

    @property
    def is_waited_for(self) -> bool:
        """Whether somebody wants more than there is."""
        return bool(self._waiting)

    def ask(self, incoming: Incoming, size_bytes: int) -> bool:
        """Holds `size_bytes` in all for it from now on (True), or (False) from when it is told to `go_on`."""
        if incoming is self._ahead or self._fits(incoming, size_bytes):
            # It may pass some that wait: the one that is ahead of them all goes on meanwhile.
            self._hold(incoming, size_bytes)
            return True
        self._waiting[incoming] = size_bytes
        self._make_room(incoming, size_bytes)
        if incoming not in self._waiting:
            return True  # those that made room let it go on
        if self._ahead is None and next(iter(self._waiting)) is incoming:
            self._let_ahead()
            return True
        return False

    def forget(self, incoming: Incoming) -> None:
        """It is whole, or never will be."""
        self._waiting.pop(incoming, None)
        held_bytes = self._held.pop(incoming, 0)
        self.held_bytes -= held_bytes
        self._held_by[incoming.peer] -= held_bytes
        if self._held_by[incoming.peer] <= 0:
            del self._held_by[incoming.peer]
        if incoming is self._ahead:
            self._ahead = None
        while self._waiting:
            waiting = min(self._waiting, key=self._turn)
            if not self._fits(waiting, self._waiting[waiting]):
                break
            self._hold(waiting, self._waiting.pop(waiting))
            waiting.go_on()
        if self._waiting and self._ahead is None:
            self._let_ahead().go_on()

    def stuck(self, now: float) -> Iterator[tuple[Incoming, str]]:
        """Those to be cut off, and why: for the sake of others that wait, or because they drip. `now` is the loop's time."""
        short = bool(self._waiting)
        within_s = min(SHORT_WITHIN_S, self._whole_within_s) if short else self._whole_within_s
        for incoming, held_bytes in list(self._held.items()):
            if incoming in self._waiting or not incoming.is_read:
                continue
            if short and now - incoming.arrived_at > STILL_S_MAX:
                yield incoming, f"nothing more of a request came for {STILL_S_MAX:.0f} s while memory is short"
            elif now - incoming.frame_since > within_s + held_bytes / BYTES_PER_S_MIN:
                yield incoming, f"a request arrives at less than {BYTES_PER_S_MIN >> 10} KiB/s for more than {within_s:g} s"

    def _fits(self, incoming: Incoming, size_bytes: int) -> bool:
        return self.held_bytes + self._more(incoming, size_bytes) <= self.limit_bytes

    def _more(self, incoming: Incoming, size_bytes: int) -> int:
        return size_bytes - self._held.get(incoming, 0)

    def _turn(self, incoming: Incoming) -> tuple[int, int]:
        """Who is lowest is next."""
        return self._held_by[incoming.peer], incoming.whole_bytes

    def _make_room(self, incoming: Incoming, size_bytes: int) -> None:
        """Cuts off those of the address that holds more than half, the stillest first, for one of another address that has not as much."""
        if not self._held_by:
            return
        greedy, greedy_bytes = self._held_by.most_common(1)[0]
        wanted_bytes = self._held_by[incoming.peer] + self._more(incoming, size_bytes)
        if greedy == incoming.peer or 2 * greedy_bytes <= self.limit_bytes or 2 * wanted_bytes > self.limit_bytes:
            return
        theirs = sorted((one for one in self._held if one.peer == greedy), key=lambda one: one.arrived_at)
        for one in theirs:
            if incoming not in self._waiting or self._fits(incoming, size_bytes):
                break
            one.make_room("its address holds more than half of the memory for requests that arrive, which others wait for")
            self.forget(one)

    def _hold(self, incoming: Incoming, size_bytes: int) -> None:
        more_bytes = self._more(incoming, size_bytes)
        self.held_bytes += more_bytes
        self._held_by[incoming.peer] += more_bytes
        self._held[incoming] = size_bytes

    def _let_ahead(self) -> Incoming:
        first = next(iter(self._waiting))
        self._hold(first, self._waiting.pop(first))
        self._ahead = first
        return first

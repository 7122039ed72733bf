"""The memory of requests that are still arriving, for all connections of a process: what has come of them, never what they claim to be.

Apart from the memory of whole requests, so that who sends half a request never holds up who sends a small one. When there is none left,
one request at a time may go beyond the limit, so that memory always comes back; who sends nothing then is cut off (`stuck`).
"""

from collections.abc import Iterator
from typing import Final, Protocol

STILL_S_MAX: Final = 2.0
"""While others wait for memory, a request that is not whole has to go on arriving at least this often…"""
WHOLE_WITHIN_S: Final = 30.0
"""…and to be whole within this time."""


class Incoming(Protocol):
    """One connection's request that is not whole yet."""

    frame_since: float
    """Since when it has been arriving, in the loop's time."""
    arrived_at: float
    """When its newest bytes came, or it got leave to read on."""

    @property
    def is_read(self) -> bool:
        """Whether it is for the peer to send more; False: it is not read on for the time being."""

    def go_on(self) -> None:
        """It has the memory that it waited for."""


class ArrivingMemory:
    """Grants memory first come first served."""

    def __init__(self, limit_bytes: int) -> None:
        assert limit_bytes > 0
        self.limit_bytes = limit_bytes
        self.held_bytes = 0
        self._held: dict[Incoming, int] = {}
        self._waiting: dict[Incoming, int] = {}
        self._ahead: Incoming | None = None
        """The one that may go beyond the limit, up to its whole size."""

    def ask(self, incoming: Incoming, size_bytes: int) -> bool:
        """Holds `size_bytes` in all for it from now on (True), or (False) from when it is told to `go_on`."""
        more_bytes = size_bytes - self._held.get(incoming, 0)
        if incoming is self._ahead or (not self._waiting and self.held_bytes + more_bytes <= self.limit_bytes):
            self._hold(incoming, size_bytes)
            return True
        self._waiting[incoming] = size_bytes
        if self._ahead is None and next(iter(self._waiting)) is incoming:
            self._let_ahead()
            return True
        return False

    def forget(self, incoming: Incoming) -> None:
        """It is whole, or never will be."""
        self._waiting.pop(incoming, None)
        self.held_bytes -= self._held.pop(incoming, 0)
        if incoming is self._ahead:
            self._ahead = None
        for waiting, size_bytes in list(self._waiting.items()):
            if self.held_bytes + size_bytes - self._held.get(waiting, 0) > self.limit_bytes:
                break
            del self._waiting[waiting]
            self._hold(waiting, size_bytes)
            waiting.go_on()
        if self._waiting and self._ahead is None:
            self._let_ahead().go_on()

    def stuck(self, now: float) -> Iterator[tuple[Incoming, str]]:
        """Those to be cut off for the sake of others that wait, and why. `now` is the loop's time."""
        if not self._waiting:
            return
        for incoming in list(self._held):
            if incoming in self._waiting or not incoming.is_read:
                continue
            if now - incoming.arrived_at > STILL_S_MAX:
                yield incoming, f"nothing more of a request came for {STILL_S_MAX:.0f} s while memory is short"
            elif now - incoming.frame_since > WHOLE_WITHIN_S:
                yield incoming, f"a request was not sent to its end within {WHOLE_WITHIN_S:.0f} s while memory is short"

    def _hold(self, incoming: Incoming, size_bytes: int) -> None:
        self.held_bytes += size_bytes - self._held.get(incoming, 0)
        self._held[incoming] = size_bytes

    def _let_ahead(self) -> Incoming:
        first = next(iter(self._waiting))
        self._hold(first, self._waiting.pop(first))
        self._ahead = first
        return first

"""How often a client takes its calls back (RST_STREAM of HTTP/2), and how long what it sends waits for that. Pure.

A call that is begun and taken back at once costs the library and this process as much as any other, keeps none of the
places that bound calls, and is a hundred bytes. Who does so more often than those that give up calls waits. It is not
cut: it would dial again, and have its burst anew.
"""

from typing import Final

HEAD_BYTES: Final = 9
RESET: Final = 3
BURST: Final = 100
"""So many at once: more than all calls that a connection may have…"""
PER_S: Final = 200
"""…and so many in each second."""


class Resets:
    """One connection's. Follows its frames, and keeps none of them."""

    def __init__(self, now_s: float) -> None:
        """Begins between two frames. Times are of one clock that never goes back."""
        self._left = float(BURST)
        self._at_s = now_s
        self._payload_bytes = 0
        """How much of a frame's payload is still to come…"""
        self._head = b""
        """…or what is there of the next one's head."""

    def wait_s(self, data: bytes, now_s: float) -> float:
        """How long what came has to wait before it goes on."""
        self._left = min(BURST, self._left + (now_s - self._at_s) * PER_S) - self._count(data)
        self._at_s = now_s
        return max(0.0, -self._left / PER_S)

    def _count(self, data: bytes) -> int:
        """How many begin in it."""
        if self._head:
            data, self._head = self._head + data, b""
        at, count = self._payload_bytes, 0
        while at + HEAD_BYTES <= len(data):
            count += data[at + 3] == RESET
            at += HEAD_BYTES + int.from_bytes(data[at : at + 3], "big")
        self._payload_bytes = max(0, at - len(data))
        self._head = data[at:]
        return count

"""When the buffer in front of a WAL stream is sent before it is full. Pure: times come from the caller, in seconds of
one steady clock.
"""

from collections.abc import Collection
from typing import Final

from bmq.fairness.fair_shares import SMALL_BYTES

RETURN_S: Final = 0.002
"""Who was answered and sends again does so within this time. Waiting longer would make clients with a pace of their own
late: each object would gather more, and so be waited for longer."""
LARGE_BYTES: Final = 128 << 10
"""An object of batches of at least this size takes several times as long as one of at most SMALL_BYTES, which does not
wait for its end to be sent: it is durable when both are, not a whole create later."""


class Pacing:
    """Two rules, for stores that charge for each object and for those that do not.

    Frugal: objects are at least `linger_s` apart, so a long linger bounds what a month of creates costs; a batch that
    finds the last one sent longer ago goes at once. Eager: where nothing is in flight, a batch waits only for those who
    were answered a moment ago and may send again: one client alone never waits, sixty-four share an object. So it does
    where what waits is small, and one object of large batches is in flight. In both no batch waits longer than
    `linger_s` for company.
    """

    __slots__ = ("_answered", "_answered_s", "_eager", "_linger_s", "_sent_s")

    def __init__(self, *, linger_s: float, eager: bool) -> None:
        self._linger_s = linger_s
        self._eager = eager
        self._sent_s = float("-inf")
        self._answered = 0
        """Batches answered since the last object was sent."""
        self._answered_s = float("-inf")

    def sent(self, now_s: float) -> None:
        """An object was sent."""
        self._sent_s = now_s
        self._answered = 0

    def answered(self, batches: int, now_s: float) -> None:
        """An object with so many batches became durable."""
        self._answered += batches
        self._answered_s = now_s

    def wait_s(
        self, *, batches: int, size_bytes: int, since_s: float, in_flight: Collection[int], now_s: float
    ) -> float:
        """How long the buffer may wait for company; 0 or less: it is due.

        `since_s` is when the first of its `batches` came, `in_flight` the mean sizes of the batches of each object that
        is being created, in bytes.
        """
        if not self._eager:
            return self._sent_s + self._linger_s - now_s
        linger_s = since_s + self._linger_s - now_s
        if in_flight and not (size_bytes <= SMALL_BYTES and len(in_flight) == 1 and max(in_flight) >= LARGE_BYTES):
            return linger_s
        return 0.0 if batches >= self._answered else min(linger_s, self._answered_s + RETURN_S - now_s)

"""The machine's own clock and entropy behind the ports `Clock` and `Rng`."""

import os
import time
from typing import Final
from uuid import UUID

from bmq.values import NONCE_SIZE_BYTES, Nonce

_SINCE_BOOT: Final[int] = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Linux's monotonic clock stands still while a laptop sleeps."""
_ENTROPY_SIZE_BYTES: Final = 4096
_RESERVED_UUIDS: Final = frozenset((UUID(int=0), UUID(int=1)))
"""Kafka's ZERO_UUID, and ONE_UUID which is also the id of its metadata topic."""
_DASH: Final = 62
"""The six bits that base64url writes as `-`."""


class SystemClock:
    """Wall time of this machine."""

    def now_ms(self) -> int:
        """Milliseconds since 1970, UTC; goes back where the machine's clock is set back."""
        return time.time_ns() // 1_000_000

    def elapsed_ms(self) -> float:
        """Milliseconds since the machine was started."""
        return time.clock_gettime(_SINCE_BOOT) * 1000


class SystemRng:
    """The kernel's randomness, read a page at a time: a nonce costs no system call. Used from the event loop's thread
    only.
    """

    def __init__(self) -> None:
        self._entropy = b""
        self._position = 0
        # A forked child that went on with the same bytes would give out its parent's nonces again.
        os.register_at_fork(after_in_child=self._forget)

    def nonce(self) -> Nonce:
        """16 random bytes."""
        return Nonce(self._take(NONCE_SIZE_BYTES))

    def uuid(self) -> UUID:
        """A random UUID (version 4), none of Kafka's reserved ones, and none that base64url writes with a dash first.

        Kafka's tools print ids that way and would take such a one for an option (org.apache.kafka.common.Uuid does the
        same).
        """
        while True:
            candidate = UUID(bytes=self._take(16), version=4)
            if candidate not in _RESERVED_UUIDS and candidate.bytes[0] >> 2 != _DASH:
                return candidate

    def random(self) -> float:
        """Uniform in [0, 1), 53 bits."""
        return float(int.from_bytes(self._take(7), "big") >> 3) / (1 << 53)

    def _take(self, count: int) -> bytes:
        end = self._position + count
        if end > len(self._entropy):
            self._entropy = os.urandom(_ENTROPY_SIZE_BYTES)
            self._position, end = 0, count
        taken = self._entropy[self._position : end]
        self._position = end
        return taken

    def _forget(self) -> None:
        self._entropy = b""
        self._position = 0

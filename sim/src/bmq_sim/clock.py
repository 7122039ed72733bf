"""Wall clocks and randomness of simulated nodes: both follow from virtual time and the seed."""

import asyncio
from random import Random
from uuid import UUID

from bmq.values import NONCE_SIZE_BYTES, Nonce

EPOCH_MS = 1_750_000_000_000
"""Wall time, in ms since 1970, at which every run starts."""

_RESERVED_HIGHEST = 100
"""Kafka reserves ids whose low bits are tiny (the null id, the metadata topic's)."""


def true_now_ms() -> int:
    """The wall time that a clock without skew shows now."""
    return EPOCH_MS + int(asyncio.get_running_loop().time() * 1000)


class SimClock:
    """bmq.ports.Clock of one node: virtual time plus that node's skew, which may be changed while it runs."""

    def __init__(self, *, skew_ms: int = 0) -> None:
        self.skew_ms = skew_ms

    def now_ms(self) -> int:
        """Milliseconds since 1970."""
        return true_now_ms() + self.skew_ms

    def elapsed_ms(self) -> float:
        """Virtual time."""
        return asyncio.get_running_loop().time() * 1000


class SimRng:
    """bmq.ports.Rng: everything follows from the seed."""

    def __init__(self, seed: int | Random) -> None:
        self._random = seed if isinstance(seed, Random) else Random(seed)

    def nonce(self) -> Nonce:
        """16 bytes."""
        return Nonce(self._random.randbytes(NONCE_SIZE_BYTES))

    def uuid(self) -> UUID:
        """A version 4 UUID."""
        while True:
            value = UUID(int=self._random.getrandbits(128), version=4)
            if value.int > _RESERVED_HIGHEST:
                return value

    def random(self) -> float:
        """Uniform in [0, 1)."""
        return self._random.random()

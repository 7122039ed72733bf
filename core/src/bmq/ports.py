"""What the logic of bmq needs from outside: a store, a wall clock, randomness. Network and monotonic time are the event
loop's.

`runtime` implements these for real, `bmq_sim` for the simulator.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol
from uuid import UUID

from typing_extensions import Buffer

from bmq.values import Nonce


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectMeta:
    """What a listing or a head tells: key, size in bytes, modification time in ms since 1970 by the store's clock."""

    key: str
    size_bytes: int
    modified_ms: int


class ObjectStore(Protocol):
    """Immutable objects: created once, never overwritten, later deleted. Keys are ASCII, `/`-separated, ordered by code
    point.
    """

    async def create(self, key: str, parts: Sequence[Buffer]) -> None:
        """Makes the object out of `parts` joined. Durable when it returns.

        Raises Conflict (the key exists), NotApplied (it certainly was not made) or UnknownOutcome. Never retries by
        itself.
        """

    async def get(self, key: str, *, start: int = 0, length: int | None = None) -> bytes:
        """The object's bytes from `start`; fewer than `length` where it ends. Raises ObjectMissing,
        StoreUnavailable.
        """

    def list(self, prefix: str, *, after: str = "") -> AsyncIterator[ObjectMeta]:
        """Objects whose key starts with `prefix` and is greater than `after` (a whole key), ascending, page by page.

        Raises StoreUnavailable while iterating.
        """

    async def delete(self, key: str) -> None:
        """Deletes; a missing key is success. Raises StoreUnavailable."""

    async def head(self, key: str) -> ObjectMeta:
        """Raises ObjectMissing, StoreUnavailable."""


class Clock(Protocol):
    """Wall time, and what tells whether it jumped. For durations and deadlines use the running loop's `time()`."""

    def now_ms(self) -> int:
        """Milliseconds since 1970, UTC."""

    def elapsed_ms(self) -> float:
        """Milliseconds since some moment, evenly, whatever is done to the wall clock; the time in which the machine
        sleeps counts.
        """


class Rng(Protocol):
    """Randomness and ids."""

    def nonce(self) -> Nonce:
        """16 random bytes."""

    def uuid(self) -> UUID:
        """A random UUID (version 4), never one of Kafka's reserved ones."""

    def random(self) -> float:
        """Uniform in [0, 1): jitter, sampling."""


class Tracer(Protocol):
    """Where spans go. Whoever may have none asks `is None`, and nothing else."""

    def span(self, name: str, *, took_s: float, attributes: Mapping[str, str | int], failed: bool = False) -> None:
        """A span that ends now, of which the tracer keeps some."""

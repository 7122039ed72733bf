"""One request on its way through the proxy: who asks, what of its memory is still in use, and how its answer leaves."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from prometheus_client import Counter
from typing_extensions import Buffer

from bmq.fairness.fair_shares import Admitted, Share
from bmq.naming.listeners import DEFAULT_LISTENER
from bmq_proxy.origins import Origin


class Counted(Protocol):
    """What counts bytes that are held."""

    def hold(self, size_bytes: int) -> None:
        """So many are."""

    def release(self, size_bytes: int) -> None:
        """So many are no more."""


class Lease:
    """The memory of one request frame. Given back when the last holder lets go: the answer, and every append that still
    points into it.
    """

    __slots__ = ("_budget", "_holders", "_is_held", "size_bytes")

    def __init__(self, budget: Counted, size_bytes: int) -> None:
        self._budget = budget
        self._holders = 1
        self._is_held = True
        self.size_bytes = size_bytes
        budget.hold(size_bytes)

    def hold(self) -> None:
        """One more holder."""
        self._holders += 1

    def let_go(self) -> None:
        """One holder less."""
        self._holders -= 1
        assert self._holders >= 0
        if not self._holders:
            self.give_back()

    def give_back(self) -> None:
        """Nobody has the frame any more, though whoever holds it may still wait for something else."""
        if self._is_held:
            self._is_held = False
            self._budget.release(self.size_bytes)


@dataclass(slots=True, kw_only=True)
class Call:
    """A request, as handlers see it. `arrived` is the loop's time; `client_host` is written as Kafka does, with a slash
    before it.
    """

    api_key: int
    version: int
    correlation_id: int
    client_id: str
    client_host: str
    lease: Lease
    arrived: float
    listener: str = DEFAULT_LISTENER
    """By which the client came, and of which it is told."""
    origin: Origin | None = None
    """The connection, where it came over one: what it writes to a partition keeps its order."""
    partitions: int = 0
    """As how many partitions a Produce that was begun counts."""
    connection: int = 0
    """The connection's number, counted from 1 since this proxy started."""
    share: Share | None = None
    """Whose bytes under way it counts among, where they are counted."""
    admitted: Admitted = Admitted.MODEST
    bytes_in: Counter | None = None
    bytes_out: Counter | None = None
    """What its bytes are counted with where the client is in a lane."""

    patient_until: float | None = None
    """The loop's time until which it waits for owners; None: it has asked none yet."""
    throttle_ms: int = 0
    """How long its client is told to send nothing."""
    answer_bytes: int = 0
    """What its answer says, where that may be much though its elements are few."""
    is_carried_through: bool = True
    """Whether it goes on where its client has gone: what has begun to change something does."""
    is_gone: bool = False
    """Its client has: nobody is there to be answered."""
    let_go: Callable[[], None] | None = None
    """Called once its answer is encoded and counted, or there will be none."""

    @property
    def request_id(self) -> str:
        """For the log: the connection's number and the correlation id, which the client's own log has too."""
        return f"c{self.connection}-{self.correlation_id}"


@dataclass(slots=True, kw_only=True)
class Answer:
    """A response body as buffers that are sent one after the other; `parts` None: nothing is sent (acks=0), or the
    connection closed.

    `flushed` is called once, when the client's socket took it all or the connection is gone.
    """

    parts: Sequence[Buffer] | None
    size_bytes: int = 0
    error: str = "none"
    close: bool = False
    flushed: Callable[[], None] | None = None


Pending = Answer | asyncio.Future[Answer]

"""One request on its way through the proxy: who asks, what of its memory is still in use, and how its answer leaves."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from prometheus_client import Counter
from typing_extensions import Buffer

from bmq.fairness.fair_shares import Admitted, Share
from bmq.naming.listeners import DEFAULT_LISTENER
from bmq.wire.produce import ProduceRequest
from bmq.wire.produce_forms import ProduceForm
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

    def grow(self, size_bytes: int) -> None:
        """Another frame that is given back with this one."""
        assert self._is_held
        self.size_bytes += size_bytes
        self._budget.hold(size_bytes)

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


class Alike:
    """Produce requests of one connection, in their order, that differ in their correlation ids and batches alone."""

    __slots__ = ("batches", "correlation_ids", "form", "request", "unanswered")

    def __init__(self, form: ProduceForm, request: ProduceRequest, correlation_id: int, records: memoryview) -> None:
        self.form = form
        self.request = request
        """The first of them."""
        self.correlation_ids = [correlation_id]
        self.batches = [records]
        self.unanswered = 1

    def add(self, correlation_id: int, records: memoryview) -> None:
        """The next one."""
        self.correlation_ids.append(correlation_id)
        self.batches.append(records)
        self.unanswered += 1


@dataclass(slots=True, kw_only=True)
class Call:
    """A request, as handlers see it, or several Produce requests that are alike. `arrived` is the loop's time;
    `client_host` is written as Kafka does, with a slash before it.
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
    alike: Alike | None = None
    """What Produce requests with one batch write; None: it is one request, which its handler reads."""

    @property
    def requests(self) -> int:
        """How many requests it is, and has to be answered by."""
        return 1 if self.alike is None else len(self.alike.correlation_ids)

    @property
    def request_id(self) -> str:
        """For the log: the connection's number and the correlation id, which the client's own log has too."""
        return f"c{self.connection}-{self.correlation_id}"


@dataclass(slots=True, kw_only=True)
class Answer:
    """A response body as buffers that are sent one after the other; `parts` None: nothing is sent (acks=0), or the
    connection closed, or there are `frames`.

    `flushed` is called once, when the client's socket took it all or the connection is gone.
    """

    parts: Sequence[Buffer] | None
    size_bytes: int = 0
    error: str = "none"
    close: bool = False
    flushed: Callable[[], None] | None = None
    frames: Buffer = b""
    """Instead of parts: whole frames, the answers to requests that are alike."""
    requests: int = 1
    """How many requests it answers; those of a `rest` do not count."""
    rest: "asyncio.Future[Answer] | None" = None
    """What answers those of several requests that this does not; None: none are left."""
    failed: Sequence[str] = ()
    """The errors of those that failed, where it answers several requests."""


Pending = Answer | asyncio.Future[Answer]

"""One client's connection: frames in, answers out, in order. Knows nothing of what the requests mean, but that Produce
requests which differ in what they write alone go on as one.

Produce requests may overlap earlier ones of the same connection (submitted strictly in arrival order); any other
request starts only when everything before it is answered, which is what Kafka's clients rely on. Reading stops while
there is enough to do: too many requests in flight, a request that has to wait its turn, memory of the process used up,
or a peer that does not read its answers.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Protocol, cast

from typing_extensions import Buffer

from bmq.errors import WireError
from bmq.fairness.fair_shares import SMALL_BYTES, Share
from bmq.naming.listeners import DEFAULT_LISTENER
from bmq.wire.apis import SERVED, ApiKey
from bmq.wire.frames import RequestHeader, encode_response_frame, parse_request_header
from bmq.wire.produce_forms import Forms, ProduceForm
from bmq_proxy.arriving import ArrivingMemory
from bmq_proxy.calls import Alike, Answer, Call, Lease, Pending
from bmq_proxy.fair_memory import FairMemory
from bmq_proxy.intake import Intake

WAITING_BYTES_MAX = 1 << 20
"""Bytes of requests that wait their turn above which a connection is not read on."""


ALIKE_BYTES_MAX = SMALL_BYTES
"""Requests that are alike go on as one up to so many bytes: as what a modest client's single one may have."""


class Service(Protocol):
    """What a connection needs of the process around it."""

    requests_in_flight_max: int
    alike_requests_max: int
    """So many that are alike go on as one."""
    forms: Forms
    """Those of all connections."""
    request_memory: FairMemory
    arriving: ArrivingMemory

    scratch: bytearray
    """What all connections read into: nothing stays there between two calls, so an idle one holds no memory."""

    def opened(self, connection: "Connection") -> bool:
        """False: there are too many."""

    def closed(self, connection: "Connection") -> None: ...

    def left(self, connection: "Connection") -> None:
        """It is closed, and nothing that came over it is worked on any more."""

    def broken(self, peer: str, reason: str) -> None:
        """Somebody sent what is not the protocol."""

    def failed(self, call: Call, error: BaseException) -> None:
        """A handler raised what it should not: a bug."""

    def overlaps(self, api_key: int) -> bool: ...

    def ends_with_client(self, api_key: int) -> bool:
        """Whether a request is given up when its client is gone; others are carried through."""

    def delays_stop(self, api_key: int) -> bool:
        """Whether a clean stop waits for a request of this API."""

    def turn_is_full(self) -> bool:
        """Whether no more requests begin in this turn of the loop."""

    def admits(self, connection: "Connection", call: Call) -> bool:
        """Whether the request may start now; otherwise `go_on` is called when it may be asked again."""

    def begin(self, call: Call, body: Buffer) -> Pending:
        """Starts a request that was admitted. Raises WireError."""

    def ended(self, call: Call, answer: Answer | None) -> None:
        """It was answered, but for what an answer leaves to its rest, or (None) it failed."""


OUTGOING_PARTS_MAX = 16
"""Small answers gather until they have so many parts; more would keep the client waiting while this side works."""


class _Exchange:
    """A request, or several that are alike, and what answers it. `pending` None: it waits its turn."""

    __slots__ = ("body", "call", "pending")

    def __init__(self, call: Call, body: Buffer) -> None:
        self.call = call
        self.body: Buffer | None = body
        self.pending: Pending | None = None

    @property
    def done(self) -> bool:
        return isinstance(self.pending, Answer) or (self.pending is not None and self.pending.done())


class Connection(asyncio.BufferedProtocol):
    """Plumbing between a transport and a Service."""

    __slots__ = (
        "__weakref__",
        "_advance_due",
        "_carried_through",
        "_client_host",
        "_closing",
        "_exchanges",
        "_finishing",
        "_form",
        "_intake",
        "_is_held_back",
        "_listener",
        "_loop",
        "_muted_until",
        "_outgoing",
        "_peer",
        "_requests",
        "_service",
        "_started",
        "_transport",
        "_unflushed",
        "_unmuting",
        "_waiting_bytes",
        "_write_paused",
        "active_at",
        "number",
        "share",
        "stalled_at",
    )

    def __init__(self, service: Service, listener: str = DEFAULT_LISTENER) -> None:
        self._service = service
        self._listener = listener
        self._loop = asyncio.get_running_loop()  # kept: asking for it is a system call
        self._intake = Intake(
            service.scratch, service.request_memory, service.arriving, service.broken, service.turn_is_full
        )
        self._transport: asyncio.Transport | None = None
        # Made by the first request: most connections of a large fleet are idle.
        self._exchanges: deque[_Exchange] | None = None
        self._form: ProduceForm | None = None
        """That of its last Produce request, where that had one batch."""
        self._started = 0
        self._requests = 0
        """In all exchanges."""
        self._waiting_bytes = 0
        self._write_paused = False
        self._closing = False
        self._finishing = False
        self._carried_through = 0
        """What is still worked on after its end."""
        self._is_held_back = False
        """Its next request was not admitted yet."""
        self._unflushed: Answer | None = None
        self._outgoing: list[Buffer] = []
        self._advance_due = False
        self._muted_until = 0.0
        """The loop's time until which nothing more is read of a client that was told to send nothing."""
        self._unmuting: asyncio.TimerHandle | None = None
        self._peer = ""
        self._client_host = "/"
        self.active_at = 0.0
        self.number = 0
        """The service's: counted from 1."""
        self.share: Share | None = None
        """The service's: what it has under way of what is shared out."""
        self.stalled_at: float | None = None
        """Since when the peer has not taken what it was sent."""

    @property
    def idle(self) -> bool:
        """Nothing is in flight."""
        return not self._exchanges and not self._intake.has_more

    @property
    def is_answering(self) -> bool:
        """Whether something was started that a clean stop waits for, or an answer is on its way."""
        if self._write_paused:
            return True
        return (
            bool(self._started)
            and self._exchanges is not None
            and self._service.delays_stop(self._exchanges[0].call.api_key)
        )

    @property
    def is_over(self) -> bool:
        """It has ended, and so has what came over it."""
        return self._transport is None and not self._carried_through

    @property
    def unsent_bytes(self) -> int:
        """What the peer has yet to take of what it was sent."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    @property
    def peer(self) -> str:
        """The other side's address."""
        return self._peer

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The event loop's."""
        self._transport = cast(asyncio.Transport, transport)
        self.active_at = self._loop.time()
        peer = transport.get_extra_info("peername")
        self._peer = str(peer[0]) if isinstance(peer, tuple) and peer else str(peer or "")
        self._client_host = f"/{self._peer}"
        if not self._service.opened(self):
            self._closing = True
            self._transport.abort()
            return
        # With a limit of zero a write is either taken whole by the socket or reported by pause_writing: that is how
        # long an answer counts.
        self._transport.set_write_buffer_limits(high=0)
        self._intake.open(self._transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """The event loop's."""
        self._closing = True
        self._transport = None
        if self._unmuting is not None:
            self._unmuting.cancel()
        self._flushed()
        exchanges, self._exchanges = self._exchanges or (), None
        for exchange in exchanges:
            exchange.call.is_gone = True
            if exchange.pending is None:
                exchange.call.lease.let_go()
            elif isinstance(exchange.pending, Answer):
                self._discard(exchange)
            elif exchange.pending.done():
                exchange.pending.remove_done_callback(self._answered)
                self._discard(exchange)
            else:
                # The connection lets go of it; whoever is behind the future still gives the memory back.
                exchange.pending.remove_done_callback(self._answered)
                exchange.pending.add_done_callback(partial(self._discard_later, exchange))
                self._carried_through += 1
                if self._service.ends_with_client(exchange.call.api_key) or not exchange.call.is_carried_through:
                    exchange.pending.cancel()
        self._intake.close()
        self._service.closed(self)
        if not self._carried_through:
            self._service.left(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        """The event loop's: where to put the next bytes."""
        return self._intake.get_buffer(sizehint)

    def buffer_updated(self, nbytes: int) -> None:
        """The event loop's: so many bytes came."""
        if self._closing or self._finishing:
            # read, and not kept: closing with something unread would reset the connection, and take answers from the
            # peer
            return
        self.active_at = self._loop.time()
        if self._take_in(partial(self._intake.received, nbytes)):
            self._advance()

    def eof_received(self) -> bool:
        """The event loop's: the peer sends no more, which ends the connection, as it does in Kafka."""
        return False

    def pause_writing(self) -> None:
        """The event loop's: the peer does not read as fast as it is sent to."""
        self._write_paused = True
        self.stalled_at = self._loop.time()
        self._update_reading()

    def resume_writing(self) -> None:
        """The event loop's: everything written was taken."""
        self._write_paused = False
        self.stalled_at = None
        self._flushed()
        self._advance()

    def finish(self) -> None:
        """Starts nothing more, and leaves once what was started is answered: whoever sent the rest certainly may send
        it again.

        The end is told to the peer, which then closes; `close` it where it does not. A request that itself waits, for
        records or members, is not waited for.
        """
        self._finishing = True
        self._advance()

    def go_on(self) -> None:
        """A request that was not admitted may be asked for again."""
        self._advance()

    def close(self) -> None:
        """Ends the connection; what was written before is still sent."""
        self._closing = True
        self._write_out()
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Ends the connection at once."""
        self._closing = True
        if self._transport is not None:
            self._transport.abort()

    def _take_in(self, frames: Callable[[], list[memoryview]]) -> bool:
        """False: they are not the protocol, and the connection ends."""
        try:
            for frame in frames():
                self._arrived(frame)
        except WireError as error:
            self._break(str(error))
            return False
        self._intake.reserve()
        return True

    def _arrived(self, frame: memoryview) -> None:
        size_bytes = frame.nbytes
        form = self._form
        found = None if form is None else form.batch_of(frame)
        if form is not None and found is not None:
            if self._joins(form, size_bytes, *found):
                return
            correlation_id, records = found
            call = self._call(ApiKey.PRODUCE, form.version, correlation_id, form.client_id, size_bytes)
            call.alike = Alike(form, form.request_for(records), correlation_id, records)
            exchange = _Exchange(call, records)
        else:
            header = parse_request_header(frame)
            call = self._call(
                header.api_key, header.api_version, header.correlation_id, header.client_id or "", size_bytes
            )
            if header.api_key == ApiKey.PRODUCE:
                call.alike = self._first_alike(frame, header)
            exchange = _Exchange(call, frame[header.body_position :])
        if self._exchanges is None:
            self._exchanges = deque()
        self._exchanges.append(exchange)
        self._requests += 1
        self._waiting_bytes += size_bytes

    def _first_alike(self, frame: memoryview, header: RequestHeader) -> Alike | None:
        """A Produce request that is of another form than the one before it; None: it has not one batch."""
        taken = self._service.forms.of(frame, header)
        if taken is None:
            self._form = None
            return None
        self._form, request = taken
        records = request.topics[0].partitions[0][1]
        assert records is not None
        return Alike(self._form, request, header.correlation_id, records)

    def _joins(self, form: ProduceForm, size_bytes: int, correlation_id: int, records: memoryview) -> bool:
        """Whether a request goes on with the one before it, which has not begun."""
        if not self._exchanges or self._started == len(self._exchanges):
            return False
        call = self._exchanges[-1].call
        alike = call.alike
        if (
            alike is None
            or alike.form is not form
            or len(alike.batches) >= self._service.alike_requests_max
            or call.lease.size_bytes + size_bytes > ALIKE_BYTES_MAX
        ):
            return False
        alike.add(correlation_id, records)
        call.lease.grow(size_bytes)
        self._requests += 1
        self._waiting_bytes += size_bytes
        return True

    def _call(self, api_key: int, version: int, correlation_id: int, client_id: str, size_bytes: int) -> Call:
        return Call(
            api_key=api_key,
            version=version,
            correlation_id=correlation_id,
            client_id=client_id,
            client_host=self._client_host,
            lease=Lease(self._intake.memory, size_bytes),
            arrived=self.active_at,
            listener=self._listener,
            origin=self,
            connection=self.number,
        )

    def _advance(self) -> None:
        """Sends what may be sent, starts what may start."""
        exchanges = self._exchanges
        while exchanges and not self._closing and not self._write_paused:
            front = exchanges[0]
            if self._started and front.done:
                self._send(front)
                if front.pending is None:
                    exchanges.popleft()
                    self._started -= 1
                    self._requests -= front.call.requests
            elif not self._finishing and self._started < len(exchanges) and self._may_start(exchanges[self._started]):
                self._start(exchanges[self._started])
            else:
                break
            if (
                self._intake.has_more
                and self._started == len(exchanges)
                and self._requests < self._service.requests_in_flight_max
            ):
                self._take_more()
        self._write_out()
        if self._finishing and not self.is_answering:
            self._leave()
        self._update_reading()

    def _take_more(self) -> None:
        """The next requests of what was read: all before them have begun."""
        if not self._finishing and not self._closing:
            self._take_in(self._intake.more)

    def _leave(self) -> None:
        transport = self._transport
        if self._closing or transport is None:
            return
        self._closing = True
        transport.write_eof()

    def _may_start(self, exchange: _Exchange) -> bool:
        """Who is told yes starts it."""
        if self._started:
            assert self._exchanges
            # What overlaps is only ever started behind others that overlap: looking at the first is enough.
            first, api_key = self._exchanges[0].call.api_key, exchange.call.api_key
            if not self._service.overlaps(api_key) or (first != api_key and not self._service.overlaps(first)):
                return False
        self._is_held_back = not self._service.admits(self, exchange.call)
        return not self._is_held_back

    def _start(self, exchange: _Exchange) -> None:
        assert exchange.body is not None
        body, exchange.body = exchange.body, None
        self._waiting_bytes -= exchange.call.lease.size_bytes
        self._started += 1
        try:
            exchange.pending = self._service.begin(exchange.call, body)
        except WireError as error:
            self._break(f"{error} (API {exchange.call.api_key} version {exchange.call.version})")
            return
        except Exception as error:  # noqa: BLE001 - a bug: it is told, and nobody waits for good for an answer that will not come
            self._service.failed(exchange.call, error)
            self.close()
            return
        if not isinstance(exchange.pending, Answer):
            exchange.pending.add_done_callback(self._answered)

    def _answered(self, _: asyncio.Future[Answer]) -> None:
        """Answers that become ready in one turn of the loop go out in one write."""
        if not self._advance_due:
            self._advance_due = True
            self._loop.call_soon(self._advance_now)

    def _advance_now(self) -> None:
        self._advance_due = False
        self._advance()

    def _mute(self, time_ms: int) -> None:
        """Reads nothing more for so long; what was read goes on, so that nothing is held meanwhile."""
        self._muted_until = max(self._muted_until, self._loop.time() + time_ms / 1000)
        if self._unmuting is None:
            self._unmuting = self._loop.call_at(self._muted_until, self._unmute)

    def _unmute(self) -> None:
        self._unmuting = None
        if self._loop.time() < self._muted_until:
            self._unmuting = self._loop.call_at(self._muted_until, self._unmute)
            return
        self._muted_until = 0.0
        self._update_reading()

    def _send(self, exchange: _Exchange) -> None:
        answer = self._take(exchange)
        if answer is not None and answer.rest is not None:
            answer.rest.add_done_callback(self._answered)
        if exchange.call.throttle_ms:
            self._mute(exchange.call.throttle_ms)
        if answer is None:
            self.close()
            return
        if answer.frames:
            self._outgoing.append(answer.frames)
        elif answer.parts is None:
            if answer.flushed is not None:
                answer.flushed()
            if answer.close:
                self.close()
            return
        else:
            call = exchange.call
            header_version = SERVED[call.api_key].response_header_version(call.version)
            self._outgoing.extend(encode_response_frame(header_version, call.correlation_id, answer.parts))
        if answer.flushed is None:
            if len(self._outgoing) >= OUTGOING_PARTS_MAX:
                self._write_out()
        else:
            self._unflushed = answer
            self._write_out()
            if not self._write_paused:
                self._flushed()

    def _write_out(self) -> None:
        if self._outgoing and self._transport is not None:
            outgoing, self._outgoing = self._outgoing, []
            self._transport.writelines(cast("list[memoryview]", outgoing))

    def _take(self, exchange: _Exchange) -> Answer | None:
        """The answer of a finished exchange; None where there is none and the connection has to end. From now on its
        rest is waited for, or (None) nothing.
        """
        pending, exchange.pending = exchange.pending, None
        answer: Answer | None = None
        if isinstance(pending, Answer):
            answer = pending
        elif pending is not None and not pending.cancelled():
            error = pending.exception()
            if error is None:
                answer = pending.result()
            elif isinstance(error, WireError):
                self._service.broken(self._peer, str(error))
            else:
                self._service.failed(exchange.call, error)
        if answer is not None and answer.rest is not None:
            exchange.pending = answer.rest
        else:
            exchange.call.lease.let_go()
        self._service.ended(exchange.call, answer)
        return answer

    def _discard(self, exchange: _Exchange) -> None:
        answer = self._take(exchange)
        if answer is not None and answer.flushed is not None:
            answer.flushed()
        if answer is not None and answer.rest is not None:
            self._carried_through += 1
            answer.rest.add_done_callback(partial(self._discard_later, exchange))

    def _discard_later(self, exchange: _Exchange, _: asyncio.Future[Answer]) -> None:
        self._discard(exchange)
        self._carried_through -= 1
        if not self._carried_through:
            self._service.left(self)

    def _flushed(self) -> None:
        answer, self._unflushed = self._unflushed, None
        if answer is not None and answer.flushed is not None:
            answer.flushed()

    def _break(self, reason: str) -> None:
        self._service.broken(self._peer, reason)
        self.close()

    def _update_reading(self) -> None:
        """Reads on where there is not enough to do already."""
        if self._closing or self._finishing:
            return
        self._intake.update(
            wanted=not self._write_paused
            and (not self._muted_until or self._intake.is_within_frame)
            and not self._intake.has_more
            and self._requests < self._service.requests_in_flight_max
            and self._waiting_bytes <= (0 if self._is_held_back else WAITING_BYTES_MAX)
        )

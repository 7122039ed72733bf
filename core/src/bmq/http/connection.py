"""uvicorn's connection with bounds: it is handed one request at a time, its first lines whole and with few headers, its
body in parts, and each of these in its turn.

So nobody has more than a part of a turn of the event loop, however many connections, headers or chunks they send; and
what comes ahead of its answer stays with the kernel.
"""

import asyncio
from abc import abstractmethod
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final, cast

import h11
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT, FlowControl
from uvicorn.protocols.http.h11_impl import H11Protocol

from bmq.fairness.steps import Steps
from bmq.http.chunked_body import PART_BYTES, BrokenChunks, ChunkedBody
from bmq.http.request_bytes import HeadTooLarge, RequestBytes

READ_AHEAD_BYTES: Final = 64 << 10
"""What is read of a connection before it may be looked at: so much, and what the loop reads at once."""
REFUSED_LINGER_S: Final = 1.0
"""How long who was refused may take to close…"""
REFUSED_READ_EVERY_S: Final = 0.1
"""…and how often is read what it still sends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """What one connection may send, and when."""

    head_bytes_max: int
    headers_max: int
    request_within_s: float
    """A request's first lines are there so long after the connection was made, or after the answer to the one
    before."""
    part_bytes_min: int = 1
    """A body of a known length is handed over in parts of at least so many bytes, but for its last one."""


class Http(h11.Connection):
    """h11's, that knows why it refused what came."""

    refused: h11.RemoteProtocolError | None = None

    def next_event(self) -> Any:
        """h11's."""
        try:
            return super().next_event()
        except h11.RemoteProtocolError as error:
            self.refused = self.refused or error
            raise


class _Flow(FlowControl):
    """uvicorn's: who asks for more has what is there already, before more is read."""

    def __init__(self, connection: "BoundedConnection", transport: asyncio.Transport) -> None:
        super().__init__(transport)
        self._connection = connection

    def resume_reading(self) -> None:
        """uvicorn's."""
        self._connection.hand_over()

    def read_on(self) -> None:
        """There is no more than what is needed."""
        super().resume_reading()


class _Answers:
    """A connection's transport, as what answers its requests writes to it: in one go what is written while it is held.
    Each write is a call of the system otherwise, and an answer has two.
    """

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._is_held = False
        self._held: list[bytes] = []

    def hold(self) -> None:
        """Until `let_go`; nothing may wait, nor write beside it, in between."""
        self._is_held = True

    def let_go(self) -> None:
        """What was written goes out."""
        self._is_held = False
        if self._held:
            held, self._held = self._held, []
            self._transport.write(b"".join(held))

    def write(self, data: bytes) -> None:
        """The event loop's."""
        if self._is_held:
            self._held.append(data)
        else:
            self._transport.write(data)

    def is_closing(self) -> bool:
        """The event loop's."""
        return self._transport.is_closing()

    def close(self) -> None:
        """The event loop's: what was written goes out before."""
        self.let_go()
        self._transport.close()


class BoundedConnection(H11Protocol):
    """A server's own says what its `bounds` are, what counts as a `party`, and what it answers to what it refuses."""

    bounds: Bounds
    begins: Steps
    """Requests that begin."""
    parts: Steps
    """Parts of bodies that are looked at, but for what came with its request's first lines."""
    flow: _Flow
    answers: _Answers

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.conn: Http = self.new_http()
        self._bytes = RequestBytes(head_bytes_max=self.bounds.head_bytes_max, headers_max=self.bounds.headers_max)
        self._body_left_bytes = 0
        """How much of the body of the request that was handed over last is still to be handed over…"""
        self._chunks: ChunkedBody | None = None
        """…where that is not said beforehand."""
        self._waits_for_turn = False
        self._is_its_turn = False
        self._is_handing_over = False
        self.is_refused = False
        """Nothing more of it is looked at."""
        self._deadline: asyncio.TimerHandle | None = None

    def new_http(self) -> Http:
        """What makes HTTP of its bytes."""
        return Http(h11.SERVER, self.bounds.head_bytes_max)

    @property
    @abstractmethod
    def party(self) -> Hashable:
        """Whose turns those of this connection are."""

    @abstractmethod
    def refuse_head(self, error: HeadTooLarge) -> None:
        """A request's first lines are more than what is read."""

    @abstractmethod
    def overdue(self) -> None:
        """No request came in time."""

    def head_taken(self) -> None:
        """A request's first lines were handed over; what answers it begins in a later turn of the loop."""
        return

    @property
    def is_idle(self) -> bool:
        """Whether no request is under way."""
        return self.cycle is None or self.cycle.response_complete

    @property
    def waits_for_peer(self) -> bool:
        """Whether it is for the peer to go on: to send the rest of a request, or to take its answer."""
        if self._waits_for_turn:
            return False
        return self.is_idle or self.cycle.more_body or bool(self.transport.get_write_buffer_size())

    @property
    def has_part(self) -> bool:
        """Whether there is more of the body of the request that is under way, or its end: nobody waits for it."""
        return self.cycle.message_event.is_set()

    @property
    def has_rest(self) -> bool:
        """Whether all that is left of its body is there."""
        return not self.cycle.more_body

    @property
    def has_unread(self) -> bool:
        """Whether something came that was not handed over."""
        return bool(self._bytes)

    def abort(self) -> None:
        """Ends it at once, whatever is under way."""
        if self.transport is not None:
            self.transport.abort()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """The event loop's."""
        super().connection_made(transport)
        self.flow = _Flow(self, transport)
        self.answers = _Answers(transport)
        self._expect_request()

    def connection_lost(self, exc: Exception | None) -> None:
        """The event loop's."""
        self._cancel_deadline()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """The event loop's."""
        self._unset_keepalive_if_required()
        # read now and then, and not kept: closing with something unread would take the answer from its peer
        if self.is_refused:
            self._pause_reading()
            self.loop.call_later(REFUSED_READ_EVERY_S, self.hand_over)
            return
        self._bytes.add(data)
        self.hand_over()

    def on_response_complete(self) -> None:
        """uvicorn's."""
        self.answers.let_go()  # before anything is told of what comes next
        self._expect_request()
        super().on_response_complete()
        if self._bytes:
            self.loop.call_soon(self.hand_over)

    def hand_over(self) -> None:
        """What may be looked into now of what came: the first lines of the next request, or more of a body. Reads on
        where that is all there is.
        """
        if self._is_handing_over or self.transport.is_closing():
            return
        if self.is_refused:
            self.flow.read_on()
            return
        self._is_handing_over = True
        try:
            self._hand_over_head()
            while self._takes_more and self._hand_over_part():
                if self._bytes and self.conn.their_state is h11.IDLE:  # it was answered before it was whole
                    self.loop.call_soon(self.hand_over)
        finally:
            self._is_handing_over = self._is_its_turn = False
        if self._has_enough:
            self._pause_reading()
        else:
            self.flow.read_on()

    def refuse(self, status: int, headers: Iterable[tuple[str, str]], body: bytes) -> None:
        """Answers what will not be looked into any further, and ends the connection when its peer has had a moment to
        read that.
        """
        lines = [
            f"HTTP/1.1 {status} {HTTPStatus(status).phrase}",
            *(f"{name}: {value}" for name, value in headers),
            f"content-length: {len(body)}",
            "connection: close",
            "",
            "",
        ]
        self.stop_looking()
        self._cancel_deadline()
        self.transport.write("\r\n".join(lines).encode("latin-1") + body)
        if self.cycle is not None and not self.is_idle:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self.flow.read_on()
        self._deadline = self.loop.call_later(REFUSED_LINGER_S, self.abort)

    def stop_looking(self) -> None:
        """At anything more of what came, or comes."""
        self.is_refused = True
        self._bytes.take(len(self._bytes))

    def _hand_over_head(self) -> None:
        if self.conn.their_state is not h11.IDLE or self._waits_for_turn:
            return
        try:
            if not self._bytes.has_head():
                return
        except HeadTooLarge as error:
            self.refuse_head(error)
            return
        self._cancel_deadline()
        if not self._may_take(self.begins):
            return
        super().data_received(self._bytes.take_head())
        if self.cycle is not None:
            self.cycle.transport = cast(asyncio.Transport, self.answers)
        self.head_taken()
        self._body_left_bytes, self._chunks = 0, None
        if self._is_within_body:
            framing = {name: value for name, value in self.headers if name in (b"content-length", b"transfer-encoding")}
            if b"transfer-encoding" in framing:
                self._chunks = ChunkedBody()
            else:
                self._body_left_bytes = int(framing[b"content-length"])
            self._is_its_turn = True  # what came of the body is there, too

    def _hand_over_part(self) -> bool:
        """False: nothing more for now."""
        if self._chunks is None and len(self._bytes) < min(self._body_left_bytes, self.bounds.part_bytes_min):
            return False
        if not self._may_take(self.parts):
            return False
        if self._chunks is None:
            part = self._bytes.take(min(self._body_left_bytes, PART_BYTES))
            self._body_left_bytes -= len(part)
        else:
            before = len(self._bytes)
            try:
                part = self._reframed(self._bytes.take_chunks(self._chunks), is_last=self._chunks.is_over)
            except BrokenChunks as error:
                self.conn.refused = h11.RemoteProtocolError(str(error))
                self.send_400_response(str(error))
                return False
            if len(self._bytes) == before:
                return False
        if part:
            super().data_received(part)
        return True

    def _reframed(self, payload: bytes, *, is_last: bool) -> bytes:
        """As one chunk, however many it came in."""
        one = b"%x\r\n%b\r\n" % (len(payload), payload) if payload else b""
        return one + b"0\r\n\r\n" if is_last else one

    def _may_take(self, steps: Steps) -> bool:
        if self._is_its_turn:
            self._is_its_turn = False
            return True
        if self._waits_for_turn:
            return False
        self._waits_for_turn = not steps.may_take(self._go_on, party=self.party, sender=self)
        return not self._waits_for_turn

    def _go_on(self) -> None:
        """It is its turn."""
        self._waits_for_turn = False
        self._is_its_turn = True
        self.hand_over()

    @property
    def _is_within_body(self) -> bool:
        return self.conn.their_state is h11.SEND_BODY and not self.is_refused

    @property
    def _takes_more(self) -> bool:
        """Whether more of a body may be handed over: the application has taken what it has, or wants no more of it."""
        if not (self._is_within_body and self._bytes):
            return False
        return self.conn.our_state is h11.DONE or len(self.cycle.body) < HIGH_WATER_LIMIT

    @property
    def _has_enough(self) -> bool:
        """Whether nothing more is needed before somebody answers, or takes what there is."""
        state = self.conn.their_state
        if self.is_refused or (state is h11.IDLE and not self._waits_for_turn):
            return False
        if state is h11.SEND_BODY and len(self.cycle.body) >= HIGH_WATER_LIMIT:
            return self.conn.our_state is not h11.DONE
        return len(self._bytes) >= READ_AHEAD_BYTES

    def _pause_reading(self) -> None:
        self.flow.read_paused = True
        self.transport.pause_reading()  # uvicorn reads on by itself after a body that it dropped

    def _expect_request(self) -> None:
        self._cancel_deadline()
        self._deadline = self.loop.call_later(self.bounds.request_within_s, self.overdue)

    def _cancel_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

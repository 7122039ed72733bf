"""Connections: how many there may be, how long each may take to say what it wants, and what is told of broken HTTP."""

import asyncio
from http import HTTPStatus
from typing import Any, Final

import h11
import structlog
from uvicorn.protocols.http.h11_impl import H11Protocol

from bmq.fairness.log_limit import RateLimited
from bmq_databus.http.answers import Reply, refusal
from bmq_databus.http.incoming import CONNECTION, Receive, Scope, Send

CONNECTIONS_MAX: Final = 1_000
REFUSED_MAX: Final = 100
"""So many more are told why there is no room; the others are just closed."""
HEAD_BYTES_MAX: Final = 64 << 10
HEAD_WITHIN_S: Final = 10.0
"""A request's first lines are there so long after the connection was made, or after the answer to the one before."""
LINGER_S: Final = 1.0
"""How long who was refused may take to read why."""
COMPLAIN_EVERY_S: Final = 10.0

log = structlog.get_logger()
_complaints: Final = RateLimited(interval_s=COMPLAIN_EVERY_S)


class _Http(h11.Connection):
    """h11's, that knows why it refused what came."""

    why = ""

    def next_event(self) -> Any:
        """h11's."""
        try:
            return super().next_event()
        except h11.RemoteProtocolError as error:
            self.why = self.why or str(error)
            raise


class Connection(H11Protocol):
    """uvicorn's, with bounds. Its requests find it in their scope's extensions."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.conn: _Http = _Http(h11.SERVER, HEAD_BYTES_MAX)
        self.broken = ""
        """Why nothing more of it is understood; empty: it is."""
        self._served = self.app
        self.app = self._serve
        self._deadline: asyncio.TimerHandle | None = None

    @property
    def is_idle(self) -> bool:
        """Whether no request is under way."""
        return self.cycle is None or self.cycle.response_complete

    def abort(self) -> None:
        """Ends it at once, whatever is under way."""
        self.transport.abort()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """The event loop's."""
        super().connection_made(transport)
        if len(self.connections) > CONNECTIONS_MAX + REFUSED_MAX:
            self.abort()
            return
        if len(self.connections) > CONNECTIONS_MAX and not self._make_room():
            self._refuse(refusal(503, f"{CONNECTIONS_MAX} connections have requests under way: try again in a moment"))
            return
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """The event loop's."""
        self._cancel_deadline()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """The event loop's."""
        if self.broken:
            return
        super().data_received(data)
        if not self.is_idle:
            self._cancel_deadline()

    def on_response_complete(self) -> None:
        """uvicorn's."""
        self._expect_head()
        super().on_response_complete()
        if not self.is_idle:
            self._cancel_deadline()

    def send_400_response(self, msg: str) -> None:
        """uvicorn's, for what is no HTTP. Where an answer has begun, its request finds out in its body."""
        cycle = self.cycle
        if self.is_idle or not cycle.response_started:
            self._refuse(refusal(400, f"this is no HTTP/1.1 that is understood here: {self.conn.why}"))
            return
        self.broken = self.conn.why
        cycle.keep_alive = cycle.more_body = False
        cycle.message_event.set()

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["extensions"] = {CONNECTION: self}
        await self._served(scope, receive, send)

    def _make_room(self) -> bool:
        """Ends one of those that wait for a request; False: there is none but this one."""
        others = (one for one in self.connections if isinstance(one, Connection) and one is not self)
        rests = next((one for one in others if one.is_idle and not one.broken), None)
        if rests is not None:
            self.connections.discard(rests)
            rests.transport.abort()
            if (left_out := _complaints.due("rests", now=self.loop.time())) is not None:
                log.warning("a connection made room for another", connections=CONNECTIONS_MAX, left_out=left_out)
        return rests is not None

    def _refuse(self, reply: Reply) -> None:
        """Answers what is not looked into any further."""
        self.broken = self.conn.why or "refused"
        head = reply.head()
        lines = [f"HTTP/1.1 {reply.status} {HTTPStatus(reply.status).phrase}".encode()]
        lines += [name + b": " + value for name, value in (*head["headers"], (b"connection", b"close"))]
        self.transport.write(b"\r\n".join([*lines, b"", b""]) + reply.body)
        if self.cycle is not None and not self.is_idle:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self._cancel_deadline()
        self._deadline = self.loop.call_later(LINGER_S, self.abort)

    def _expect_head(self) -> None:
        self._cancel_deadline()
        self._deadline = self.loop.call_later(HEAD_WITHIN_S, self._overdue)

    def _overdue(self) -> None:
        if self.cycle is None and not self.transport.is_closing():
            self._refuse(refusal(408, f"no whole request came within {HEAD_WITHIN_S:g} s"))
        else:
            self.abort()

    def _cancel_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

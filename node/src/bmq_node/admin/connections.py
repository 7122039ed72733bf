"""Connections to the admin address: strangers may hold few of them, for a moment each, and never keep a new one out.

Health is asked for at this address, and a process that does not answer is killed. So nobody is refused for there being
too many: the connection that has waited longest for its own peer (for a request's first lines, its body, or an answer
to be taken) goes, of the address that has the most.

Sidecars that wait for a change hold a connection each for as long as they live, and there may be thousands: theirs are
counted apart, and keep nobody from asking for health.

Nor does anybody have more than a part of a turn of the loop: few requests begin in one, by turns of addresses, and none
is parsed that has many headers or comes in chunks.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, Final

import h11
import structlog
from prometheus_client import Counter as Counted
from prometheus_client import Gauge
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.h11_impl import H11Protocol

from bmq.config.limits import Limits
from bmq.fairness.log_limit import RateLimited
from bmq.fairness.turns import Rotation
from bmq_controller.api.asgi import BODY_BYTES_MAX
from bmq_controller.api.channel_watch import WATCH_PATH
from bmq_controller.api.front import WATCH_EXTENSION
from bmq_controller.api.problems import Refusal
from bmq_controller.api.request_ids import HEADER as REQUEST_ID
from bmq_controller.api.request_ids import request_id_of, with_request_id
from bmq_node.admin.request_bytes import AdminBytes, HeadTooLarge

CLOSED: Final = Counted(
    "bmq_admin_connections_closed",
    "Connections to the admin address that were closed for the sake of others, by why.",
    ["why"],
)
WATCHING: Final = Gauge("bmq_admin_watches", "Connections to the admin address of who waits for changes of channels.")
COMPLAIN_EVERY_S: Final = 10.0
LENGTH_REQUIRED: Final = 411
TOO_LARGE: Final = 413
BODY_PART_BYTES: Final = 64 << 10
"""A body that is longer is handed over in parts of at least so many bytes, but for its last one."""
REFUSED_LINGER_S: Final = 1.0
"""How long who was refused may take to close…"""
REFUSED_READ_EVERY_S: Final = 0.1
"""…and how often is read what it still sends."""
_log = structlog.get_logger(__name__)


class AdminConnections:
    """Those of one admin server, the one that moved last at the end."""

    def __init__(self, limits: Limits, *, new_id: Callable[[], str]) -> None:
        """`new_id` makes the id of a request that has none."""
        self.limits = limits
        self.new_id = new_id
        self._connections: dict[AdminConnection, None] = {}
        self._by_host: Counter[str] = Counter()
        self._watching: dict[AdminConnection, None] = {}
        """Those that were asked for changes, the one that was first at the beginning."""
        self._watching_by_host: Counter[str] = Counter()
        self._complaints = RateLimited(interval_s=COMPLAIN_EVERY_S)
        self._turn_left = limits.admin_turn_requests
        self._next_turn: Rotation[AdminConnection] = Rotation()
        self._is_turn_due = False

    def __len__(self) -> int:
        return len(self._connections)

    def opened(self, connection: "AdminConnection") -> None:
        """Makes room for it where there is none."""
        self._connections[connection] = None
        self._by_host[connection.host] += 1
        if self._by_host[connection.host] > self.limits.admin_connections_per_address:
            self._close_one_of(connection.host, "admin_connections_per_address")
        elif len(self._connections) > self.limits.admin_connections_max:
            self._close_one_of(self._by_host.most_common(1)[0][0], "admin_connections_max")

    def moved(self, connection: "AdminConnection") -> None:
        """Its peer did something."""
        if connection in self._connections:
            self._connections[connection] = self._connections.pop(connection)

    def watches(self, connection: "AdminConnection") -> str | None:
        """It waits for a change, now and from time to time, and counts as one of those from now on. Says why it may
        not; None: it may.
        """
        if connection in self._watching:
            return None
        if connection not in self._connections:
            return "its connection is closed"
        limits, host = self.limits, connection.host
        own = self._watching_by_host[host]
        if own >= limits.admin_watches_per_address:
            return f"{own} connections of this address wait for changes, and admin_watches_per_address is {own}"
        if len(self._watching) >= limits.admin_watches_max:
            most, count = self._watching_by_host.most_common(1)[0]
            if count <= own + 1:
                return f"{len(self._watching)} connections wait for changes, as many as admin_watches_max lets"
            self.close(next(one for one in self._watching if one.host == most), "admin_watches_max")
        self.closed(connection)
        self._watching[connection] = None
        self._watching_by_host[host] += 1
        WATCHING.inc()
        return None

    def closed(self, connection: "AdminConnection") -> None:
        """It is gone."""
        if connection in self._watching:
            del self._watching[connection]
            WATCHING.dec()
            self._watching_by_host[connection.host] -= 1
            if not self._watching_by_host[connection.host]:
                del self._watching_by_host[connection.host]
        if connection in self._connections:
            del self._connections[connection]
            self._by_host[connection.host] -= 1
            if not self._by_host[connection.host]:
                del self._by_host[connection.host]

    def begins(self, connection: "AdminConnection") -> bool:
        """Whether a request of it may begin now; False: when it is told to `go_on`, which goes by turns of
        addresses.
        """
        if self._turn_left > 0:
            self._turn_left -= 1
            return True
        self._next_turn.push(connection, party=connection.host, sender=connection)
        self._take_turns()
        return False

    def close(self, connection: "AdminConnection", why: str) -> None:
        """Ends it, and says so now and then."""
        CLOSED.labels(why).inc()
        left_out = self._complaints.due(why, now=asyncio.get_running_loop().time())
        if left_out is not None:
            _log.warning(
                "admin connection closed",
                peer=connection.host,
                reason=f"{why} = {getattr(self.limits, why)}",
                left_out=left_out,
            )
        self.closed(connection)
        connection.abort()

    def _take_turns(self) -> None:
        if not self._is_turn_due:
            self._is_turn_due = True
            asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        """The loop has come round since there was no more to begin."""
        self._is_turn_due = False
        self._turn_left = self.limits.admin_turn_requests
        while self._next_turn and self._turn_left > 0:
            self._next_turn.pop().go_on()
        if self._next_turn:
            self._take_turns()

    def _close_one_of(self, host: str, why: str) -> None:
        """The stillest whose peer it waits for; where there is none, the stillest."""
        theirs = [connection for connection in self._connections if connection.host == host]
        waits = next((connection for connection in theirs[:-1] if connection.waits_for_peer), theirs[0])
        self.close(waits, why)


class _Http(h11.Connection):
    """h11's, that takes no body in chunks (each of them would be an event), nor one that is too large, and knows why it
    refused what came.
    """

    refused: h11.RemoteProtocolError | None = None
    request_headers: dict[str, str]
    """The header with the request's id, by name, of the request that was looked at last; empty where it has none."""

    def __init__(self, role: type[h11.SERVER], head_bytes_max: int) -> None:
        super().__init__(role, head_bytes_max)
        self.request_headers = {}

    def next_event(self) -> Any:
        """h11's."""
        try:
            event = super().next_event()
            if isinstance(event, h11.Request):
                self._look_at(event)
        except h11.RemoteProtocolError as error:
            self.refused = error
            raise
        return event

    def _look_at(self, request: h11.Request) -> None:
        self.request_headers = {
            name.decode("latin-1"): value.decode("latin-1")
            for name, value in request.headers
            if name == REQUEST_ID.encode()
        }
        for name, value in request.headers:
            if name == b"transfer-encoding":
                raise h11.RemoteProtocolError("its body comes in chunks", error_status_hint=LENGTH_REQUIRED)
            if name == b"content-length" and int(value) > BODY_BYTES_MAX:
                raise h11.RemoteProtocolError(
                    f"its body has more than {BODY_BYTES_MAX} bytes", error_status_hint=TOO_LARGE
                )


class _Flow(FlowControl):
    """uvicorn's, that reads nothing more where there is more already than may be looked into."""

    def __init__(self, connection: "AdminConnection", transport: asyncio.Transport) -> None:
        super().__init__(transport)
        self._connection = connection

    def resume_reading(self) -> None:
        """uvicorn's."""
        if not self._connection.has_more:
            super().resume_reading()


class AdminConnection(H11Protocol):
    """uvicorn's, that knows when it was last moved, has a deadline for a request's first lines, and is handed one
    request at a time, in its turn.
    """

    known: AdminConnections
    """The connections of the server that this class was made for."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        limits = self.known.limits
        self.conn: _Http = _Http(h11.SERVER, limits.admin_head_bytes_max)
        self.host = ""
        self._bytes = AdminBytes(head_bytes_max=limits.admin_head_bytes_max, headers_max=limits.admin_headers_max)
        self._body_left_bytes = 0
        """How much of the body of the request that was handed over last is still to be handed over."""
        self._waits_for_turn = False
        self._is_refused = False
        self._deadline: asyncio.TimerHandle | None = None

    @property
    def waits_for_peer(self) -> bool:
        """Whether it is for the peer to go on: to send the rest of a request, or to take its answer."""
        if self._waits_for_turn:
            return False
        if self.cycle is None or self.cycle.response_complete:
            return True
        return self.cycle.more_body or bool(self.transport.get_write_buffer_size())

    @property
    def has_more(self) -> bool:
        """Whether something came that waits for its turn, or for the answer to the request before it."""
        return bool(self._bytes) and (self._waits_for_turn or self.conn.their_state not in (h11.IDLE, h11.SEND_BODY))

    def abort(self) -> None:
        """Ends it at once."""
        if self.transport is not None:
            self.transport.abort()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """The event loop's."""
        super().connection_made(transport)
        self.flow = _Flow(self, transport)
        self.host = self.client[0] if self.client else ""
        self.known.opened(self)
        self._expect_request()

    def connection_lost(self, exc: Exception | None) -> None:
        """The event loop's."""
        self._cancel_deadline()
        self.known.closed(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """The event loop's."""
        self._unset_keepalive_if_required()
        self.known.moved(self)
        # read now and then, and not kept: closing with something unread would take the answer from its peer
        if self._is_refused:
            self._pause_reading()
            self.loop.call_later(REFUSED_READ_EVERY_S, self._read_on)
            return
        self._bytes.add(data)
        self._hand_over()

    def go_on(self) -> None:
        """It is its turn."""
        self._waits_for_turn = False
        self._hand_over()

    def on_response_complete(self) -> None:
        """uvicorn's."""
        self._expect_request()
        super().on_response_complete()
        if self._bytes:
            self.loop.call_soon(self._hand_over)

    def send_400_response(self, msg: str) -> None:
        """uvicorn's, for what is no request: with the reason."""
        error = self.conn.refused
        status = error.error_status_hint if error is not None else 400
        if status == LENGTH_REQUIRED:
            self._refuse(status, "LengthRequired", str(error), "send it with a Content-Length")
        elif status == TOO_LARGE:
            self._refuse(status, "RequestTooLarge", str(error), "send less")
        else:
            self._refuse(
                status, "InvalidRequest", f"it is no HTTP/1.1 that is understood here ({error})", "send another one"
            )

    def _hand_over(self) -> None:
        """What may be looked into now of what came: the first lines of the next request, or more of a body."""
        if self._is_refused or self.transport.is_closing():
            return
        if self.conn.their_state is h11.IDLE:
            try:
                if not self._bytes.has_head():
                    self.flow.resume_reading()
                    return
            except HeadTooLarge as error:
                self._refuse(431, "RequestTooLarge", str(error), "send less")
                return
            self._cancel_deadline()
            if self._waits_for_turn or not self.known.begins(self):
                self._waits_for_turn = True
                self._pause_reading()
                return
            self.flow.resume_reading()
            super().data_received(self._bytes.take_head())
            self._offer_watch()
            self._body_left_bytes = self._declared_bytes() if self._takes_body else 0
        # not each byte of one that trickles
        if self._takes_body and len(self._bytes) >= min(self._body_left_bytes, BODY_PART_BYTES):
            part = self._bytes.take(self._body_left_bytes)
            self._body_left_bytes -= len(part)
            super().data_received(part)
            if self._bytes and self.conn.their_state is h11.IDLE:  # it was answered before it was whole
                self.loop.call_soon(self._hand_over)
        if self.has_more:
            self._pause_reading()

    def _offer_watch(self) -> None:
        """The application begins in a later turn; this connection may become one of those that wait for a change."""
        if self.cycle is not None and self.scope is not None and self.scope["path"] == WATCH_PATH:
            self.scope["extensions"] = {WATCH_EXTENSION: lambda: self.known.watches(self)}  # type: ignore[dict-item]

    def _read_on(self) -> None:
        if not self.transport.is_closing():
            self.flow.resume_reading()

    def _pause_reading(self) -> None:
        self.flow.read_paused = True
        self.transport.pause_reading()  # uvicorn reads on by itself after a body that it dropped

    @property
    def _takes_body(self) -> bool:
        return self.conn.their_state is h11.SEND_BODY and not self._is_refused

    def _declared_bytes(self) -> int:
        return int(next(value for name, value in self.headers if name == b"content-length"))

    def _refuse(self, status: int, code: str, why: str, remedy: str) -> None:
        """Answers what will not be looked into any further, and ends the connection when its peer has had a moment to
        read that.
        """
        reply = Refusal(status=status, code=code, what="request", why=why, remedy=remedy).reply()
        reply = with_request_id(reply, request_id_of(self.conn.request_headers, self.known.new_id))
        headers = {**reply.headers, "content-length": str(len(reply.body)), "connection": "close"}
        lines = [
            f"HTTP/1.1 {status} {HTTPStatus(status).phrase}",
            *(f"{name}: {value}" for name, value in headers.items()),
            "",
            "",
        ]
        CLOSED.labels("refused").inc()
        self._is_refused = True
        self._bytes.take(len(self._bytes))
        self._cancel_deadline()
        self.transport.write("\r\n".join(lines).encode("latin-1") + reply.body)
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self.flow.resume_reading()
        self._deadline = self.loop.call_later(REFUSED_LINGER_S, self.abort)

    def _expect_request(self) -> None:
        self._cancel_deadline()
        self._deadline = self.loop.call_later(self.known.limits.admin_request_within_ms / 1000, self._overdue)

    def _overdue(self) -> None:
        """Who was answered and has not begun another request rests between two of them, as a scraper does: nobody has
        to hear of its end.
        """
        if self.cycle is not None and not self._bytes:
            self.transport.close()
        else:
            self.known.close(self, "admin_request_within_ms")

    def _cancel_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


def protocol_of(known: AdminConnections) -> type[AdminConnection]:
    """The class of one server's connections: uvicorn makes them, and hands them nothing of ours."""
    return type("AdminConnection", (AdminConnection,), {"known": known})


class OncePerInterval(logging.Filter):
    """Lets a line of uvicorn's through once per interval: whoever connects causes them."""

    def __init__(self) -> None:
        super().__init__()
        self._complaints = RateLimited(interval_s=COMPLAIN_EVERY_S)

    def filter(self, record: logging.LogRecord) -> bool:
        """logging's."""
        try:
            now_s = asyncio.get_running_loop().time()
        except RuntimeError:
            return True
        return record.levelno >= logging.ERROR or self._complaints.due(record.msg, now=now_s) is not None

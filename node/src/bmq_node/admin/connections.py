"""Connections to the admin address: strangers may hold few of them, for a moment each, and never keep a new one out.

Health is asked for at this address, and a process that does not answer is killed. So nobody is refused for there being
too many: the connection that has waited longest for its own peer (for a request's first lines, its body, or an answer
to be taken) goes, of the address that has the most.

Sidecars that wait for a change hold a connection each for as long as they live, and there may be thousands: theirs are
counted apart, and keep nobody from asking for health.

Nor does anybody have more than a part of a turn of the loop (`bmq.http.connection`): few requests begin in one, by
turns of addresses. None is taken whose body comes in chunks.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

import h11
import structlog
from prometheus_client import Counter as Counted
from prometheus_client import Gauge

from bmq.config.limits import Limits
from bmq.fairness.log_limit import RateLimited
from bmq.fairness.steps import Steps
from bmq.http.connection import BoundedConnection, Bounds, Http
from bmq.http.request_bytes import HeadTooLarge
from bmq_controller.api.asgi import BODY_BYTES_MAX, TARGET_BYTES_MAX
from bmq_controller.api.channel_watch import WATCH_PATH
from bmq_controller.api.front import WATCH_EXTENSION
from bmq_controller.api.problems import Refusal
from bmq_controller.api.request_ids import HEADER as REQUEST_ID
from bmq_controller.api.request_ids import request_id_of, with_request_id

CLOSED: Final = Counted(
    "bmq_admin_connections_closed",
    "Connections to the admin address that were closed for the sake of others, by why.",
    ["why"],
)
WATCHING: Final = Gauge("bmq_admin_watches", "Connections to the admin address of who waits for changes of channels.")
COMPLAIN_EVERY_S: Final = 10.0
LENGTH_REQUIRED: Final = 411
TOO_LARGE: Final = 413
TOO_LONG: Final = 414
BODY_PART_BYTES: Final = 64 << 10
"""A body that is longer is handed over in parts of at least so many bytes, but for its last one."""
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

    def _close_one_of(self, host: str, why: str) -> None:
        """The stillest whose peer it waits for; where there is none, the stillest."""
        theirs = [connection for connection in self._connections if connection.host == host]
        waits = next((connection for connection in theirs[:-1] if connection.waits_for_peer), theirs[0])
        self.close(waits, why)


class _Http(Http):
    """h11's, that takes no body in chunks, nor one that is too large, nor a long path or query."""

    request_headers: dict[str, str]
    """The header with the request's id, by name, of the request that was looked at last; empty where it has none."""

    def __init__(self, role: type[h11.SERVER], head_bytes_max: int) -> None:
        super().__init__(role, head_bytes_max)
        self.request_headers = {}

    def next_event(self) -> Any:
        """h11's."""
        event = super().next_event()
        if isinstance(event, h11.Request):
            try:
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
        if len(request.target) > TARGET_BYTES_MAX:
            raise h11.RemoteProtocolError(
                f"its path and query have more than {TARGET_BYTES_MAX} bytes", error_status_hint=TOO_LONG
            )
        for name, value in request.headers:
            if name == b"transfer-encoding":
                raise h11.RemoteProtocolError("its body comes in chunks", error_status_hint=LENGTH_REQUIRED)
            if name == b"content-length" and int(value) > BODY_BYTES_MAX:
                raise h11.RemoteProtocolError(
                    f"its body has more than {BODY_BYTES_MAX} bytes", error_status_hint=TOO_LARGE
                )


class AdminConnection(BoundedConnection):
    """One that knows when it was last moved."""

    known: AdminConnections
    """The connections of the server that this class was made for."""
    conn: _Http

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.host = ""

    def new_http(self) -> Http:
        """Without chunks and large bodies."""
        return _Http(h11.SERVER, self.bounds.head_bytes_max)

    @property
    def party(self) -> str:
        """Its peer's address."""
        return self.host

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """The event loop's."""
        super().connection_made(transport)
        self.host = self.client[0] if self.client else ""
        self.known.opened(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """The event loop's."""
        self.known.closed(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """The event loop's."""
        self.known.moved(self)
        super().data_received(data)

    def send_400_response(self, msg: str) -> None:
        """uvicorn's, for what is no request: with the reason."""
        error = self.conn.refused
        status = error.error_status_hint if error is not None else 400
        if status == LENGTH_REQUIRED:
            self._refuse_with(status, "LengthRequired", str(error), "send it with a Content-Length")
        elif status == TOO_LARGE:
            self._refuse_with(status, "RequestTooLarge", str(error), "send less")
        elif status == TOO_LONG:
            self._refuse_with(status, "AddressTooLong", str(error), "ask for less")
        else:
            self._refuse_with(
                status, "InvalidRequest", f"it is no HTTP/1.1 that is understood here ({error})", "send another one"
            )

    def head_taken(self) -> None:
        """This connection may become one of those that wait for a change."""
        if self.cycle is not None and self.scope is not None and self.scope["path"] == WATCH_PATH:
            self.scope["extensions"] = {WATCH_EXTENSION: lambda: self.known.watches(self)}  # type: ignore[dict-item]

    def refuse_head(self, error: HeadTooLarge) -> None:
        """With the reason."""
        self._refuse_with(431, "RequestTooLarge", str(error), "send less")

    def overdue(self) -> None:
        """Who was answered and has not begun another request rests between two of them, as a scraper does: nobody has
        to hear of its end.
        """
        if self.cycle is not None and not self.has_unread:
            self.transport.close()
        else:
            self.known.close(self, "admin_request_within_ms")

    def _refuse_with(self, status: int, code: str, why: str, remedy: str) -> None:
        reply = Refusal(status=status, code=code, what="request", why=why, remedy=remedy).reply()
        reply = with_request_id(reply, request_id_of(self.conn.request_headers, self.known.new_id))
        CLOSED.labels("refused").inc()
        self.refuse(status, reply.headers.items(), reply.body)


def protocol_of(known: AdminConnections) -> type[AdminConnection]:
    """The class of one server's connections: uvicorn makes them, and hands them nothing of ours."""
    limits = known.limits
    bounds = Bounds(
        head_bytes_max=limits.admin_head_bytes_max,
        headers_max=limits.admin_headers_max,
        request_within_s=limits.admin_request_within_ms / 1000,
        part_bytes_min=BODY_PART_BYTES,
    )
    steps = {"begins": Steps(limits.admin_turn_requests), "parts": Steps(limits.admin_turn_requests)}
    return type("AdminConnection", (AdminConnection,), {"known": known, "bounds": bounds, **steps})


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

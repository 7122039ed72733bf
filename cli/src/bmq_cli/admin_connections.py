"""Connections to the admin address: strangers may hold few of them, for a moment each, and never keep a new one out.

Health is asked for at this address, and a process that does not answer is killed. So nobody is refused for there being too many: the connection that
has waited longest for its own peer (for a request's first lines, its body, or an answer to be taken) goes, of the address that has the most.
"""

import asyncio
import logging
from collections import Counter
from typing import Any, Final

import h11
import structlog
from prometheus_client import Counter as Counted
from uvicorn.protocols.http.h11_impl import H11Protocol

from bmq.limits import Limits
from bmq.log_limit import RateLimited

CLOSED: Final = Counted("bmq_admin_connections_closed", "Connections to the admin address that were closed for the sake of others, by why.", ["why"])
COMPLAIN_EVERY_S: Final = 10.0
_log = structlog.get_logger(__name__)


class AdminConnections:
    """Those of one admin server, the one that moved last at the end."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._connections: dict[AdminConnection, None] = {}
        self._by_host: Counter[str] = Counter()
        self._complaints = RateLimited(interval_s=COMPLAIN_EVERY_S)

    @property
    def request_within_s(self) -> float:
        """See the limit."""
        return self._limits.admin_request_within_ms / 1000

    def __len__(self) -> int:
        return len(self._connections)

    def opened(self, connection: "AdminConnection") -> None:
        """Makes room for it where there is none."""
        self._connections[connection] = None
        self._by_host[connection.host] += 1
        if self._by_host[connection.host] > self._limits.admin_connections_per_address:
            self._close_one_of(connection.host, "admin_connections_per_address")
        elif len(self._connections) > self._limits.admin_connections_max:
            self._close_one_of(self._by_host.most_common(1)[0][0], "admin_connections_max")

    def moved(self, connection: "AdminConnection") -> None:
        """Its peer did something."""
        if connection in self._connections:
            self._connections[connection] = self._connections.pop(connection)

    def closed(self, connection: "AdminConnection") -> None:
        """It is gone."""
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
            _log.warning("admin connection closed", peer=connection.host, reason=f"{why} = {getattr(self._limits, why)}", left_out=left_out)
        self.closed(connection)
        connection.abort()

    def _close_one_of(self, host: str, why: str) -> None:
        """The stillest whose peer it waits for; where there is none, the stillest."""
        theirs = [connection for connection in self._connections if connection.host == host]
        waits = next((connection for connection in theirs[:-1] if connection.waits_for_peer), theirs[0])
        self.close(waits, why)


class AdminConnection(H11Protocol):
    """uvicorn's, that knows when it was last moved, and has a deadline for a request's first lines."""

    known: AdminConnections
    """Of the server that this class was made for."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.host = ""
        self._deadline: asyncio.TimerHandle | None = None

    @property
    def waits_for_peer(self) -> bool:
        """Whether it is for the peer to go on: to send the rest of a request, or to take its answer."""
        if self.cycle is None or self.cycle.response_complete:
            return True
        return self.cycle.more_body or bool(self.transport.get_write_buffer_size())

    def abort(self) -> None:
        """Ends it at once."""
        if self.transport is not None:
            self.transport.abort()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """The event loop's."""
        super().connection_made(transport)
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
        self.known.moved(self)
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            self._cancel_deadline()

    def on_response_complete(self) -> None:
        """uvicorn's."""
        self._expect_request()
        super().on_response_complete()

    def _expect_request(self) -> None:
        self._cancel_deadline()
        self._deadline = self.loop.call_later(self.known.request_within_s, self.known.close, self, "admin_request_within_ms")

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

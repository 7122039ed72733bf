"""Connections: how many there may be, how long each may take to say what it wants, and what is told of broken HTTP.

Where there are as many as there may be, the one that has waited longest for its client (to begin a request, to send the
rest of one, to take an answer) gives way to a new one; streams do so behind all others. Who waits for the cluster, or
for its turn, does not.

Turns of the loop go by connections: all applications of a pod have one address, and processes of other containers
cannot be told apart by a Unix socket either.
"""

import asyncio
from typing import Any, Final

import h11
import structlog

from bmq.fairness.log_limit import RateLimited
from bmq.fairness.steps import Steps
from bmq.http.connection import BoundedConnection, Bounds, Http
from bmq.http.request_bytes import HeadTooLarge
from bmq_databus.http.answers import Reply, refusal
from bmq_databus.http.incoming import CONNECTION, Receive, Scope, Send, Streaming
from bmq_databus.messages.forms import HEADERS_MAX

CONNECTIONS_MAX: Final = 1_000
REFUSED_MAX: Final = 100
"""So many more are told why nothing of them is looked at; those that were told first are closed for further ones."""
HEAD_WITHIN_S: Final = 10.0
BOUNDS: Final = Bounds(head_bytes_max=64 << 10, headers_max=HEADERS_MAX + 100, request_within_s=HEAD_WITHIN_S)
"""A message as it is has all of its headers there, beside those of the request."""
TURN_REQUESTS: Final = 8
"""So many begin in one turn of the loop…"""
TURN_PARTS: Final = 4
"""…and so many parts of bodies that are under way are looked at."""
COMPLAIN_EVERY_S: Final = 10.0

_ENDS: Final = {b"content-length", b"transfer-encoding"}

log = structlog.get_logger()
_complaints: Final = RateLimited(interval_s=COMPLAIN_EVERY_S)


class _Http(Http):
    """h11's, that takes no request whose end is said in two ways (RFC 9112, 6.1): whoever passed it on may have gone by
    the other one, and have sent the next request of somebody else within its body.
    """

    def next_event(self) -> Any:
        """h11's."""
        event = super().next_event()
        if isinstance(event, h11.Request) and {name for name, _ in event.headers} >= _ENDS:
            self.refused = h11.RemoteProtocolError("it has both Content-Length and Transfer-Encoding")
            raise self.refused
        return event


class Connection(BoundedConnection):
    """One of a sidecar's. Its requests find it in their scope's extensions."""

    bounds = BOUNDS
    still: dict["Connection", None]
    """Those of its server that are looked at, the one whose client did something last at the end."""
    refused: dict["Connection", None]
    """The others, the one that was refused last at the end."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.broken = ""
        """Why nothing more of it is understood; empty: it is."""
        self.waits_for_body = False
        """Whether whoever reads its request's body waits for more of it."""
        self.stream: Streaming | None = None
        """The stream that is under way."""
        self._served = self.app
        self.app = self._serve

    def new_http(self) -> Http:
        """With one end."""
        return _Http(h11.SERVER, self.bounds.head_bytes_max)

    @property
    def party(self) -> "Connection":
        """Each one's own."""
        return self

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """The event loop's."""
        super().connection_made(transport)
        self.still[self] = None
        if len(self.still) > CONNECTIONS_MAX and not self._make_room():
            self._refuse(refusal(503, f"{CONNECTIONS_MAX} connections have requests under way: try again in a moment"))

    def connection_lost(self, exc: Exception | None) -> None:
        """The event loop's."""
        self.still.pop(self, None)
        self.refused.pop(self, None)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """The event loop's."""
        self._moved()
        super().data_received(data)

    def pause_writing(self) -> None:
        """The event loop's: its client is to take what it has of an answer, from now on."""
        self._moved()
        super().pause_writing()

    def on_response_complete(self) -> None:
        """uvicorn's: its client is to send the next request, from now on."""
        self._moved()
        super().on_response_complete()

    def stop_looking(self) -> None:
        """At anything more of what came, or comes. It has a place of its own then."""
        super().stop_looking()
        if self in self.still:
            del self.still[self]
            self.refused[self] = None
        if len(self.refused) > REFUSED_MAX:
            first = next(iter(self.refused))
            del self.refused[first]
            first.abort()

    def send_400_response(self, msg: str) -> None:
        """uvicorn's, for what is no HTTP. Where an answer has begun, its request finds out in its body."""
        cycle = self.cycle
        why = str(self.conn.refused or msg)
        if self.is_idle or not cycle.response_started:
            self.broken = why
            self._refuse(refusal(400, f"this is no HTTP/1.1 that is understood here: {why}"))
            return
        self.broken = why
        self.stop_looking()
        cycle.keep_alive = cycle.more_body = False
        cycle.message_event.set()

    def refuse_head(self, error: HeadTooLarge) -> None:
        """With the reason."""
        self._refuse(refusal(431, f"a request is not looked at: {error}; send less"))

    def overdue(self) -> None:
        """Who was answered and rests needs to hear of no reason."""
        if self.cycle is None and not self.transport.is_closing():
            self._refuse(refusal(408, f"no whole request came within {HEAD_WITHIN_S:g} s"))
        else:
            self.abort()

    @property
    def takes_more(self) -> bool:
        """Whether its client has room for more of an answer."""
        return not self.flow.write_paused

    @property
    def waits_for_client(self) -> bool:
        """Whether nothing is missing but what its client is to do, of all that is under way."""
        if not self.waits_for_peer or (self.stream is not None and self.stream.is_unanswered):
            return False
        return self.is_idle or not self.takes_more or (self.waits_for_body and not self.has_part)

    def hold_answer(self) -> None:
        """What is written of it from now on goes out together; nobody may wait meanwhile."""
        self.answers.hold()

    def let_answer_go(self) -> None:
        """All of it is written."""
        self.answers.let_go()

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["extensions"] = {CONNECTION: self}
        await self._served(scope, receive, send)

    def _moved(self) -> None:
        if self in self.still:
            del self.still[self]
            self.still[self] = None

    def _make_room(self) -> bool:
        """Ends the one that has waited longest for its client, a stream where there is no other; False: there is none
        but this one.
        """
        stream: Connection | None = None
        for one in self.still:
            if one is self or not one.waits_for_client:
                continue
            if one.stream is None:
                break
            stream = stream or one
        else:
            if stream is None:
                return False
            one = stream
        del self.still[one]
        one.abort()
        if (left_out := _complaints.due("rests", now=self.loop.time())) is not None:
            log.warning("a connection made room for another", connections=CONNECTIONS_MAX, left_out=left_out)
        return True

    def _refuse(self, reply: Reply) -> None:
        headers = reply.head()["headers"]
        named = [(name.decode(), value.decode("latin-1")) for name, value in headers if name != b"content-length"]
        self.broken = self.broken or "refused"
        self.refuse(reply.status, named, reply.body)


def new_protocol() -> type[Connection]:
    """The class of one server's connections, which take turns with each other, and give way to each other."""
    own: dict[str, Any] = {"begins": Steps(TURN_REQUESTS), "parts": Steps(TURN_PARTS), "still": {}, "refused": {}}
    return type("Connection", (Connection,), own)

"""A TCP relay of our own, between nodes, between nodes and the store, between clients and nodes: the place where the
network fails.

What goes wrong is a `Trouble`, which may be changed at any moment and then holds for open connections too. One event
loop, no threads.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, cast

CONNECT_S: Final = 5.0
IDENTIFY_BYTES_MAX: Final = 4096


class Kind(StrEnum):
    """What a relay does to its connections."""

    NONE = "none"
    DELAY = "delay"
    """Everything arrives, later, in order."""
    CUT = "cut"
    """Connections are reset, new ones too."""
    HALF_OPEN = "half-open"
    """The server's side is gone and the client is not told: what it sends disappears. Reset when the trouble is
    over."""
    DEAF = "deaf"
    """Requests arrive, answers disappear. Reset when the trouble is over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """`only`: the clients that it is for, by what the relay's `who` says of them; None: all."""

    kind: Kind = Kind.NONE
    delay_s: float = 0.0
    only: frozenset[int] | None = None


NO_TROUBLE: Final = Trouble()

Who = Callable[[bytes], int | None]
"""From a connection's first bytes to the number of its client; None where they do not tell."""


class Relay:
    """Listens on a port of its own and passes everything on to (host, port)."""

    def __init__(self, name: str, port: int, target: tuple[str, int], *, who: Who = lambda _: None) -> None:
        self.name = name
        self.port = port
        self.target = target
        self.who = who
        self.trouble = NO_TROUBLE
        self._links: set[_Link] = set()
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Raises OSError."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._accept, "127.0.0.1", self.port, backlog=1024)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        links = list(self._links)
        for link in links:
            link.abort()
        await asyncio.gather(*(link.connecting for link in links), return_exceptions=True)

    def set(self, trouble: Trouble) -> None:
        """From now on, for every connection."""
        before, self.trouble = self.trouble, trouble
        for link in list(self._links):
            link.trouble_changed(before, trouble)

    def lost(self, link: "_Link") -> None:
        self._links.discard(link)

    def _accept(self) -> "_End":
        link = _Link(self)
        self._links.add(link)
        return link.client


class _Link:
    """A client's connection and the one that was made for it."""

    def __init__(self, relay: Relay) -> None:
        self.relay = relay
        self.client = _End(self)
        self.server = _End(self)
        self.client.other, self.server.other = self.server, self.client
        self.number: int | None = None
        self.connecting: asyncio.Task[None]
        self._first = bytearray()
        self._is_over = False

    @property
    def trouble(self) -> Trouble:
        """What holds for this connection now."""
        trouble = self.relay.trouble
        return trouble if trouble.only is None or self.number in trouble.only else NO_TROUBLE

    def opened(self, end: "_End") -> None:
        if end is self.server:
            assert self.client.transport is not None
            self.client.transport.resume_reading()
            return
        assert end.transport is not None
        self.connecting = asyncio.get_running_loop().create_task(self._connect(), name=f"relay {self.relay.name}")
        if self.trouble.kind is Kind.CUT:
            self.abort()

    def arrived(self, end: "_End", data: bytes) -> None:
        if end is self.client and self.number is None and len(self._first) < IDENTIFY_BYTES_MAX:
            self._first += data
            self.number = self.relay.who(bytes(self._first))
            if self.number is not None and self.trouble.kind in (Kind.CUT, Kind.HALF_OPEN):
                self.trouble_changed(NO_TROUBLE, self.relay.trouble)
        if self.passes(end):
            end.other.send(data, delay_s=self.trouble.delay_s)

    def passes(self, end: "_End") -> bool:
        """Whether what comes from this side arrives at the other."""
        kind = self.trouble.kind
        return kind not in (Kind.HALF_OPEN, Kind.CUT) and not (kind is Kind.DEAF and end is self.server)

    def trouble_changed(self, before: Trouble, now: Trouble) -> None:
        was = before.kind if before.only is None or self.number in before.only else Kind.NONE
        kind = self.trouble.kind
        if kind is Kind.CUT or (was in (Kind.HALF_OPEN, Kind.DEAF) and kind is not was):
            self.abort()
        elif kind is Kind.HALF_OPEN:
            self.server.abort()
            if self.client.transport is not None:
                self.client.transport.resume_reading()

    def lost(self, end: "_End") -> None:
        """A half-open client is not told that the server is gone."""
        if end is self.server and self.trouble.kind is Kind.HALF_OPEN:
            return
        if end.was_reset:
            self.abort()
        else:
            end.other.close_when_sent()

    def abort(self) -> None:
        if self._is_over:
            return
        self._is_over = True
        self.relay.lost(self)
        self.connecting.cancel()
        self.client.abort()
        self.server.abort()

    async def _connect(self) -> None:
        assert self.client.transport is not None
        if self.trouble.kind is Kind.HALF_OPEN:
            return
        self.client.transport.pause_reading()
        try:
            async with asyncio.timeout(CONNECT_S):
                await asyncio.get_running_loop().create_connection(lambda: self.server, *self.relay.target)
        except (OSError, TimeoutError):
            self.abort()
        if self._is_over:
            self.server.abort()


class _End(asyncio.Protocol):
    """One side of a link: what is sent to it goes out in order, each part not before its time."""

    other: "_End"

    def __init__(self, link: _Link) -> None:
        self._link = link
        self.transport: asyncio.Transport | None = None
        self._pending: deque[tuple[float, bytes]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._closes = False
        self._ends = False
        self.was_reset = False
        self.has_ended = False
        """It sends nothing more."""
        self._loop = asyncio.get_running_loop()

    def send(self, data: bytes, *, delay_s: float) -> None:
        if not delay_s and not self._pending and self.transport is not None:
            self.transport.write(data)
            return
        due_s = self._loop.time() + delay_s
        if self._pending:
            due_s = max(due_s, self._pending[-1][0])
        self._pending.append((due_s, data))
        if self._timer is None and self.transport is not None:
            self._timer = self._loop.call_at(due_s, self._send_due)

    def close_when_sent(self) -> None:
        self._closes = True
        if self.transport is None:
            self._link.abort()
        elif not self._pending:
            self.transport.close()

    def end_when_sent(self) -> None:
        """The other side sends nothing more, and still hears."""
        self._ends = True
        if self.transport is not None and not self._pending:
            self.transport.write_eof()

    def abort(self) -> None:
        self._pending.clear()
        if self._timer is not None:
            self._timer.cancel()
        if self.transport is not None:
            self.transport.abort()

    def _send_due(self) -> None:
        self._timer = None
        now_s = self._loop.time()
        while self._pending and self._pending[0][0] <= now_s:
            _, data = self._pending.popleft()
            if self.transport is not None:
                self.transport.write(data)
        if self._pending:
            self._timer = self._loop.call_at(self._pending[0][0], self._send_due)
        elif self._closes and self.transport is not None:
            self.transport.close()
        elif self._ends and self.transport is not None:
            self.transport.write_eof()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self._link.opened(self)
        if self._pending:  # what came before it could be told not to
            self._send_due()
        elif self._ends:
            self.transport.write_eof()

    def data_received(self, data: bytes) -> None:
        self._link.arrived(self, data)

    def eof_received(self) -> bool:
        self.has_ended = True
        if self.other.has_ended:
            self.other.close_when_sent()
            return False
        if self._link.passes(self):
            self.other.end_when_sent()
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        self.transport = None
        self.was_reset = exc is not None
        self._link.lost(self)

    def pause_writing(self) -> None:
        if self.other.transport is not None:
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        if self.other.transport is not None:
            self.other.transport.resume_reading()

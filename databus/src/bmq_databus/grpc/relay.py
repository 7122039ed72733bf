"""Brings connections to gRPC's library, from sockets of this process's own.

The library is where nobody but this process connects. So each connection has a name that the library tells with its
calls, also what came by a Unix socket, and can be ended by it, for which the library offers no way: one whose client
takes no answer would keep its messages and its place for as long as it likes. And what comes before a client is held
to the library's bounds is held here (`bmq_databus.grpc.opening`).
"""

import asyncio
import socket
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import unquote

import structlog

from bmq_databus.grpc.call import TAKEN_WITHIN_S
from bmq_databus.grpc.opening import NotOpened, Openings

CONNECTIONS_MAX: Final = 1_000
PART_BYTES: Final = 16 << 10
"""What is kept of a connection, each way, is a few of these."""
OPENED_WITHIN_S: Final = 10.0
"""A connection that does not begin in that time is cut."""

ListeningSocket = socket.socket
Inner = Path | int
"""Where the library listens: the path of a Unix socket, or a port of 127.0.0.1."""

log = structlog.get_logger()


class _Open(NamedTuple):
    writer: asyncio.StreamWriter
    peer: str
    """Who is at the other end, as far as it has a name."""


class Relay:
    """`start`, and `close` at the end."""

    def __init__(self, listening: Sequence[ListeningSocket], inner: Inner) -> None:
        self._listening = listening
        self._inner = inner
        self._servers: list[asyncio.Server] = []
        self._openings = Openings()
        self._open: dict[str, _Open] = {}
        """By the names that the library knows."""

    async def start(self) -> None:
        """Connections are taken from now on."""
        for one in self._listening:
            start = asyncio.start_unix_server if one.family == socket.AF_UNIX else asyncio.start_server
            self._servers.append(await start(self._taken, sock=one, limit=PART_BYTES))

    def refuse(self) -> None:
        """Takes no more."""
        for server in self._servers:
            server.close()

    def cut_all(self) -> int:
        """Ends all connections; how many there were."""
        for one in self._open.values():
            one.writer.transport.abort()
        return len(self._open)

    def close(self) -> None:
        """Ends those that are left."""
        self.refuse()
        for one in self._open.values():
            one.writer.close()
        if isinstance(self._inner, Path):
            self._inner.unlink(missing_ok=True)

    def cut(self, name: str) -> bool:
        """Ends the connection that the library calls so; False: there is none."""
        one = self._open.get(unquote(name).partition(":")[2])
        if one is None:
            return False
        log.warning("a connection is cut: its client takes no answer", peer=one.peer, within_s=TAKEN_WITHIN_S)
        one.writer.transport.abort()
        return True

    async def _taken(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._open) >= CONNECTIONS_MAX:
            writer.transport.abort()
            return
        try:
            name, inner_reader, inner_writer = await self._connected()
        except OSError as error:
            log.warning("a connection is cut: gRPC does not take it", why=str(error))
            writer.transport.abort()
            return
        self._open[name] = _Open(writer, str(writer.get_extra_info("peername") or "unix"))
        ways = (
            asyncio.ensure_future(self._bring_in(reader, inner_writer)),
            asyncio.ensure_future(_bring(inner_reader, writer, within_s=TAKEN_WITHIN_S)),
        )
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            del self._open[name]
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            writer.close()
            inner_writer.close()

    async def _connected(self) -> tuple[str, asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection to the library, and how that names it. Raises OSError."""
        is_unix = isinstance(self._inner, Path)
        own = socket.socket(socket.AF_UNIX if is_unix else socket.AF_INET, socket.SOCK_STREAM)
        try:
            own.setblocking(False)
            if is_unix:
                own.bind("")  # Linux gives it a name that nobody else has
            where = str(self._inner) if is_unix else ("127.0.0.1", self._inner)
            await asyncio.get_running_loop().sock_connect(own, where)
            name = own.getsockname()
            reader, writer = await asyncio.open_connection(sock=own, limit=PART_BYTES)
        except BaseException:
            own.close()
            raise
        return name[1:].decode() if is_unix else f"{name[0]}:{name[1]}", reader, writer

    async def _bring_in(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(OPENED_WITHIN_S):
                await self._openings.bring(reader, writer)
        except (NotOpened, TimeoutError) as error:
            log.info("a connection is cut: it does not begin as gRPC's do", why=str(error) or "it takes too long")
            return
        except (OSError, EOFError):
            return
        await _bring(reader, writer, within_s=None)


async def _bring(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, within_s: float | None) -> None:
    """Until the end of either. Who takes nothing for so long is cut."""
    writer.transport.set_write_buffer_limits(high=PART_BYTES)
    with suppress(OSError):
        while data := await reader.read(PART_BYTES):
            writer.write(data)
            try:
                async with asyncio.timeout(within_s):
                    await writer.drain()
            except TimeoutError:
                log.warning("a connection is cut: its client takes no answer", within_s=within_s)
                writer.transport.abort()
                return

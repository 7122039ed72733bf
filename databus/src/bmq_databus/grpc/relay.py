"""Brings connections to gRPC's library, from sockets of this process's own.

The library is where nobody but this process connects. So each connection has a name that the library tells with its
calls, also what came by a Unix socket, and can be ended by it, for which the library offers no way: one whose client
takes no answer would keep its messages and its place for as long as it likes. What comes before a client is held to
the library's bounds is held here (`bmq_databus.grpc.opening`), and where there are as many connections as there may be
one gives way to a new one (`bmq_databus.grpc.stillness`). Who takes back calls all the time waits
(`bmq_databus.grpc.resets`).
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import unquote

import structlog

from bmq.fairness.log_limit import RateLimited
from bmq_databus.grpc.call import TAKEN_WITHIN_S
from bmq_databus.grpc.opening import NotOpened, Openings
from bmq_databus.grpc.resets import Resets
from bmq_databus.grpc.stillness import Still, Stillness

CONNECTIONS_MAX: Final = 1_000
PART_BYTES: Final = 16 << 10
"""What is kept of a connection, each way, is a few of these."""
OPENED_WITHIN_S: Final = 10.0
"""A connection that does not begin in that time is cut."""
COMPLAIN_EVERY_S: Final = 10.0

ListeningSocket = socket.socket
Inner = Path | int
"""Where the library listens: the path of a Unix socket, or a port of 127.0.0.1."""

log = structlog.get_logger()


class _Open(NamedTuple):
    writer: asyncio.StreamWriter
    inner: asyncio.StreamWriter
    """To the library."""
    peer: str
    """Who is at the other end, as far as it has a name."""

    def abort(self) -> None:
        """Ends it at once, each way."""
        self.writer.transport.abort()
        self.inner.transport.abort()


class Relay:
    """`start`, and `close` at the end."""

    def __init__(self, listening: Sequence[ListeningSocket], inner: Inner) -> None:
        self._listening = listening
        self._inner = inner
        self._servers: list[asyncio.Server] = []
        self._openings = Openings()
        self._open: dict[str, Still[_Open]] = {}
        """By the names that the library knows."""
        self._stillness = Stillness[_Open]()
        self._beginning = 0
        """Connections that the library is yet to take."""
        self._complaints = RateLimited(interval_s=COMPLAIN_EVERY_S)

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
            one.of.writer.transport.abort()
        return len(self._open)

    def close(self) -> None:
        """Ends those that are left."""
        self.refuse()
        for one in self._open.values():
            one.of.writer.close()
        if isinstance(self._inner, Path):
            self._inner.unlink(missing_ok=True)

    def cut(self, name: str) -> bool:
        """Ends the connection that the library calls so; False: there is none."""
        one = self._named(name)
        if one is None:
            return False
        log.warning("a connection is cut: its client takes no answer", peer=one.of.peer, within_s=TAKEN_WITHIN_S)
        one.of.writer.transport.abort()
        return True

    @contextmanager
    def called(self, name: str) -> Iterator[None]:
        """While the connection that the library calls so has a call: it gives way to no other one."""
        one = self._named(name)
        if one is None:
            yield
            return
        self._stillness.begin_call(one)
        try:
            yield
        finally:
            self._stillness.end_call(one, asyncio.get_running_loop().time())

    def _named(self, name: str) -> Still[_Open] | None:
        return self._open.get(unquote(name).partition(":")[2])

    async def _taken(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._stillness) + self._beginning >= CONNECTIONS_MAX and not self._make_room():
            writer.transport.abort()
            return
        self._beginning += 1
        try:
            name, inner_reader, inner_writer = await self._connected()
        except OSError as error:
            log.warning("a connection is cut: gRPC does not take it", why=str(error))
            writer.transport.abort()
            return
        finally:
            self._beginning -= 1
        opened = _Open(writer, inner_writer, str(writer.get_extra_info("peername") or "unix"))
        one = self._open[name] = self._stillness.enter(opened, asyncio.get_running_loop().time())
        ways = (
            asyncio.ensure_future(self._bring_in(reader, one)),
            asyncio.ensure_future(_bring(inner_reader, writer, within_s=TAKEN_WITHIN_S)),
        )
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._stillness.leave(one)
            if self._open.get(name) is one:  # else a newer one is called so by now
                del self._open[name]
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            writer.close()
            inner_writer.close()

    def _make_room(self) -> bool:
        """Ends the connection that is to give way; False: there is none."""
        now_s = asyncio.get_running_loop().time()
        one = self._stillness.gives_way(now_s)
        if one is None:
            return False
        self._stillness.leave(one)
        one.of.abort()
        if (left_out := self._complaints.due("room", now=now_s)) is not None:
            log.warning("a connection made room for another", connections=CONNECTIONS_MAX, left_out=left_out)
        return True

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

    async def _bring_in(self, reader: asyncio.StreamReader, one: Still[_Open]) -> None:
        try:
            async with asyncio.timeout(OPENED_WITHIN_S):
                await self._openings.bring(reader, one.of.inner)
        except (NotOpened, TimeoutError) as error:
            log.info("a connection is cut: it does not begin as gRPC's do", why=str(error) or "it takes too long")
            return
        except (OSError, EOFError):
            return
        loop = asyncio.get_running_loop()
        resets = Resets(loop.time())

        async def came(data: bytes) -> None:
            now_s = loop.time()
            self._stillness.moved(one, now_s)
            if wait_s := resets.wait_s(data, now_s):
                await asyncio.sleep(wait_s)

        await _bring(reader, one.of.inner, within_s=None, came=came)


async def _bring(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    *,
    within_s: float | None,
    came: Callable[[bytes], Awaitable[None]] | None = None,
) -> None:
    """Until the end of either. Who takes nothing for so long is cut. `came` is told what comes before it goes on."""
    writer.transport.set_write_buffer_limits(high=PART_BYTES)
    with suppress(OSError):
        while data := await reader.read(PART_BYTES):
            if came is not None:
                await came(data)
            writer.write(data)
            try:
                async with asyncio.timeout(within_s):
                    await writer.drain()
            except TimeoutError:
                log.warning("a connection is cut: its client takes no answer", within_s=within_s)
                writer.transport.abort()
                return

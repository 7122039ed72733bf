"""Connections: where there are as many as there may be, whoever has waited longest for its client gives way."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import pytest
import uvicorn
from tests.waiting import until_async

from bmq_databus.http import connections
from bmq_databus.http.answers import document
from bmq_databus.http.connections import Connection, new_protocol
from bmq_databus.http.incoming import ClientGone, Incoming
from bmq_databus.http.outgoing import Outgoing

MAX = 3
TRICKLES = b"POST /body HTTP/1.1\r\nHost: x\r\nContent-Length: 20000\r\n\r\nx"
WHOLE = b"POST /cluster HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\nx"
STREAMS = b"POST /stream HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
ASKS = b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n"
BROKEN = b"no HTTP\r\n\r\n"


@dataclass
class Streams:
    is_unanswered: bool = False


@dataclass
class App:
    """Answers once a body is there; what is for the cluster when that `answers`."""

    answers: asyncio.Event = field(default_factory=asyncio.Event)
    stream: Streams = field(default_factory=Streams)
    under_way: list[str] = field(default_factory=list)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        incoming, path = Incoming(scope, receive), scope["path"]
        self.under_way.append(path)
        outgoing = Outgoing(incoming, send)
        assert incoming.connection is not None
        if path == "/stream":
            incoming.connection.stream = self.stream
            await outgoing.begin(document(200, {}).head())
        try:
            while await incoming.part(stall_s=60) is not None:
                pass
        except ClientGone:
            self.under_way.remove(path)
            return
        if path == "/cluster":
            await self.answers.wait()
        self.under_way.remove(path)
        await outgoing.whole(document(200, {}).head(), b"{}")


class Client:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def status(self) -> int:
        return int((await self.reader.readuntil(b"\r\n\r\n")).split()[1])

    async def is_cut(self) -> bool:
        with suppress(ConnectionError):
            await self.reader.read()
        return True


Opening = Callable[[bytes], Awaitable[Client]]


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "CONNECTIONS_MAX", MAX)
    monkeypatch.setattr(connections, "REFUSED_MAX", 1)


def run(test: Callable[[Opening, App, type[Connection]], Awaitable[None]]) -> None:
    async def main() -> None:
        app, protocol = App(), new_protocol()
        server = uvicorn.Server(uvicorn.Config(app, port=0, http=protocol, ws="none", lifespan="off", log_config=None))
        serving = asyncio.ensure_future(server._serve())
        await until_async(lambda: server.started, "the server to have started")
        port = server.servers[0].sockets[0].getsockname()[1]

        async def opened(sent: bytes) -> Client:
            """The server has had its bytes."""
            before = next(reversed(protocol.still), None)
            client = Client(*await asyncio.open_connection("127.0.0.1", port))
            client.writer.write(sent)
            if sent not in (ASKS, BROKEN):
                path = sent.split()[1].decode() if sent else ""
                count = app.under_way.count(path)
                await until_async(
                    lambda: (
                        next(reversed(protocol.still), None) is not before
                        and (not sent or app.under_way.count(path) >= min(MAX, count + 1))
                    ),
                    f"{path} to be under way",
                )
            return client

        try:
            async with asyncio.timeout(60):
                await test(opened, app, protocol)
        finally:
            server.should_exit = server.force_exit = True
            await serving

    asyncio.run(main())


def test_a_body_that_trickles_gives_way_the_one_that_was_still_for_longest_first() -> None:
    async def test(opened: Opening, app: App, protocol: type[Connection]) -> None:
        first, second, third = [await opened(TRICKLES) for _ in range(MAX)]
        for one in (first, third):
            last = next(reversed(protocol.still))
            one.writer.write(b"x")
            await until_async(lambda last=last: next(reversed(protocol.still)) is not last, "its byte to be there")  # type: ignore[misc]
        fresh = await opened(ASKS)
        assert await fresh.status() == 200
        assert await second.is_cut()
        assert await (await opened(ASKS)).status() == 200
        assert await first.is_cut()
        third.writer.write(b"x" * 19_998)
        assert await third.status() == 200

    run(test)


def test_who_waits_for_the_cluster_stays_and_where_all_do_a_new_one_is_told() -> None:
    async def test(opened: Opening, app: App, protocol: type[Connection]) -> None:
        waits = [await opened(WHOLE) for _ in range(MAX - 1)]
        trickles = await opened(TRICKLES)
        waits.append(await opened(WHOLE))
        assert await trickles.is_cut()
        assert await (await opened(ASKS)).status() == 503
        assert await (await opened(ASKS)).status() == 503
        app.answers.set()
        assert [await one.status() for one in waits] == [200] * MAX

    run(test)


def test_streams_give_way_behind_all_others_and_not_while_the_cluster_has_messages_of_theirs() -> None:
    async def test(opened: Opening, app: App, protocol: type[Connection]) -> None:
        streams = [await opened(STREAMS) for _ in range(MAX - 1)]
        body = await opened(TRICKLES)
        waits = [await opened(WHOLE)]
        assert await body.is_cut()
        waits.append(await opened(WHOLE))
        assert await streams[0].is_cut()
        assert app.under_way.count("/stream") == 1, "there is nobody else who waits for a client"
        app.stream.is_unanswered = True
        assert await (await opened(ASKS)).status() == 503
        assert await streams[1].status() == 200
        app.answers.set()
        assert [await one.status() for one in waits] == [200, 200]

    run(test)


def test_those_that_are_refused_keep_no_place_from_others() -> None:
    async def test(opened: Opening, app: App, protocol: type[Connection]) -> None:
        refused = [await opened(BROKEN) for _ in range(2 * MAX)]
        await until_async(lambda: len(protocol.refused) == 1 and not protocol.still, "all to be refused")
        assert await (await opened(ASKS)).status() == 200
        assert await refused[-1].status() == 400

    run(test)

"""Connections to the admin address: requests one at a time, few in a turn of the loop, and what is not taken is refused
with a reason.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from tests.waiting import until_async

from bmq.config.limits import limits_of
from bmq_controller.api.asgi import BODY_BYTES_MAX
from bmq_controller.api.front import AdminFront
from bmq_node.admin.connections import CLOSED, AdminConnection
from bmq_node.admin.server import AdminServer

GET = b"GET /%s HTTP/1.1\r\nHost: x\r\n\r\n"
POST = b"POST /body HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n"
TURN = 3
LIMITS = {"admin_turn_requests": TURN, "admin_headers_max": 20, "admin_request_within_ms": 300}


class CountedLoop(asyncio.SelectorEventLoop):
    turn = 0

    def _run_once(self) -> None:
        self.turn += 1
        super()._run_once()  # type: ignore[misc]


@dataclass
class Pages:
    """An application that answers with what it was asked for, and notes in which turn of the loop it was."""

    began: list[tuple[int, str]] = field(default_factory=list)
    parts: list[int] = field(default_factory=list)
    answers_early: bool = False

    def new_id(self) -> str:
        return "made"

    def end_watches(self) -> None:
        pass

    async def __call__(
        self, scope: Any, receive: Callable[[], Awaitable[Any]], send: Callable[[Any], Awaitable[None]]
    ) -> None:
        self.began.append((cast(CountedLoop, asyncio.get_running_loop()).turn, scope["path"]))
        body = bytearray()
        while not self.answers_early:
            message = await receive()
            body += message["body"]
            self.parts.append(len(message["body"]))
            if not message["more_body"]:
                break
        answer = scope["path"].encode() + body
        await send(
            {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(answer))]}
        )
        await send({"type": "http.response.body", "body": answer})


def run(test: Callable[[AdminServer, Pages], Awaitable[None]], **limits: int) -> None:
    async def main() -> None:
        pages = Pages()
        server = AdminServer(cast(AdminFront, pages), host="127.0.0.1", port=0, limits=limits_of({**LIMITS, **limits}))
        await server.start()
        try:
            async with asyncio.timeout(30):
                await until_async(lambda: server._server.started, "the server to have started")
                await test(server, pages)
        finally:
            await server.stop()

    with asyncio.Runner(loop_factory=CountedLoop) as runner:
        runner.run(main())


async def connect(server: AdminServer, host: str = "127.0.0.1") -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection(server.host, server.port, local_addr=(host, 0))


async def answer_of(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    head = await reader.readuntil(b"\r\n\r\n")
    size = next(
        int(line.partition(b":")[2]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length")
    )
    return int(head.split()[1]), await reader.readexactly(size)


def held_by(server: AdminServer) -> list[AdminConnection]:
    return list(server.connections._connections)


@pytest.mark.parametrize(
    ("sends", "status", "words"),
    [
        (
            b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * 1_000,
            411,
            "send it with a Content-Length",
        ),
        (
            b"POST / HTTP/1.1\r\nHost: x\r\ntransfer-encoding:\tChunked\r\nContent-Length: 5\r\n\r\n",
            411,
            "Content-Length",
        ),
        (b"GET / HTTP/1.1\r\nHost: x\r\n" + b"a:b\r\n" * 15_000 + b"\r\n", 431, "it has more than 20 headers"),
        (b"GET / HTTP/1.1\r\nHost: x\r\na:" + b"b" * (64 << 10), 431, "more than 65536 bytes"),
        (GET % (b"%ff" * 2_800), 414, "its path and query have more than 8192 bytes. ask for less"),
        (GET % (b"v1/topics?" + b"a=1&" * 15_000), 414, "its path and query have more than 8192 bytes"),
        (POST % (BODY_BYTES_MAX + 1), 413, f"more than {BODY_BYTES_MAX} bytes"),
        (b"GET\r\n\r\n", 400, "no HTTP/1.1 that is understood here"),
        (b"\x16\x03\x01", 400, "no HTTP/1.1"),
    ],
)
def test_what_is_not_taken_is_refused_with_a_reason_and_the_connection_ends(
    sends: bytes, status: int, words: str
) -> None:
    async def test(server: AdminServer, pages: Pages) -> None:
        reader, writer = await connect(server)
        writer.write(sends)
        answered, body = await answer_of(reader)
        assert (answered, words in json.loads(body)["detail"]) == (status, True), body
        assert json.loads(body)["request_id"]
        assert await reader.read() == b""
        writer.close()
        assert not pages.began

    run(test)


def test_what_is_refused_unread_keeps_the_id_that_its_sender_gave_it() -> None:
    async def test(server: AdminServer, pages: Pages) -> None:
        reader, writer = await connect(server)
        writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nX-Request-Id: mine-7\r\nTransfer-Encoding: chunked\r\n\r\n")
        assert json.loads((await answer_of(reader))[1])["request_id"] == "mine-7"
        writer.close()

    run(test)


def test_who_is_refused_and_goes_on_sending_still_gets_the_answer_and_is_cut_off() -> None:
    async def test(server: AdminServer, pages: Pages) -> None:
        reader, writer = await connect(server)
        writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * 100_000)
        assert (await answer_of(reader))[0] == 411
        with pytest.raises(ConnectionError):
            while True:
                writer.write(b"1\r\nx\r\n" * 10_000)
                await writer.drain()
        await until_async(lambda: not held_by(server), "nothing to be held")

    run(test)


@pytest.mark.parametrize(
    ("begins", "complained"),
    [(b"", 0.0), (b"GET /", 1.0)],
    ids=["who rests", "who begins another request and does not end it"],
)
def test_who_was_answered_is_closed_after_a_while_and_complained_of_only_where_a_request_was_begun(
    begins: bytes, complained: float
) -> None:
    async def test(server: AdminServer, pages: Pages) -> None:
        before = CLOSED.labels("admin_request_within_ms")._value.get()
        reader, writer = await connect(server)
        writer.write(GET % b"a")
        assert await answer_of(reader) == (200, b"/a")
        writer.write(begins)
        assert await reader.read() == b""
        writer.close()
        assert CLOSED.labels("admin_request_within_ms")._value.get() - before == complained
        assert not held_by(server)

    run(test)


def test_few_requests_begin_in_a_turn_of_the_loop_and_another_address_has_its_own_turn() -> None:
    async def test(server: AdminServer, pages: Pages) -> None:
        greedy = [await connect(server) for _ in range(20)]
        for _, writer in greedy:
            writer.write(GET % b"greedy" * 50)
        await until_async(lambda: len(pages.began) >= 30, "30 pages to have begun")
        before = len(pages.began)
        modest_reader, modest_writer = await connect(server, "127.0.0.2")
        modest_writer.write(GET % b"modest")
        assert await answer_of(modest_reader) == (200, b"/modest")
        turns = [turn for turn, _ in pages.began]
        assert max(turns.count(turn) for turn in set(turns)) <= TURN
        assert len(pages.began) - before < 20 * 50 // 2
        for reader, writer in greedy:
            for _ in range(50):
                assert await answer_of(reader) == (200, b"/greedy")
            writer.close()
        modest_writer.close()

    run(test)


def test_what_comes_ahead_of_its_answer_is_not_read_without_end() -> None:
    async def test(server: AdminServer, pages: Pages) -> None:
        reader, writer = await connect(server)
        writer.write(GET % b"a" * 100_000)
        most = 0
        for _ in range(500):
            assert await answer_of(reader) == (200, b"/a")
            most = max(most, *(len(one._bytes) for one in held_by(server)))
        assert most <= 512 << 10
        writer.close()

    run(test)


def test_a_body_that_trickles_is_handed_over_in_few_parts_and_whole() -> None:
    async def test(server: AdminServer, pages: Pages) -> None:
        reader, writer = await connect(server)
        body = bytes(range(256)) * 8
        writer.write(POST % len(body))
        for n in range(len(body)):
            writer.write(body[n : n + 1])
            await asyncio.sleep(0)
        writer.write(GET % b"next")
        assert await answer_of(reader) == (200, b"/body" + body)
        assert pages.parts[0] == len(body)
        assert await answer_of(reader) == (200, b"/next")
        large = bytes(900_000)
        writer.write(POST % len(large) + large)
        assert await answer_of(reader) == (200, b"/body" + large)
        writer.close()

    run(test)


def test_the_rest_of_a_body_that_nobody_wants_is_not_waited_for() -> None:
    async def test(server: AdminServer, pages: Pages) -> None:
        pages.answers_early = True
        reader, writer = await connect(server)
        writer.write(POST % 100 + b"x" * 99)
        assert await answer_of(reader) == (200, b"/body")
        writer.write(b"x" + GET % b"next")
        assert await answer_of(reader) == (200, b"/next")
        writer.write(POST % 100_000)
        assert await answer_of(reader) == (200, b"/body")
        while held_by(server):
            writer.write(b"x")
            await asyncio.sleep(0.01)

    run(test)


def test_who_waits_for_changes_is_counted_apart_and_bounded_by_address_and_in_all() -> None:
    async def test(server: AdminServer, pages: Pages) -> None:
        known = server.connections
        watchers = [await watching(server) for _ in range(3)]
        assert (len(known), len(known._watching)) == (0, 3)
        assert (
            await watching(server)
            == "3 connections of this address wait for changes, and admin_watches_per_address is 3"
        )
        fairly = [await watching(server, f"127.0.0.{2 + number}") for number in range(5)]
        assert not any(isinstance(one, str) for one in fairly)
        assert len(known._watching) == 8
        fairly.append(await watching(server, "127.0.0.9"))
        assert (len(known._watching), known._watching_by_host["127.0.0.1"]) == (8, 2)
        first = watchers[0]
        assert not isinstance(first, str)
        assert await first[0].read() == b""
        for one in watchers[1:]:
            assert not isinstance(one, str)
            one[1].close()
        await until_async(lambda: len(known._watching) == 6, "those that are gone to be forgotten")

    run(test, admin_watches_per_address=3, admin_watches_max=8, admin_request_within_ms=30_000)


async def watching(
    server: AdminServer, host: str = "127.0.0.1"
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | str:
    """A connection that waits; or why it may not."""
    reader, writer = await connect(server, host)
    port = writer.get_extra_info("sockname")[1]
    await until_async(lambda: any(one.client[1] == port for one in held_by(server)), "it to be held")
    [connection] = [one for one in held_by(server) if one.client is not None and one.client[1] == port]
    refused = server.connections.watches(connection)
    return (reader, writer) if refused is None else refused

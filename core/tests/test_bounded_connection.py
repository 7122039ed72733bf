"""A connection's requests and parts of bodies: few in a turn of the loop, however they come, and none is lost."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, cast

import uvicorn
from tests.waiting import until_async

from bmq.fairness.steps import Steps
from bmq.http.chunked_body import PART_BYTES, PART_CHUNKS
from bmq.http.connection import BoundedConnection, Bounds
from bmq.http.request_bytes import HeadTooLarge

CHUNKED = b"POST /%s HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
LAST = b"0\r\n\r\n"
TURN_PARTS = 2


class CountedLoop(asyncio.SelectorEventLoop):
    turn = 0

    def _run_once(self) -> None:
        self.turn += 1
        super()._run_once()  # type: ignore[misc]


class Connection(BoundedConnection):
    bounds = Bounds(head_bytes_max=1_000, headers_max=5, request_within_s=30)

    @property
    def party(self) -> "Connection":
        return self

    def refuse_head(self, error: HeadTooLarge) -> None:
        self.refuse(431, (), str(error).encode())

    def send_400_response(self, msg: str) -> None:
        self.refuse(400, (), str(self.conn.refused).encode())

    def overdue(self) -> None:
        self.abort()


class CountedSteps(Steps):
    """Notes in which turn of the loop each step was taken."""

    def __init__(self, per_turn: int) -> None:
        super().__init__(per_turn)
        self.taken: Counter[int] = Counter()

    def may_take(self, step: Callable[[], None], **whose: Any) -> bool:
        def noted() -> None:
            self._note()
            step()

        if super().may_take(noted, **whose):
            self._note()
            return True
        return False

    def _note(self) -> None:
        self.taken[cast(CountedLoop, asyncio.get_running_loop()).turn] += 1


@dataclass
class Echo:
    """An application that answers with what it was sent; to /early before that, to /slow when it is told to."""

    parts: list[int] = field(default_factory=list)
    goes_on: asyncio.Event = field(default_factory=asyncio.Event)
    before_answer: Callable[[], None] = lambda: None

    async def __call__(
        self, scope: Any, receive: Callable[[], Awaitable[Any]], send: Callable[[Any], Awaitable[None]]
    ) -> None:
        body, more = bytearray(), scope["path"] != "/early"
        if scope["path"] == "/slow":
            await self.goes_on.wait()
        while more:
            message = await receive()
            body += message["body"]
            self.parts.append(len(message["body"]))
            more = message["more_body"]
        answer = b"%s %d %d" % (scope["path"].encode(), len(body), sum(body))
        headers = [(b"content-length", b"%d" % len(answer))]
        self.before_answer()
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": answer})


Connect = Callable[[], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]


def run(test: Callable[[Connect, Echo, CountedSteps, uvicorn.Server], Awaitable[None]]) -> None:
    async def main() -> None:
        echo, parts = Echo(), CountedSteps(TURN_PARTS)
        protocol = type("Connection", (Connection,), {"begins": Steps(3), "parts": parts})
        server = uvicorn.Server(uvicorn.Config(echo, port=0, http=protocol, ws="none", lifespan="off", log_config=None))
        serving = asyncio.ensure_future(server._serve())
        await until_async(lambda: server.started, "the server to have started")
        port = server.servers[0].sockets[0].getsockname()[1]
        try:
            async with asyncio.timeout(60):
                await test(lambda: asyncio.open_connection("127.0.0.1", port), echo, parts, server)
        finally:
            server.should_exit = server.force_exit = True
            await serving

    with asyncio.Runner(loop_factory=CountedLoop) as runner:
        runner.run(main())


async def answer_of(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    size = next(int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
    return await reader.readexactly(size)


def test_chunks_of_one_byte_are_looked_at_few_in_a_turn_of_the_loop_over_all_connections_and_all_are_there() -> None:
    async def test(connect: Connect, echo: Echo, parts: CountedSteps, server: uvicorn.Server) -> None:
        clients = [await connect() for _ in range(5)]
        for _, writer in clients:
            writer.write(CHUNKED % b"many" + b"1\r\n\x01\r\n" * 20_000 + LAST + CHUNKED % b"next" + LAST)
        for reader, writer in clients:
            assert await answer_of(reader) == b"/many 20000 20000"
            assert await answer_of(reader) == b"/next 0 0"
            writer.close()
        assert sum(parts.taken.values()) >= 5 * (20_000 // PART_CHUNKS - 1)
        assert max(parts.taken.values()) <= TURN_PARTS
        assert max(echo.parts) <= TURN_PARTS * PART_BYTES

    run(test)


def test_what_an_application_does_not_take_is_not_read_without_end() -> None:
    async def test(connect: Connect, echo: Echo, parts: CountedSteps, server: uvicorn.Server) -> None:
        reader, writer = await connect()
        size = 32 << 20
        writer.write(b"POST /slow HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % size + b"\x01" * size)
        await until_async(lambda: bool(parts.taken) or any(one._bytes for one in held(server)), "some of the body")
        for _ in range(200):
            await asyncio.sleep(0)
        for one in held(server):
            assert len(one._bytes) + len(one.cycle.body) <= 512 << 10
        echo.goes_on.set()
        assert await answer_of(reader) == b"/slow %d %d" % (size, size)
        assert max(echo.parts) <= 2 * PART_BYTES
        writer.close()

    run(test)


def test_a_body_that_was_answered_before_its_end_is_passed_over_and_what_follows_is_answered() -> None:
    async def test(connect: Connect, echo: Echo, parts: CountedSteps, server: uvicorn.Server) -> None:
        reader, writer = await connect()
        for framing in (
            CHUNKED % b"early" + b"1\r\nx\r\n" * 5_000 + b"0\r\n\r\n",
            b"",
            CHUNKED % b"next" + b"0\r\n\r\n",
        ):
            for first in range(0, len(framing), 7_001):
                writer.write(framing[first : first + 7_001])
                await asyncio.sleep(0)
        assert await answer_of(reader) == b"/early 0 0"
        assert await answer_of(reader) == b"/next 0 0"
        writer.close()

    run(test)


def test_what_is_no_chunk_is_refused_with_the_reason() -> None:
    async def test(connect: Connect, echo: Echo, parts: CountedSteps, server: uvicorn.Server) -> None:
        reader, writer = await connect()
        writer.write(CHUNKED % b"broken" + b"1\r\nx\r\nzz\r\n")
        assert await answer_of(reader) == b"illegal chunk header: b'zz'"
        assert await reader.read() == b""
        writer.close()

    run(test)


def test_an_answer_that_is_held_goes_out_in_one_write_and_before_what_is_told_of_the_next_request() -> None:
    async def test(connect: Connect, echo: Echo, parts: CountedSteps, server: uvicorn.Server) -> None:
        reader, writer = await connect()
        writes: list[bytes] = []

        def hold() -> None:
            one = held(server)[0]
            if not writes:
                write = one.transport.write
                one.transport.write = lambda data: (writes.append(data), write(data))[1]  # type: ignore[method-assign]
            one.answers.hold()

        echo.before_answer = hold
        writer.write((CHUNKED % b"one" + LAST) * 2 + b"no request\r\n\r\n")
        assert await answer_of(reader) == b"/one 0 0"
        assert await answer_of(reader) == b"/one 0 0"
        assert (await reader.read()).startswith(b"HTTP/1.1 400")
        assert [data.count(b"HTTP/1.1") for data in writes] == [1, 1, 1]
        writer.close()

    run(test)


def held(server: uvicorn.Server) -> list[Connection]:
    return [one for one in server.server_state.connections if isinstance(one, Connection)]

"""Connections that are brought to where the library listens, each with a name by which it can be ended, and from their
beginning: what comes before a client has acknowledged what this end sets is held.
"""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

import pytest
from tests.waiting import until_async

from bmq_databus.grpc import opening, relay, resets
from bmq_databus.grpc.opening import HELD_BYTES_MAX, PREFACE
from bmq_databus.grpc.relay import Relay

DATA, HEADERS, RESET, SETTINGS, PING, CONTINUATION = 0, 1, 3, 4, 6, 9
ACKNOWLEDGES = 1


def frame(kind: int, payload: bytes = b"", *, flags: int = 0) -> bytes:
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + (0).to_bytes(4, "big") + payload


OPENING = PREFACE + frame(SETTINGS)
BEGUN = OPENING + frame(SETTINGS, flags=ACKNOWLEDGES)
Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(1 << 16):
        writer.write(data)
        await writer.drain()
    writer.close()


@asynccontextmanager
async def relayed(folder: Path, answer: Answer = echo) -> AsyncIterator[tuple[Relay, list[str], str]]:
    """A relay, the names that came to the other end, and where it listens. Nothing that begins a connection comes
    back.
    """
    peers: list[str] = []

    async def inner(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peers.append(f"unix-abstract:{writer.get_extra_info('peername')[1:].decode()}")
        with suppress(asyncio.IncompleteReadError):
            await reader.readexactly(len(BEGUN))
            await answer(reader, writer)

    server = await asyncio.start_unix_server(inner, folder / "inner")
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(folder / "outer"))
    one = Relay([listening], folder / "inner")
    await one.start()
    try:
        yield one, peers, str(folder / "outer")
    finally:
        one.close()
        server.close()


async def begun(path: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_unix_connection(path)
    writer.write(BEGUN)
    return reader, writer


def run(test: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(test(), 30))


def test_what_is_sent_comes_back_and_one_connection_is_ended_by_its_name(tmp_path: Path) -> None:
    async def test() -> None:
        async with relayed(tmp_path) as (one, peers, path):
            ends = [await begun(path) for _ in range(3)]
            data = bytes(range(256)) * 4_000
            for reader, writer in ends:
                writer.write(data)
                assert await reader.readexactly(len(data)) == data
            assert len(set(peers)) == 3
            assert one.cut(peers[1]) and not one.cut("unix:") and not one.cut("unix-abstract:nobody")
            with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
                await ends[1][0].readexactly(1)
            for reader, writer in (ends[0], ends[2]):
                writer.write(b"on")
                assert await reader.readexactly(2) == b"on"
            for _, writer in ends:
                writer.close()
            await until_async(lambda: not one._open, "those who left to be forgotten", 10)

    run(test)


def test_where_there_are_as_many_as_there_may_be_the_longest_still_gives_way_and_none_that_has_a_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay, "CONNECTIONS_MAX", 2)

    async def test() -> None:
        async with relayed(tmp_path) as (one, peers, path), AsyncExitStack() as opened:

            async def speaking() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
                reader, writer = await begun(path)
                opened.callback(writer.close)
                await echoed(reader, writer)
                return reader, writer

            async def is_cut(reader: asyncio.StreamReader) -> bool:
                with suppress(ConnectionError):
                    return await reader.read() == b""
                return True

            first, second = await speaking(), await speaking()
            await echoed(*first)
            third = await speaking()
            assert await is_cut(second[0])
            with one.called(peers[0]):
                await echoed(*third)
                fourth = await speaking()
                assert await is_cut(third[0])
                with one.called(peers[3]):
                    refused, writer = await begun(path)
                    opened.callback(writer.close)
                    assert await is_cut(refused)
                    await echoed(*first)
                    await echoed(*fourth)
            assert len(peers) == 4

    async def echoed(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"a")
        assert await reader.readexactly(1) == b"a"

    run(test)


def test_all_that_come_at_once_are_no_more_than_there_may_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay, "CONNECTIONS_MAX", 3)

    async def test() -> None:
        async with relayed(tmp_path) as (one, _, path):
            ends = await asyncio.gather(*(begun(path) for _ in range(20)))
            await until_async(lambda: len(one._open) == 3 and not one._beginning, "three to be left", 10)
            for _, writer in ends:
                writer.close()

    run(test)


def test_who_takes_nothing_is_cut_and_little_is_kept_for_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay, "TAKEN_WITHIN_S", 0.2)
    sent = 0

    async def pour(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        try:
            while sent < 64 << 20:
                writer.write(b"x" * 65_536)
                await writer.drain()
                sent += 65_536
        except ConnectionError:
            writer.close()

    async def test() -> None:
        async with relayed(tmp_path, pour) as (one, _, path):
            with socket.socket(socket.AF_UNIX) as deaf:
                deaf.connect(path)
                deaf.sendall(BEGUN)
                await until_async(lambda: bool(one._open), "the connection to come", 10)
                await until_async(lambda: not one._open, "it to be cut", 10)
            assert sent < 4 << 20

    run(test)


def test_where_nobody_listens_the_connection_is_cut(tmp_path: Path) -> None:
    async def test() -> None:
        async with relayed(tmp_path) as (one, _, path):
            (tmp_path / "inner").unlink()
            reader, writer = await asyncio.open_unix_connection(path)
            with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
                await reader.readexactly(1)
            writer.close()
            assert not one._open

    run(test)


async def opened(*sent: bytes) -> bytes:
    """What the library gets of a connection that begins so, and ends."""
    reader, got = asyncio.StreamReader(limit=relay.PART_BYTES), bytearray()
    reader.feed_data(b"".join(sent))
    reader.feed_eof()

    class Writer:
        write = staticmethod(got.extend)

        async def drain(self) -> None:
            await asyncio.sleep(0)

    openings = opening.Openings()
    try:
        await openings.bring(reader, Writer())  # type: ignore[arg-type]
    finally:
        assert openings._held_bytes == 0
    return bytes(got)


ACKNOWLEDGEMENT = frame(SETTINGS, flags=ACKNOWLEDGES)
CALL = (frame(HEADERS, b"h" * 40), frame(CONTINUATION, b"c"), frame(DATA, b"d" * 16_000))


@pytest.mark.parametrize("at", range(4))
def test_calls_that_come_before_the_acknowledgement_are_brought_behind_it(at: int) -> None:
    frames = [*CALL[:at], ACKNOWLEDGEMENT]
    wanted = OPENING + frame(PING, b"12345678") + b"".join([ACKNOWLEDGEMENT, *CALL[:at]])
    assert asyncio.run(opened(OPENING, frame(PING, b"12345678"), *frames, b"the rest is not looked at")) == wanted


@pytest.mark.parametrize(
    ("sent", "why"),
    [
        ([b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"], "HTTP/2"),
        ([OPENING, frame(HEADERS, b"x" * ((16 << 10) + 1))], "a frame of 16385 bytes"),
        ([OPENING, *[frame(HEADERS, b"x" * 16_000)] * 7], "too much"),
        ([OPENING, *[frame(HEADERS)] * (HELD_BYTES_MAX // 9 + 1)], "too much"),
        ([OPENING, *[frame(HEADERS), frame(RESET, b"none")] * 101], "takes back more calls"),
    ],
)
def test_who_begins_in_no_such_way_is_refused(sent: list[bytes], why: str) -> None:
    with pytest.raises(opening.NotOpened, match=why):
        asyncio.run(opened(*sent))


@pytest.mark.parametrize("sent", [[], [PREFACE[:5]], [OPENING, frame(HEADERS)], [OPENING, frame(DATA, b"x" * 9)[:-3]]])
def test_who_ends_before_it_has_begun_leaves_nothing(sent: list[bytes]) -> None:
    with pytest.raises(EOFError):
        asyncio.run(opened(*sent))


def test_so_much_is_held_of_all_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "ALL_HELD_BYTES_MAX", 40_000)

    async def test() -> None:
        openings = opening.Openings()
        readers = [asyncio.StreamReader() for _ in range(3)]
        bringing = [asyncio.ensure_future(openings.bring(reader, Sink())) for reader in readers]  # type: ignore[arg-type]
        for reader in readers:
            reader.feed_data(OPENING + frame(HEADERS, b"x" * 15_000))
        await until_async(lambda: any(one.done() for one in bringing), "one of them to be refused")
        assert [isinstance(one.exception(), opening.NotOpened) for one in bringing if one.done()] == [True]
        for reader in readers:
            reader.feed_data(ACKNOWLEDGEMENT)
        assert [type(one) for one in await asyncio.gather(*bringing, return_exceptions=True)].count(type(None)) == 2
        assert openings._held_bytes == 0

    run(test)


class Sink:
    def write(self, _: bytes) -> None:
        """Nothing is kept."""

    async def drain(self) -> None:
        """It has room."""


def test_who_does_not_begin_in_time_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay, "OPENED_WITHIN_S", 0.1)

    async def test() -> None:
        async with relayed(tmp_path) as (one, _, path):
            for sent in (b"", OPENING, OPENING + frame(HEADERS)):
                reader, writer = await asyncio.open_unix_connection(path)
                writer.write(sent)
                with suppress(ConnectionError):
                    assert await reader.read() == b""
                writer.close()
            await until_async(lambda: not one._open, "those to be forgotten", 10)

    run(test)


def test_who_takes_back_calls_all_the_time_waits_and_others_do_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resets, "PER_S", 0.01)
    taken_back = frame(HEADERS) + frame(RESET, b"none")

    async def test() -> None:
        async with relayed(tmp_path) as (_, _, path):
            often, other = await begun(path), await begun(path)
            allowed = taken_back * resets.BURST
            often[1].write(allowed)
            assert await often[0].readexactly(len(allowed)) == allowed
            often[1].write(taken_back)
            other[1].write(allowed + frame(DATA, b"written"))
            await other[0].readexactly(len(allowed) + 9 + 7)
            more = asyncio.ensure_future(often[0].read(1))
            other[1].write(b"and on")
            await other[0].readexactly(6)
            assert not more.done()
            more.cancel()
            for _, writer in (often, other):
                writer.close()

    run(test)

"""Heads and chunks without end in an answer: they are given up, and hold nobody up meanwhile."""

import asyncio
import itertools
from collections.abc import Iterable

import pytest

from bmq_admin import connections, pages
from bmq_admin.answers import PIECE_BYTES_MIN, PIECES_FREE
from bmq_admin.client import AdminClient
from bmq_admin.errors import AdminError, NotBmq, NotReached
from bmq_admin.heads import HEAD_BYTES_MAX, HEAD_LINES_MAX, INFORMATIONAL_MAX, HeadBeyondBounds, Heads

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
HINTS = b"HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n"
OWN = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n"
CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"


def cut(data: bytes, size: int) -> list[bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1_000_000])
def test_as_many_informational_answers_as_are_allowed_come_before_the_own_one(size: int) -> None:
    heads = Heads()
    for piece in cut((CONTINUE + HINTS) * (INFORMATIONAL_MAX // 2) + OWN + CONTINUE * 100, size):
        heads.add(piece)
    heads = Heads()
    with pytest.raises(HeadBeyondBounds, match=f"more than {INFORMATIONAL_MAX} informational answers"):
        for piece in cut(CONTINUE * (INFORMATIONAL_MAX + 1) + OWN, size):
            heads.add(piece)


def test_lines_may_end_as_parsers_let_them() -> None:
    heads = Heads()
    with pytest.raises(HeadBeyondBounds, match="informational"):
        heads.add(b"HTTP/1.1 100 Continue\n\n" * (INFORMATIONAL_MAX + 1))


@pytest.mark.parametrize("own", [OWN, b"HTTP/1.1 101 Switching Protocols\r\n\r\n", b"anything else\r\n\r\n"])
def test_what_follows_the_own_head_is_not_looked_at(own: bytes) -> None:
    heads = Heads()
    heads.add(own + CONTINUE * 1_000)
    heads.add(b"\n" * HEAD_BYTES_MAX * 2)


@pytest.mark.parametrize(
    ("head", "why"),
    [
        (b"HTTP/1.1 200 OK\r\nx: " + b"y" * HEAD_BYTES_MAX, f"more than {HEAD_BYTES_MAX >> 10} KiB"),
        (b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * HEAD_LINES_MAX, f"more than {HEAD_LINES_MAX} lines"),
        (b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * HEAD_LINES_MAX + b"\r\n" + b"x" * 9, f"more than {HEAD_LINES_MAX} "),
    ],
    ids=["long", "many lines", "many lines and an end"],
)
@pytest.mark.parametrize("size", [7, 1_000_000])
def test_a_head_has_bounds(head: bytes, why: str, size: int) -> None:
    heads = Heads()
    with pytest.raises(HeadBeyondBounds, match=why):
        for piece in cut(head, size):
            heads.add(piece)


def asked(answer: Iterable[bytes], *, times: int = 1) -> tuple[list[bytes | AdminError], int]:
    """What comes of as many requests, each of which is answered with this; and turns of the loop while they did."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            for _ in range(times):
                await reader.readuntil(b"\r\n\r\n")
                for piece in answer:
                    writer.write(piece)
                    await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def run() -> tuple[list[bytes | AdminError], int]:
        turns = 0

        def turn() -> None:
            nonlocal turns
            turns += 1
            loop.call_soon(turn)

        loop = asyncio.get_running_loop()
        async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            client = AdminClient(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", timeout_s=20)
            found: list[bytes | AdminError] = []
            loop.call_soon(turn)
            for _ in range(times):
                try:
                    found.append(await client.ask(pages.watched_channels("", wait_s=1)))
                except AdminError as error:
                    found.append(error)
            await client.close()
        return found, turns

    return asyncio.run(run())


def test_informational_answers_without_end_are_given_up() -> None:
    (found,), _ = asked(itertools.repeat(CONTINUE * 1_000))
    assert isinstance(found, NotReached)
    assert str(found).endswith(f"more than {INFORMATIONAL_MAX} informational answers (1xx) before its own")


def test_a_few_informational_answers_are_passed_over_of_each_answer_of_a_connection() -> None:
    found, _ = asked([CONTINUE * INFORMATIONAL_MAX + OWN + b"ok"], times=3)
    assert found == [b"ok"] * 3


def test_chunks_of_a_byte_without_end_are_given_up_and_others_have_turns_between_them() -> None:
    (found,), turns = asked(itertools.chain([CHUNKED], itertools.repeat(b"1\r\n \r\n" * 10_000)))
    assert isinstance(found, NotBmq)
    assert str(found).endswith(f"an answer in pieces of less than {PIECE_BYTES_MIN} bytes")
    assert turns > PIECES_FREE // connections.PIECES_IN_A_TURN


def test_chunks_as_a_proxy_may_make_them_are_read() -> None:
    small = b"".join([CHUNKED, b"1\r\nx\r\n" * PIECES_FREE, b"0\r\n\r\n"])
    assert asked([small])[0] == [b"x" * PIECES_FREE]
    many = b"".join([CHUNKED, (b"80\r\n" + b"x" * 128 + b"\r\n") * (2 * PIECES_FREE), b"0\r\n\r\n"])
    assert asked([many])[0] == [b"x" * 128 * 2 * PIECES_FREE]

"""A request's body is bounded before and after it is opened, and so are those of all requests together."""

import asyncio
import gzip
from collections.abc import Mapping
from typing import Any

import pytest

from bmq_databus.http import bodies
from bmq_databus.http.bodies import (
    BadBody,
    BodyRoom,
    BodyTooLarge,
    ClientGone,
    Receive,
    TooMuchAtOnce,
    TooSlow,
    read_body,
)


def sending(*parts: bytes | None) -> Receive:
    """None: the client leaves."""
    left = list(parts)

    async def receive() -> Mapping[str, Any]:
        part = left.pop(0)
        if part is None:
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": part, "more_body": bool(left)}

    return receive


def read(room: BodyRoom, receive: Receive, encoding: str = "", bytes_max: int = 1000) -> bytes:
    async def main() -> bytes:
        with room.one() as body:
            return await read_body(receive, encoding=encoding, bytes_max=bytes_max, room=body)

    return asyncio.run(main())


def test_a_body_comes_in_parts_and_compressed() -> None:
    room = BodyRoom(10_000)
    assert read(room, sending(b"a", b"", b"bc")) == b"abc"
    assert read(room, sending(gzip.compress(b"x" * 900)), "gzip") == b"x" * 900
    assert room.held_bytes == 0


@pytest.mark.parametrize(
    ("parts", "encoding", "error"),
    [
        ((b"x" * 600, b"x" * 600), "", BodyTooLarge),
        ((gzip.compress(bytes(100_000)),), "gzip", BodyTooLarge),
        ((b"no gzip",), "gzip", BadBody),
        ((b"x",), "br", BadBody),
        ((b"half", None), "", ClientGone),
    ],
)
def test_a_body_that_is_not_taken_leaves_its_room(
    parts: tuple[bytes | None, ...], encoding: str, error: type[Exception]
) -> None:
    room = BodyRoom(10_000)
    with pytest.raises(error):
        read(room, sending(*parts), encoding)
    assert room.held_bytes == 0


def test_bodies_of_all_requests_together_are_bounded() -> None:
    room = BodyRoom(1_000)
    with room.one() as other:
        other.take(900)
        with pytest.raises(TooMuchAtOnce, match="900 bytes are being answered"):
            read(room, sending(b"x" * 200))
        assert room.held_bytes == 900
    assert read(room, sending(b"x" * 200)) == b"x" * 200


def test_a_client_that_stalls_within_its_body_leaves_its_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "STALL_S", 0.01)
    room = BodyRoom(10_000)

    async def receive() -> Mapping[str, Any]:
        if room.held_bytes:
            await asyncio.sleep(3600)
        return {"type": "http.request", "body": b"half", "more_body": True}

    with pytest.raises(TooSlow, match="nothing more of the body"):
        read(room, receive)
    assert room.held_bytes == 0

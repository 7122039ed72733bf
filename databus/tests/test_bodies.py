"""A request's body is bounded before and after it is opened, and so are those of all requests together."""

import asyncio
import gzip
from collections.abc import Mapping
from typing import Any

import pytest
from requests_under_test import Connection, incoming, sending

from bmq_databus.http import bodies
from bmq_databus.http.bodies import Bodies, BodyTooLarge
from bmq_databus.http.incoming import BadBody, ClientGone, Receive, TooSlow
from bmq_databus.requests.room import BodyRoom, TooMuchAtOnce


def read(room: BodyRoom, receive: Receive, encoding: str = "", bytes_max: int = 1000, **headers: str) -> bytes:
    async def main() -> bytes:
        with room.one("orders") as body:
            request = incoming(receive, **headers)
            return await Bodies().read(request, encoding=encoding, bytes_max=bytes_max, room=body)

    return asyncio.run(main())


def test_a_body_comes_in_parts_and_compressed() -> None:
    room = BodyRoom(10_000, small_bytes=0)
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
    room = BodyRoom(10_000, small_bytes=0)
    with pytest.raises(error):
        read(room, sending(*parts), encoding)
    assert room.held_bytes == 0


def test_a_body_that_says_it_is_too_large_is_refused_before_it_comes() -> None:
    with pytest.raises(BodyTooLarge):
        read(BodyRoom(10_000, small_bytes=0), sending(), content_length="1001")


def test_bodies_of_all_requests_together_are_bounded_and_those_of_a_channel_leave_some_to_others() -> None:
    room = BodyRoom(900, small_bytes=0)
    with room.one("clicks") as other:
        other.take(600)
        for size_bytes, channel in ((1, "clicks"), (301, "orders")):
            with pytest.raises(TooMuchAtOnce, match="600 bytes are being answered"), room.one(channel) as body:
                body.take(size_bytes)
        with room.one("orders") as body:
            body.take(200)
            assert room.held_bytes == 800
        assert room.held_bytes == 600
    assert room.held_bytes == 0


def test_a_small_body_has_room_however_much_the_others_hold_and_an_answer_has_it_too() -> None:
    room = BodyRoom(600, small_bytes=100)
    with room.one("clicks") as other:
        other.take(500)
        with room.one("clicks") as body:
            body.take(60)
            body.take(40)
            assert (body.is_small, room.held_bytes) == (True, 400)
            with pytest.raises(TooMuchAtOnce):
                body.take(1)
            body.hold(300)
            assert (body.is_small, room.held_bytes) == (False, 600)
            body.hold(50)
        assert room.held_bytes == 400


def test_the_rest_of_a_large_body_is_given_less_time_than_a_small_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "LARGE_WITHIN_S", 0.05)
    room = BodyRoom(10_000, small_bytes=4)

    async def receive() -> Mapping[str, Any]:
        await asyncio.sleep(0.001)
        return {"type": "http.request", "body": b"x" if room.held_bytes == 0 else b"", "more_body": True}

    with pytest.raises(TooSlow, match=r"did not come within 0\.05 s"):
        read(room, receive)
    assert room.held_bytes == 0


async def stalls() -> Mapping[str, Any]:
    await asyncio.Event().wait()
    raise AssertionError


def test_a_client_that_stalls_within_its_body_leaves_its_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "STALL_S", 0.01)
    room = BodyRoom(10_000, small_bytes=0)
    first = sending(b"half", b"")

    async def receive() -> Mapping[str, Any]:
        return await (stalls() if room.held_bytes else first())

    with pytest.raises(TooSlow, match="nothing more of the body"):
        read(room, receive)
    assert room.held_bytes == 0


def test_a_body_that_trickles_has_an_end_to_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "WITHIN_S", 0.05)

    async def receive() -> Mapping[str, Any]:
        await asyncio.sleep(0.001)
        return {"type": "http.request", "body": b"", "more_body": True}

    with pytest.raises(TooSlow, match=r"did not come within 0\.05 s"):
        read(BodyRoom(10_000, small_bytes=0), receive)


def test_a_body_whose_connection_broke_is_not_taken_for_a_whole_one() -> None:
    async def main() -> None:
        request = incoming(sending(b"half"))
        request.connection = connection = Connection()
        connection.broken = "illegal chunk header"
        with pytest.raises(BadBody, match="illegal chunk header"):
            await request.part(stall_s=1)

    asyncio.run(main())


def test_what_is_left_of_a_body_is_passed_over_up_to_a_bound_and_not_where_its_client_waits_to_be_told() -> None:
    async def main() -> None:
        parts = 0

        async def receive() -> Mapping[str, Any]:
            nonlocal parts
            parts += 1
            return {"type": "http.request", "body": bytes(1 << 20), "more_body": True}

        waits = incoming(receive, expect="100-continue")
        await waits.pass_over()
        assert parts == 0
        await incoming(receive).pass_over()
        assert parts == 65

    asyncio.run(main())


def test_a_body_that_is_there_is_taken_at_once_and_bounded_all_the_same() -> None:
    async def taken(receive: Receive, room: BodyRoom) -> bytes:
        request = incoming(receive)
        request.connection = connection = Connection()
        connection.has_part = connection.has_rest = True
        with room.one("orders") as body:
            return await Bodies().read(request, encoding="", bytes_max=1000, room=body)

    room = BodyRoom(500, small_bytes=0)
    assert asyncio.run(taken(sending(b"x" * 500), room)) == b"x" * 500
    with pytest.raises(TooMuchAtOnce):
        asyncio.run(taken(sending(b"x" * 501), room))
    with pytest.raises(BodyTooLarge):
        asyncio.run(taken(sending(b"x" * 1001), room))
    with pytest.raises(ClientGone):
        asyncio.run(taken(sending(None), room))
    assert room.held_bytes == 0

"""Answers go out in parts, and who takes none of them is cut and holds nothing from others."""

import asyncio
from collections.abc import MutableMapping
from typing import Any

import pytest
from requests_under_test import Answer, Connection, incoming, sending

from bmq_databus.http import outgoing
from bmq_databus.http.incoming import ClientGone
from bmq_databus.http.outgoing import PART_BYTES, Outgoing


def test_an_answer_goes_out_in_parts_and_ends_with_the_last_one() -> None:
    async def main() -> None:
        sizes: list[int] = []
        answer = Answer()

        async def send(event: MutableMapping[str, Any]) -> None:
            sizes.append(len(event["body"]))
            await answer.send(event)

        for body in (b"", b"x", b"x" * PART_BYTES, b"x" * (2 * PART_BYTES + 1)):
            answer.body, answer.is_whole = b"", False
            await Outgoing(incoming(sending(b"")), send).end(body)
            assert (answer.body, answer.is_whole) == (body, True)
        assert sizes == [0, 1, PART_BYTES, PART_BYTES, PART_BYTES, 1]

    asyncio.run(main())


def test_who_takes_nothing_of_an_answer_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outgoing, "TAKEN_WITHIN_S", 0.01)

    async def main() -> None:
        answer, request = Answer(), incoming(sending(b""))
        request.connection = connection = Connection()
        answer.reads.clear()
        with pytest.raises(ClientGone, match="took nothing of its answer"):
            await Outgoing(request, answer.send).end(b"x")
        assert connection.is_aborted

    asyncio.run(main())


def test_a_whole_answer_that_is_short_is_held_until_all_of_it_is_written() -> None:
    async def main() -> None:
        answer, request = Answer(), incoming(sending(b""))
        request.connection = connection = Connection()
        held: list[bool] = []

        async def send(event: MutableMapping[str, Any]) -> None:
            held.append(connection.is_held)
            await answer.send(event)

        head = {"type": "http.response.start", "status": 200, "headers": []}
        for size, takes_more, expected in (
            (10, True, [True, True]),
            (10, False, [False, False]),
            (PART_BYTES + 1, True, [False, False, False]),
        ):
            answer.body, connection.takes_more = b"", takes_more
            held.clear()
            await Outgoing(request, send).whole(dict(head), b"x" * size)
            assert (answer.body, answer.is_whole, held) == (b"x" * size, True, expected)
            assert not connection.is_held

    asyncio.run(main())

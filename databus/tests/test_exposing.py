"""Metrics as text: one is made at a time, for all who ask."""

import asyncio
import itertools
import time

import pytest
from test_channel_spool import in_a_loop

from bmq_databus.http import exposing
from bmq_databus.http.exposing import REST, Exposition

TAKES_S = 0.02


@in_a_loop
async def test_all_who_ask_meanwhile_have_one_text_and_the_next_one_is_made_after_a_rest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[tuple[float, float]] = []

    def slowly() -> bytes:
        began_s = time.monotonic()
        busy()
        made.append((began_s, time.monotonic()))
        return b"%d" % len(made)

    monkeypatch.setattr(exposing, "generate_latest", slowly)
    told: list[int] = []
    exposition = Exposition(lambda: told.append(len(made)))
    assert set(await asyncio.gather(*(exposition.text() for _ in range(20)))) == {b"1"}
    assert told == [0]
    assert [await exposition.text() for _ in range(2)] == [b"2", b"3"]
    assert told == [0, 1, 2], "each is as of the time at which it was asked for, or later"
    for (_, ended_s), (began_s, _) in itertools.pairwise(made):
        assert began_s - ended_s > REST * TAKES_S / 2


def busy() -> None:
    """So long as a text with many series takes."""
    ended_s = time.monotonic() + TAKES_S
    while time.monotonic() < ended_s:
        pass


@in_a_loop
async def test_a_text_that_fails_is_told_to_who_asked_and_the_next_one_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter([ValueError("a bug"), b"fine"])

    def made() -> bytes:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(exposing, "generate_latest", made)
    exposition = Exposition(lambda: None)
    with pytest.raises(ValueError, match="a bug"):
        await exposition.text()
    assert await exposition.text() == b"fine"

"""What anybody may ask for: one is made at a time, for all who ask."""

import asyncio
import itertools
import time

import pytest
from test_channel_spool import in_a_loop

from bmq_databus.requests.shared import REST, Shared

TAKES_S = 0.02


@in_a_loop
async def test_all_who_ask_meanwhile_have_the_same_and_the_next_one_is_made_after_a_rest() -> None:
    made: list[tuple[float, float]] = []

    async def slowly() -> int:
        began_s = time.monotonic()
        busy()
        made.append((began_s, time.monotonic()))
        return len(made)

    shared = Shared(slowly)
    assert set(await asyncio.gather(*(shared.get() for _ in range(20)))) == {1}
    assert [await shared.get() for _ in range(2)] == [2, 3], (
        "each is as of the time at which it was asked for, or later"
    )
    for (_, ended_s), (began_s, _) in itertools.pairwise(made):
        assert began_s - ended_s > REST * TAKES_S / 2


def busy() -> None:
    """So long as one takes."""
    ended_s = time.monotonic() + TAKES_S
    while time.monotonic() < ended_s:
        pass


@in_a_loop
async def test_an_error_is_told_to_who_asked_and_the_next_one_is_made() -> None:
    answers = iter([ValueError("a bug"), b"fine"])

    async def made() -> bytes:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    shared = Shared(made)
    with pytest.raises(ValueError, match="a bug"):
        await shared.get()
    assert await shared.get() == b"fine"

"""Thousands that wait for the same."""

import asyncio
import time
from collections.abc import Callable

import pytest

from bmq.fairness.crowd import WOKEN_PER_TURN, Crowd
from bmq_sim.loop import on_virtual_time

MANY = 10_000
MANY_S_MAX = 2


def waiting(crowd: Crowd, count: int) -> tuple["list[asyncio.Task[None]]", list[int]]:
    """The tasks, and how many went on in each turn that the test has begun."""
    went_on = [0]

    async def wait() -> None:
        try:
            await crowd.wait()
        finally:
            went_on[-1] += 1

    return [asyncio.create_task(wait()) for _ in range(count)], went_on


async def turns(went_on: list[int], count: int) -> None:
    while sum(went_on) < count:
        went_on.append(0)
        await asyncio.sleep(0)


@on_virtual_time
@pytest.mark.parametrize("patience_s", [None, 3.0])
async def test_some_go_on_in_each_turn_in_order_whether_they_are_woken_or_lose_patience(
    patience_s: float | None,
) -> None:
    crowd = Crowd(patience_s=patience_s)
    tasks, went_on = waiting(crowd, MANY)
    await asyncio.sleep(2.9)
    assert (len(crowd), sum(went_on)) == (MANY, 0)
    before_s = time.thread_time()
    if patience_s is None:
        crowd.wake()
    else:
        await asyncio.sleep(0.1)
    await turns(went_on, MANY)
    assert time.thread_time() - before_s < MANY_S_MAX
    assert max(went_on) == WOKEN_PER_TURN
    await asyncio.gather(*tasks)
    assert len(crowd) == 0


@on_virtual_time
async def test_who_leaves_costs_the_same_however_many_wait() -> None:
    crowd = Crowd(patience_s=60)
    tasks, went_on = waiting(crowd, 3 * MANY)
    await asyncio.sleep(1)
    before_s = time.thread_time()
    for task in tasks[1:]:
        task.cancel()
    await turns(went_on, len(tasks) - 1)
    assert time.thread_time() - before_s < MANY_S_MAX
    assert (len(crowd), tasks[0].done()) == (1, False)
    crowd.wake()
    await tasks[0]


@on_virtual_time
async def test_each_has_its_own_patience_and_who_comes_after_the_call_waits_for_the_next() -> None:
    crowd = Crowd(patience_s=3)
    first, _ = waiting(crowd, 1)
    await asyncio.sleep(2)
    second, _ = waiting(crowd, 1)
    await asyncio.sleep(1.5)
    assert (first[0].done(), second[0].done()) == (True, False)
    crowd.wake()
    third, _ = waiting(crowd, 1)
    await asyncio.sleep(1)
    assert (second[0].done(), third[0].done()) == (True, False)
    await asyncio.sleep(2)
    assert third[0].done()


@on_virtual_time
async def test_each_raises_an_error_of_its_own() -> None:
    crowd = Crowd()
    tasks, _ = waiting(crowd, 3)
    await asyncio.sleep(1)
    tasks[1].cancel()
    error: Callable[[], Exception] = lambda: LookupError("gone")  # noqa: E731
    crowd.wake(error)
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(one) for one in outcomes] == [LookupError, asyncio.CancelledError, LookupError]
    assert outcomes[0] is not outcomes[2]

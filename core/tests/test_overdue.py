"""What waited too long is told once, by the one timer, and never is a timer set to a time at which nothing is due."""

import asyncio
from random import Random

import pytest

from bmq.fairness.overdue import Overdue
from bmq_sim.loop import on_virtual_time


@pytest.mark.parametrize("seed", range(20))
@on_virtual_time
async def test_each_is_told_when_it_has_waited_so_long_and_not_before(seed: int) -> None:
    loop, rng = asyncio.get_running_loop(), Random(seed)
    after_s = rng.choice((0.1, 0.3, 10.0, 1 / 3))
    came_s: dict[int, float] = {}
    told_s: dict[int, float] = {}
    looks = 0

    def tell(items: list[int]) -> None:
        nonlocal looks
        looks += 1
        assert items
        told_s.update(dict.fromkeys(items, loop.time()))

    waiting: Overdue[int] = Overdue(after_s, tell)
    for number in range(300):
        came_s[number] = loop.time()
        waiting.add(number)
        waiting.add(number)  # it waits still
        await asyncio.sleep(rng.random() * after_s / 10)
    await asyncio.sleep(2 * after_s)
    assert list(told_s) == list(came_s)
    assert all(told_s[number] == pytest.approx(came_s[number] + after_s) for number in came_s)
    assert looks <= 300
    assert len(waiting) == 0


@on_virtual_time
async def test_what_is_taken_out_is_not_told() -> None:
    told: list[str] = []
    waiting: Overdue[str] = Overdue(1.0, told.extend)
    for item in ("first", "second", "third"):
        waiting.add(item)
    waiting.discard("second")
    waiting.discard("unknown")
    assert list(waiting) == ["first", "third"]
    await asyncio.sleep(2)
    assert told == ["first", "third"]
    waiting.add("fourth")
    assert waiting.clear() == ["fourth"]
    await asyncio.sleep(2)
    assert told == ["first", "third"]


@on_virtual_time
async def test_without_a_time_nothing_is_ever_overdue() -> None:
    told: list[str] = []
    waiting: Overdue[str] = Overdue(None, told.extend)
    waiting.add("first")
    await asyncio.sleep(1e6)
    assert (told, list(waiting)) == ([], ["first"])

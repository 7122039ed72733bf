"""Counted memory goes to who asked first."""

import asyncio
from collections.abc import Callable

import pytest
import uvloop

from bmq_proxy.budget import MemoryBudget


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_memory_is_given_first_come_first_served_and_comes_back_from_who_gives_up(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    async def main() -> None:
        budget = MemoryBudget(10)
        await budget.reserve(6)
        large, small = asyncio.create_task(budget.reserve(8)), asyncio.create_task(budget.reserve(1))
        await asyncio.sleep(0)
        assert budget.held_bytes == 6
        assert budget.take_up_to(1, 1) == 0, "nobody overtakes"
        large.cancel()
        await asyncio.gather(large, return_exceptions=True)
        await small
        assert budget.held_bytes == 7
        too_large = asyncio.create_task(budget.reserve(99))
        await asyncio.sleep(0)
        budget.release(7)
        await too_large
        assert budget.held_bytes == 99
        budget.release(99)
        assert budget.held_bytes == 0

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(main())

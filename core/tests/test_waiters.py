"""Long polls that wait for news of partitions."""

import asyncio

from internal_under_test import tp

from bmq.fairness.crowd import WOKEN_PER_TURN
from bmq.fairness.waiters import Waiters
from bmq_sim.loop import on_virtual_time

MANY = 5_000


@on_virtual_time
async def test_of_thousands_who_wait_for_the_same_partition_some_go_on_in_each_turn_in_order() -> None:
    waiters, went_on, turns = Waiters(), list[int](), [0]

    async def wait(number: int) -> None:
        await waiters.wait([tp(0), tp(number)], 60)
        went_on.append(number)
        turns[-1] += 1

    tasks = [asyncio.create_task(wait(number + 1)) for number in range(MANY)]
    await asyncio.sleep(1)
    for _ in range(3):  # as each of the records that come meanwhile does
        waiters.wake(tp(0))
    while len(went_on) < MANY:
        turns.append(0)
        await asyncio.sleep(0)
    assert max(turns) == WOKEN_PER_TURN
    assert went_on == [number + 1 for number in range(MANY)]
    await asyncio.gather(*tasks)
    assert not any(waiters.has(tp(number)) for number in range(MANY + 1))


@on_virtual_time
async def test_who_waits_again_before_all_others_went_on_hears_of_what_comes_then_alone() -> None:
    waiters = Waiters()
    others = [asyncio.create_task(waiters.wait([tp(0)], 60)) for _ in range(2 * WOKEN_PER_TURN)]
    await asyncio.sleep(1)
    waiters.wake(tp(0))
    again = asyncio.create_task(waiters.wait([tp(0)], 60))
    await asyncio.gather(*others)
    await asyncio.sleep(1)
    assert (again.done(), waiters.has(tp(0))) == (False, True)
    waiters.wake(tp(0))
    await again


@on_virtual_time
async def test_who_gives_up_before_its_turn_is_left_out() -> None:
    waiters = Waiters()
    tasks = [asyncio.create_task(waiters.wait([tp(0)], 60)) for _ in range(3 * WOKEN_PER_TURN)]
    await asyncio.sleep(1)
    waiters.wake(tp(0))
    tasks[-1].cancel()
    await asyncio.gather(*tasks[:-1])
    assert tasks[-1].cancelled()

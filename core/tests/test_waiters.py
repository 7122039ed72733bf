"""Long polls that wait for news of partitions."""

import asyncio

import pytest
from internal_under_test import tp

from bmq.fairness.crowd import WOKEN_PER_TURN
from bmq.fairness.waiters import Lacking, Waiters
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


@on_virtual_time
async def test_who_lacks_many_bytes_goes_on_when_its_partitions_grew_by_them_together_or_changed_otherwise() -> None:
    waiters, went_on = Waiters(), list[str]()

    async def wait(name: str, lacking: Lacking) -> None:
        await waiters.wait([tp(0), tp(1)], 60, lacking)
        went_on.append(name)

    waits = {
        "anything": Lacking(1),
        "thirty": Lacking(30),
        "thirty, and one has enough": Lacking(30, [tp(0)]),
        "one more, and both have enough": Lacking(1, [tp(0), tp(1)]),
    }
    tasks = [asyncio.create_task(wait(name, lacking)) for name, lacking in waits.items()]
    await asyncio.sleep(1)
    after = []
    for index, grown_bytes in ((0, 10), (1, 20), (0, 100), (1, 9), (1, 1), (1, 500)):
        waiters.wake(tp(index), grown_bytes=grown_bytes)
        await asyncio.sleep(1)
        after.append(went_on.copy())
        went_on.clear()
    assert after == [["anything"], ["thirty"], [], [], ["thirty, and one has enough"], []]
    waiters.wake(tp(0))
    await asyncio.gather(*tasks)
    assert went_on == ["one more, and both have enough"]
    assert not waiters.has(tp(0)) and not waiters.has(tp(1))


@on_virtual_time
async def test_who_lacks_many_bytes_waits_no_longer_than_it_wants_to() -> None:
    waiters = Waiters()
    began_s = asyncio.get_running_loop().time()
    await waiters.wait([tp(0)], 5, Lacking(1 << 20, [tp(0)]))
    assert asyncio.get_running_loop().time() - began_s == pytest.approx(5)
    assert not waiters.has(tp(0))


@on_virtual_time
async def test_what_changed_while_somebody_looked_is_news_however_much_it_lacks() -> None:
    waiters = Waiters()
    began_s = asyncio.get_running_loop().time()
    with waiters.watched([tp(0)]) as news:
        waiters.wake(tp(0), grown_bytes=1)
        await waiters.until(news, 60, Lacking(1 << 20, [tp(0)]))
    assert asyncio.get_running_loop().time() == began_s

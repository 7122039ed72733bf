"""Which resource is due when, and whether watches still tell of changes."""

import asyncio
from collections.abc import Awaitable, Callable

from bmq_operator.hearing import DEAF_AFTER_S, Hearing
from bmq_operator.workqueue import BACKOFF_FIRST_S, BACKOFF_MAX_S, Key, WorkQueue

A, B = Key("Topic", "n", "a"), Key("Topic", "n", "b")


def in_loop(test: Callable[[WorkQueue], Awaitable[None]]) -> None:
    async def main() -> None:
        await test(WorkQueue())

    asyncio.run(main())


def test_a_resource_that_is_asked_for_often_is_in_the_queue_once() -> None:
    async def test(queue: WorkQueue) -> None:
        for _ in range(5):
            queue.add(A)
        queue.add(B)
        assert len(queue) == 2
        assert [(await queue.take())[0], (await queue.take())[0]] == [A, B]

    in_loop(test)


def test_what_becomes_due_while_it_is_worked_on_is_looked_at_once_more_afterwards() -> None:
    async def test(queue: WorkQueue) -> None:
        queue.add(A)
        await queue.take()
        queue.add(A)
        queue.add(A)
        assert len(queue) == 0
        queue.done(A, again_after_s=3600)
        assert len(queue) == 1

    in_loop(test)


def test_the_sooner_of_two_times_counts() -> None:
    async def test(queue: WorkQueue) -> None:
        queue.add_after(A, 3600)
        queue.add_after(A, 0)
        async with asyncio.timeout(5):
            assert (await queue.take())[0] == A

    in_loop(test)


def test_each_failure_doubles_the_wait_up_to_a_bound_and_a_success_ends_that() -> None:
    async def test(queue: WorkQueue) -> None:
        delays = []
        for _ in range(12):
            queue.add(A)
            await queue.take()
            delays.append(queue.failed(A, jitter=0.5))
        assert delays[:3] == [BACKOFF_FIRST_S, 2 * BACKOFF_FIRST_S, 4 * BACKOFF_FIRST_S]
        assert delays[-1] == BACKOFF_MAX_S
        queue.add(A)
        await queue.take()
        queue.done(A)
        queue.add(A)
        await queue.take()
        assert queue.failed(A, jitter=0.5) == BACKOFF_FIRST_S

    in_loop(test)


def test_a_resource_that_is_gone_and_comes_back_meanwhile_is_looked_at() -> None:
    async def test(queue: WorkQueue) -> None:
        queue.add(A)
        await queue.take()
        queue.add(A)
        queue.forget(A)
        assert (await queue.take())[0] == A

    in_loop(test)


def test_a_change_that_no_watch_tells_of_shows_that_the_watch_is_dead() -> None:
    hearing = Hearing()
    hearing.heard(A, "1", now_s=0)
    hearing.listed("Topic", {A: "2"}, now_s=10)
    assert not hearing.deaf(10 + DEAF_AFTER_S)
    hearing.listed("Topic", {A: "3"}, now_s=100)
    assert hearing.deaf(11 + DEAF_AFTER_S)
    hearing.heard(A, "3", now_s=12 + DEAF_AFTER_S)
    assert not hearing.deaf(13 + DEAF_AFTER_S)


def test_a_resource_that_is_gone_is_not_waited_for() -> None:
    hearing = Hearing()
    hearing.listed("Topic", {A: "2"}, now_s=10)
    hearing.listed("Topic", {}, now_s=20)
    assert hearing.unheard_s(1000) == 0

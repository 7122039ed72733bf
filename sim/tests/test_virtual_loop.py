import asyncio
import contextlib
import threading

import pytest

from bmq_sim.loop import START_S, Deadlock, ForeignThread, RunawayLoop, UnhandledException, VirtualLoop, run
from bmq_sim.process import SimProcess


def test_an_hour_of_sleep_takes_no_time() -> None:
    async def main() -> float:
        await asyncio.sleep(3600)
        return asyncio.get_running_loop().time()

    assert run(main()) == START_S + 3600


def test_timers_of_one_instant_run_in_the_order_in_which_they_were_set() -> None:
    async def main() -> list[int]:
        order: list[int] = []
        loop = asyncio.get_running_loop()
        for number in range(50):
            loop.call_at(loop.time() + 1, order.append, number)
        await asyncio.sleep(2)
        return order

    assert run(main()) == list(range(50))


def test_a_cancelled_timer_never_runs() -> None:
    async def main() -> list[int]:
        ran: list[int] = []
        loop = asyncio.get_running_loop()
        timers = [loop.call_later(1, ran.append, number) for number in range(3000)]
        for timer in timers[1:]:
            timer.cancel()
        await asyncio.sleep(2)
        return ran

    assert run(main()) == [0]


def test_a_run_in_which_a_thread_begins_has_failed_whoever_takes_the_exception() -> None:
    async def main() -> None:
        with contextlib.suppress(ForeignThread):
            threading.Thread(target=print, name="worker").start()

    with pytest.raises(UnhandledException, match="worker begins"):
        run(main())


def test_waiting_for_what_can_never_come_is_a_deadlock_that_names_the_waiting_task() -> None:
    async def waits_for_nobody() -> None:
        await asyncio.get_running_loop().create_future()

    async def main() -> None:
        await asyncio.create_task(waits_for_nobody(), name="stuck")

    with pytest.raises(Deadlock, match=r"stuck: .*in waits_for_nobody"):
        run(main())


def test_an_exception_of_a_task_that_nobody_awaits_fails_the_run() -> None:
    async def fails() -> None:
        raise ValueError("lost")

    async def main() -> None:
        task = asyncio.create_task(fails())
        del task
        await asyncio.sleep(1)
        await asyncio.sleep(1)

    with pytest.raises(UnhandledException, match="lost"):
        run(main())


def test_an_exception_of_a_callback_fails_the_run() -> None:
    async def main() -> None:
        asyncio.get_running_loop().call_soon(lambda: 1 // 0)
        await asyncio.sleep(1)

    with pytest.raises(UnhandledException, match="ZeroDivisionError"):
        run(main())


def test_a_loop_that_spins_is_stopped() -> None:
    async def main() -> None:
        while True:
            await asyncio.sleep(0)

    with pytest.raises(RunawayLoop):
        run(main(), loop=VirtualLoop(steps_max=1000))


def test_a_run_that_never_ends_is_stopped_by_virtual_time() -> None:
    async def main() -> None:
        while True:
            await asyncio.sleep(10)

    with pytest.raises(RunawayLoop):
        run(main(), loop=VirtualLoop(virtual_s_max=1000))


def test_the_executor_runs_inline_and_passes_exceptions_on() -> None:
    async def main() -> int:
        loop = asyncio.get_running_loop()
        with pytest.raises(ZeroDivisionError):
            await loop.run_in_executor(None, lambda: 1 // 0)
        return await asyncio.to_thread(lambda: 41) + await loop.run_in_executor(None, lambda: 1)

    assert run(main()) == 42


def test_sets_of_tasks_have_one_order() -> None:
    async def main() -> list[str]:
        async def nothing() -> None:
            pass

        junk: list[object] = []
        tasks = set()
        for number in range(20):
            junk.append(object())
            tasks.add(asyncio.create_task(nothing(), name=str(number)))
        await asyncio.wait(tasks)
        return [task.get_name() for task in tasks]

    first = run(main())
    keep_addresses_busy = [object() for _ in range(1000)]
    assert run(main()) == first
    assert keep_addresses_busy


def test_a_killed_process_runs_nothing_more_not_even_its_finally_blocks() -> None:
    acts: list[str] = []

    async def child() -> None:
        try:
            await asyncio.sleep(5)
            acts.append("child went on")
        finally:
            acts.append("finally ran")

    async def program() -> None:
        asyncio.get_running_loop().call_later(3, acts.append, "timer ran")
        await child()

    async def main() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        process = SimProcess("node", host="a")
        process.start(program())
        await asyncio.sleep(1)
        acts.append("killed")
        loop.kill(process)
        await asyncio.sleep(10)
        assert acts == ["killed"]

    run(main())


def test_a_process_can_be_killed_between_any_two_steps() -> None:
    async def program(seen: list[int]) -> None:
        for number in range(100):
            seen.append(number)
            await asyncio.sleep(0)

    def killed_at(step: int) -> int:
        seen: list[int] = []

        async def main() -> None:
            loop = asyncio.get_running_loop()
            assert isinstance(loop, VirtualLoop)
            process = SimProcess("node", host="a")
            process.start(program(seen))
            loop.at_step(loop.steps + step, lambda: loop.kill(process))
            await asyncio.sleep(10)

        run(main())
        return len(seen)

    assert [killed_at(step) for step in (1, 2, 10, 50)] == [0, 1, 9, 49]


def test_a_paused_process_goes_on_where_it_was() -> None:
    async def program(seen: list[float]) -> None:
        loop = asyncio.get_running_loop()
        for _ in range(4):
            await asyncio.sleep(1)
            seen.append(loop.time() - START_S)

    async def main() -> list[float]:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        seen: list[float] = []
        process = SimProcess("node", host="a")
        task = process.start(program(seen))
        await asyncio.sleep(1.5)
        loop.pause(process)
        await asyncio.sleep(30)
        loop.resume(process)
        await task
        return seen

    assert run(main()) == [1, 31.5, 32.5, 33.5]


def test_tasks_that_are_left_at_the_end_are_cancelled() -> None:
    ended: list[str] = []

    async def forever() -> None:
        try:
            await asyncio.sleep(10**5)
        finally:
            ended.append("cancelled")

    async def main() -> None:
        task = asyncio.create_task(forever())
        await asyncio.sleep(1)
        assert not task.done()

    run(main())
    assert ended == ["cancelled"]

"""Blocking calls in threads: outcomes, bounds, what is cancelled, closed, or asked by a loop that is gone."""

import asyncio
import gc
import threading
import weakref
from collections.abc import Iterator

import pytest
from tests.waiting import let_pass

from bmq.runtime.blocking_calls import BlockingCalls

THREADS_MAX = 3


@pytest.fixture
def calls() -> Iterator[BlockingCalls]:
    made = BlockingCalls(THREADS_MAX, name="test-calls")
    yield made
    made.close()


def threads() -> int:
    return sum(thread.name.startswith("test-calls") for thread in threading.enumerate())


def fail() -> None:
    raise OSError(28, "no space")


def test_a_call_returns_and_raises_as_if_it_were_made_here(calls: BlockingCalls) -> None:
    async def test() -> None:
        assert await calls.run(lambda: 7) == 7
        with pytest.raises(OSError, match="no space"):
            await calls.run(fail)
        assert await calls.run(lambda: 8) == 8

    asyncio.run(test())


def test_calls_one_after_the_other_need_one_thread_and_more_at_once_no_more_than_they_may(calls: BlockingCalls) -> None:
    at_once = [0, 0]
    lock = threading.Lock()

    def count() -> None:
        with lock:
            at_once[0] += 1
            at_once[1] = max(at_once)
        let_pass(0.02, "a call that blocks")
        with lock:
            at_once[0] -= 1

    async def test() -> None:
        for _ in range(20):
            await calls.run(lambda: None)
        assert threads() == 1
        await asyncio.gather(*(calls.run(count) for _ in range(5 * THREADS_MAX)))
        assert threads() == at_once[1] == THREADS_MAX

    asyncio.run(test())


def test_where_the_system_has_no_more_threads_those_that_are_there_do(
    calls: BlockingCalls, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    async def test() -> None:
        with monkeypatch.context() as patched:
            patched.setattr(threading.Thread, "start", refuse)
            with pytest.raises(RuntimeError, match="can't start"):
                calls.run(lambda: 1)
        assert await calls.run(lambda: 2) == 2
        with monkeypatch.context() as patched:
            patched.setattr(threading.Thread, "start", refuse)
            assert await asyncio.gather(*(calls.run(lambda number=number: number) for number in range(5))) == list(
                range(5)
            )
        assert threads() == 1

    asyncio.run(test())


def test_a_call_that_is_cancelled_before_a_thread_takes_it_is_not_made() -> None:
    calls = BlockingCalls(1, name="test-calls")
    gate = threading.Event()
    made = []

    async def test() -> None:
        first = calls.run(gate.wait)
        second = calls.run(lambda: made.append("second"))
        second.cancel()
        gate.set()
        assert await first
        await calls.run(lambda: made.append("third"))
        assert second.cancelled()

    asyncio.run(test())
    calls.close()
    assert made == ["third"]


def test_a_call_that_is_cancelled_while_it_runs_goes_on(calls: BlockingCalls) -> None:
    begun, gate, ended = threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        gate.wait()
        ended.set()

    async def test() -> None:
        future = calls.run(work)
        await asyncio.to_thread(begun.wait)
        future.cancel()
        gate.set()
        await asyncio.to_thread(ended.wait)
        assert await calls.run(lambda: 1) == 1

    asyncio.run(test())


def test_a_loop_that_is_gone_takes_no_thread_with_it() -> None:
    calls = BlockingCalls(1, name="test-calls")
    gate = threading.Event()

    async def ask_and_leave() -> None:
        calls.run(gate.wait)

    asyncio.run(ask_and_leave())
    gate.set()

    async def ask() -> int:
        return await calls.run(lambda: 5)

    assert asyncio.run(ask()) == 5
    calls.close()


def test_closing_waits_for_what_was_asked_and_takes_nothing_more() -> None:
    calls = BlockingCalls(1, name="test-calls")
    made = []

    async def test() -> None:
        for number in range(3):
            calls.run(lambda number=number: (let_pass(0.01, "a call that blocks"), made.append(number)))
        calls.close()
        assert made == [0, 1, 2]
        with pytest.raises(RuntimeError, match="test-calls: closed"):
            calls.run(lambda: None)

    asyncio.run(test())
    assert threads() == 0


def test_nothing_is_kept_alive_of_a_call_that_was_answered(calls: BlockingCalls) -> None:
    class Data:
        pass

    async def test() -> None:
        data = Data()
        gone = weakref.ref(data)
        future = calls.run(lambda data=data: data)
        del data
        await future
        del future
        await asyncio.sleep(0.05)
        gc.collect()
        assert gone() is None

    asyncio.run(test())

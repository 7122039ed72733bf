"""Threads of one's own: as many as there are to be, also after the system had none for a moment."""

import threading
from collections.abc import Callable

import pytest

from bmq.fairness.own_threads import OwnThreads

WITHIN_S = 30


def waiting(threads: OwnThreads, count: int) -> Callable[[], None]:
    """Has so many pieces of work go on at once; what is returned ends them."""
    begun, may_end = threading.Semaphore(0), threading.Event()

    def work() -> None:
        begun.release()
        assert may_end.wait(WITHIN_S)

    futures = [threads.submit(work) for _ in range(count)]
    for _ in range(count):
        assert begun.acquire(timeout=WITHIN_S), "not all of them began"

    def end() -> None:
        may_end.set()
        for future in futures:
            future.result(WITHIN_S)

    return end


def test_as_much_goes_on_at_once_as_there_are_threads() -> None:
    threads = OwnThreads(3, name="some")
    waiting(threads, 3)()
    for _ in range(5):
        assert threads.submit(lambda: "done").result(WITHIN_S) == "done"
    waiting(threads, 3)()


def test_threads_that_could_not_be_started_for_a_moment_are_started_later(monkeypatch: pytest.MonkeyPatch) -> None:
    threads = OwnThreads(3, name="some")
    assert threads.submit(lambda: 1).result(WITHIN_S) == 1

    def start(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", start)
        found = [threads.submit(lambda: 1) for _ in range(5)]
        assert [one.result(WITHIN_S) for one in found] == [1] * 5
        with pytest.raises(RuntimeError):
            OwnThreads(1, name="none").submit(lambda: 1)
    waiting(threads, 3)()

"""Threads of one's own, for an event loop's `run_in_executor`: work in them keeps no other's work waiting, nor the end
of the process.

Those of the loop itself are shared by all, and asyncio waits for them when it ends, however long one takes.
"""

import threading  # noqa: TID251 - which run_in_executor is given
import weakref
from collections.abc import Callable
from concurrent.futures import Executor, Future  # noqa: TID251 - which run_in_executor is given
from functools import partial
from queue import SimpleQueue
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class OwnThreads(Executor):
    """At most `threads_max`, each started when it is first needed; they end with this object, or the process. A loop in
    virtual time starts none.
    """

    def __init__(self, threads_max: int, *, name: str) -> None:
        self._threads_max = threads_max
        self._name = name
        self._works: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._started = self._unfinished = 0
        self._lock = threading.Lock()
        weakref.finalize(self, _end, self._works, threads_max).atexit = False

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> "Future[T]":
        """What `fn` returns or raises. Raises RuntimeError where the system gives not even one thread."""
        future: Future[T] = Future()
        with self._lock:
            if self._started <= self._unfinished and self._started < self._threads_max:
                self._start_thread()
            self._unfinished += 1
        future.add_done_callback(self._over)
        self._works.put(partial(_work, future, partial(fn, *args, **kwargs)))
        return future

    def _over(self, _: "Future[T]") -> None:
        with self._lock:
            self._unfinished -= 1

    def _start_thread(self) -> None:
        # it may not know this object, which would never end then
        thread = threading.Thread(target=_run, args=(self._works,), name=f"{self._name}_{self._started}", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # the system has no more: those that are there have to do
            if not self._started:
                raise
        else:
            self._started += 1


def _run(works: "SimpleQueue[Callable[[], None] | None]") -> None:
    while (work := works.get()) is not None:
        work()
        del work  # nothing is kept alive while there is nothing to do


def _work(future: "Future[T]", call: Callable[[], T]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = call()
    except BaseException as error:  # noqa: BLE001 - it is the caller's
        future.set_exception(error)
        del future  # its error has this frame
    else:
        future.set_result(result)


def _end(works: "SimpleQueue[Callable[[], None] | None]", threads: int) -> None:
    for _ in range(threads):
        works.put(None)

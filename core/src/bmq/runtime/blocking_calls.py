"""Threads for calls that block, such as those on files; what they return comes back to the event loop that asked.

As `concurrent.futures` and `run_in_executor` have it, with one future for a call instead of two that are chained: a
store on a disk makes and deletes thousands of files a second, and pays for each call what this costs
(docs/performance.md).
"""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, NamedTuple, TypeVar

from bmq.storage.durable import settle

T = TypeVar("T")


class _Call(NamedTuple):
    run: Callable[[], object]
    future: "asyncio.Future[Any]"
    loop: asyncio.AbstractEventLoop


class BlockingCalls:
    """At most `threads_max` threads, each started when it is first needed. For any event loop; calls are taken in their
    order.
    """

    def __init__(self, threads_max: int, *, name: str) -> None:
        self._threads_max = threads_max
        self._name = name
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        self._unfinished = 0
        self._is_closed = False

    def run(self, call: Callable[[], T]) -> "asyncio.Future[T]":
        """What the call returns or raises. One that is cancelled before a thread took it is not made; otherwise it goes
        on.

        Raises RuntimeError after `close`, and where the system gives not even one thread.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        with self._lock:
            if self._is_closed:
                raise RuntimeError(f"{self._name}: closed")
            if len(self._threads) <= self._unfinished and len(self._threads) < self._threads_max:
                self._start_thread()
            self._unfinished += 1
        self._calls.put(_Call(call, future, loop))
        return future

    def close(self) -> None:
        """Waits for what was asked for so far. Blocks."""
        with self._lock:
            self._is_closed = True
        for _ in self._threads:
            self._calls.put(None)
        for thread in self._threads:
            thread.join()

    def _start_thread(self) -> None:
        thread = threading.Thread(target=self._work, name=f"{self._name}_{len(self._threads)}", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # the system has no more: those that are there have to do
            if not self._threads:
                raise
        else:
            self._threads.append(thread)

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            result: object = None
            error: BaseException | None = None
            if not call.future.cancelled():
                try:
                    result = call.run()
                except BaseException as raised:  # noqa: BLE001 - it is the caller's
                    error = raised
            with self._lock:
                self._unfinished -= 1
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                call.loop.call_soon_threadsafe(settle, call.future, error, result)
            del call, result, error  # nothing is kept alive while there is nothing to do

"""The virtual-time event loop: one thread, no sockets, no clock. Time jumps to the next timer when nothing is ready.

What it owns: the order in which handles run (first in, first out, timers by time and then by age), virtual time, the
processes' life and death, and the rules that make a run fail: a deadlock, an exception nobody took, too many steps, too
much virtual time. Everything that runs on it repeats exactly: tasks and futures hash by their number, so that even a
set of them has one order.
"""

import asyncio
import contextlib
import gc
import heapq
import inspect
import sys
import threading
from collections import Counter, deque
from collections.abc import Callable, Coroutine, Generator, Iterator
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from bmq_sim.network import Network
from bmq_sim.process import CURRENT_PROCESS, ProcessState, SimProcess

P = ParamSpec("P")
T = TypeVar("T")

START_S = 1000.0
"""Virtual time of a new loop: not zero, so that a forgotten `if deadline` shows."""

PENDING_SHOWN_MAX = 60
FRAMES_SHOWN_MAX = 6


class Deadlock(RuntimeError):
    """Nothing is ready, no timer is set, and the run is not over: somebody waits for what can never come."""


class RunawayLoop(RuntimeError):
    """The run took more steps or more virtual time than it may."""


class UnhandledException(RuntimeError):
    """A callback or a task that nobody awaits raised."""


class ForeignThread(RuntimeError):
    """Somebody began a thread, which takes its own time: the run would not repeat. What is given to the executor runs
    in virtual time; frameworks give functions that are not coroutines to threads of their own.
    """


class SimFuture(asyncio.Future[Any]):
    """A future whose place in a set does not depend on its address."""

    def __init__(self, *, number: int, process: SimProcess | None, loop: asyncio.AbstractEventLoop) -> None:
        self.number = number
        self.process = process
        super().__init__(loop=loop)

    def __hash__(self) -> int:
        return self.number


class SimTask(asyncio.Task[Any]):
    """A task whose place in a set does not depend on its address."""

    def __init__(
        self,
        coro: Generator[Any, None, Any] | Coroutine[Any, Any, Any],
        *,
        number: int,
        process: SimProcess | None,
        **kwargs: Any,
    ) -> None:
        self.number = number
        self.process = process
        super().__init__(coro, **kwargs)

    def __hash__(self) -> int:
        return self.number

    def is_dead(self) -> bool:
        """Its process was killed, or is stopped."""
        return self.process is not None and self.process.state is not ProcessState.RUNNING


class VirtualLoop(asyncio.BaseEventLoop):
    """An event loop in virtual time. `network` is what create_server and create_connection use."""

    def __init__(
        self, *, network: Network | None = None, steps_max: int = 5_000_000, virtual_s_max: float = 1_000_000.0
    ) -> None:
        super().__init__()
        self.network = network if network is not None else Network()
        self.steps = 0
        self.executor_delay_s: Callable[[], float] | None = None
        """How long a call in the executor takes, in virtual time; None: it is over at once."""
        self.unhandled: list[BaseException] = []
        self.injected: Counter[str] = Counter()
        """What processes met, by kind: kill, pause."""
        self._now = START_S
        self._steps_max = steps_max
        self._end_s = START_S + virtual_s_max
        self._queue: deque[asyncio.Handle] = deque()
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._timers_cancelled = 0
        self._numbers = 0
        self._hooks: list[tuple[int, int, Callable[[], None]]] = []
        self._hook_step = sys.maxsize
        self._graveyard: list[SimTask] = []
        self.set_exception_handler(_record_unhandled)

    def time(self) -> float:
        """Virtual seconds."""
        return self._now

    def call_soon(self, callback: Callable[..., Any], *args: Any, context: Any = None) -> asyncio.Handle:  # type: ignore[override]
        self._check_closed()  # type: ignore[attr-defined]
        handle = asyncio.Handle(callback, args, self, context)
        self._queue.append(handle)
        return handle

    def call_soon_threadsafe(self, callback: Callable[..., Any], *args: Any, context: Any = None) -> asyncio.Handle:  # type: ignore[override]
        return self.call_soon(callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., Any], *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        self._check_closed()  # type: ignore[attr-defined]
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        timer._scheduled = True  # type: ignore[attr-defined]
        heapq.heappush(self._timers, (when, self._next_number(), timer))
        return timer

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., Any], *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self._now + delay, callback, *args, context=context)

    def create_future(self) -> "asyncio.Future[Any]":
        return SimFuture(number=self._next_number(), process=CURRENT_PROCESS.get(), loop=self)

    def create_task(self, coro: Any, *, name: object = None, context: Any = None, **kwargs: Any) -> Any:
        self._check_closed()  # type: ignore[attr-defined]
        number = self._next_number()
        process = CURRENT_PROCESS.get() if context is None else context.get(CURRENT_PROCESS)
        return SimTask(
            coro,
            number=number,
            process=process,
            loop=self,
            name=str(name or f"task-{number}"),
            context=context,
            **kwargs,
        )

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> "asyncio.Future[Any]":  # type: ignore[override]
        """Runs `func` inline, at the next turn of the loop or after `executor_delay_s`."""
        future = self.create_future()

        def work() -> None:
            if future.cancelled():
                return
            try:
                result = func(*args)
            except Exception as error:  # noqa: BLE001 it belongs to whoever awaits the future
                future.set_exception(error)
            else:
                future.set_result(result)

        if self.executor_delay_s is None:
            self.call_soon(work)
        else:
            self.call_later(self.executor_delay_s(), work)
        return future

    async def create_server(self, protocol_factory: Any, host: Any = None, port: Any = None, **kwargs: Any) -> Any:
        return await self.network.create_server(
            self, protocol_factory, host, port, start_serving=kwargs.get("start_serving", True)
        )

    async def create_connection(self, protocol_factory: Any, host: Any = None, port: Any = None, **kwargs: Any) -> Any:
        return await self.network.create_connection(self, protocol_factory, host, port)

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        self._timers_cancelled += 1

    def _write_to_self(self) -> None:
        pass

    def at_step(self, step: int, callback: Callable[[], None]) -> None:
        """`callback` runs before the handle number `step`, between two handles: this is where a process is killed."""
        heapq.heappush(self._hooks, (step, self._next_number(), callback))
        self._hook_step = self._hooks[0][0]

    def kill(self, process: SimProcess) -> None:
        """kill -9: nothing of it runs any more, no `finally`, no destructor. Its sockets close; requests on their way
        stay on their way.
        """
        if process.state is not ProcessState.DEAD:
            self.injected["kill"] += 1
            self.end(process)

    def end(self, process: SimProcess) -> None:
        """The process has come to its end by itself. The same, and nobody's fault."""
        if process.state is ProcessState.DEAD:
            return
        # Kept until the run is over: a coroutine that is finalised runs its `finally` blocks.
        self._graveyard += [task for task in self._all_tasks() if task.process is process]
        process.died()

    def pause(self, process: SimProcess) -> None:
        """SIGSTOP: everything of it that would run waits."""
        if process.state is ProcessState.RUNNING:
            self.injected["pause"] += 1
            process.state = ProcessState.PAUSED

    def resume(self, process: SimProcess) -> None:
        """SIGCONT: what waited runs, in its order."""
        if process.state is ProcessState.PAUSED:
            process.state = ProcessState.RUNNING
            self._queue.extend(process.held)
            process.held.clear()

    def pending_tasks(self) -> list[str]:
        """One line for each task that is not done and whose process lives (at most PENDING_SHOWN_MAX): whose it is, its
        name and where it waits.
        """
        lines = [_where(task) for task in self._all_tasks() if not task.is_dead()]
        return (
            lines
            if len(lines) <= PENDING_SHOWN_MAX
            else [*lines[:PENDING_SHOWN_MAX], f"  and {len(lines) - PENDING_SHOWN_MAX} more"]
        )

    def cancel_pending(self) -> None:
        """Cancels every task whose process lives and runs until they are done."""
        left = [task for task in self._all_tasks() if not task.is_dead()]
        for task in left:
            task.cancel()
        if left:
            self.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        if not self._graveyard:  # what a killed process left suspended cannot be closed
            self.run_until_complete(self.shutdown_asyncgens())

    def _all_tasks(self) -> list[SimTask]:
        return sorted((task for task in asyncio.all_tasks(self) if isinstance(task, SimTask)), key=hash)

    def _next_number(self) -> int:
        self._numbers += 1
        return self._numbers

    def _run_once(self) -> None:
        if self.unhandled:
            raise _unhandled(self.unhandled[0])
        queue = self._queue
        if not queue and not self._stopping:  # type: ignore[attr-defined]
            self._jump()
        steps = self.steps
        for _ in range(len(queue)):
            handle = queue.popleft()
            if handle._cancelled:
                continue
            process = handle._context.get(CURRENT_PROCESS)  # type: ignore[attr-defined]
            if process is not None and process.state is not ProcessState.RUNNING:
                if process.state is ProcessState.PAUSED:
                    process.held.append(handle)
                continue
            steps += 1
            self.steps = steps
            if steps >= self._hook_step:
                self._run_hooks()
                if process is not None and process.state is not ProcessState.RUNNING:
                    queue.appendleft(handle)
                    continue
            handle._run()
        if steps > self._steps_max:
            raise RunawayLoop(
                f"{steps} steps at virtual time {self._now:.3f}; pending:\n" + "\n".join(self.pending_tasks())
            )

    def _jump(self) -> None:
        timers = self._timers
        while timers and timers[0][2]._cancelled:
            heapq.heappop(timers)
            self._timers_cancelled -= 1
        if not timers:
            raise Deadlock("nothing is ready and no timer is set; pending:\n" + "\n".join(self.pending_tasks()))
        if self._timers_cancelled > 1000 and self._timers_cancelled > len(timers) // 2:
            timers = self._timers = [entry for entry in timers if not entry[2]._cancelled]
            heapq.heapify(timers)
            self._timers_cancelled = 0
        self._now = max(self._now, timers[0][0])
        if self._now > self._end_s:
            raise RunawayLoop(
                f"virtual time {self._now:.3f} after {self.steps} steps; pending:\n" + "\n".join(self.pending_tasks())
            )
        while timers and timers[0][0] <= self._now:
            timer = heapq.heappop(timers)[2]
            timer._scheduled = False  # type: ignore[attr-defined]
            self._queue.append(timer)

    def _run_hooks(self) -> None:
        while self._hooks and self._hooks[0][0] <= self.steps:
            heapq.heappop(self._hooks)[2]()
        self._hook_step = self._hooks[0][0] if self._hooks else sys.maxsize

    def finish(self) -> None:
        """Ends the run: forgets what is still pending, without letting any of it act, and closes the loop."""
        self.close()
        hook, sys.unraisablehook = sys.unraisablehook, _ignore_unraisable
        try:
            for task in self._all_tasks():
                task._log_destroy_pending = False  # type: ignore[attr-defined]
                coro = task.get_coro()
                if inspect.iscoroutine(coro):
                    # Its `finally` blocks run now, where they can reach nothing: the loop is closed.
                    with contextlib.suppress(BaseException):
                        coro.close()
            self._graveyard.clear()
            self._queue.clear()
            self._timers.clear()
            self._hooks.clear()
            self.network.forget()
            self.set_exception_handler(_ignore_unhandled)
            gc.collect()
        finally:
            sys.unraisablehook = hook


def run(main: Coroutine[Any, Any, T], *, loop: VirtualLoop | None = None) -> T:
    """Runs `main` to its end in virtual time, on a new VirtualLoop unless one is given, and closes the loop.

    Tasks that are left are cancelled, as by asyncio.run. Raises what `main` raises, Deadlock, RunawayLoop, and
    UnhandledException where a callback or a task that nobody awaits raised.
    """
    loop = loop if loop is not None else VirtualLoop()
    gc.freeze()  # garbage is collected in the end: not that of a whole test run, each time
    try:
        with _without_threads(loop):
            result = loop.run_until_complete(main)
        loop.cancel_pending()
        gc.collect()  # an exception that nobody took shows when its task goes
        if loop.unhandled:
            raise _unhandled(loop.unhandled[0])
        return result
    finally:
        main.close()
        loop.finish()
        gc.unfreeze()


@contextlib.contextmanager
def _without_threads(loop: VirtualLoop) -> Iterator[None]:
    """The run has failed where somebody begins a thread, whoever takes the exception."""
    start = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        error = ForeignThread(f"{thread.name} begins")
        error.add_note(f"pending: {asyncio.current_task(loop)!r}")
        loop.unhandled.append(error)
        raise error

    threading.Thread.start = refuse  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        threading.Thread.start = start  # type: ignore[method-assign]


def on_virtual_time(scenario: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """A test of a coroutine function: `run` of what it returns."""

    @wraps(scenario)
    def test(*args: P.args, **kwargs: P.kwargs) -> None:
        run(scenario(*args, **kwargs))

    return test


def _where(task: "asyncio.Task[Any]") -> str:
    coro: Any = task.get_coro()
    frames = []
    while coro is not None:
        frame = getattr(coro, "cr_frame", None) or getattr(coro, "gi_frame", None)
        if frame is not None:
            frames.append(f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno} in {frame.f_code.co_name}")
        coro = getattr(coro, "cr_await", None) or getattr(coro, "gi_yieldfrom", None)
    process = task.process.name if isinstance(task, SimTask) and task.process is not None else "nobody"
    return f"  {process}, {task.get_name()}: {' > '.join(frames[-FRAMES_SHOWN_MAX:]) or 'not started'}"


def _record_unhandled(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    assert isinstance(loop, VirtualLoop)
    owner = context.get("task") or context.get("future") or context.get("handle")
    if (
        isinstance(owner, SimTask | SimFuture)
        and owner.process is not None
        and owner.process.state is ProcessState.DEAD
    ):
        return  # whoever would have taken it was killed
    error = context.get("exception") or RuntimeError("no exception")
    error.add_note(f"{context.get('message', 'unknown')}: {owner!r}")
    loop.unhandled.append(error)


def _unhandled(error: BaseException) -> UnhandledException:
    unhandled = UnhandledException(f"nobody took this exception: {error!r}; " + "; ".join(error.__notes__))
    unhandled.__cause__ = error
    return unhandled


def _ignore_unhandled(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    pass


def _ignore_unraisable(unraisable: Any) -> None:
    pass

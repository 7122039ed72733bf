"""A simulated process: the tasks, timers and callbacks that die, stand still and go on together.

The process of a callback is found in its context, so whatever a process starts belongs to it without anybody passing it
on.
"""

import asyncio
import contextvars
import enum
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

DEFAULT_HOST = "localhost"


class ProcessState(enum.Enum):
    """What the loop does with the handles of a process: run, keep, or forget."""

    RUNNING = enum.auto()
    PAUSED = enum.auto()
    DEAD = enum.auto()


class SimProcess:
    """One incarnation of a node's program on a host. A restart is a new SimProcess on the same host."""

    def __init__(self, name: str, *, host: str) -> None:
        self.name = name
        self.host = host
        self.state = ProcessState.RUNNING
        self.held: deque[asyncio.Handle] = deque()
        self._on_death: dict[int, Callable[[], None]] = {}
        self._registrations = 0
        self._context = contextvars.Context()
        self._context.run(CURRENT_PROCESS.set, self)

    def __repr__(self) -> str:
        return f"<process {self.name} on {self.host}: {self.state.name.lower()}>"

    def context(self) -> contextvars.Context:
        """A context in which whatever is started belongs to this process."""
        return self._context.copy()

    def start(self, main: Coroutine[Any, Any, T], *, name: str | None = None) -> "asyncio.Task[T]":
        """Runs `main` as a task of this process on the running loop."""
        return asyncio.get_running_loop().create_task(main, name=name or self.name, context=self.context())

    def on_death(self, callback: Callable[[], None]) -> Callable[[], None]:
        """`callback` runs at its death, outside of it. Returns the unsubscriber."""
        self._registrations += 1
        key = self._registrations
        self._on_death[key] = callback

        def forget() -> None:
            self._on_death.pop(key, None)

        return forget

    def died(self) -> None:
        """Called by the loop's `kill`: marks it dead and does what the operating system would do (close its
        sockets).
        """
        self.state = ProcessState.DEAD
        self.held.clear()
        callbacks, self._on_death = self._on_death, {}
        for callback in callbacks.values():
            callback()


CURRENT_PROCESS: contextvars.ContextVar[SimProcess | None] = contextvars.ContextVar("bmq_sim_process", default=None)


def current_host() -> str:
    """The host of the process that runs now; `localhost` outside every process."""
    process = CURRENT_PROCESS.get()
    return DEFAULT_HOST if process is None else process.host

"""What goes on in a process until it stops, and why it may only end."""

import asyncio
from collections.abc import Coroutine
from typing import Any

from bmq.errors import BmqError
from bmq.storage.durable import cancelled


class Tasks:
    """Owns the tasks of a process that end with it."""

    def __init__(self) -> None:
        self._tasks: list[asyncio.Task[None]] = []
        self.ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        """Resolves with the reason once this process may only end."""

    def run(self, name: str, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        """A task that ends with this process; one that fails ends the process."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        task.add_done_callback(self._ran)
        self._tasks.append(task)
        return task

    def end(self, reason: str) -> None:
        """This process may only end. The first reason counts."""
        if not self.ended.done():
            self.ended.set_result(reason)

    async def close(self) -> None:
        """Ends the tasks."""
        await cancelled(self._tasks)

    def _ran(self, task: "asyncio.Task[None]") -> None:
        if task.cancelled() or (error := task.exception()) is None:
            return
        self.end(
            f"{task.get_name()}: {error}"
            if isinstance(error, BmqError)
            else f"{task.get_name()} failed, a bug: {error!r}"
        )

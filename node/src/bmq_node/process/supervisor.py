"""Keeps processes running: starts them, starts those that die again, stops them in order. What they are is their
planner's business.

A process says that it serves by its first line on standard output. Until all have said so, one that ends ends
everything; afterwards it is started again, the later the more often that happens. One that refuses its configuration
(exit code 2) always ends everything: it has said why, and would say it again.
"""

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final

import structlog

from bmq.storage.durable import cancelled
from bmq_node.process.starting import FAILED, MISCONFIGURED
from bmq_node.process.supervised import SUPERVISOR_VARIABLE

RESTART_FIRST_S: Final = 0.5
RESTART_MAX_S: Final = 15.0
STEADY_S: Final = 30.0
"""Who ran for so long is started again as if for the first time."""
STOP_S: Final = 30.0
"""How long a clean stop may take before the process is killed."""

_log = structlog.get_logger("bmq.supervisor")


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A process to keep running. Those of a lower `stop_rank` are stopped, and gone, before the others are."""

    name: str
    command: tuple[str, ...]
    stop_rank: int


class Child:
    """One program over all the processes that it becomes."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.serves: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        """The line with which the first process that got so far said that it serves."""
        self.restarts = 0
        self._process: asyncio.subprocess.Process | None = None
        self._stopping = asyncio.Event()

    @property
    def pid(self) -> int | None:
        """The process id of the present process; None where there is none."""
        return self._process.pid if self._process is not None else None

    async def run(self, everyone_serves: asyncio.Event) -> int:
        """Until `stop` (0), or until starting again would not help (the exit code)."""
        loop = asyncio.get_running_loop()
        delay_s = RESTART_FIRST_S
        while not self._stopping.is_set():
            began_s = loop.time()
            code = await self._once()
            if self._stopping.is_set():
                break
            if code == MISCONFIGURED or not everyone_serves.is_set():
                _log.error("a node ended", node=self.program.name, code=code)
                return code if code > 0 else FAILED
            if loop.time() - began_s >= STEADY_S:
                delay_s = RESTART_FIRST_S
            _log.warning("a node ended and is started again", node=self.program.name, code=code, in_s=delay_s)
            self.restarts += 1
            try:
                async with asyncio.timeout(delay_s):
                    await self._stopping.wait()
            except TimeoutError:
                delay_s = min(2 * delay_s, RESTART_MAX_S)
        return 0

    async def stop(self) -> None:
        """The clean stop; kills what does not end in time."""
        self._stopping.set()
        process = self._process
        if process is None or process.returncode is not None:
            return
        _signal(process, signal.SIGTERM)
        try:
            async with asyncio.timeout(STOP_S):
                await process.wait()
        except TimeoutError:
            _log.error("a node did not stop in time and is killed", node=self.program.name, after_s=STOP_S)
            self.kill()
            await process.wait()

    def kill(self) -> None:
        """Ends it at once, for good."""
        self._stopping.set()
        if self._process is not None and self._process.returncode is None:
            _signal(self._process, signal.SIGKILL)

    async def _once(self) -> int:
        """One process, from its start to its exit code. Its standard error is this process's own."""
        process = await asyncio.create_subprocess_exec(
            *self.program.command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            env={**os.environ, SUPERVISOR_VARIABLE: str(os.getpid())},
            start_new_session=True,  # Ctrl-C is for this process, which stops the others in order
        )
        self._process = process
        if self._stopping.is_set():
            _signal(process, signal.SIGTERM)
        assert process.stdout is not None
        while line := await process.stdout.readline():
            if not self.serves.done():
                self.serves.set_result(line.decode(errors="replace").rstrip())
        return await process.wait()


async def supervise(
    programs: Sequence[Program], stop: asyncio.Event, *, serving: Callable[[Sequence[Child]], Awaitable[None]]
) -> int:
    """Runs them all until `stop` is set (0) or one ends everything (its exit code). Nothing is left when this returns.

    `serving` is awaited once, with the children in the order of the programs, when all of them have said that they
    serve.
    """
    loop = asyncio.get_running_loop()
    children = [Child(program) for program in programs]
    everyone_serves = asyncio.Event()

    async def announce() -> None:
        await asyncio.gather(*(child.serves for child in children))
        everyone_serves.set()
        await serving(children)

    lives = [loop.create_task(child.run(everyone_serves), name=child.program.name) for child in children]
    stopping = loop.create_task(stop.wait(), name="stop")
    announcing = loop.create_task(announce(), name="announce")
    try:
        done, waiting = await asyncio.wait([*lives, stopping, announcing], return_when=asyncio.FIRST_COMPLETED)
        if announcing in done:
            announcing.result()
            if len(done) == 1:
                done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        code = max((life.result() for life in lives if life in done), default=0)
        for rank in sorted({program.stop_rank for program in programs}):
            await asyncio.gather(*(child.stop() for child in children if child.program.stop_rank == rank))
        await asyncio.gather(*lives)
        return code
    finally:
        for child in children:
            child.kill()
        await cancelled([stopping, announcing, *lives])


def _signal(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    try:
        process.send_signal(number)
    except ProcessLookupError:  # it has just ended by itself
        return

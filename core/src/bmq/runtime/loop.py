"""Runs a service's `async main` for real: uvloop, signals, file limit, garbage collector, and how late the loop is."""

import asyncio
import gc
import os
import resource
import signal
import socket
import sys
from collections.abc import Awaitable, Callable
from typing import Any, Final, cast

import structlog
import uvloop
from prometheus_client import Histogram

from bmq.runtime.memory import give_back_memory

LAG_PERIOD_S: Final = 0.1
SWITCH_INTERVAL_S: Final = 0.0005
"""How long a thread that computes (builds a segment, opens a batch) may keep the event loop waiting; Python's own 5 ms
is the loop's whole budget."""
_GARBAGE_THRESHOLD: Final = 10_000
"""Allocations between collections of the youngest generation; a broker makes few cycles and many short-lived
objects."""
_YOUNGEST_BETWEEN_YOUNG: Final = 3
"""Each collection of the next generation looks at what so many of these left, while everybody waits: one request may
leave hundreds of thousands of objects, and at 400,000 it took 230 ms. The work is the same in all."""
_YOUNG_BETWEEN_OLD: Final = 650

UNSENT_BYTES_MAX: Final = 128 << 10
"""What the kernel takes of an answer before the peer has room for it. More would be megabytes for each peer that reads
nothing, which nobody counts, and would hide that one that reads slowly does read."""

LAG_SECONDS: Final = Histogram(
    "bmq_event_loop_lag_seconds",
    f"How much later than asked the event loop woke a timer, every {LAG_PERIOD_S:g} s.",
    buckets=(0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.015, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5),
)

FILES_WITHOUT_LIMIT: Final = (65_536, 10_240)
"""What is tried where the hard limit of open files is said to be none: macOS grants 10,240."""

_log = structlog.get_logger()


class ServiceLoop(uvloop.Loop):
    """uvloop's, whose listeners have connections that leave to this process what their peers have no room for."""

    async def create_server(self, *args: Any, **kwargs: Any) -> asyncio.Server:
        """As the loop's own."""
        server = cast(asyncio.Server, await super().create_server(*args, **kwargs))
        for one in server.sockets:
            if one.family in (socket.AF_INET, socket.AF_INET6):
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, UNSENT_BYTES_MAX)
        return server


def run_service(main: Callable[[asyncio.Event], Awaitable[int]]) -> int:
    """Runs `main(stop)` on uvloop and gives its result, the exit code.

    The first SIGINT or SIGTERM sets `stop`; the second ends the process at once with 128 + its number, which loses
    nothing that was acknowledged. The number of open files is raised to what the machine allows.
    """
    raise_file_limit()
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    with asyncio.Runner(loop_factory=ServiceLoop) as runner:
        return runner.run(_main(main))


def settle() -> None:
    """To be called when everything is loaded: what lives now is not looked at by the garbage collector again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_GARBAGE_THRESHOLD, _YOUNGEST_BETWEEN_YOUNG, _YOUNG_BETWEEN_OLD)


def raise_file_limit() -> int:
    """Raises the soft limit of open files to the hard one; the limit, below 0 for none. Each connection is one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for wanted in (hard,) if hard != resource.RLIM_INFINITY else FILES_WITHOUT_LIMIT:
        if soft == resource.RLIM_INFINITY or soft >= wanted:
            return soft
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        except (OSError, ValueError):  # macOS reports a hard limit that it does not grant
            continue
        return wanted
    return soft


async def watch_lag() -> None:
    """Observes `bmq_event_loop_lag_seconds` until cancelled."""
    loop = asyncio.get_running_loop()
    while True:
        due = loop.time() + LAG_PERIOD_S
        await asyncio.sleep(LAG_PERIOD_S)
        LAG_SECONDS.observe(max(0.0, loop.time() - due))


async def _main(main: Callable[[asyncio.Event], Awaitable[int]]) -> int:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, _stop_or_end, number, stop)
    beside = [loop.create_task(watch_lag(), name="loop lag"), loop.create_task(give_back_memory(), name="memory")]
    try:
        return await main(stop)
    finally:
        for task in beside:
            task.cancel()
        await asyncio.gather(*beside, return_exceptions=True)


def _stop_or_end(number: int, stop: asyncio.Event) -> None:
    name = signal.Signals(number).name
    if stop.is_set():
        _log.warning("ends at once", signal=name)
        sys.stderr.flush()
        os._exit(128 + number)
    _log.info("stops; the same again ends at once", signal=name)
    stop.set()

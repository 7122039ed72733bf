"""A process that `bmq up --nodes` started ends with the process that started it, also where that is killed: nothing
stays behind.
"""

import asyncio
import ctypes
import os
import signal
import sys
from collections.abc import Mapping
from typing import Final

SUPERVISOR_VARIABLE: Final = "BMQ_SUPERVISOR_PID"
_PR_SET_PDEATHSIG: Final = 1
_LOOK_S: Final = 1.0


def end_with_supervisor(environment: Mapping[str, str] = os.environ) -> int | None:
    """Has the kernel (Linux) kill this process when the supervisor dies; ends it at once where that has died already.

    The supervisor's process id; None where there is none, and nothing is done.
    """
    text = environment.get(SUPERVISOR_VARIABLE, "")
    if not text.isdecimal():
        return None
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != int(text):
        os._exit(1)
    return int(text)


async def watch_supervisor(pid: int) -> None:
    """Ends the process soon after the supervisor: for systems whose kernel does not. Belongs to a task."""
    while os.getppid() == pid:
        await asyncio.sleep(_LOOK_S)
    os._exit(1)

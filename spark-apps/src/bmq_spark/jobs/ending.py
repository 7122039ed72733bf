"""How a job ends: its exit code, the one line that says why, and stopping when it is told to.

Exit codes: 0 done, or stopped as told; 1 the run failed and the place is kept; 2 a configuration that cannot be used.
"""

import os
import signal
import sys
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Final

from bmq_spark.errors import BmqError, ConfigurationError

FAILED: Final = 1
UNUSABLE: Final = 2


class StopRequest:
    """Whether SIGTERM or SIGINT came. A second one ends the process as it would without this."""

    def __init__(self) -> None:
        self.came = False

    def __bool__(self) -> bool:
        return self.came

    def listen(self) -> "StopRequest":
        """From now on, in the main thread."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        return self

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        self.came = True
        signal.signal(number, signal.SIG_DFL)


def ended(job: Callable[[Sequence[str]], None], arguments: Sequence[str]) -> int:
    """Runs a job; returns the exit code. What went wrong is one line on standard error; BMQ_DEBUG=1 adds the traceback."""
    try:
        job(arguments)
    except ConfigurationError as error:
        return _failed(error, UNUSABLE)
    except BmqError as error:
        return _failed(error, FAILED)
    return 0


def _failed(error: Exception, code: int) -> int:
    if os.environ.get("BMQ_DEBUG"):
        import traceback

        traceback.print_exception(error)
    print(f"error: {' '.join(str(error).split())}", file=sys.stderr, flush=True)
    return code


def say(line: str) -> None:
    """A line of the job's log, to standard error."""
    print(line, file=sys.stderr, flush=True)

"""How a job ends: its exit code, the one line that says why, and stopping when it is told to.

Exit codes: 0 done, or stopped as told; 1 the run failed and the place is kept; 2 a configuration that cannot be used.
"""

import os
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

from bmq_spark.errors import BmqError, ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FAILED: Final = 1
UNUSABLE: Final = 2


class StopRequest:
    """Whether SIGTERM or SIGINT came, to this process or to its Java. A second one ends the process as it would without
    this.
    """

    def __init__(self) -> None:
        self.came = False

    def __bool__(self) -> bool:
        return self.came

    def listen(self) -> "StopRequest":
        """From now on, in the main thread."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        return self

    def listen_in_java(self, spark: "SparkSession") -> "StopRequest":
        """From now on in Java, too. Under spark-submit Java is the process that is told to end, and Python its child:
        Java would end at once, with the session and the batch under way. Now it lets the signal pass, and ends with
        this process's exit code when that has ended.
        """
        from py4j.protocol import Py4JJavaError
        from pyspark.java_gateway import ensure_callback_server_started

        ensure_callback_server_started(spark.sparkContext._gateway)  # type: ignore[no-untyped-call,unused-ignore]
        java: Any = spark._jvm
        signals = java.sun.misc.Signal
        for name in ("TERM", "INT"):
            handler = _JavaHandler(self, signals)
            with suppress(Py4JJavaError):  # -Xrs: Java has no handlers then, and ends at once as it was told to
                handler.before = signals.handle(signals(name), handler)
        return self

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        self.came = True
        signal.signal(number, signal.SIG_DFL)


class _JavaHandler:
    """A signal's handler in Java, which calls this process."""

    def __init__(self, stop: StopRequest, signals: Any) -> None:
        self._stop = stop
        self._signals = signals
        self.before: Any = None
        """What Java did with the signal until now: it ends."""

    def handle(self, signal: Any) -> None:
        """Called by Java, in a thread of its own."""
        self._stop.came = True
        self._signals.handle(signal, self.before)

    class Java:
        """For Py4J."""

        implements: Final = ["sun.misc.SignalHandler"]


def ended(job: Callable[[Sequence[str]], None], arguments: Sequence[str]) -> int:
    """Runs a job; returns the exit code. What went wrong is one line on standard error; BMQ_DEBUG=1 adds the
    traceback.
    """
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

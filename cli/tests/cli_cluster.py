"""A started `bmq up` for the tests of the command, and ways to call the command against it."""

import contextlib
import os
import pty
import signal
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests import started_bmq as started
from tests.started_bmq import BMQ

__all__ = ["BMQ", "Result", "environment", "following", "run_process", "shown_on_terminal", "started_bmq"]
_WAIT_S = 30


@dataclass(frozen=True, slots=True)
class Result:
    code: int
    out: str
    err: str


@contextlib.contextmanager
def started_bmq(folder: Path) -> Iterator[str]:
    """Starts bmq on free ports over `folder`; gives the address for Kafka clients; stops it."""
    with started.started_bmq(folder, "--config", "group.initial.rebalance.delay.ms=0") as bmq:
        yield bmq.kafka


def environment(address: str) -> dict[str, str]:
    return {**os.environ, "BMQ_BOOTSTRAP_SERVER": address, "COLUMNS": "200", "TERM": "xterm"}


def run_process(address: str, arguments: Sequence[str], *, stdin: bytes = b"") -> Result:
    """The command as a process of its own."""
    done = subprocess.run(
        [BMQ, *arguments], input=stdin, capture_output=True, env=environment(address), timeout=60, check=False
    )
    return Result(done.returncode, done.stdout.decode(), done.stderr.decode())


def shown_on_terminal(address: str, arguments: Sequence[str]) -> tuple[int, str]:
    """The exit code of a command whose standard error is a terminal, and what it showed there."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen([BMQ, *arguments], stdout=subprocess.DEVNULL, stderr=theirs, env=environment(address))
    os.close(theirs)
    shown = b""
    try:
        while chunk := os.read(ours, 4096):
            shown += chunk
    except OSError:  # how a terminal says that its other side is closed
        pass
    os.close(ours)
    return process.wait(_WAIT_S), shown.decode(errors="replace")


@contextlib.contextmanager
def following(address: str, arguments: Sequence[str]) -> Iterator["subprocess.Popen[str]"]:
    """A command that runs on; ended with Ctrl-C if the test has not ended it."""
    process = subprocess.Popen(
        [BMQ, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(address)
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        process.communicate(timeout=_WAIT_S)

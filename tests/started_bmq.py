"""A started `bmq up` for unit tests that need a cluster as it really answers."""

import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

BMQ = str(Path(sys.executable).with_name("bmq"))
_END_S = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class StartedBmq:
    """Where it listens: for Kafka's clients (HOST:PORT), and its admin API (a URL). And which process it is."""

    kafka: str
    admin: str
    pid: int


@contextlib.contextmanager
def started_bmq(
    folder: Path, *arguments: str, environment: Mapping[str, str] | None = None, beneath: Sequence[str] = ()
) -> Iterator[StartedBmq]:
    """Starts bmq on free ports over `folder`, by a command that becomes it where one is given; stops it.

    Raises AssertionError with its log where it does not start.
    """
    command = [
        *beneath,
        BMQ,
        "up",
        "--data",
        str(folder / "data"),
        "--listen",
        "127.0.0.1:0",
        "--admin",
        "127.0.0.1:0",
        "--no-fsync",
        *arguments,
    ]
    with (folder / "server.log").open("wb") as log:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=log, text=True, env={**os.environ, **(environment or {})}
        )
    assert process.stdout is not None
    try:
        hello = process.stdout.readline()
        matched = re.match(r"bmq listens on (\S+:[1-9][0-9]*) \(Kafka\) and (\S+) \(admin\)", hello)
        assert matched is not None, f"{hello!r}\n{(folder / 'server.log').read_text()}"
        yield StartedBmq(kafka=matched[1], admin=f"http://{matched[2]}", pid=process.pid)
    finally:
        process.terminate()
        try:
            process.wait(_END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(_END_S)
        process.stdout.close()

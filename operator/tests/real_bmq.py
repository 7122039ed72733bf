"""A started `bmq up` for the operator's tests: a cluster's admin API as it really answers."""

import contextlib
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

BMQ = str(Path(sys.executable).with_name("bmq"))
TOKEN = "a-token-of-the-operators-tests"
_WAIT_S = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class RealBmq:
    kafka: str
    admin: str


@contextlib.contextmanager
def started_bmq(folder: Path, *arguments: str, token: str = TOKEN) -> Iterator[RealBmq]:
    """Starts bmq on free ports over `folder`; stops it."""
    with (folder / "server.log").open("wb") as log:
        command = [BMQ, "up", "--data", str(folder / "data"), "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--no-fsync"]
        process = subprocess.Popen(
            [*command, *arguments], stdout=subprocess.PIPE, stderr=log, text=True, env={"BMQ_ADMIN_TOKEN": token, "PATH": "/usr/bin:/bin"}
        )
    assert process.stdout is not None
    try:
        hello = process.stdout.readline()
        matched = re.match(r"bmq listens on (\S+) \(Kafka\) and (\S+) \(admin\)", hello)
        assert matched is not None, f"{hello!r}\n{(folder / 'server.log').read_text()}"
        yield RealBmq(kafka=matched[1], admin=f"http://{matched[2]}")
    finally:
        process.terminate()
        try:
            process.wait(_WAIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(_WAIT_S)
        process.stdout.close()

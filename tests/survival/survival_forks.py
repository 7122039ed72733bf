"""Runs the `bmq` command many times without importing it each time: one process imports it, and forks for each run.

`Forks` starts it. Run as a program it is that process: one JSON object per line on standard input, one per line back.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from time import monotonic
from typing import Any


class Forks:
    """The process; `up` is one run."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def up(
        self, *arguments: str, cwd: Path, environment: Mapping[str, str] | None = None
    ) -> tuple[int, list[str], float]:
        """(exit code, lines on standard error, seconds). An empty variable is none."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(
            json.dumps({"arguments": ["up", *arguments], "cwd": str(cwd), "environment": dict(environment or {})}),
            file=self._process.stdin,
            flush=True,
        )
        code, lines, seconds = json.loads(self._process.stdout.readline())
        return code, lines, seconds

    def close(self) -> None:
        """Ends it."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def _serve() -> None:
    import bmq_cli.processes.up
    from bmq_cli.main import run

    assert bmq_cli.processes.up
    for line in sys.stdin:
        asked = json.loads(line)
        with tempfile.TemporaryFile() as errors:
            began = monotonic()
            pid = os.fork()
            if not pid:
                _become(asked, errors.fileno())
                try:
                    run()
                except SystemExit as ended:
                    os._exit(ended.code if isinstance(ended.code, int) else 0)
                os._exit(0)
            _, status = os.waitpid(pid, 0)
            seconds = monotonic() - began
            errors.seek(0)
            said = errors.read().decode(errors="replace").splitlines()
        print(json.dumps((os.waitstatus_to_exitcode(status), said, seconds)), flush=True)


def _become(asked: dict[str, Any], errors: int) -> None:
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(nothing, 1)
    os.dup2(errors, 2)
    os.chdir(asked["cwd"])
    for name, value in asked["environment"].items():
        if value:
            os.environ[name] = value
        else:
            os.environ.pop(name, None)
    sys.argv = ["bmq", *asked["arguments"]]


if __name__ == "__main__":
    _serve()

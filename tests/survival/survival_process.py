"""`bmq up` as these tests see it: its memory, its log line by line, and its end. Starting and killing is
compat_server's.
"""

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from time import monotonic
from typing import Any
from urllib.request import urlopen

from compat_server import BMQ, Bmq, tool
from tests.waiting import until

MIB = 1 << 20
RSS_MIB_MAX = 400

__all__ = ["BMQ", "MIB", "RSS_MIB_MAX", "Survivor", "exit_of_up", "tool"]


class Survivor(Bmq):
    """A bmq that something is done to."""

    def launch(self) -> None:
        """Starts it without waiting for it to be ready."""
        self._launch()

    def rss_mib(self) -> float:
        """Resident memory now."""
        return self._status("VmRSS")

    def peak_mib(self) -> float:
        """The most resident memory since the start, or since `forget_peak`."""
        return self._status("VmHWM")

    def forget_peak(self) -> None:
        """Counts the peak from now on."""
        Path(f"/proc/{self.pid}/clear_refs").write_text("5")

    def lines(self, *, after: int = 0) -> list[dict[str, Any]]:
        """The structured log lines from byte `after` of the log on; anything else that was printed is `{"text":
        line}`.
        """
        found = []
        for line in self.log.read_bytes()[after:].decode(errors="replace").splitlines():
            try:
                value = json.loads(line)
            except ValueError:
                value = line
            found.append(value if isinstance(value, dict) else {"text": line})
        return found

    def log_size(self) -> int:
        """Where the log ends now: for `lines`."""
        return self.log.stat().st_size

    def until_line(self, part: str, *, after: int = 0, timeout_s: float = 30) -> dict[str, Any]:
        """The first line that contains `part`. Raises AssertionError."""

        def found() -> dict[str, Any] | None:
            lines = self.lines(after=after)
            return next((line for line in lines if part in json.dumps(line, ensure_ascii=False)), None)

        return until(found, f"a line with {part!r}", timeout_s, shows=self.tail_of_log)

    def until_metric(self, name: str, value: float, *, timeout_s: float) -> None:
        """Waits until a metric (with its labels) has that value. Raises AssertionError."""

        def found() -> float:
            with urlopen(f"http://127.0.0.1:{self.admin_port}/metrics", timeout=5) as answer:
                lines = answer.read().decode().splitlines()
            return float(dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))[name])

        until(found, f"{name} to be {value:g}", timeout_s, holds=lambda is_now: is_now == value)

    def until_end(self, *, timeout_s: float) -> int:
        """The exit code of a bmq that ends by itself. Kills it where it does not."""
        process, self._process = self._process, None
        assert process is not None
        try:
            return process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise AssertionError(f"bmq did not end by itself within {timeout_s:g} s:\n{self.tail_of_log()}") from None

    def is_alive(self) -> bool:
        """Whether the process that was started still runs."""
        return self._process is not None and self._process.poll() is None

    def _status(self, name: str) -> float:
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith(name + ":"):
                return int(line.split()[1]) / 1024
        raise AssertionError(f"/proc/{self.pid}/status has no {name}")


def exit_of_up(
    *arguments: str, cwd: Path, environment: Mapping[str, str] | None = None, timeout_s: float = 120
) -> tuple[int, list[str], float]:
    """(exit code, lines on standard error, seconds) of a `bmq up` that is expected to end by itself."""
    began = monotonic()
    done = subprocess.run(
        [str(BMQ), "up", *arguments],
        cwd=cwd,
        env={**os.environ, **(environment or {})},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    return done.returncode, done.stderr.splitlines(), monotonic() - began

"""One `bmq server` process: its command line, what it says, its end."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from compat_server import BMQ
from tests.waiting import until

START_S = 60
NEWER = """
from importlib import import_module
hello = import_module("bmq.internal.framing.hello")
hello.PROTOCOL_VERSION = hello.PROTOCOL_VERSION_MIN = hello.PROTOCOL_VERSION + 1
import_module("bmq_cli.main").run()
"""
"""A bmq that speaks the next version of the internal protocol, and no other."""


def newer_bmq() -> list[str]:
    """Runs as `bmq` does."""
    return [sys.executable, "-c", NEWER]


def server_arguments(roles: str, node_id: int, store: str, *more: str) -> list[str]:
    """`bmq server`, at any free ports."""
    return ["server", "--roles", roles, "--node-id", str(node_id), "--store", store, *_ANY_PORTS, *more]


_ANY_PORTS = ("--listen", "127.0.0.1:0", "--internal-listen", "127.0.0.1:0", "--admin", "off")


class Server:
    """Started at once; `log` gets its standard error."""

    def __init__(
        self,
        arguments: Sequence[str],
        *,
        log: Path,
        environment: Mapping[str, str] | None = None,
        bmq: Sequence[str] = (str(BMQ),),
    ) -> None:
        self.log = log
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                [*bmq, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=output,
                text=True,
                cwd=log.parent,
                env={**os.environ, **(environment or {})},
                start_new_session=True,
            )

    def until_it_serves(self) -> str:
        """Its line that says so, with its addresses."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert " serves: " in line, f"{line!r}\n{self.text()}"
        return line.strip()

    def until_end(self, *, timeout_s: float = 30) -> int:
        """The exit code of one that ends by itself."""
        try:
            return self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it did not end by itself within {timeout_s:g} s:\n{self.text()}") from None

    def until_line(self, part: str, *, timeout_s: float = 30) -> dict[str, Any]:
        """The first line of its log with that in it."""
        return until(lambda: self.lines(part), f"a line with {part!r}", timeout_s, shows=self.text)[0]

    def lines(self, part: str = "") -> list[dict[str, Any]]:
        """Its log, line by line; what is no JSON is `{"text": line}`."""
        found = []
        for line in self.text().splitlines():
            if part in line:
                found.append(json.loads(line) if line.startswith("{") else {"text": line})
        return found

    def said(self) -> list[str]:
        """What it printed for people, besides its log."""
        return [line["text"] for line in self.lines() if "text" in line]

    def text(self) -> str:
        return self.log.read_text(errors="replace")

    def is_alive(self) -> bool:
        return self.process.poll() is None

    def stop(self) -> int:
        """The clean stop; the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.until_end(timeout_s=60)

    def close(self) -> None:
        """Ends it at once, where it still runs."""
        if self.is_alive():
            self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()

"""A started `bmq probe`, and its metrics."""

import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from compat_server import BMQ
from scraping import scraped
from tests.waiting import until


class Probe:
    """Sends ten records a second; one that is not consumed within two seconds has failed."""

    def __init__(self, servers: str, *, log: Path) -> None:
        self.log = log
        command = [
            str(BMQ),
            "probe",
            "-b",
            servers,
            "--interval-ms",
            "100",
            "--timeout-ms",
            "2000",
            "--timeout",
            "3",
            "--admin",
            "127.0.0.1:0",
        ]
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=output,
                text=True,
                cwd=log.parent,
                env={**os.environ, "PYTHONFAULTHANDLER": "1"},
            )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert " serves: " in line, f"{line!r}\n{log.read_text()}"
        self.admin = line.split(" serves: ")[1].split()[0]

    def get(self, path: str) -> tuple[int, str]:
        """Status and text."""
        try:
            with urlopen(f"http://{self.admin}{path}", timeout=10) as answer:
                return answer.status, answer.read().decode()
        except HTTPError as error:
            return error.code, error.read().decode()

    def value(self, name: str, **labels: str) -> float:
        """The sum of the series with these labels."""
        text = self.get("/metrics")[1]
        return sum(one.value for one in scraped(text) if one.name == name and labels.items() <= one.labels.items())

    def until(self, condition: Callable[[], bool], what: str, timeout_s: float = 60) -> None:
        """Waits until it is so."""
        until(
            condition,
            what,
            timeout_s,
            unless=lambda: self.process.poll() is not None,
            shows=lambda: f"{self.get('/metrics')[1]}\n{self.log.read_text()[-3000:]}",
        )

    def stop(self) -> int:
        """The exit code. One that does not end says where its threads are."""
        self.process.terminate()
        try:
            return self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.send_signal(signal.SIGABRT)
            self.process.wait()
            pytest.fail(f"it did not end within 30 s of SIGTERM:\n{self.log.read_text()[-10_000:]}")

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()

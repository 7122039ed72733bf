"""Servers that speak the clouds' protocols, run by `tools/emulator`.

`make test` does not install them, since they take minutes: tests of them run where somebody did (`tools/get versitygw
azurite fake-gcs`).
"""

import json
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from compat_server import ROOT, tools_folder

INSTALLED_AS = {"versitygw": "versitygw", "azurite": "azurite", "fake-gcs": "fake-gcs-server"}
EMULATORS = tuple(INSTALLED_AS)


class Emulator:
    """Runs from its making to `stop`. A second one in the folder of the first has its data, where that keeps any."""

    def __init__(self, name: str, folder: Path, *, port: int = 0) -> None:
        self.log = folder / "emulator.log"
        folder.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as output:
            command = [ROOT / "tools/emulator", name, folder / "data", str(port)]
            self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=output, text=True)
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, f"{name} does not run: {self.log.read_text(errors='replace')}"
        said = json.loads(line)
        self.url: str = said["url"]
        """Of a bucket of its own."""
        self.environment: Mapping[str, str] = said["environment"]
        """What bmq needs to reach it."""
        self.pid: int = said["pid"]
        self.port = urlsplit(parse_qs(urlsplit(self.url).query)["endpoint"][0]).port or 0

    def store_url(self, prefix: str) -> str:
        bucket, _, options = self.url.partition("?")
        return f"{bucket}/{prefix}?{options}"

    def stop(self) -> None:
        """Also one whose server was killed."""
        self._process.terminate()
        self._process.wait(10)
        assert self._process.stdout is not None
        self._process.stdout.close()


@contextmanager
def running_emulator(name: str, folder: Path) -> Iterator[Emulator]:
    """Until the block ends. Skips the test where the emulator is not installed; fails it, with the script's own words,
    where it does not run.
    """
    if not (tools_folder() / INSTALLED_AS[name]).exists():
        pytest.skip(f"{name} is not installed: tools/get {name}")
    emulator = Emulator(name, folder)
    try:
        yield emulator
    finally:
        emulator.stop()

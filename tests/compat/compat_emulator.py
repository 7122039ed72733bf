"""Servers that speak the clouds' protocols, started by `tools/emulator` on a free loopback port.

`make test` does not install them, since they take minutes: tests of them run where somebody did (`tools/get versitygw azurite fake-gcs`).
"""

import json
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from compat_server import ROOT, tools_folder

INSTALLED_AS = {"versitygw": "versitygw", "azurite": "azurite", "fake-gcs": "fake-gcs-server"}
EMULATORS = tuple(INSTALLED_AS)


@dataclass(frozen=True)
class Emulator:
    """`url` names a bucket of it, `environment` what bmq needs to reach that."""

    url: str
    environment: Mapping[str, str]
    pid: int

    def store_url(self, prefix: str) -> str:
        bucket, _, options = self.url.partition("?")
        return f"{bucket}/{prefix}?{options}"


@contextmanager
def running_emulator(name: str, folder: Path) -> Iterator[Emulator]:
    """Runs until the block ends. Skips the test where the emulator is not installed; fails it, with the script's own words, where it does not run."""
    if not (tools_folder() / INSTALLED_AS[name]).exists():
        pytest.skip(f"{name} is not installed: tools/get {name}")
    log = folder / "emulator.log"
    with log.open("wb") as output:
        process = subprocess.Popen([ROOT / "tools/emulator", name, folder / "data", "0"], stdout=subprocess.PIPE, stderr=output, text=True)
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        assert line, f"{name} does not run: {log.read_text(errors='replace')}"
        yield Emulator(**json.loads(line))
    finally:
        process.terminate()
        process.wait(10)
        process.stdout.close()

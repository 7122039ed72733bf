"""Servers that speak the clouds' protocols, started by `tools/emulator` on a free loopback port."""

import json
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from compat_server import ROOT

EMULATORS = ("versitygw", "azurite", "fake-gcs")


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
    """Runs until the block ends. Fails the test, with the script's own words, where the emulator cannot be had."""
    log = folder / "emulator.log"
    with log.open("wb") as output:
        process = subprocess.Popen([ROOT / "tools/emulator", name, folder / "data", "0"], stdout=subprocess.PIPE, stderr=output, text=True)
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        assert line, f"{name} is needed by this test and cannot be had: {log.read_text(errors='replace')}"
        yield Emulator(**json.loads(line))
    finally:
        process.terminate()
        process.wait(10)
        process.stdout.close()

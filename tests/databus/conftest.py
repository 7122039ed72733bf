"""A bmq and a sidecar beside it, neither of them started."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from compat_server import Bmq
from databus_process import CHANNELS, Databus


@pytest.fixture
def bmq(tmp_path: Path) -> Iterator[Bmq]:
    server = Bmq(["--data", str(tmp_path / "data"), "--no-fsync"], log=tmp_path / "bmq.log")
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture
def databus(bmq: Bmq, tmp_path: Path) -> Iterator[Databus]:
    sidecar = Databus(bmq.servers, CHANNELS, tmp_path)
    try:
        yield sidecar
    finally:
        sidecar.stop()

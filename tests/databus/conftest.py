"""A bmq and a sidecar beside it, neither of them started."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from compat_server import Bmq, bmq_not_started
from databus_process import CHANNELS, Databus


@pytest.fixture
def bmq(tmp_path: Path) -> Iterator[Bmq]:
    with bmq_not_started(tmp_path) as server:
        yield server


@pytest.fixture
def databus(bmq: Bmq, tmp_path: Path) -> Iterator[Databus]:
    sidecar = Databus(bmq.servers, CHANNELS, tmp_path)
    try:
        yield sidecar
    finally:
        sidecar.stop()

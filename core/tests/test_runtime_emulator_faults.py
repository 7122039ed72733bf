"""A server of each cloud's protocol that stops answering: what the writer is told is true, and repeating the create
settles it.
"""

import asyncio
import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from compat_emulator import EMULATORS, Emulator, running_emulator
from standing_still import stand_still

from bmq.errors import Conflict, StoreUnavailable, UnknownOutcome
from bmq.runtime.bucket import ensure_bucket
from bmq.runtime.obstore_store import StoreTimeouts
from bmq.runtime.open_store import open_store
from bmq.runtime.store_url import parse_store_url


@pytest.fixture(params=EMULATORS)
def emulator(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Emulator]:
    with running_emulator(request.param, tmp_path) as running:
        for variable, value in running.environment.items():
            monkeypatch.setenv(variable, value)
        yield running


def test_a_create_without_an_answer_is_unknown_and_its_repetition_settles_it(emulator: Emulator) -> None:
    ensure_bucket(parse_store_url(emulator.url))
    impatient = open_store(emulator.url, timeouts=StoreTimeouts(create_ms=3_000, get_ms=3_000))
    patient = open_store(emulator.url)

    async def main() -> None:
        await impatient.create("wal/1", [b"one"])  # a connection is open
        stand_still(emulator.pid)
        try:
            with pytest.raises(UnknownOutcome):
                await impatient.create("wal/2", [b"two"])
            with pytest.raises(StoreUnavailable):
                await impatient.get("wal/1")
        finally:
            os.kill(emulator.pid, signal.SIGCONT)
        with contextlib.suppress(Conflict):  # the stopped server may have lost the first one with its connection
            await patient.create("wal/2", [b"two"])
        assert await patient.get("wal/2") == b"two"
        with pytest.raises(Conflict):
            await patient.create("wal/2", [b"other"])
        assert [meta.key async for meta in patient.list("wal/")] == ["wal/1", "wal/2"]

    asyncio.run(main())

"""A real MinIO that stops answering, dies and comes back: what the writer is told is true, and it goes on by itself."""

import asyncio
import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from runtime_minio import PASSWORD, TOOLS, USER, MinioServer, running_minio
from standing_still import stand_still
from tests.waiting import until_async

from bmq.errors import Conflict, NotApplied, StoreUnavailable, UnknownOutcome
from bmq.runtime.bucket import ensure_bucket
from bmq.runtime.obstore_store import StoreTimeouts
from bmq.runtime.open_store import open_store
from bmq.runtime.store_url import parse_store_url

PATIENCE_S = 20.0


@pytest.fixture
def minio(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MinioServer]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", USER)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", PASSWORD)
    with running_minio(tmp_path) as server:
        yield server


def process_of(server: MinioServer) -> int:
    return int((server.folder / "pid").read_text())


def test_a_create_without_an_answer_is_unknown_and_its_repetition_settles_it(minio: MinioServer) -> None:
    url = f"s3://faults?endpoint={minio.endpoint}"
    ensure_bucket(parse_store_url(url))
    impatient = open_store(url, timeouts=StoreTimeouts(create_ms=3_000, get_ms=3_000))
    patient = open_store(url)
    process = process_of(minio)

    async def main() -> None:
        await impatient.create("wal/1", [b"one"])  # a connection is open
        stand_still(process)
        try:
            with pytest.raises(UnknownOutcome):
                await impatient.create("wal/2", [b"two"])
            with pytest.raises(StoreUnavailable):
                await impatient.get("wal/1")
        finally:
            os.kill(process, signal.SIGCONT)
        with contextlib.suppress(Conflict):  # the first one was applied after all
            await patient.create("wal/2", [b"two"])
        assert await patient.get("wal/2") == b"two"
        assert [meta.key async for meta in patient.list("wal/")] == ["wal/1", "wal/2"]

    asyncio.run(main())


def test_while_the_server_is_dead_nothing_is_applied_and_afterwards_the_same_store_goes_on(minio: MinioServer) -> None:
    url = f"s3://faults?endpoint={minio.endpoint}"
    ensure_bucket(parse_store_url(url))
    store = open_store(url, timeouts=StoreTimeouts(get_ms=3_000))

    async def before() -> None:
        await store.create("wal/1", [b"x" * 100_000])

    async def dead() -> None:
        for _ in range(3):
            # unknown where the first request goes to the connection that just died
            with pytest.raises((NotApplied, UnknownOutcome)):
                await store.create("wal/2", [b"two"])
        with pytest.raises(NotApplied, match="no connection"):
            await store.create("wal/2", [b"two"])
        with pytest.raises(StoreUnavailable):
            await store.get("wal/1")

    async def again() -> None:
        await until_async(lambda: store.get("wal/1"), "the server to be ready", not_yet=(StoreUnavailable,))
        async with asyncio.timeout(PATIENCE_S):
            await store.create("wal/2", [b"two"])
            assert await store.get("wal/1") == b"x" * 100_000
            assert await store.get("wal/2") == b"two"

    with asyncio.Runner() as runner:
        runner.run(before())
        os.kill(process_of(minio), signal.SIGKILL)
        runner.run(dead())
        port = minio.endpoint.rpartition(":")[2]
        variables = {**os.environ, "MINIO_ROOT_USER": USER, "MINIO_ROOT_PASSWORD": PASSWORD}
        subprocess.run([TOOLS / "minio", "start", minio.folder, port], env=variables, check=True)
        runner.run(again())

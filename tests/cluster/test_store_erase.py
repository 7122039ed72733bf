"""`bmq store erase` on a folder and on MinIO, beside real processes."""

import asyncio
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from compat_server import BMQ, Bmq, Minio
from confluent_kafka import Producer
from tests.waiting import until
from up_nodes import UpNodes

from bmq.runtime.open_store import open_store

pytestmark = pytest.mark.slow

RECORDS = 2_000


class Done(NamedTuple):
    code: int
    out: str
    err: str


def erase(*arguments: str, environment: dict[str, str] | None = None) -> Done:
    command = [str(BMQ), "store", "erase", *arguments]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=120, check=False, env={**os.environ, **(environment or {})}
    )
    return Done(done.returncode, done.stdout, done.stderr)


def fill(servers: str) -> str:
    """Writes; the cluster's id."""
    producer = Producer({"bootstrap.servers": servers})
    for number in range(RECORDS):
        producer.produce("orders", b"%d" % number)
    assert producer.flush(60) == 0
    return str(producer.list_topics(timeout=20).cluster_id)


@pytest.fixture(scope="module")
def minio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Minio]:
    server = Minio(tmp_path_factory.mktemp("minio"))
    yield server
    server.stop()


def files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and path.name != ".lock"]


def test_a_folder_is_erased_once_nobody_runs_on_it_and_can_be_used_anew(tmp_path: Path) -> None:
    data = tmp_path / "data"
    server = Bmq(["--data", str(data), "--no-fsync"], log=tmp_path / "bmq.log")
    server.start()
    cluster_id = fill(server.servers)
    running = erase("--data", str(data), "--cluster-id", cluster_id, "--yes")
    assert (
        running.code == 1
        and running.err.startswith("error: erase store: a cluster works on it: ")
        and "is in use by process" in running.err
    )
    server.kill9()
    other = erase("--data", str(data), "--cluster-id", "another", "--yes")
    assert (other.code, other.out) == (2, "")
    assert f"the store belongs to cluster '{cluster_id}', not to 'another'" in other.err
    before = files(data)
    asked = erase("--data", str(data), "--cluster-id", cluster_id)
    assert (
        asked.code == 0
        and f"cluster {cluster_id}: {len(before)} objects with" in asked.out
        and "add --yes" in asked.out
    )
    assert files(data) == before
    done = erase("--data", str(data), "--cluster-id", cluster_id, "--yes", "-o", "json")
    assert (done.code, files(data)) == (0, [])
    said = json.loads(done.out)
    assert said["objects"] == said["deleted_objects"] == len(before)
    again = erase("--data", str(data), "--cluster-id", cluster_id, "--yes")
    assert again.code == 0 and "there is nothing of bmq" in again.out
    server.start()
    try:
        assert fill(server.servers) != cluster_id
    finally:
        assert server.stop() == 0


def test_a_bucket_is_erased_under_its_prefix_alone_once_nobody_writes_to_it(minio: Minio, tmp_path: Path) -> None:
    url = minio.store_url("erased")
    cluster = UpNodes("2c1b1p", ["--store", url], log=tmp_path / "bmq.log", environment=minio.environment)
    try:
        cluster_id = fill(cluster.servers)
        living = erase("--store", url, "--cluster-id", cluster_id, "--yes", environment=minio.environment)
        assert living.code == 1 and "error: erase store: a cluster works on it: " in living.err, living
        other = erase("--store", url, "--cluster-id", "another", "--yes", environment=minio.environment)
        assert other.code == 2 and "belongs to cluster" in other.err
        for pid in cluster.pids().values():
            cluster.process.send_signal(signal.SIGSTOP)  # so that it starts none again
            os.kill(pid, signal.SIGKILL)
    finally:
        cluster.close()
    beside = url.replace("/cluster?", "/clusters-neighbour?")
    asyncio.run(put(beside, minio, [f"meta/log/{1:020d}"]))
    asyncio.run(put(url, minio, ["notes.txt", *(f"shared/0000000001/{1:020d}/{number:032x}" for number in range(400))]))
    erasing = subprocess.Popen(
        [str(BMQ), "store", "erase", "--store", url, "--cluster-id", cluster_id, "--yes", "--concurrency", "1"],
        env={**dict(minio.environment), "PATH": "/usr/bin:/bin"},
        stderr=subprocess.DEVNULL,
    )
    whole = asyncio.run(keys(url, minio))
    until(
        lambda: len(asyncio.run(keys(url, minio))),
        "some objects to be deleted, and not all",
        60,
        holds=lambda count: 0 < count < len(whole) - 20,
        unless=lambda: erasing.poll() is not None,
        every_s=0.01,
    )
    erasing.kill()
    erasing.wait()
    left = asyncio.run(keys(url, minio))
    assert 1 < len(left) < len(whole) - 20, "it was interrupted"
    done = erase("--store", url, "--cluster-id", cluster_id, "--yes", environment=minio.environment)
    assert done.code == 0, done
    assert (
        f"cluster {cluster_id}: deleted {len(left) - 1} objects" in done.out
        and "not bmq's, and left: 1 object" in done.out
    )
    assert asyncio.run(keys(url, minio)) == ["notes.txt"]
    assert asyncio.run(keys(beside, minio)) == [f"meta/log/{1:020d}"]


async def put(url: str, minio: Minio, names: list[str]) -> None:
    store = opened(url, minio)
    for name in names:
        await store.create(name, [b"x"])


async def keys(url: str, minio: Minio) -> list[str]:
    return [meta.key async for meta in opened(url, minio).list("")]


def opened(url: str, minio: Minio):  # type: ignore[no-untyped-def]
    with pytest.MonkeyPatch.context() as patch:
        for name, value in minio.environment.items():
            patch.setenv(name, value)
        return open_store(url)

"""A real MinIO for tests, started by the project's own script on a free loopback port."""

import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

TOOLS = Path(__file__).parents[2] / "tools"
USER, PASSWORD = "bmq-test", "bmq-test-secret"


@dataclass(frozen=True)
class MinioServer:
    endpoint: str
    folder: Path


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@contextmanager
def running_minio(folder: Path, **environment: str) -> Iterator[MinioServer]:
    """Runs until the block ends. Fails the test, with the script's own words, where MinIO cannot be had."""
    port = free_port()
    variables = {**os.environ, "MINIO_ROOT_USER": USER, "MINIO_ROOT_PASSWORD": PASSWORD, **environment}
    started = subprocess.run(
        [TOOLS / "minio", "start", folder, str(port)], env=variables, stderr=subprocess.PIPE, text=True, check=False
    )
    assert started.returncode == 0, f"MinIO is needed by this test and cannot be had: {started.stderr}"
    try:
        yield MinioServer(endpoint=f"http://127.0.0.1:{port}", folder=folder)
    finally:
        subprocess.run([TOOLS / "minio", "stop", folder], check=True)

"""What `emulator` runs: one server that speaks a cloud's protocol on this machine, until it is told to end."""

import base64
import hashlib
import hmac
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from email.utils import formatdate
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from threading import Thread

from gcs_xml_api import XmlApi

READY_S = 30
BUCKET = "bmq"
S3_KEYS = {"AWS_ACCESS_KEY_ID": "bmq-test", "AWS_SECRET_ACCESS_KEY": "bmq-test-secret"}
AZURE_ACCOUNT = "devstoreaccount1"
AZURE_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""Azurite's own, known to everybody."""
AZURE_VERSION = "2021-08-06"


@dataclass(frozen=True, kw_only=True)
class Emulator:
    """A server that is about to run. `port` is its own; `make_bucket` is called once it answers there."""

    command: Sequence[str | Path]
    port: int
    url: str
    environment: Mapping[str, str] = field(default_factory=dict)
    """What bmq needs."""
    own_environment: Mapping[str, str] = field(default_factory=dict)
    make_bucket: Callable[[], None] = lambda: None
    front: XmlApi | None = None


def versitygw(tools: Path, folder: Path, port: int) -> Emulator:
    """Files of a folder behind S3. bmq makes the bucket."""
    return Emulator(
        command=[tools / "versitygw", "--port", f"127.0.0.1:{port}", "--quiet", "posix", folder],
        port=port,
        url=f"s3://{BUCKET}?endpoint=http://127.0.0.1:{port}",
        environment=S3_KEYS,
        own_environment={
            "ROOT_ACCESS_KEY": S3_KEYS["AWS_ACCESS_KEY_ID"],
            "ROOT_SECRET_KEY": S3_KEYS["AWS_SECRET_ACCESS_KEY"],
        },
    )


def azurite(tools: Path, folder: Path, port: int) -> Emulator:
    """Azure Blob Storage."""
    started = [
        "node",
        tools / "azurite/node_modules/azurite/dist/src/blob/main.js",
        "--silent",
        "--disableTelemetry",
        "--skipApiVersionCheck",
    ]
    return Emulator(
        command=[*started, "--location", folder, "--blobHost", "127.0.0.1", "--blobPort", str(port)],
        port=port,
        url=f"az://{BUCKET}?account={AZURE_ACCOUNT}&endpoint=http://127.0.0.1:{port}/{AZURE_ACCOUNT}",
        environment={"AZURE_STORAGE_ACCOUNT_KEY": AZURE_KEY},
        make_bucket=lambda: make_container(port),
    )


def fake_gcs(tools: Path, folder: Path, port: int) -> Emulator:
    """Google Cloud Storage, of which gcs_xml_api adds what is missing. Keeps objects in memory."""
    own = free_port()
    return Emulator(
        command=[
            tools / "fake-gcs-server",
            "-scheme",
            "http",
            "-backend",
            "memory",
            "-host",
            "127.0.0.1",
            "-port",
            str(own),
            "-log-level",
            "error",
        ],
        port=own,
        url=f"gs://{BUCKET}?endpoint=http://127.0.0.1:{port}&anonymous=true",
        make_bucket=lambda: ask(
            own, "POST", "/storage/v1/b?project=bmq", json.dumps({"name": BUCKET}), {"Content-Type": "application/json"}
        ),
        front=XmlApi(port, behind=own),
    )


EMULATORS = {"versitygw": versitygw, "azurite": azurite, "fake-gcs": fake_gcs}


def make_container(port: int) -> None:
    """Signed with the account's key (Authorize with Shared Key in Azure's reference)."""
    headers = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": AZURE_VERSION}
    signed = "".join(f"{name}:{value}\n" for name, value in headers.items())
    text = "PUT" + "\n" * 12 + signed + f"/{AZURE_ACCOUNT}/{AZURE_ACCOUNT}/{BUCKET}\nrestype:container"
    signature = base64.b64encode(hmac.digest(base64.b64decode(AZURE_KEY), text.encode(), hashlib.sha256)).decode()
    headers |= {"Authorization": f"SharedKey {AZURE_ACCOUNT}:{signature}", "Content-Length": "0"}
    ask(port, "PUT", f"/{AZURE_ACCOUNT}/{BUCKET}?restype=container", "", headers)


def ask(port: int, method: str, path: str, body: str, headers: Mapping[str, str]) -> None:
    """Raises SystemExit where the answer is no success; the bucket of an earlier run is one."""
    connection = HTTPConnection("127.0.0.1", port)
    connection.request(method, path, body, dict(headers))
    answer = connection.getresponse()
    said = answer.read()
    if answer.status not in (200, 201, 409):
        raise SystemExit(f"{method} {path}: HTTP {answer.status} {said[:300]!r}")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_until_it_answers(server: subprocess.Popen[bytes], port: int) -> None:
    deadline = time.monotonic() + READY_S
    while time.monotonic() < deadline:
        if server.poll() is not None:
            raise SystemExit(f"it ended at once, with code {server.returncode}: see what it said above")
        try:
            connection = HTTPConnection("127.0.0.1", port, timeout=5)
            connection.request("GET", "/")
            connection.getresponse()
        except (OSError, HTTPException):
            time.sleep(0.05)
        else:
            return connection.close()
    raise SystemExit(f"no answer on port {port} within {READY_S} s")


def main(name: str, folder: str, port: str) -> None:
    tools = Path(os.environ["TOOLS"])
    Path(folder).mkdir(parents=True, exist_ok=True)
    emulator = EMULATORS[name](tools, Path(folder), int(port) or free_port())
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit(0))
    environment = {**os.environ, **emulator.own_environment}
    with subprocess.Popen(emulator.command, env=environment, stdin=subprocess.DEVNULL, stdout=sys.stderr) as server:
        try:
            wait_until_it_answers(server, emulator.port)
            emulator.make_bucket()
            if emulator.front is not None:
                Thread(target=emulator.front.serve_forever, daemon=True).start()
            print(json.dumps({"url": emulator.url, "environment": emulator.environment, "pid": server.pid}), flush=True)
            server.wait()
        finally:
            server.kill()


main(*sys.argv[1:])

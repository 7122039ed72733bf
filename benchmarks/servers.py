"""The servers under measurement, each in a folder of its own that goes with it: bmq, Apache Kafka, MinIO."""

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from time import monotonic
from types import TracebackType
from typing import Self
from urllib.request import urlopen

from prometheus_client.parser import text_string_to_metric_families
from tests.waiting import until

from benchmarks import processes

ROOT = Path(__file__).parents[1]
BMQ = Path(sys.executable).with_name("bmq")
KAFKA_SETTINGS = (
    "log.retention.check.interval.ms=10000",
    "log.segment.delete.delay.ms=1000",
    "auto.create.topics.enable=false",
)
"""Beside its defaults: retention is looked at more often, so that a disk of this size is enough."""
BMQ_SETTINGS = ("group.initial.rebalance.delay.ms=0",)
"""Beside its defaults: tools/kafka sets the same for Kafka."""


def free_port() -> int:
    """A port whose successor is free too (Kafka's controller takes it)."""
    while True:
        with socket.socket() as probe, socket.socket() as next_probe:
            probe.bind(("127.0.0.1", 0))
            port = int(probe.getsockname()[1])
            try:
                next_probe.bind(("127.0.0.1", port + 1))
            except OSError:
                continue
            return port


def bmq_command() -> list[str]:
    """What runs `bmq`, without its arguments."""
    return [sys.executable, str(BMQ)]


def read_metrics(address: str) -> dict[str, float]:
    """/metrics by sample name, with `{verb}` behind those of the store; other labels are summed up."""
    with urlopen(f"http://{address}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    values: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            name = f"{sample.name}{{{sample.labels['verb']}}}" if "verb" in sample.labels else sample.name
            values[name] = values.get(name, 0.0) + sample.value
    return values


class Server:
    """One server process over one folder."""

    name = ""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.pid = 0
        self.start_s = 0.0
        """How long the last start took, from the command to the first answer."""

    @property
    def address(self) -> str:
        """HOST:PORT for clients."""
        return f"127.0.0.1:{self.port}"

    @property
    def cpu_s(self) -> float:
        """User and system seconds used so far."""
        return processes.cpu_s(self.pid)

    @property
    def rss_bytes(self) -> int:
        """Resident memory."""
        return processes.rss_bytes(self.pid)

    def start(self) -> None:
        """Returns when it answers. Raises AssertionError with the reason."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        began_s = monotonic()
        self._start()
        self.start_s = monotonic() - began_s

    def stop(self) -> None:
        """Ends the process and removes its folder."""
        if self.pid:
            processes.end(self.pid)
            self.pid = 0
        shutil.rmtree(self.folder, ignore_errors=True)

    def forget_cached_files(self) -> None:
        """Asks the kernel to drop its pages of this server's files, so that they are read from the disk."""
        os.sync()
        for path in self.folder.rglob("*"):
            try:
                if path.is_file():
                    fd = os.open(path, os.O_RDONLY)
                    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
                    os.close(fd)
            except FileNotFoundError:
                continue

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _start(self) -> None:
        raise NotImplementedError

    def _run(self, command: list[str], *, log: Path, ready: str, environment: Mapping[str, str] | None = None) -> None:
        """Starts it; returns when what is at the URL `ready` is answered with 200."""
        with log.open("ab") as out:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env=environment,
                cwd=self.folder,
                start_new_session=True,
            )
        self.pid = process.pid

        def is_ready() -> bool:
            try:
                with urlopen(ready, timeout=5) as answer:
                    return bool(answer.status == 200)
            except OSError:
                return False

        until(
            is_ready,
            f"{self.name} to be ready",
            60,
            unless=lambda: process.poll() is not None,
            shows=lambda: log.read_text()[-3000:],
            every_s=0.01,
        )


class Bmq(Server):
    """`bmq up` over a folder, or over the store of a URL."""

    name = "bmq"

    def __init__(
        self,
        folder: Path,
        *,
        store: str | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(folder)
        self.admin_port = free_port()
        self._where = ["--store", store] if store else ["--data", str(folder / "data")]
        self._environment = dict(os.environ) | dict(environment or {})

    def kill_and_start(self) -> float:
        """As after a crash; how many seconds the start took, from the command until it is ready."""
        processes.kill(self.pid)
        began_s = monotonic()
        self._start()
        return monotonic() - began_s

    def _start(self) -> None:
        log = self.folder / "server.log"
        command = [
            *bmq_command(),
            "up",
            *self._where,
            "--listen",
            self.address,
            "--admin",
            f"127.0.0.1:{self.admin_port}",
        ]
        command += [part for setting in BMQ_SETTINGS for part in ("--config", setting)]
        self._run(command, log=log, ready=f"http://127.0.0.1:{self.admin_port}/readyz", environment=self._environment)

    def metrics(self) -> dict[str, float]:
        """See `read_metrics`."""
        return read_metrics(f"127.0.0.1:{self.admin_port}")


class Databus(Server):
    """A sidecar before a cluster, with the channels `durable` and `accepted`."""

    name = "databus"

    def __init__(self, folder: Path, cluster: str) -> None:
        super().__init__(folder)
        self._cluster = cluster

    def metrics(self) -> dict[str, float]:
        """See `read_metrics`."""
        return read_metrics(self.address)

    def _start(self) -> None:
        log, channels = self.folder / "databus.log", self.folder / "channels.yaml"
        channels.write_text(
            "---".join(
                f"\napiVersion: bmq.io/v1alpha1\nkind: Channel\nmetadata: {{name: {name}}}\n"
                f"spec: {{acknowledgement: {name}, spool: {{maxBytes: {8 << 30}}}}}\n"
                for name in ("durable", "accepted")
            )
        )
        command = [
            *bmq_command(),
            "databus",
            "serve",
            "--bootstrap-servers",
            self._cluster,
            "--channels",
            str(channels),
        ]
        command += ["--listen", self.address, "--spool", str(self.folder / "spool")]
        self._run(command, log=log, ready=f"http://{self.address}/livez")


class _ByTool(Server):
    """A server that a script of tools/ starts in the background, with its process number in the file `pid` of its
    folder.
    """

    tool = ""
    settings: tuple[str, ...] = ()

    def _start(self) -> None:
        command = [str(ROOT / "tools" / self.tool), "start", str(self.folder), str(self.port), *self.settings]
        said = self.folder / "tool.log"
        with said.open("w") as log:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, text=True, start_new_session=True
            )
        try:
            code = process.wait(120)
        except BaseException:
            processes.end_group(process)  # the server belongs to its session
            raise
        self._read_pid()
        assert code == 0, f"{self.name} did not start: {said.read_text()}"

    def stop(self) -> None:
        """See Server. Also where the start was interrupted."""
        self._read_pid()
        super().stop()

    def _read_pid(self) -> None:
        path = self.folder / "pid"
        if not self.pid and path.exists():
            self.pid = int(path.read_text() or 0)


class Kafka(_ByTool):
    """One KRaft node with the heap that its distribution's start script sets (1 GiB)."""

    name = "Kafka"
    tool = "kafka"
    settings = KAFKA_SETTINGS


class Minio(_ByTool):
    """One MinIO server on this disk."""

    name = "MinIO"
    tool = "minio"
    environment = {"AWS_ACCESS_KEY_ID": "bmq-test", "AWS_SECRET_ACCESS_KEY": "bmq-test-secret"}  # noqa: RUF012 - never changed

    def store_url(self, bucket: str) -> str:
        """For `bmq up --store`."""
        return f"s3://{bucket}/cluster?endpoint=http://127.0.0.1:{self.port}"

"""Starts and kills the real parts: `bmq up` in a process group of its own, and MinIO."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from urllib.request import urlopen

from free_ports import free_port
from tests.waiting import let_pass, until

ROOT = Path(__file__).parents[2]
_BESIDE = Path(sys.executable).with_name("bmq")
BMQ = _BESIDE if _BESIDE.exists() else ROOT / ".venv" / "bin" / "bmq"
"""Of this environment, or of the checkout's where this one has none (that of the Spark jobs)."""
SETTINGS = ("group.initial.rebalance.delay.ms=0",)


class Minio:
    """One MinIO server over a folder of its own."""

    def __init__(self, folder: Path, *, port: int | None = None) -> None:
        self._folder = folder
        self.port = port or free_port()
        self.environment = {"AWS_ACCESS_KEY_ID": "bmq-test", "AWS_SECRET_ACCESS_KEY": "bmq-test-secret"}
        tool("minio", "start", str(folder), str(self.port))

    def store_url(self, bucket: str) -> str:
        return f"s3://{bucket}/cluster?endpoint=http://127.0.0.1:{self.port}"

    def stop(self) -> None:
        tool("minio", "stop", str(self._folder))


class Bmq:
    """`bmq up` on one store, which keeps its addresses over restarts."""

    def __init__(
        self,
        store_arguments: list[str],
        *,
        log: Path,
        environment: Mapping[str, str] | None = None,
        settings: tuple[str, ...] = (),
    ) -> None:
        self._arguments = store_arguments
        self._environment = dict(os.environ) | dict(environment or {})
        self._settings = SETTINGS + settings
        self.log = log
        self.port, self.admin_port = free_port(), free_port()
        self.servers = f"127.0.0.1:{self.port}"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self, *, timeout_s: float = 30) -> float:
        """Returns how many seconds it took to be ready. Raises AssertionError with the end of the log."""
        began = monotonic()
        process = self._launch()
        until(
            self.is_ready,
            "bmq to be ready",
            timeout_s,
            unless=lambda: process.poll() is not None,
            shows=self.tail_of_log,
            every_s=0.01,
        )
        return monotonic() - began

    def start_and_kill(self, after_s: float) -> None:
        """Starts it, and kills it after that time, ready or not."""
        self._launch()
        let_pass(after_s, "it is killed at any moment of its start")
        self.kill9()

    def _launch(self) -> subprocess.Popen[bytes]:
        assert self._process is None
        command = [
            str(BMQ),
            "up",
            *self._arguments,
            "--listen",
            self.servers,
            "--admin",
            f"127.0.0.1:{self.admin_port}",
        ]
        for setting in self._settings:
            command += ["--config", setting]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._environment,
                cwd=self.log.parent,
                start_new_session=True,
            )
        return self._process

    def is_running(self) -> bool:
        """Whether it was started, and neither ended by itself nor was ended."""
        if self._process is not None and self._process.poll() is not None:
            self._process = None
        return self._process is not None

    def is_ready(self) -> bool:
        try:
            with urlopen(f"http://127.0.0.1:{self.admin_port}/readyz", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def signal(self, number: signal.Signals) -> None:
        os.killpg(self.pid, number)

    def kill9(self) -> None:
        self.signal(signal.SIGKILL)
        self._reap(10)

    def stop(self, *, timeout_s: float = 20) -> int:
        """The clean stop; returns the exit code. Kills what does not end."""
        if self._process is None:
            return 0
        if self._process.poll() is None:
            self.signal(signal.SIGTERM)
        return self._reap(timeout_s)

    def restart(self) -> float:
        self.stop()
        return self.start()

    def tail_of_log(self, lines: int = 60) -> str:
        return (
            "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:]) if self.log.exists() else "(no log)"
        )

    def _reap(self, timeout_s: float) -> int:
        process, self._process = self._process, None
        assert process is not None
        try:
            return process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise AssertionError(f"bmq did not end within {timeout_s:g} s of SIGTERM:\n{self.tail_of_log()}") from None


@contextmanager
def bmq_not_started(folder: Path) -> Iterator[Bmq]:
    """One over a folder of its own there, stopped at the end if it was started."""
    server = Bmq(["--data", str(folder / "data"), "--no-fsync"], log=folder / "bmq.log")
    try:
        yield server
    finally:
        server.stop()


def tool(name: str, *arguments: str, input_text: str | None = None, timeout_s: float = 600, check: bool = True) -> str:
    """Runs one of tools/ and returns what it printed. Raises AssertionError with what it said when it fails."""
    done = subprocess.run(
        [str(ROOT / "tools" / name), *arguments],
        input=input_text,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    assert not check or done.returncode == 0, (
        f"tools/{name} {' '.join(arguments)} failed ({done.returncode}):\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    )
    return done.stdout


def tools_folder() -> Path:
    return Path(os.environ.get("TOOLS") or ROOT / ".cache" / "tools")

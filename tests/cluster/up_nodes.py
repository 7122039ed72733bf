"""A started `bmq up --nodes`: its processes by node id, its clients' address, and its end."""

import json
import os
import re
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from compat_server import BMQ
from tests.waiting import until

START_S = 60
STOP_S = 60


class UpNodes:
    """One cluster of processes over `arguments` (--data or --store)."""

    def __init__(
        self, shape: str, arguments: Sequence[str], *, log: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        self.log = log
        command = [str(BMQ), "up", "--nodes", shape, *arguments, "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"]
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=output,
                text=True,
                cwd=log.parent,
                env={**os.environ, **(environment or {})},
                start_new_session=True,
            )
        assert self.process.stdout is not None
        hello = self.process.stdout.readline()
        matched = re.match(r"bmq listens on (\S+:[1-9][0-9]*) \(Kafka\) and (\S+) \(admin\)", hello)
        assert matched is not None, f"{hello!r}\n{self.tail_of_log()}"
        self.servers, self.admin = matched[1], matched[2]

    def pids(self) -> dict[int, int]:
        """By node id, as its command line says it."""
        found = {}
        for pid in children_of(self.process.pid):
            matched = re.search(r" server .*--node-id ([0-9]+) ", command_of(pid))
            if matched is not None:
                found[int(matched[1])] = pid
        return found

    def state(self) -> dict[str, Any]:
        """What its first proxy knows of the cluster."""
        with urlopen(f"http://{self.admin}/v1/cluster", timeout=10) as answer:
            found: dict[str, Any] = json.load(answer)
            return found

    def until_state(self, condition: Callable[[dict[str, Any]], bool], what: str, timeout_s: float = 30) -> None:
        """Waits until what is known is so."""
        until(self.state, what, timeout_s, holds=condition, shows=self.tail_of_log)

    def kill9(self, node_id: int) -> int:
        """Ends a node as a crash would; its process id."""
        pid = self.pids()[node_id]
        os.kill(pid, signal.SIGKILL)
        return pid

    def until_started_again(self, node_id: int, *, before: int, timeout_s: float = 30) -> None:
        """Waits for another process of the node than `before`."""
        until(
            lambda: self.pids().get(node_id, before),
            f"another process of node {node_id} than {before}",
            timeout_s,
            holds=lambda pid: pid != before,
            shows=self.tail_of_log,
        )

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """The exit code. Kills what does not end."""
        self.process.send_signal(number)
        try:
            return self.process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self.close()
            raise AssertionError(
                f"the cluster did not end within {STOP_S} s of {number.name}:\n{self.tail_of_log()}"
            ) from None

    def close(self) -> None:
        """Ends it at once, where it still runs."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()

    def tail_of_log(self, lines: int = 80) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])


def children_of(pid: int) -> list[int]:
    """The processes that this one started."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(fields[1]) == pid and fields[0] != "Z":
            found.append(int(stat.parent.name))
    return found


def command_of(pid: int) -> str:
    """Its command line, with a space after each part; empty where it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").replace("\0", " ")
    except (FileNotFoundError, ProcessLookupError):
        return ""


def processes_about(text: str) -> list[int]:
    """Processes whose command line has this in it, but for this one."""
    pids = (int(path.name) for path in Path("/proc").glob("[0-9]*"))
    return [pid for pid in pids if pid != os.getpid() and text in command_of(pid)]

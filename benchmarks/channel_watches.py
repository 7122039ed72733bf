"""What thousands of sidecars that wait for channels cost a node, and how long a change takes to the last of them.

`python -m benchmarks.channel_watches [--watchers 5000] [--changes 20] [--addresses 20]`: starts `bmq up` over a folder
of its own, holds so many connections to its admin address from so many addresses of the loopback, each of which asks
again as soon as it is answered, and changes a channel. Needs as many open files as there are watchers, in both
processes. Prints a table.
"""

import argparse
import asyncio
import contextlib
import json
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bmq_controller.api.channel_watch import WATCH_PATH

WAIT_S = 30
BETWEEN_S = 3.0
OPENED_AT_ONCE = 50
_TICKS = os.sysconf("SC_CLK_TCK")


class Watcher(asyncio.Protocol):
    """One sidecar's connection."""

    def __init__(self, changed: asyncio.Queue[tuple[str, float]], known: asyncio.Future[None]) -> None:
        self._changed = changed
        self._known = known
        self._buffer = bytearray()
        self._version = ""
        self.transport: asyncio.Transport | None = None
        self.lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The event loop's."""
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self._ask()

    def data_received(self, data: bytes) -> None:
        """The event loop's."""
        self._buffer += data
        head, found, rest = self._buffer.partition(b"\r\n\r\n")
        if not found:
            return
        size = next(
            int(line[15:]) for line in bytes(head).lower().split(b"\r\n") if line.startswith(b"content-length:")
        )
        if len(rest) < size:
            return
        now_s = time.monotonic()
        status, body = int(head.split()[1]), bytes(rest[:size])
        del self._buffer[:]
        if status != 200:
            raise SystemExit(f"{status}: {body.decode()}")
        answer = json.loads(body)
        if answer["version"] != self._version:
            self._version = answer["version"]
            if self._known.done():
                self._changed.put_nowait((self._version, now_s))
            else:
                self._known.set_result(None)
        self._ask()

    def connection_lost(self, exc: Exception | None) -> None:
        """The event loop's."""
        self.lost = True

    def _ask(self) -> None:
        assert self.transport is not None
        wait_s = WAIT_S * (0.8 + 0.2 * random.random())
        target = f"{WATCH_PATH}?after={self._version}&wait_seconds={wait_s:.1f}"
        self.transport.write(f"GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())


async def measure(port: int, pid: int, *, watchers: int, addresses: int, changes: int) -> None:
    """Prints the table."""
    loop = asyncio.get_running_loop()
    changed: asyncio.Queue[tuple[str, float]] = asyncio.Queue()
    before_kib = rss_kib(pid)
    await put(port, "POST", "/v1/channels", {"name": "orders"})
    print(f"node alone: {before_kib >> 10} MiB", flush=True)
    began_s, opened = time.monotonic(), []
    for first in range(0, watchers, OPENED_AT_ONCE):
        known = []
        for number in range(first, min(watchers, first + OPENED_AT_ONCE)):
            known.append(loop.create_future())
            source = f"127.0.1.{1 + number % addresses}"
            _, watcher = await loop.create_connection(
                lambda ready=known[-1]: Watcher(changed, ready), "127.0.0.1", port, local_addr=(source, 0)
            )
            opened.append(watcher)
        await asyncio.gather(*known)
    print(
        f"{watchers} watchers opened in {time.monotonic() - began_s:.1f} s: {rss_kib(pid) >> 10} MiB "
        f"({(rss_kib(pid) - before_kib) / watchers:.0f} KiB each)",
        flush=True,
    )
    idle_s, idle_cpu_s = time.monotonic(), cpu_s(pid)
    await asyncio.sleep(WAIT_S)
    print(f"waiting: {(cpu_s(pid) - idle_cpu_s) / (time.monotonic() - idle_s):.1%} of a CPU", flush=True)
    took_s: list[float] = []
    lasts_s: list[float] = []
    used_s: list[float] = []
    for number in range(changes):
        cpu_before_s, asked_s = cpu_s(pid), time.monotonic()
        await put(port, "PUT", "/v1/channels/orders", {"spec": {"enabled": bool(number % 2)}})
        came = [(await changed.get())[1] - asked_s for _ in opened]
        took_s += came
        lasts_s.append(max(came))
        await asyncio.sleep(BETWEEN_S)
        used_s.append(cpu_s(pid) - cpu_before_s)
    cuts = statistics.quantiles(took_s, n=100)
    print(
        f"from a change's request to a watcher's answer, {changes} changes: p50 {cuts[49] * 1000:.0f} ms, "
        f"p99 {cuts[98] * 1000:.0f} ms, the last one {statistics.median(lasts_s) * 1000:.0f} ms "
        f"(median of changes; {max(lasts_s) * 1000:.0f} ms at most); {statistics.mean(used_s):.2f} s of CPU a change; "
        f"{rss_kib(pid) >> 10} MiB; {sum(one.lost for one in opened)} connections lost"
    )


async def put(port: int, method: str, path: str, body: object) -> None:
    """One request of an administrator's."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    data = json.dumps(body).encode()
    writer.write(
        f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(data)}\r\nConnection: close\r\n\r\n".encode()
        + data
    )
    answer = await reader.read()
    writer.close()
    if int(answer.split()[1]) not in (200, 201):
        raise SystemExit(answer.decode())


def cpu_s(pid: int) -> float:
    """CPU that the process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def rss_kib(pid: int) -> int:
    """Memory that it has now."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS")))


def main() -> None:
    """As the arguments say."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--watchers", type=int, default=5_000)
    parser.add_argument("--addresses", type=int, default=20)
    parser.add_argument("--changes", type=int, default=20)
    asked = parser.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as ending:
        command = [sys.executable, "-c", "from bmq_cli.main import run; run()", "up", "--data", folder]
        command += ["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"]
        node = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        ending.callback(node.wait)
        ending.callback(node.terminate)
        assert node.stdout is not None
        listens = next(line for line in node.stdout if "(admin)" in line)
        port = int(listens.partition(" (admin)")[0].rpartition(":")[2])
        asyncio.run(measure(port, node.pid, watchers=asked.watchers, addresses=asked.addresses, changes=asked.changes))


if __name__ == "__main__":
    main()

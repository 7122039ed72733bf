"""What /proc tells of a process and its children, and how processes that a benchmark started are ended: by their
number, never by a name.
"""

import contextlib
import os
import signal
import subprocess
from collections import defaultdict
from pathlib import Path
from time import monotonic, sleep

TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def tree(pid: int) -> list[int]:
    """The process and its descendants."""
    children = defaultdict(list)
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                children[int(_fields(int(entry.name))[1])].append(int(entry.name))
    found = [pid]
    for member in found:
        found += children[member]
    return found


def cpu_s(pid: int) -> float:
    """User and system seconds that the tree has used."""
    ticks = 0
    for member in tree(pid):
        with contextlib.suppress(OSError):
            fields = _fields(member)
            ticks += int(fields[11]) + int(fields[12])
    return ticks / TICKS_PER_S


def rss_bytes(pid: int) -> int:
    """Resident memory of the tree."""
    size_bytes = 0
    for member in tree(pid):
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{member}/status").read_text().splitlines():
                if line.startswith("VmRSS:"):
                    size_bytes += int(line.split()[1]) * 1024
    return size_bytes


def is_alive(pid: int) -> bool:
    """Whether it runs (a zombie does not)."""
    try:
        return _fields(pid)[0] != "Z"
    except OSError:
        return False


def end(pid: int, *, timeout_s: float = 30) -> None:
    """SIGTERM, then SIGKILL after the time; waits until it is gone."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)
    deadline = monotonic() + timeout_s
    while is_alive(pid):
        if monotonic() > deadline:
            kill(pid)
        sleep(0.05)
    _reap(pid)


def kill(pid: int) -> None:
    """SIGKILL; waits until it is gone."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    while is_alive(pid):
        sleep(0.001)
    _reap(pid)


def _reap(pid: int) -> None:
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, 0)


def run_client(command: list[str], *, timeout_s: float) -> str:
    """What a client printed. Ended with this process's wait, whatever ends that. Raises AssertionError with its output
    where it fails.
    """
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=timeout_s)
    finally:
        end_group(process)
    assert process.returncode == 0, f"{' '.join(command)} failed ({process.returncode}):\n{output[-3000:]}"
    return output


def end_group(process: "subprocess.Popen[str]") -> None:
    """Ends what was started as a session of its own, with its children, and reaps it."""
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _fields(pid: int) -> list[str]:
    """Of /proc/PID/stat, from the state on: its name may hold anything."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()

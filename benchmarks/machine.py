"""What figures depend on: the machine and the versions. No names of hosts or folders."""

import os
import platform
import re
import shutil
import subprocess
from importlib.metadata import version
from pathlib import Path
from time import sleep

from benchmarks.servers import ROOT


def facts(work: Path) -> dict[str, str]:
    """For the head of a report; `work` is where the servers keep their data."""
    cpu = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    memory_kib = re.search(r"MemTotal:\s*(\d+)", Path("/proc/meminfo").read_text())
    return {
        "cores": str(os.cpu_count()),
        "processor": cpu[1] if cpu else platform.machine(),
        "memory": f"{int(memory_kib[1]) / (1 << 20):.0f} GiB" if memory_kib else "?",
        "kernel": platform.release().split("-")[0],
        "disk": _disk(work),
        "Python": platform.python_version(),
        "Kafka": _kafka(),
        "Java": _said(["java", "-version"], r'version "([^"]+)"'),
        "librdkafka": version("confluent-kafka"),
        "kcat": _said(["kcat", "-V"], r"Version (\S+)")
        + " with librdkafka "
        + _said(["kcat", "-V"], r"librdkafka (\S+)"),
    }


def bmq_version() -> str:
    """With the commit of the checkout; kept with each row, as rows of one report may be of several."""
    return f"bmq {version('bmq-core')}{_commit()}"


def busy_share(seconds: float = 1.0) -> float:
    """How much of the processors' time something else uses, 0 to 1: figures from a machine that is not idle are to be
    read with care.
    """
    before = _processor_ticks()
    sleep(seconds)
    idle, total = (after - earlier for after, earlier in zip(_processor_ticks(), before, strict=True))
    return 1 - idle / total if total else 0.0


def _processor_ticks() -> tuple[int, int]:
    """(idle, all) since the machine started."""
    ticks = [int(field) for field in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    return ticks[3] + ticks[4], sum(ticks)


def _disk(work: Path) -> str:
    kind = ""
    longest = ""
    for line in Path("/proc/self/mounts").read_text().splitlines():
        device, mount, file_system, *_ = line.split()
        if str(work).startswith(mount) and len(mount) >= len(longest):
            longest = mount
            kind = f"{file_system} on {'a virtual disk' if device.startswith('/dev/vd') else device.rsplit('/', 1)[-1]}"
    usage = shutil.disk_usage(work)
    return f"{kind}, {usage.free / 1e9:.0f} of {usage.total / 1e9:.0f} GB free"


def _commit() -> str:
    short = _said(["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"], r"(\S+)")
    return "" if short == "?" else f" ({short})"


def _kafka() -> str:
    tools = Path(os.environ.get("TOOLS") or ROOT / ".cache" / "tools")
    for jar in (tools / "kafka").glob("kafka-clients-*.jar"):
        return jar.stem.removeprefix("kafka-clients-")
    return "?"


def _said(command: list[str], pattern: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return "?"
    found = re.search(pattern, done.stdout + done.stderr)
    return found[1].rstrip(",") if found else "?"

"""kcat as a consumer: librdkafka with nothing behind it."""

import subprocess
from time import perf_counter

from benchmarks.processes import run_client
from benchmarks.servers import Server

MIB = 1 << 20


def command(server: Server, topic: str) -> list[str]:
    """Reads the topic from its beginning to its end and prints nothing of it."""
    quiet = [
        "-C",
        "-q",
        "-e",
        "-o",
        "beginning",
        "-f",
        "",
        "-X",
        "fetch.message.max.bytes=4194304",
        "-X",
        "fetch.max.bytes=33554432",
    ]
    return ["kcat", "-b", server.address, "-t", topic, *quiet]


def consume(server: Server, topic: str, *, size_bytes: int, timeout_s: float) -> float:
    """MiB/s of a topic that holds so many bytes of values; its start is within the time."""
    start = perf_counter()
    run_client(command(server, topic), timeout_s=timeout_s)
    return size_bytes / MIB / (perf_counter() - start)


def start(server: Server, topic: str) -> "subprocess.Popen[str]":
    """In the background. The caller ends it (`processes.end_group`)."""
    return subprocess.Popen(
        command(server, topic),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )

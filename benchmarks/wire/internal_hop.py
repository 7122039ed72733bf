"""What a hop between two processes costs, in µs of CPU per append: `python benchmarks/wire/internal_hop.py`.

Beside it the same owner called directly, which is what one process does. The owner keeps nothing, so all of it is the
hop: both sides' Python, the loop (uvloop) and the kernel's copies over loopback.
"""

import asyncio
import os
import resource
import time
from collections.abc import Callable, Coroutine
from typing import Any
from uuid import UUID

import uvloop
from typing_extensions import Buffer

from bmq.fairness.turns import NOBODY, Party
from bmq.internal import Identity, InternalServer, RemoteOwner
from bmq.internal.framing.apis import Api
from bmq.internal.serving.owner_handlers import Appender, append_route
from bmq.roles.owner import Appended
from bmq.values import NodeId, Offset, TopicId, TopicPartition

SIZES_BYTES = (1 << 10, 16 << 10, 64 << 10, 512 << 10)
WINDOW = 32
SECONDS = 2.0
FIRST_PORT = 19_700
CLUSTER = "uKQKcMhZTbqOPHpHLNzwHw"
TP = TopicPartition(TopicId(UUID(int=7)), 3)
DONE = Appended(base_offset=Offset(1 << 40), log_append_time_ms=-1, log_start=Offset(0))


class NullOwner:
    """Takes everything, keeps nothing; answers in the next turn of the loop, as a commit answers many at once."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._waiting: list[asyncio.Future[Appended]] = []

    def append(
        self, tp: TopicPartition, records: Buffer, *, produce_version: int, party: Party = NOBODY
    ) -> "asyncio.Future[Appended]":
        future: asyncio.Future[Appended] = self._loop.create_future()
        if not self._waiting:
            self._loop.call_soon(self._durable)
        self._waiting.append(future)
        return future

    def is_open(self, tp: TopicPartition) -> bool:
        return True

    def _durable(self) -> None:
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            future.set_result(DONE)


async def produce(owner: Appender, batch: bytes) -> int:
    """Appends for SECONDS with WINDOW under way; returns how many."""
    loop = asyncio.get_running_loop()
    until = loop.time() + SECONDS
    count = 0

    async def lane() -> None:
        nonlocal count
        while loop.time() < until:
            await owner.append(TP, batch, produce_version=9)
            count += 1

    await asyncio.gather(*(lane() for _ in range(WINDOW)))
    return count


async def direct(batch: bytes) -> int:
    return await produce(NullOwner(), batch)


async def serve(port: int, stop: int, ready: int) -> None:
    server = InternalServer({Api.APPEND: append_route(NullOwner())}, Identity(cluster_id=CLUSTER, node_id=NodeId(2)))
    await server.start("127.0.0.1", port)
    os.write(ready, b"!")
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_reader(stop, stopped.set)
    await stopped.wait()
    await server.stop(grace_s=1)


async def remote(port: int, batch: bytes) -> int:
    owner = RemoteOwner("127.0.0.1", port, peer=NodeId(2), me=Identity(cluster_id=CLUSTER, node_id=NodeId(1)))
    count = await produce(owner, batch)
    await owner.close()
    return count


def cpu_us(work: Callable[[], Coroutine[Any, Any, int]]) -> tuple[int, float]:
    """(appends, µs of this process's CPU per append)."""
    before = time.process_time()
    count = uvloop.run(work())
    return count, (time.process_time() - before) / count * 1e6


def measure(size_bytes: int, port: int) -> str:
    """One line: the direct call here, then the same against a child process."""
    batch = os.urandom(size_bytes)
    _, direct_us = cpu_us(lambda: direct(batch))
    read_end, write_end = os.pipe()
    is_ready, ready = os.pipe()
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    child = os.fork()
    if child == 0:
        os.close(write_end)
        uvloop.run(serve(port, read_end, ready))
        os._exit(0)
    os.read(is_ready, 1)
    count, near_us = cpu_us(lambda: remote(port, batch))
    for end in (write_end, read_end, is_ready, ready):
        os.close(end)
    os.waitpid(child, 0)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    far_us = (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) / count * 1e6
    hop_us = near_us + far_us - direct_us
    rate = count * size_bytes / SECONDS / 1e6
    return f"{size_bytes // 1024:>4} KiB {direct_us:8.1f} {near_us:11.1f} {far_us:12.1f} {hop_us:8.1f} {rate:7.0f}"


def main() -> None:
    print(
        f"{'batch':>8} {'direct':>8} {'proxy side':>11} {'broker side':>12} {'hop':>8} {'MB/s':>7}   (µs of CPU "
        f"per append, {WINDOW} under way)"
    )
    for number, size_bytes in enumerate(SIZES_BYTES):
        print(measure(size_bytes, FIRST_PORT + number))


if __name__ == "__main__":
    main()

"""What `measure-store` runs."""

import asyncio
import os
import sys
import time
from collections import defaultdict

import uvloop

from bmq.ports import ObjectStore
from bmq.runtime.open_store import open_store
from bmq.runtime.system import SystemRng

ROUNDS = 5
SIZES = {"4 KiB": (4 << 10, 40), "1 MiB": (1 << 20, 24), "4 MiB": (4 << 20, 12)}
IN_FLIGHT = (1, 8)
PARTS = 16


async def creates(
    store: ObjectStore, prefix: str, *, size_bytes: int, count: int, in_flight: int
) -> tuple[list[float], float]:
    """(seconds of each create, CPU seconds of all)."""
    parts = [os.urandom(size_bytes // PARTS)] * PARTS
    numbers = iter(range(count))
    seconds: list[float] = []

    async def worker() -> None:
        for number in numbers:
            start = time.perf_counter()
            await store.create(f"{prefix}/{number:020d}", parts)
            seconds.append(time.perf_counter() - start)

    cpu = time.process_time()
    await asyncio.gather(*(worker() for _ in range(in_flight)))
    cpu = time.process_time() - cpu
    async for meta in store.list(f"{prefix}/"):
        await store.delete(meta.key)
    return seconds, cpu


async def main(urls: list[str]) -> None:
    stores = {url: open_store(url) for url in urls}
    rng = SystemRng()
    seconds: dict[tuple[str, str, int], list[float]] = defaultdict(list)
    cpu: dict[tuple[str, str, int], float] = defaultdict(float)
    for turn in range(ROUNDS + 1):
        for name, (size_bytes, count) in SIZES.items():
            for in_flight in IN_FLIGHT:
                for url, store in stores.items():
                    took, used = await creates(
                        store, f"wal/measure-{rng.uuid()}", size_bytes=size_bytes, count=count, in_flight=in_flight
                    )
                    if turn:  # the first warms up
                        seconds[url, name, in_flight] += took
                        cpu[url, name, in_flight] += used
    print(f"{'store':44} {'size':>6} {'in flight':>9} {'median ms':>10} {'p99 ms':>8} {'MB/s':>7} {'CPU s/GiB':>10}")
    for (url, name, in_flight), took in seconds.items():
        took.sort()
        total = len(took) * SIZES[name][0]
        rate = total / (sum(took) / in_flight) / 1e6
        shown = url if len(url) <= 44 else url[:43] + "…"
        print(
            f"{shown:44} {name:>6} {in_flight:9} {took[len(took) // 2] * 1e3:10.2f} "
            f"{took[len(took) * 99 // 100] * 1e3:8.2f} {rate:7.0f}",
            end="",
        )
        print(f" {cpu[url, name, in_flight] / total * 2**30:10.2f}")
    for store in stores.values():
        store.close()


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1:]))

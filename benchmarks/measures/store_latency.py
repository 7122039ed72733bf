"""Produce latency over MinIO against the latency of MinIO's own creates, of the same size and at the same rate, in
turns.
"""

import asyncio
import os
from collections.abc import Iterator
from time import perf_counter

import uvloop

from benchmarks import topics
from benchmarks.measures.latency import FILL, at_rate, quantile_ms, steady
from benchmarks.plan import Plan
from benchmarks.rows import Row
from benchmarks.servers import Bmq, Minio
from bmq.runtime.bucket import ensure_bucket
from bmq.runtime.open_store import open_store
from bmq.runtime.store_url import parse_store_url

LINGER_MS = 5.0
LOADS = ((200, 4, "200 requests/s of 4 KiB"), (500, 16, "500 requests/s of 16 KiB"))


def measure(plan: Plan) -> Iterator[Row]:
    """A row per load: bmq's p99 against linger + 1.5 × the store's p99."""
    with Minio(plan.folder("minio")) as minio:
        os.environ.update(minio.environment)
        url = minio.store_url("bench")
        ensure_bucket(parse_store_url(url))
        with Bmq(plan.folder("bmq"), store=url, environment=minio.environment) as bmq:
            topics.create(bmq, "latency", partitions=1, retention_bytes=1 << 30)
            for load in LOADS:
                yield _row(plan, bmq, minio, load)


def _row(plan: Plan, bmq: Bmq, minio: Minio, load: tuple[int, int, str]) -> Row:
    per_s, records, name = load
    produce_ms: list[float] = []
    create_ms: list[float] = []
    sizes: list[float] = []
    for turn in range(plan.rounds):
        plan.say(f"produce over MinIO, {name}: round {turn + 1}")
        before = bmq.metrics()
        found = uvloop.run(
            steady(bmq.port, "latency", per_s=per_s, records=records, record_bytes=1024, seconds=plan.phase_s)
        )
        after = bmq.metrics()
        count = after["bmq_flush_bytes_count"] - before["bmq_flush_bytes_count"]
        size_bytes = int((after["bmq_flush_bytes_sum"] - before["bmq_flush_bytes_sum"]) / count)
        produce_ms.append(quantile_ms(found.produced, 0.99))
        creates = uvloop.run(
            _creates(minio.store_url("creates"), size_bytes, per_s=count / (plan.phase_s + 1), seconds=plan.phase_s)
        )
        create_ms.append(quantile_ms(creates, 0.99))
        sizes.append(size_bytes)
        plan.say(
            f"  produce p99 {produce_ms[-1]:.1f} ms; create of {size_bytes / 1024:.0f} KiB p99 {create_ms[-1]:.1f} "
            f"ms, {count / plan.phase_s:.0f}/s"
        )
    return Row(
        topic="store-latency",
        measure="produce p99 ÷ (linger + 1.5 × MinIO's create p99)",
        setting=name,
        unit="ms",
        bmq=produce_ms,
        peer_name="bound",
        peer=[LINGER_MS + 1.5 * each for each in create_ms],
        target=1.0,
        at_least=False,
        beside=f"linger {LINGER_MS:g} ms, creates of {sum(sizes) / len(sizes) / 1024:.0f} KiB p99 "
        f"{sorted(create_ms)[len(create_ms) // 2]:.1f} ms",
        quick=plan.quick,
    )


async def _creates(url: str, size_bytes: int, *, per_s: float, seconds: float) -> list[float]:
    """Seconds that each took."""
    ensure_bucket(parse_store_url(url))
    store = open_store(url)
    found: list[float] = []
    running: set[asyncio.Task[None]] = set()
    data = (FILL * (size_bytes // len(FILL) + 1))[:size_bytes]
    run = os.urandom(4).hex()

    async def create(number: int) -> None:
        start = perf_counter()
        await store.create(f"wal/{run}/{number:020d}", [data])
        found.append(perf_counter() - start)

    def send(number: int) -> None:
        task = asyncio.ensure_future(create(number))
        running.add(task)
        task.add_done_callback(running.discard)

    try:
        await at_rate(per_s, seconds, send)
        await asyncio.gather(*running)
        async for meta in store.list(f"wal/{run}/"):
            await store.delete(meta.key)
    finally:
        store.close()
    return found

"""What quiet partitions beside a load cost in requests to the store, counted over a store in memory at a fraction of
the usual sizes.

At full size, by hand: `python services/broker/tests/test_broker_requests.py [PARTS [QUIET]]`: sizes divided by PARTS.
"""

import asyncio
import sys
from collections import Counter
from dataclasses import replace

from broker_under_test import Cluster, small

from bmq.values import TopicPartition
from bmq.wire.batches import Record, build_batch
from bmq_broker.partitions.tail import BATCH_MEMORY_BYTES, RUN_MEMORY_BYTES
from bmq_broker.settings import MIB, BrokerSettings
from bmq_sim.loop import on_virtual_time
from bmq_sim.store import SimStore, StoreFaults

GIB = 1024 * MIB
BATCH_BYTES = 256 * 1024
QUIET = 5_000
AGED_BYTES_MAX = 20 * 1024
"""Each quiet partition begins with a tail of up to this size, as it would have after some 60 GiB."""
BYTES_PER_S = 25 * MIB
RECORDS_PER_GIB = 4
"""What each quiet partition gets while the busy ones get a GiB: at 25 MiB/s a record of 100 bytes every ten seconds."""


def settings_of(parts: int, *, quiet: int) -> BrokerSettings:
    """The defaults over a bucket, with a linger that fills WAL objects, and every size a part as large: as many
    requests for a part of the bytes.

    What keeping a quiet partition's tail takes in memory beside its bytes does not get smaller with them: tails may
    have as much more.
    """
    base = BrokerSettings()
    names = (
        "flush_bytes",
        "tail_budget_bytes",
        "tail_limit_bytes",
        "wal_budget_bytes",
        "merge_below_bytes",
        "merge_target_bytes",
    )
    names += ("carry_bytes_max", "shared_below_bytes")
    sizes = {name: getattr(base, name) // parts for name in names if hasattr(base, name)}
    for name in ("tail_budget_bytes", "tail_limit_bytes"):
        sizes[name] += quiet * (BATCH_MEMORY_BYTES + RUN_MEMORY_BYTES) * (parts - 1) // parts
    return replace(base, linger_ms=250.0, eager=False, **sizes)


async def requests_per_gib(
    *, quiet: int, parts: int, warm_gib: float = 1.0, gib: float = 1.0, page_keys: int = 1000
) -> Counter[str]:
    """Requests by verb for each GiB that a busy partition gets, once the WAL has its length, beside so many quiet
    partitions.

    Every size is `parts` times smaller, and quiet partitions get so many times fewer records.
    """
    store = SimStore(faults=StoreFaults(latency_s_min=0.002, latency_s_max=0.005), page_keys=page_keys)
    cluster = Cluster(store, settings=settings_of(parts, quiet=quiet))
    await cluster.start()
    retained = {"segment.bytes": str(max(65_536, 64 * MIB // parts)), "retention.bytes": str(256 * MIB // parts)}
    (busy,) = await cluster.topic("busy", configs=retained)
    quiet_tps = await cluster.topic("quiet", partitions=quiet) if quiet else []
    batch = build_batch(
        [Record(offset=0, timestamp_ms=cluster.clock.now_ms(), key=None, value=bytes(BATCH_BYTES // parts), headers=())]
    )
    small = build_batch([Record(offset=0, timestamp_ms=cluster.clock.now_ms(), key=None, value=bytes(100), headers=())])
    warm, count = (int(size_gib * GIB // parts) // len(batch) for size_gib in (warm_gib, gib))
    before: Counter[str] = Counter()
    credit = at = 0.0
    waiting: list[asyncio.Future[object]] = []
    append = cluster.broker.owner.append

    async def drained(waiting: list["asyncio.Future[object]"]) -> None:
        await asyncio.gather(*waiting)
        waiting.clear()

    if quiet_tps:
        await _claim(cluster, quiet_tps)
    for index, tp in enumerate(quiet_tps):
        size_bytes = AGED_BYTES_MAX // parts * index // len(quiet_tps)
        record = Record(
            offset=0, timestamp_ms=cluster.clock.now_ms(), key=None, value=bytes(max(0, size_bytes - 70)), headers=()
        )
        waiting.append(append(tp, build_batch([record]), produce_version=9))  # type: ignore[arg-type]
    await drained(waiting)
    began_s = asyncio.get_running_loop().time()
    for number in range(warm + count):
        if number == warm:
            await drained(waiting)
            before = Counter(cluster.store.requests)
        waiting.append(append(busy, batch, produce_version=9))  # type: ignore[arg-type]
        credit += len(quiet_tps) * RECORDS_PER_GIB / parts * BATCH_BYTES / GIB
        while credit >= 1:
            credit -= 1
            tp: TopicPartition = quiet_tps[int(at) % len(quiet_tps)]
            at += 1
            waiting.append(append(tp, small, produce_version=9))  # type: ignore[arg-type]
        await asyncio.sleep(began_s + number * BATCH_BYTES / BYTES_PER_S - asyncio.get_running_loop().time())
        if number % 1_000 == 999:
            await drained(waiting)
    await drained(waiting)
    used = Counter(cluster.store.requests)
    used.subtract(before)
    await cluster.kill()
    return Counter({verb: round(requests / gib) for verb, requests in used.items() if requests})


async def _claim(cluster: Cluster, tps: list[TopicPartition]) -> None:
    """The first manifest version of an ownership costs listings, once."""
    await asyncio.gather(*(cluster.append(tp, b"first") for tp in tps))
    roller = cluster.broker._roller
    while unclaimed := [each for tp in tps if not (each := cluster.broker._ownership.partitions[tp]).claimed]:
        roller.start_together(unclaimed, "test")
        await asyncio.sleep(0.1)
    await asyncio.sleep(2 * cluster.settings.retention_interval_ms / 1000)


@on_virtual_time
async def test_five_thousand_quiet_partitions_at_most_double_the_requests_of_a_load() -> None:
    alone = await requests_per_gib(quiet=0, parts=50, warm_gib=0.25, gib=0.5)
    beside = await requests_per_gib(quiet=QUIET, parts=50, warm_gib=0.25, gib=0.5)
    assert alone["create"] > 256
    assert beside.total() <= 2 * alone.total(), (alone, beside)


if __name__ == "__main__":
    _parts = int(sys.argv[1]) if len(sys.argv) > 1 else 1
    _quiet = int(sys.argv[2]) if len(sys.argv) > 2 else QUIET

    @on_virtual_time
    async def _show() -> None:
        for quiet in (0, _quiet):
            used = await requests_per_gib(quiet=quiet, parts=_parts)
            print(f"{quiet} quiet partitions: {used.total()} requests per GiB {dict(used)}", flush=True)

    _show()


@on_virtual_time
async def test_a_batch_that_comes_twice_is_answered_with_the_time_at_which_it_was_appended() -> None:
    cluster = Cluster(settings=small())
    await cluster.start()
    [tp] = await cluster.topic("times", configs={"message.timestamp.type": "LogAppendTime"})
    [own] = await cluster.topic("own")
    sequence = {"producer_id": 5, "producer_epoch": 0, "base_sequence": 0}
    first = await cluster.append(tp, b"a", **sequence)
    assert (await cluster.append(own, b"a", **sequence)).log_append_time_ms == -1
    assert first.log_append_time_ms > 0
    await asyncio.sleep(60)
    assert await cluster.append(tp, b"a", **sequence) == first
    await cluster.roll(tp)
    await cluster.stop()
    await cluster.start("again")
    await asyncio.sleep(60)
    again = await cluster.append(tp, b"a", **sequence)
    assert (again.base_offset, again.log_append_time_ms) == (first.base_offset, first.log_append_time_ms)
    assert (await cluster.append(own, b"a", **sequence)).log_append_time_ms == -1
    await cluster.stop()

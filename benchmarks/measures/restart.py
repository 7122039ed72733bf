"""How soon bmq is ready again after kill −9: 1,000 partitions, and a WAL that is as long as it gets before tails are
rolled.
"""

from collections.abc import Iterator
from time import perf_counter

import uvloop

from benchmarks import topics
from benchmarks.clients.bare import produce_frame, write_to_each
from benchmarks.measures.latency import FILL
from benchmarks.plan import Plan
from benchmarks.rows import Row
from benchmarks.servers import Bmq

MIB = 1 << 20
TOPIC = "many"
PARTITIONS = 1_000
RECORDS, RECORD_BYTES = 240, 1_024
IN_FLIGHT = 20


def measure(plan: Plan) -> Iterator[Row]:
    """Two rows, of one server."""
    ready: list[float] = []
    written: list[float] = []
    wal_mib = 0.0
    with Bmq(plan.folder("bmq")) as bmq:
        topics.create(bmq, TOPIC, partitions=PARTITIONS, retention_bytes=-1)
        for turn in range(plan.rounds + 1):
            uvloop.run(_write(bmq.port, RECORDS if turn == 0 else 1))
            wal_mib = wal_mib or bmq.metrics()["bmq_wal_bytes"] / MIB
            if turn == plan.rounds:
                break
            plan.say(f"restart: round {turn + 1}")
            began_s = perf_counter()
            ready.append(bmq.kill_and_start())
            uvloop.run(_write(bmq.port, 1))
            written.append(perf_counter() - began_s)
            plan.say(f"  ready after {ready[-1]:.2f} s, all partitions written to after {written[-1]:.2f} s")
    setting = f"{PARTITIONS:,} partitions, {wal_mib:.0f} MiB of WAL, over a folder"
    yield Row(
        topic="restart",
        measure="ready after kill −9 and a start",
        setting=setting,
        unit="s",
        bmq=ready,
        target=2,
        target_of="bmq",
        at_least=False,
        quick=plan.quick,
    )
    yield Row(
        topic="restart",
        measure="a record acknowledged in each partition after it",
        setting=setting,
        unit="s",
        bmq=written,
        quick=plan.quick,
    )


async def _write(port: int, records: int) -> None:
    """A batch to each partition."""
    frames = (
        produce_frame(TOPIC, index, records=records, record_bytes=RECORD_BYTES, fill=FILL)
        for index in range(PARTITIONS)
    )
    await write_to_each(port, TOPIC, enumerate(frames), in_flight_max=IN_FLIGHT)

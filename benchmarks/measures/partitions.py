"""Whether the number of partitions changes how many objects are made: creates per second at one rate, 1,000 partitions
against one.

Over MinIO: over a folder, where a create costs nothing, bmq makes as many as the disk takes at that moment.
"""

from collections.abc import Iterator

import uvloop
from tests.waiting import until_async

from benchmarks import topics
from benchmarks.clients.bare import Connection, check_produced, produce_frame
from benchmarks.measures.latency import FILL, at_rate
from benchmarks.plan import Plan
from benchmarks.rows import Row
from benchmarks.servers import Bmq, Minio

MANY = 1000
PER_S = 800
RECORDS = 16


def measure(plan: Plan) -> Iterator[Row]:
    """One row. A phase is four times as long as elsewhere: rolls by the length of the WAL have to be part of it."""
    seconds = plan.phase_s * (1 if plan.quick else 4)
    with (
        Minio(plan.folder("minio")) as minio,
        Bmq(plan.folder("bmq"), store=minio.store_url("bench"), environment=minio.environment) as bmq,
    ):
        figures: dict[int, list[float]] = {MANY: [], 1: []}
        for partitions in figures:
            topics.create(bmq, f"of-{partitions}", partitions=partitions, retention_bytes=1 << 30)
        for turn in range(-1, plan.rounds):
            for partitions, creates in figures.items():
                plan.say(f"creates at {PER_S} requests/s of 16 KiB, {partitions} partitions: round {turn + 1}")
                before = bmq.metrics()
                acknowledged = uvloop.run(
                    _load(bmq.port, f"of-{partitions}", partitions, seconds=seconds if turn >= 0 else 3)
                )
                after = bmq.metrics()
                made = after["bmq_store_operations_total{create}"] - before["bmq_store_operations_total{create}"]
                if turn >= 0:
                    creates.append(made / acknowledged * PER_S)
                    plan.say(f"  {creates[-1]:.1f} creates/s")
    yield Row(
        topic="partitions",
        measure="creates per second, 1,000 partitions ÷ 1",
        setting=f"{PER_S} requests/s of 16 KiB, over MinIO",
        unit="/s",
        bmq=figures[MANY],
        peer_name="1 partition",
        peer=figures[1],
        target=1.05,
        at_least=False,
        quick=plan.quick,
    )


async def _load(port: int, topic: str, partitions: int, *, seconds: float) -> int:
    """How many requests were acknowledged: all that were sent."""
    frames = [produce_frame(topic, index, records=RECORDS, record_bytes=1024, fill=FILL) for index in range(partitions)]
    connection = await Connection.open(port)
    sent = acknowledged = 0
    failures: list[str] = []

    def answered(answer: memoryview) -> None:
        nonlocal acknowledged
        acknowledged += 1
        try:
            check_produced(topic, answer)
        except AssertionError as error:
            failures.append(str(error))

    def send(number: int) -> None:
        nonlocal sent
        sent += 1
        connection.send(frames[number % partitions], answered)

    await at_rate(PER_S, seconds, send)
    await until_async(
        lambda: sent - acknowledged,
        "all to be acknowledged",
        600,
        holds=lambda left: left <= 0,
        unless=connection.lost.done,
        every_s=0.05,
    )
    assert not failures, failures[0]
    connection.close()
    return acknowledged

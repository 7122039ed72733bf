"""Throughput of consuming: from the beginning, with the files in the page cache and without, and at the tail, behind a
producer at full speed.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from benchmarks import topics
from benchmarks.clients import java, kcat, librdkafka
from benchmarks.plan import RECORD_BYTES, Plan
from benchmarks.processes import end_group
from benchmarks.rows import Row
from benchmarks.servers import Bmq, Kafka, Server

MIB = 1 << 20
BATCH_BYTES = 256 << 10


def measure(plan: Plan) -> Iterator[Row]:
    """Rows per number of partitions."""
    with Bmq(plan.folder("bmq")) as bmq, Kafka(plan.folder("kafka")) as kafka:
        for partitions in plan.partitions:
            topic = topics.fresh("read")
            for server in (bmq, kafka):
                plan.say(f"consume, {partitions} partitions: filling {server.name}")
                topics.create(server, topic, partitions=partitions, retention_bytes=-1)
                librdkafka.produce(server, topic, **_sizes(plan))
            yield from _from_the_beginning(plan, (bmq, kafka), partitions, topic)
            for server in (bmq, kafka):
                topics.delete(server, topic)
            yield from _at_the_tail(plan, bmq, kafka, partitions)


def _from_the_beginning(plan: Plan, servers: Sequence[Server], partitions: int, topic: str) -> Iterator[Row]:
    bmq, kafka = servers
    figures: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    for turn in range(plan.rounds):
        for client in plan.clients:
            for server in (bmq, kafka):
                server.forget_cached_files()
                for files in ("from the disk", "from the page cache"):
                    plan.say(f"consume {client}, {partitions} partitions, {files}: round {turn + 1}, {server.name}")
                    if client == "java":
                        speed = java.consume(
                            server, topic, records=plan.consume_bytes // RECORD_BYTES, timeout_s=600
                        ).mib_per_s
                    else:
                        speed = kcat.consume(server, topic, size_bytes=plan.consume_bytes, timeout_s=600)
                    figures[client, files, server.name].append(speed)
                    plan.say(f"  {speed:.0f} MiB/s")
    for client in plan.clients:
        for files in ("from the disk", "from the page cache"):
            name = "java" if client == "java" else "kcat"
            yield _row(
                plan,
                f"consume from the beginning, {files}",
                f"{name}, {partitions} partition{'s' * (partitions > 1)}",
                figures[client, files, bmq.name],
                figures[client, files, kafka.name],
            )


def _at_the_tail(plan: Plan, bmq: Server, kafka: Server, partitions: int) -> Iterator[Row]:
    figures: dict[str, list[float]] = defaultdict(list)
    for turn in range(plan.rounds):
        for server in (bmq, kafka):
            plan.say(f"consume at the tail, {partitions} partitions: round {turn + 1}, {server.name}")
            topic = topics.fresh("tail")
            topics.create(server, topic, partitions=partitions, retention_bytes=-1)
            records = plan.consume_bytes // RECORD_BYTES
            consumer = java.start_consumer(server, topic, records=records)
            try:
                produced = librdkafka.produce(server, topic, **_sizes(plan))
                output, _ = consumer.communicate(timeout=120)
            finally:
                end_group(consumer)
            consumed = java.consumed(output, records=records)
            figures[server.name].append(plan.consume_bytes / MIB / (consumed.ended_s - produced.began_s))
            plan.say(f"  {figures[server.name][-1]:.0f} MiB/s (producing {produced.mib_per_s:.0f})")
            topics.delete(server, topic)
    setting = f"java behind librdkafka, {partitions} partition{'s' * (partitions > 1)}"
    yield _row(plan, "consume at the tail", setting, figures[bmq.name], figures[kafka.name])


def _sizes(plan: Plan) -> dict[str, int]:
    return {
        "records": plan.consume_bytes // RECORD_BYTES,
        "record_bytes": RECORD_BYTES,
        "batch_bytes": BATCH_BYTES,
        "timeout_s": 600,
    }


def _row(plan: Plan, measure: str, setting: str, bmq: list[float], kafka: list[float]) -> Row:
    row: dict[str, Any] = {
        "topic": "consume",
        "measure": measure,
        "setting": setting,
        "unit": "MiB/s",
        "target": 1.0,
        "quick": plan.quick,
    }
    return Row(bmq=bmq, peer_name="Kafka", peer=kafka, **row)

"""Throughput of producing, and what it costs the server: bmq with fsync, Kafka without and with (`flush.messages=1`,
its setting per topic).
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from os import sync
from statistics import median
from typing import Any

from benchmarks import topics
from benchmarks.clients import java, librdkafka
from benchmarks.plan import GIB, RECORD_BYTES, Plan
from benchmarks.rows import Row
from benchmarks.servers import Bmq, Kafka, Server

RETENTION_BYTES = 4 * GIB
"""Of the whole topic, on all systems: less than a full run, so that deletions are part of it and the disk does not
fill."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Runs:
    """One figure per round."""

    mib_per_s: list[float] = field(default_factory=list)
    cpu_s_per_gib: list[float] = field(default_factory=list)
    written: list[float] = field(default_factory=list)
    """Bytes that the server gave to its store by bytes produced."""


def measure(plan: Plan) -> Iterator[Row]:
    """A row per client, number of partitions and size of a batch."""
    with Bmq(plan.folder("bmq")) as bmq, Kafka(plan.folder("kafka")) as kafka:
        contenders: list[tuple[str, Server, dict[str, str]]] = [
            ("bmq", bmq, {}),
            ("Kafka", kafka, {}),
            ("Kafka, fsync", kafka, {"flush_messages": "1"}),
        ]
        for name, server, configs in contenders:
            plan.say(f"produce: warming up {name}")
            _run(
                server,
                Runs(),
                client="librdkafka",
                partitions=4,
                batch_kib=64,
                configs=configs,
                size_bytes=plan.produce_bytes // 8,
            )
        for client, partitions, batch_kib in plan.shapes():
            runs: dict[str, Runs] = defaultdict(Runs)
            setting = f"{client}, {_partitions(partitions)}, {batch_kib} KiB batches"
            load: dict[str, Any] = {
                "client": client,
                "partitions": partitions,
                "batch_kib": batch_kib,
                "size_bytes": plan.produce_bytes,
            }
            try:
                for turn in range(plan.rounds):
                    for name, server, configs in contenders:
                        plan.say(f"produce {setting}: round {turn + 1}, {name}")
                        _run(server, runs[name], configs=configs, **load)
                        plan.say(
                            f"  {runs[name].mib_per_s[-1]:.0f} MiB/s, {runs[name].cpu_s_per_gib[-1]:.2f} CPU s/GiB"
                        )
            finally:  # an interruption loses no figure that is there, whichever way it points
                yield from _rows(plan, runs, setting, with_cpu=batch_kib >= 256)


def _run(
    server: Server,
    runs: Runs,
    *,
    client: str,
    partitions: int,
    batch_kib: int,
    size_bytes: int,
    configs: dict[str, str],
) -> None:
    topic = topics.fresh("produce")
    records = size_bytes // RECORD_BYTES
    topics.create(server, topic, partitions=partitions, retention_bytes=RETENTION_BYTES // partitions, **configs)
    sync()  # what the one before left in the page cache is not the next one's to write
    before = server.metrics() if isinstance(server, Bmq) else {}
    cpu_s = server.cpu_s
    sizes: dict[str, Any] = {
        "records": records,
        "record_bytes": RECORD_BYTES,
        "batch_bytes": batch_kib << 10,
        "timeout_s": 900,
    }
    if client == "java":
        runs.mib_per_s.append(java.produce(server, topic, **sizes))
    else:
        runs.mib_per_s.append(librdkafka.produce(server, topic, **sizes).mib_per_s)
    runs.cpu_s_per_gib.append((server.cpu_s - cpu_s) / size_bytes * GIB)
    if isinstance(server, Bmq):
        written = server.metrics()["bmq_store_bytes_total{create}"] - before.get("bmq_store_bytes_total{create}", 0)
        runs.written.append(written / size_bytes)
    written_records = topics.end_offset(server, topic, partitions=partitions)
    assert written_records == records, f"{server.name} has {written_records} of {records} records"
    topics.delete(server, topic)


def _rows(plan: Plan, runs: dict[str, Runs], setting: str, *, with_cpu: bool) -> Iterator[Row]:
    bmq = runs["bmq"]
    if not bmq.mib_per_s:
        return
    written = f"written ÷ produced {median(bmq.written):.2f}"
    for peer, target in (("Kafka", 1.2), ("Kafka, fsync", 2.0)):
        if not runs[peer].mib_per_s:
            continue
        yield Row(
            topic="produce",
            measure="produce, bmq fsyncing, Kafka not" if peer == "Kafka" else "produce, both fsyncing",
            setting=setting,
            unit="MiB/s",
            bmq=bmq.mib_per_s,
            peer_name=peer,
            peer=runs[peer].mib_per_s,
            target=target,
            beside=written,
            quick=plan.quick,
        )
    if with_cpu:
        measure = "server CPU per GiB written"
        cpu: dict[str, Any] = {
            "topic": "produce",
            "setting": setting,
            "unit": "s",
            "bmq": bmq.cpu_s_per_gib,
            "at_least": False,
            "quick": plan.quick,
        }
        yield Row(measure=measure, peer_name="Kafka", peer=runs["Kafka"].cpu_s_per_gib, target=1.0, **cpu)
        yield Row(measure=f"{measure}, by itself", target=2.0, target_of="bmq", **cpu)


def _partitions(count: int) -> str:
    return "1 partition" if count == 1 else f"{count} partitions"

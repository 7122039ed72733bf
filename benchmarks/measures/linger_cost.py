"""How many requests to the store a GiB costs at each linger, against the formula of docs/operations.md; and what the
linger costs in latency.
"""

from collections.abc import Iterator
from os import environ

import uvloop

from benchmarks import topics
from benchmarks.measures.latency import quantile_ms, steady
from benchmarks.nodes import Cluster
from benchmarks.plan import GIB, Plan
from benchmarks.rows import Row
from benchmarks.servers import Minio
from bmq_node.configuration.values import Role

MIB = 1 << 20
LINGERS_MS = (5, 25, 100, 250)
LINGER_MS_OF_MANY = 100
PER_S = 500
RECORDS = 16
"""7.8 MiB/s."""
OBJECT_BYTES = 4 * MIB
SEGMENT_BYTES = 64 * MIB
CREATES = "bmq_store_operations_total{create}"


def creates_per_gib(linger_ms: float, bytes_per_s: float) -> float:
    """The formula, of one broker: WAL objects, and for each segment itself and the manifest version that names it."""
    wal = max(1000 / linger_ms / bytes_per_s, 1 / OBJECT_BYTES)
    return (wal + 2 / SEGMENT_BYTES) * GIB


def measure(plan: Plan) -> Iterator[Row]:
    """A row for each linger."""
    seconds = plan.phase_s * (1 if plan.quick else 2)
    with Minio(plan.folder("minio")) as minio:
        environ.update(minio.environment)
        for linger_ms in LINGERS_MS:
            plan.say(f"linger-cost: {linger_ms} ms")
            fewer = 1 if linger_ms <= LINGER_MS_OF_MANY else 4  # a connection has at most 64 requests under way
            per_s, records = PER_S // fewer, RECORDS * fewer
            with Cluster(
                plan.folder("bmq"),
                "1c1b1p",
                store=minio.store_url(f"bench-{linger_ms}"),
                options=("--linger-ms", str(linger_ms)),
            ) as cluster:
                topics.create(cluster, "latency", partitions=1, retention_bytes=1 << 30)
                broker = cluster.of(Role.BROKER)[0]
                port = int(cluster.address.rpartition(":")[2])
                before = broker.metrics()
                found = uvloop.run(
                    steady(port, "latency", per_s=per_s, records=records, record_bytes=1024, seconds=seconds)
                )
                after = broker.metrics()
            written_bytes = after["bmq_appended_bytes_total"] - before.get("bmq_appended_bytes_total", 0)
            made = (after[CREATES] - before[CREATES]) / written_bytes * GIB
            yield Row(
                topic="linger-cost",
                measure="creates per GiB, by the formula",
                setting=f"linger {linger_ms} ms, {PER_S * RECORDS / 1024:.1f} MiB/s to one broker, over MinIO",
                unit="",
                bmq=[made],
                peer_name="formula",
                peer=[creates_per_gib(linger_ms, PER_S * RECORDS * 1024)],
                target=1.1,
                at_least=False,
                beside=f"produce p50 {quantile_ms(found.produced, 0.5):.0f} ms, p99 "
                f"{quantile_ms(found.produced, 0.99):.0f} ms",
                quick=plan.quick,
            )
            plan.say(
                f"  {made:.0f} creates per GiB, {creates_per_gib(linger_ms, PER_S * RECORDS * 1024):.0f} by the formula"
            )

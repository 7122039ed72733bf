"""What a GiB costs in CPU time as the number of brokers grows, against the same in one process; and how evenly bytes
spread over brokers.

`measure` has the client send all it can, of which each of more brokers gets less; `measure_same_each` so much for each
broker.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from os import environ, sync
from statistics import median
from typing import Any

from benchmarks import topics
from benchmarks.clients import librdkafka
from benchmarks.nodes import Cluster
from benchmarks.plan import GIB, RECORD_BYTES, Plan
from benchmarks.rows import Row
from benchmarks.servers import Bmq, Minio
from bmq_node.configuration.values import Role

PARTITIONS = 12
BATCH_KIB = 256
BROKERS = (1, 2, 3)
ONE_PROCESS = 0
RETENTION_BYTES = 2 * GIB
MIB_PER_S_EACH = {"a folder": 80, "MinIO": 25}
"""What each broker gets where all get the same: three of them, their proxy, the store and the client still have time to
spare on two cores."""


def measure(plan: Plan) -> Iterator[Row]:
    """Rows for each store."""
    for store in ("a folder", "MinIO"):
        cpu: dict[int, list[float]] = defaultdict(list)
        shares: list[float] = []
        split: dict[str, list[float]] = defaultdict(list)
        for turn in range(plan.rounds):
            for brokers in (ONE_PROCESS, *BROKERS):
                plan.say(
                    f"cluster-cpu over {store}: round {turn + 1}, {f'{brokers} brokers' if brokers else 'one process'}"
                )
                with _store(plan, store) as url:
                    cpu[brokers].append(
                        _one_process(plan, url)
                        if brokers == ONE_PROCESS
                        else _cluster(plan, brokers, url, shares, split)
                    )
                plan.say(f"  {cpu[brokers][-1]:.2f} CPU s/GiB")
        yield from _rows(plan, store, cpu, shares, split)


def measure_same_each(plan: Plan) -> Iterator[Row]:
    """A row for each store and number of brokers above one."""
    for store, mib_per_s in MIB_PER_S_EACH.items():
        cpu: dict[int, list[float]] = defaultdict(list)
        for turn in range(plan.rounds):
            for brokers in BROKERS:
                plan.say(f"cluster-cpu-each over {store}: round {turn + 1}, {brokers} brokers")
                with _store(plan, store) as url, Cluster(plan.folder("bmq"), f"1c{brokers}b1p", store=url) as cluster:
                    cpu[brokers].append(
                        _load(plan, cluster, plan.cluster_bytes // 8 * brokers, mib_per_s=mib_per_s * brokers)[0]
                    )
                plan.say(f"  {cpu[brokers][-1]:.2f} CPU s/GiB")
        shared = {"setting": _setting(store, f", {mib_per_s} MiB/s a broker"), **_shared(plan, "cluster-cpu-each")}
        for brokers in BROKERS[1:]:
            yield _against_one_broker(brokers, cpu, load=", as much for each", **shared)


@contextmanager
def _store(plan: Plan, name: str) -> Iterator[str | None]:
    """Its URL; None for a folder of the server's own."""
    # its own: what it held goes with it
    with Minio(plan.folder("minio")) if name == "MinIO" else nullcontext() as minio:
        environ.update(minio.environment if minio else {})
        yield minio.store_url("bench") if minio else None


def _rows(
    plan: Plan, store: str, cpu: dict[int, list[float]], shares: list[float], split: dict[str, list[float]]
) -> Iterator[Row]:
    setting, shared = _setting(store), _shared(plan, "cluster-cpu")
    of_one = ", ".join(f"{role} {median(values):.2f}" for role, values in split.items())
    yield Row(
        measure="server CPU per GiB, 1 broker and 1 proxy ÷ one process",
        setting=setting,
        bmq=cpu[1],
        peer_name="one process",
        peer=cpu[ONE_PROCESS],
        target=1.6,
        beside=of_one,
        **shared,
    )
    for brokers in BROKERS[1:]:
        yield _against_one_broker(brokers, cpu, setting=setting, **shared)
    yield Row(
        measure=f"bytes of the busiest of {BROKERS[-1]} brokers ÷ the mean",
        setting=setting,
        bmq=shares,
        target=1.1,
        target_of="bmq",
        **{**shared, "unit": "×"},
    )


def _setting(store: str, load: str = "") -> str:
    return f"librdkafka, {PARTITIONS} partitions, {BATCH_KIB} KiB batches{load}, over {store}"


def _shared(plan: Plan, topic: str) -> dict[str, Any]:
    """What all rows of seconds have in common."""
    return {"topic": topic, "unit": "s", "at_least": False, "quick": plan.quick}


def _against_one_broker(brokers: int, cpu: dict[int, list[float]], *, load: str = "", **others: Any) -> Row:
    measure = f"server CPU per GiB, {brokers} brokers ÷ 1{load}"
    return Row(measure=measure, bmq=cpu[brokers], peer_name="1 broker", peer=cpu[1], target=1.15, **others)


def _load(
    plan: Plan, server: Bmq | Cluster, size_bytes: int, *, mib_per_s: int = librdkafka.UNLIMITED
) -> tuple[float, dict[str, float]]:
    """CPU seconds per GiB of all its processes, and of those of each role."""
    topic = topics.fresh("cpu")
    topics.create(server, topic, partitions=PARTITIONS, retention_bytes=RETENTION_BYTES // PARTITIONS)
    sizes: dict[str, Any] = {
        "record_bytes": RECORD_BYTES,
        "batch_bytes": BATCH_KIB << 10,
        "timeout_s": 900,
        "mib_per_s": mib_per_s,
    }
    # everybody is warm, every connection made
    librdkafka.produce(server, topic, records=size_bytes // 8 // RECORD_BYTES, **sizes)
    sync()
    before = _used(server)
    found = librdkafka.produce(server, topic, records=size_bytes // RECORD_BYTES, **sizes)
    used = {role: (after - before[role]) / size_bytes * GIB for role, after in _used(server).items()}
    plan.say(f"  {found.mib_per_s:.0f} MiB/s")
    return sum(used.values()), used


def _used(server: Bmq | Cluster) -> dict[str, float]:
    """CPU seconds by role."""
    if isinstance(server, Bmq):
        return {"all": server.cpu_s}
    return {str(role): sum(node.cpu_s for node in server.of(role)) for role in Role}


def _one_process(plan: Plan, url: str | None) -> float:
    with Bmq(plan.folder("bmq"), store=url, environment=environ) as bmq:
        return _load(plan, bmq, plan.cluster_bytes)[0]


def _cluster(plan: Plan, brokers: int, url: str | None, shares: list[float], split: dict[str, list[float]]) -> float:
    with Cluster(plan.folder("bmq"), f"1c{brokers}b1p", store=url) as cluster:
        found, used = _load(plan, cluster, plan.cluster_bytes)
        if brokers == 1:
            for role, used_s in used.items():
                split[role].append(used_s)
        if brokers == BROKERS[-1]:
            shares.append(_busiest([node.metrics()["bmq_appended_bytes_total"] for node in cluster.of(Role.BROKER)]))
        return found


def _busiest(written: Sequence[float]) -> float:
    return max(written) * len(written) / sum(written)

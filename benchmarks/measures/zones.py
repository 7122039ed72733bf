"""Whether a client that says its zone (`bmq_az=` in its client.id) reads in it: two zones, a proxy and a broker in
each, data in segments.
"""

from collections import defaultdict
from collections.abc import Iterator
from time import perf_counter, sleep

from confluent_kafka import Consumer, TopicPartition

from benchmarks import topics
from benchmarks.clients import librdkafka
from benchmarks.nodes import Cluster, Node, over_minio
from benchmarks.plan import RECORD_BYTES, Plan
from benchmarks.rows import Row
from bmq_cli.processes.nodes import NodePlan
from bmq_node.configuration.values import Role

MIB = 1 << 20
TOPIC = "read"
PARTITIONS = 8
SIZE_BYTES = 256 * MIB
ZONES = ("a", "b")
FETCHED, GETS = "bmq_proxy_fetched_bytes_total", "bmq_store_operations_total{get}"


def measure(plan: Plan) -> Iterator[Row]:
    """One row, of a client in each zone; beside it one that names none."""
    with over_minio(plan, "1c2b2p", options_of=_rack) as cluster:
        topics.create(cluster, TOPIC, partitions=PARTITIONS, retention_bytes=-1, segment_bytes=8 * MIB)
        sizes = {
            "records": SIZE_BYTES // RECORD_BYTES,
            "record_bytes": RECORD_BYTES,
            "batch_bytes": 256 << 10,
            "timeout_s": 300,
        }
        librdkafka.produce(cluster, TOPIC, **sizes)
        sleep(3)
        local: list[float] = []
        gets: dict[str, float] = defaultdict(float)
        for zone in ZONES:
            found, gets[zone] = _read(plan, cluster, f"reader,bmq_az={zone}", zone)
            local.append(found)
        other, gets["none"] = _read(plan, cluster, "reader", ZONES[0])
    setting = f"2 zones, {PARTITIONS} partitions, {SIZE_BYTES // MIB} MiB, over MinIO"
    counts = ", ".join(f"zone {zone} {count:.0f}" for zone, count in gets.items())
    yield Row(
        topic="zones",
        measure="bytes and GETs that a rack-aware client has served in its own zone",
        setting=setting,
        unit="%",
        bmq=local,
        target=100,
        target_of="bmq",
        beside=f"GETs: {counts}; a client that names no zone has {other:.0f} % in zone {ZONES[0]}",
        quick=plan.quick,
    )


def _rack(plan: NodePlan) -> list[str]:
    """Nodes with odd numbers are in the first zone."""
    return ["--rack", ZONES[1 - plan.node_id % 2]]


def _read(plan: Plan, cluster: Cluster, client_id: str, zone: str) -> tuple[float, float]:
    """Reads everything once; the share in % of bytes and of GETs (the smaller one) by proxies of the zone, and all
    GETs.
    """
    proxies = cluster.of(Role.PROXY)
    before = [_figures(proxy) for proxy in proxies]
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.address,
            "client.id": client_id,
            "client.rack": zone,
            "group.id": "zones",
            "enable.auto.commit": False,
        }
    )
    consumer.assign([TopicPartition(TOPIC, index, 0) for index in range(PARTITIONS)])
    deadline_s = perf_counter() + 120
    left = SIZE_BYTES // RECORD_BYTES
    while left > 0:
        assert perf_counter() < deadline_s, f"{left} records were not read"
        left -= sum(message.error() is None for message in consumer.consume(10_000, timeout=0.5))
    consumer.close()
    fetched, gets = {}, {}
    for proxy, (fetched_before, gets_before) in zip(proxies, before, strict=True):
        after = _figures(proxy)
        fetched[_zone(proxy)], gets[_zone(proxy)] = after[0] - fetched_before, after[1] - gets_before
    plan.say(f"zones: {client_id} in {zone}: bytes {fetched}, GETs {gets}")
    shares = [values[zone] / sum(values.values()) * 100 for values in (fetched, gets) if sum(values.values())]
    return min(shares), sum(gets.values())


def _zone(node: Node) -> str:
    return _rack(node.plan)[1]


def _figures(proxy: Node) -> tuple[float, float]:
    found = proxy.metrics()
    return found.get(FETCHED, 0.0), found.get(GETS, 0.0)

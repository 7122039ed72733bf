"""The lag of consumer groups as the brokers of a cluster tell it, wherever coordinators and partitions are; and which
metrics a process tells.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from scraping import Series, metrics_of
from tests.waiting import until
from up_nodes import UpNodes

BROKERS = (101, 102, 103)
PARTITIONS = 6
GROUPS = 8

pytestmark = pytest.mark.slow


def started(folder: Path, granularity: str, shape: str) -> UpNodes:
    return UpNodes(
        shape,
        ["--data", str(folder / "data"), "--no-fsync"],
        log=folder / "bmq.log",
        environment={"BMQ_LAG_METRICS": granularity},
    )


def fill(cluster: UpNodes, groups: int) -> None:
    """Partition N of the topic gets 10 × (N + 1) records; group G commits offset G in each."""
    admin = AdminClient({"bootstrap.servers": cluster.servers})
    for future in admin.create_topics([NewTopic("orders", PARTITIONS)], request_timeout=30).values():
        future.result(60)
    producer = Producer({"bootstrap.servers": cluster.servers})
    for partition in range(PARTITIONS):
        for _ in range(10 * (partition + 1)):
            producer.produce("orders", b"x", partition=partition)
    assert producer.flush(60) == 0
    for group in range(groups):
        consumer = Consumer({"bootstrap.servers": cluster.servers, "group.id": f"group-{group}"})
        consumer.commit(
            offsets=[TopicPartition("orders", partition, group) for partition in range(PARTITIONS)], asynchronous=False
        )
        consumer.close()


def named(name: str, series: list[Series]) -> list[Series]:
    return [one for one in series if one.name == name]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[UpNodes]:
    running = started(tmp_path_factory.mktemp("lag"), "partition", f"1c{len(BROKERS)}b1p")
    try:
        fill(running, GROUPS)
        yield running
        assert running.stop() == 0, running.tail_of_log()
    finally:
        running.close()


def test_every_group_has_its_lag_in_every_partition_whichever_brokers_have_them(cluster: UpNodes) -> None:
    series = [one for broker in BROKERS for one in metrics_of(cluster, broker)]
    records = {
        (one.labels["group"], int(one.labels["partition"])): one.value for one in named("bmq_group_lag_records", series)
    }
    assert records == {
        (f"group-{group}", n): 10 * (n + 1) - group for group in range(GROUPS) for n in range(PARTITIONS)
    }
    seconds = named("bmq_group_lag_seconds", series)
    assert len(seconds) == GROUPS * PARTITIONS
    assert all(0 < one.value < 120 for one in seconds), seconds
    assert sum(one.value for one in named("bmq_groups", series)) == GROUPS
    assert {one.value for one in named("bmq_group_lag_left_out", series)} == {0}


def test_a_lag_is_gone_from_the_metrics_as_soon_as_it_is_read(cluster: UpNodes) -> None:
    consumer = Consumer({"bootstrap.servers": cluster.servers, "group.id": "group-0"})
    ends = [TopicPartition("orders", partition, 10 * (partition + 1)) for partition in range(PARTITIONS)]
    metrics_of(cluster, BROKERS[0])
    consumer.commit(offsets=ends, asynchronous=False)
    consumer.close()
    found = until(
        lambda: [
            one for broker in BROKERS for one in metrics_of(cluster, broker) if one.labels.get("group") == "group-0"
        ],
        "no lag: the same answer is given for a second",
        holds=lambda series: all(one.value == 0 for one in series),
    )
    assert len(found) == 2 * PARTITIONS


def test_a_process_tells_the_metrics_of_its_own_roles_alone(cluster: UpNodes) -> None:
    told = {node: {one.name for one in metrics_of(cluster, node)} for node in (1, 101, 201)}
    of_roles = {1: "bmq_proxy_connections", 101: "bmq_tail_bytes", 201: "bmq_controller_leading"}
    for node, name in of_roles.items():
        assert {other for other in of_roles if name in told[other]} == {node}
    assert [node for node in told if "bmq_clock_trusted" in told[node]] == [101]
    for node, role in ((1, "proxy"), (101, "broker"), (201, "controller")):
        roles = named("bmq_node_role", metrics_of(cluster, node))
        assert [(one.labels["role"], one.value) for one in roles] == [(role, 1)]
        [build] = named("bmq_build_info", metrics_of(cluster, node))
        assert build.labels["version"]
    limits = {one.labels["key"]: one.value for one in named("bmq_limit", metrics_of(cluster, 101))}
    assert limits["tail_limit_bytes"] == 192 * 2**20


@pytest.mark.parametrize(
    ("granularity", "labels"), [("topic", {"lane", "group", "topic"}), ("group", {"lane", "group"}), ("off", None)]
)
def test_the_lag_is_told_as_finely_as_it_is_configured(
    tmp_path: Path, granularity: str, labels: set[str] | None
) -> None:
    running = started(tmp_path, granularity, "1c2b1p")
    try:
        fill(running, 1)
        series = [one for broker in (101, 102) for one in metrics_of(running, broker)]
        lags = named("bmq_group_lag_records", series)
        if labels is None:
            assert lags == []
        else:
            [lag] = lags
            assert (set(lag.labels), lag.value) == (labels, sum(10 * (n + 1) for n in range(PARTITIONS)))
            [seconds] = named("bmq_group_lag_seconds", series)
            assert 0 < seconds.value < 120
    finally:
        running.close()

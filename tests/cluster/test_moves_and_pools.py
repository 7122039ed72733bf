"""Who owns what, by Kafka's own requests and by configuration: in processes."""

import json
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import kafka
import pytest
from compat_server import tool
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType
from kafka.admin import KafkaAdminClient
from server_process import Server, server_arguments
from tests.waiting import until
from up_nodes import UpNodes

from bmq.wire.error_codes import ErrorCode

PARTITIONS = 4

pytestmark = pytest.mark.slow


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[UpNodes]:
    running = UpNodes("1c2b1p", ["--data", str(tmp_path / "data"), "--no-fsync"], log=tmp_path / "bmq.log")
    try:
        create_topic(running, "orders")
        yield running
        assert running.stop() == 0, running.tail_of_log()
    finally:
        running.close()


def create_topic(cluster: UpNodes, name: str) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.servers})  # it has to outlive its answer
    admin.create_topics([NewTopic(name, num_partitions=PARTITIONS)])[name].result(60)


def owners(cluster: UpNodes, topic: str) -> list[int]:
    with urlopen(f"http://{cluster.admin}/v1/placement?topic={topic}", timeout=10) as answer:
        return [one["owner"] for one in json.load(answer)["items"]]


def test_kafkas_requests_move_partitions_between_brokers(cluster: UpNodes) -> None:
    admin = KafkaAdminClient(bootstrap_servers=cluster.servers)
    before = owners(cluster, "orders")
    assert sorted(before) == [101, 101, 102, 102]
    wanted = {index: 203 - owner for index, owner in enumerate(before) if index < 2}
    asked: dict[kafka.TopicPartition, list[int] | None] = {
        kafka.TopicPartition("orders", index): [to] for index, to in wanted.items()
    }
    assert set(admin.alter_partition_reassignments(asked).values()) == {None}
    until(
        lambda: owners(cluster, "orders"),
        f"the first two to be owned by {list(wanted.values())}",
        holds=lambda found: found[:2] == list(wanted.values()),
        shows=cluster.tail_of_log,
    )
    assert owners(cluster, "orders")[2:] == before[2:]
    until(
        admin.list_partition_reassignments,
        "no reassignment to be left",
        holds=lambda left: left == {},
        shows=cluster.tail_of_log,
    )

    def refusal(topic: str, replicas: list[int] | None) -> int | None:
        [error] = admin.alter_partition_reassignments({kafka.TopicPartition(topic, 0): replicas}).values()
        return None if error is None else int(error.errno)

    assert refusal("orders", [101, 102]) == ErrorCode.invalid_replication_factor
    assert refusal("orders", [201]) == ErrorCode.invalid_replica_assignment
    assert refusal("orders", [7]) == ErrorCode.invalid_replica_assignment
    assert refusal("orders", None) == ErrorCode.no_reassignment_in_progress
    assert refusal("orders", [1]) is None, "the one proxy stands for it already"
    assert refusal("unknown", [101]) == ErrorCode.unknown_topic_or_partition
    elected = admin.elect_leaders(0, {"orders": [0, 1]})
    assert [one.error_code for topic in elected.replica_election_results for one in topic.partition_result] == [
        ErrorCode.election_not_needed
    ] * 2
    admin.close()


def test_a_topic_that_is_pinned_moves_to_the_brokers_of_its_pool(cluster: UpNodes, tmp_path: Path) -> None:
    assert 103 not in owners(cluster, "orders")
    store = f"file://{tmp_path / 'data'}?shared=true&fsync=false"
    golden = Server(server_arguments("broker", 103, store, "--pool", "gold"), log=tmp_path / "golden.log")
    try:
        golden.until_it_serves()
        pin = ConfigEntry("bmq.pool", "gold", incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, "orders", incremental_configs=[pin])
        admin = AdminClient({"bootstrap.servers": cluster.servers})
        for future in admin.incremental_alter_configs([resource]).values():
            future.result(30)
        until(
            lambda: owners(cluster, "orders"),
            "all to be owned by 103",
            holds=lambda found: found == [103] * PARTITIONS,
            shows=cluster.tail_of_log,
        )
        create_topic(cluster, "others")
        assert 103 not in owners(cluster, "others")
    finally:
        golden.process.send_signal(signal.SIGTERM)
        golden.process.wait(30)
    assert owners(cluster, "orders") == [-1] * PARTITIONS, "they wait for a broker of their pool"


def test_kafkas_reassignment_tool_moves_and_verifies_where_each_node_has_every_role(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    store = f"file://{tmp_path / 'data'}?shared=true&fsync=false"
    nodes = [
        Server(server_arguments("controller,broker,proxy", node_id, store), log=tmp_path / f"{node_id}.log")
        for node_id in (1, 2)
    ]
    try:
        servers = re.findall(r"(\S+) \(Kafka\)", " ".join(node.until_it_serves() for node in nodes))
        admin = AdminClient({"bootstrap.servers": servers[0]})
        admin.create_topics([NewTopic("orders", num_partitions=PARTITIONS)])["orders"].result(60)

        def reassign(*arguments: str) -> str:
            name = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
            return tool("kafka", "run", name, "--bootstrap-server", servers[0], *arguments, timeout_s=60)

        shown = admin.list_topics("orders", timeout=10).topics["orders"].partitions
        assert {one.leader for one in shown.values()} == {1, 2}
        plan = tmp_path / "plan.json"
        partitions = [
            {"topic": "orders", "partition": index, "replicas": [3 - one.leader]} for index, one in shown.items()
        ]
        plan.write_text(json.dumps({"version": 1, "partitions": partitions}))
        executed = reassign("--execute", "--reassignment-json-file", str(plan), "--throttle", "1000000")
        assert "Successfully started partition reassignments" in executed
        until(
            lambda: reassign("--verify", "--reassignment-json-file", str(plan)),
            "every reassignment to be completed",
            holds=lambda said: said.count("is completed.") == PARTITIONS,
        )
        rollback = tmp_path / "rollback.json"
        rollback.write_text(next(line for line in executed.splitlines() if line.startswith("{")))
        reassign("--execute", "--reassignment-json-file", str(rollback))
        until(
            lambda: admin.list_topics("orders", timeout=10).topics["orders"].partitions,
            "every partition to be where it was",
            holds=lambda found: all(one.leader == shown[index].leader for index, one in found.items()),
        )
    finally:
        for node in nodes:
            node.process.send_signal(signal.SIGTERM)
        for node in nodes:
            node.process.wait(30)

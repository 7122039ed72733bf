"""Who leads the controllers after a clean stop and after a stall, and what clients notice of it: in processes."""

import os
import signal
from collections.abc import Iterator, Mapping
from pathlib import Path
from time import monotonic

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.waiting import until
from up_nodes import UpNodes

CONTROLLERS = {201, 202}
PARTITIONS = 4
# Where a test is not about a leader's silence, a standby that waits for it takes too long.
PATIENT: Mapping[str, str] = {"BMQ_TAKEOVER_MS": "30000", "BMQ_LEASE_MS": "60000"}

pytestmark = pytest.mark.slow


@pytest.fixture
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[UpNodes]:
    environment = getattr(request, "param", None)
    running = UpNodes(
        "2c2b1p", ["--data", str(tmp_path / "data"), "--no-fsync"], log=tmp_path / "bmq.log", environment=environment
    )
    try:
        create_topic(running, "orders")
        running.until_state(
            lambda state: {node["node_id"] for node in state["nodes"]} >= CONTROLLERS, "all controllers to be there"
        )
        yield running
        assert running.stop() == 0, running.tail_of_log()
    finally:
        running.close()


def create_topic(cluster: UpNodes, name: str) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.servers})  # it has to outlive its answer
    admin.create_topics([NewTopic(name, num_partitions=PARTITIONS)])[name].result(60)


def written(cluster: UpNodes, count: int, *, first: int) -> set[bytes]:
    """Records of `orders` that were acknowledged, all of them."""
    failed: list[object] = []
    producer = Producer({"bootstrap.servers": cluster.servers, "enable.idempotence": True})
    values = {b"record-%d" % number for number in range(first, first + count)}
    for value in values:
        producer.produce(
            "orders", value, on_delivery=lambda error, _: failed.append(error) if error is not None else None
        )
    assert producer.flush(30) == 0
    assert not failed
    return values


def read(cluster: UpNodes, count: int) -> set[bytes]:
    """The first so many records of `orders`, without a group."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.servers,
            "group.id": "nobody",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    found: set[bytes] = set()
    try:
        topic = consumer.list_topics("orders", timeout=10).topics["orders"]
        consumer.assign([_from_start(index) for index in topic.partitions])
        deadline = monotonic() + 30
        while len(found) < count:
            assert monotonic() < deadline, f"{len(found)} of {count} records read"
            found |= {
                bytes(message.value() or b"")
                for message in consumer.consume(1000, timeout=0.5)
                if message.error() is None
            }
    finally:
        consumer.close()
    return found


def _from_start(index: int) -> TopicPartition:
    return TopicPartition("orders", index, 0)


@pytest.mark.parametrize("cluster", [PATIENT], indirect=True, ids=["patient"])
def test_a_stopped_leader_hands_over_to_the_standby_at_once(cluster: UpNodes) -> None:
    leader = cluster.state()["controller_id"]
    before = cluster.pids()[leader]
    os.kill(before, signal.SIGTERM)
    cluster.until_state(lambda state: state["controller_id"] == sum(CONTROLLERS) - leader, "the other to lead")
    cluster.until_started_again(leader, before=before)
    create_topic(cluster, "later")
    assert cluster.state()["controller_id"] == sum(CONTROLLERS) - leader, "the one that came back follows"


def test_a_stalled_leader_that_wakes_changes_nothing_and_clients_go_on_without_any_controller(cluster: UpNodes) -> None:
    leader = cluster.state()["controller_id"]
    other = sum(CONTROLLERS) - leader
    pids = cluster.pids()
    os.kill(pids[leader], signal.SIGSTOP)
    cluster.until_state(lambda state: state["controller_id"] == other, "the other to lead")
    create_topic(cluster, "of-the-other")
    os.kill(pids[leader], signal.SIGCONT)
    cluster.until_state(
        lambda state: {node["node_id"] for node in state["nodes"]} >= CONTROLLERS, "all controllers to be there"
    )
    create_topic(cluster, "later")
    assert cluster.state()["controller_id"] == other
    assert cluster.pids() == pids, "it follows, and was not started again"

    values = written(cluster, 10, first=0)  # the proxy has producer ids for more producers from now on
    for node_id in CONTROLLERS:
        os.kill(pids[node_id], signal.SIGSTOP)
    try:
        values |= written(cluster, 490, first=10)
        assert read(cluster, 500) == values
    finally:
        for node_id in CONTROLLERS:
            os.kill(pids[node_id], signal.SIGCONT)
    create_topic_in_the_end(cluster, "at-last")
    values |= written(cluster, 500, first=500)
    assert read(cluster, 1_000) == values


def create_topic_in_the_end(cluster: UpNodes, name: str) -> None:
    """The two have to agree who leads first."""

    def is_created() -> bool:
        try:
            create_topic(cluster, name)
        except KafkaException as error:
            assert error.args[0].code() == KafkaError.REQUEST_TIMED_OUT, error
            return False
        return True

    until(is_created, "a leader that creates a topic", shows=cluster.tail_of_log)

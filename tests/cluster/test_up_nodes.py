"""`bmq up --nodes`: a cluster of processes on one machine, as its clients and its operator see it."""

import itertools
import os
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic

import pytest
from compat_server import BMQ, Bmq, Minio
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.waiting import until
from up_nodes import UpNodes, processes_about

SHAPE = "1c2b2p"
PARTITIONS = 8
NODES = {1, 2, 101, 102, 201}

pytestmark = pytest.mark.slow


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def started(data: Path, tmp_path: Path) -> Iterator[Callable[[], UpNodes]]:
    running: list[UpNodes] = []

    def start() -> UpNodes:
        running.append(UpNodes(SHAPE, ["--data", str(data)], log=tmp_path / "bmq.log"))
        return running[-1]

    yield start
    for cluster in running:
        cluster.close()


def create_topic(cluster: UpNodes, name: str) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.servers})
    for future in admin.create_topics([NewTopic(name, num_partitions=PARTITIONS)], request_timeout=30).values():
        future.result(60)


class Writer:
    """Produces numbered records; remembers where each was acknowledged."""

    def __init__(self, cluster: UpNodes, topic: str) -> None:
        self.topic = topic
        self.acknowledged: dict[bytes, tuple[int, int]] = {}
        self.failed: list[str] = []
        self._numbers = itertools.count()
        self._producer = Producer({"bootstrap.servers": cluster.servers, "enable.idempotence": True, "linger.ms": 2})

    def write(self, count: int) -> None:
        for number in itertools.islice(self._numbers, count):
            self._producer.produce(
                self.topic, b"record-%d" % number, partition=number % PARTITIONS, on_delivery=self._delivered
            )
            self._producer.poll(0)

    def until_acknowledged(self, count: int, *, timeout_s: float = 60) -> None:
        def acknowledged() -> int:
            self._producer.poll(0.05)
            return len(self.acknowledged)

        until(
            acknowledged,
            f"{count} acknowledged records",
            timeout_s,
            holds=lambda found: found >= count or self.failed,
            every_s=0,
        )

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failed.append(str(error))
            return
        partition, offset = message.partition(), message.offset()
        assert partition is not None
        assert offset is not None
        self.acknowledged[bytes(message.value() or b"")] = partition, offset


def read_all(
    cluster: UpNodes | Bmq, topic: str, count: int, *, group: str, timeout_s: float = 60
) -> dict[bytes, tuple[int, int]]:
    """The first `count` records or more, by value, as a member of a group."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.servers,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic])
    found: dict[bytes, tuple[int, int]] = {}
    deadline = monotonic() + timeout_s
    try:
        while len(found) < count:
            assert monotonic() < deadline, f"{len(found)} of {count} records read"
            for message in consumer.consume(1000, timeout=0.5):
                if (error := message.error()) is not None:
                    if not error.retriable() and error.code() != KafkaError._PARTITION_EOF:
                        raise KafkaException(error)
                    continue
                value, partition, offset = message.value(), message.partition(), message.offset()
                assert value is not None and partition is not None and offset is not None
                assert value not in found, f"{value!r} is there twice"
                found[bytes(value)] = partition, offset
        consumer.commit(asynchronous=False)
    finally:
        consumer.close()
    return found


def test_what_was_acknowledged_is_there_after_a_broker_was_killed_and_started_again(
    started: Callable[[], UpNodes], data: Path
) -> None:
    cluster = started()
    assert set(cluster.pids()) == NODES
    create_topic(cluster, "orders")
    writer = Writer(cluster, "orders")
    writer.write(2_000)
    writer.until_acknowledged(1_000)
    before = cluster.kill9(101)
    writer.write(2_000)
    writer.until_acknowledged(4_000)
    cluster.until_started_again(101, before=before)
    assert not writer.failed
    assert read_all(cluster, "orders", 4_000, group="readers") == writer.acknowledged
    assert cluster.stop(signal.SIGINT) == 0, cluster.tail_of_log()
    assert not processes_about(str(data))
    assert not list((data / ".tmp").iterdir())

    again = started()
    assert read_all(again, "orders", 4_000, group="others") == writer.acknowledged
    assert again.stop() == 0, again.tail_of_log()

    alone = Bmq(["--data", str(data)], log=data.parent / "alone.log")
    alone.start()
    assert read_all(alone, "orders", 4_000, group="more") == writer.acknowledged
    assert alone.stop() == 0, alone.tail_of_log()


def test_a_leading_controller_that_is_killed_and_a_broker_that_stands_still_cost_no_record(tmp_path: Path) -> None:
    cluster = UpNodes("2c2b1p", ["--data", str(tmp_path / "data")], log=tmp_path / "bmq.log")
    try:
        create_topic(cluster, "orders")
        writer = Writer(cluster, "orders")
        writer.write(300)
        writer.until_acknowledged(300)
        cluster.kill9(cluster.state()["controller_id"])
        writer.write(300)
        writer.until_acknowledged(600)
        create_topic(cluster, "more")  # waits until the other one leads, or the same one again: whoever was first
        stands_still = cluster.pids()[101]
        os.kill(stands_still, signal.SIGSTOP)
        writer.write(300)
        writer.until_acknowledged(900)
        cluster.until_state(lambda state: 101 not in {node["node_id"] for node in state["nodes"]}, "101 to be gone")
        os.kill(stands_still, signal.SIGCONT)
        cluster.until_state(lambda state: 101 in {node["node_id"] for node in state["nodes"]}, "101 to be back")
        writer.write(300)
        writer.until_acknowledged(1_200)
        assert not writer.failed
        assert cluster.pids()[101] == stands_still, "it has come back by itself"
        assert read_all(cluster, "orders", 1_200, group="readers") == writer.acknowledged
        assert cluster.stop() == 0, cluster.tail_of_log()
    finally:
        cluster.close()


def test_metadata_names_both_proxies_and_each_serves_every_partition(started: Callable[[], UpNodes]) -> None:
    cluster = started()
    create_topic(cluster, "orders")
    for server in cluster.servers.split(","):
        metadata = until(
            lambda server=server: AdminClient({"bootstrap.servers": server}).list_topics(timeout=10),  # type: ignore[misc]
            f"{server} to name the topic and both proxies",
            holds=lambda found: "orders" in found.topics and len(found.brokers) == 2,
        )
        assert sorted(f"{one.host}:{one.port}" for one in metadata.brokers.values()) == sorted(
            cluster.servers.split(",")
        )
        assert {one.leader for one in metadata.topics["orders"].partitions.values()} <= {1, 2}
    writer = Writer(cluster, "orders")
    writer.write(100)
    writer.until_acknowledged(100)
    assert not writer.failed
    assert cluster.stop() == 0, cluster.tail_of_log()


def test_nothing_stays_behind_where_the_parent_is_killed(started: Callable[[], UpNodes], data: Path) -> None:
    cluster = started()
    assert set(cluster.pids()) == NODES
    cluster.process.kill()
    until(lambda: processes_about(str(data)), "its processes to end", holds=lambda left: not left)
    assert started().stop() == 0


def test_the_folder_of_a_cluster_is_refused_to_another(
    started: Callable[[], UpNodes], data: Path, tmp_path: Path
) -> None:
    cluster = started()
    for options in ([], ["--nodes", SHAPE]):
        command = [str(BMQ), "up", "--data", str(data), "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", *options]
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False, cwd=tmp_path)
        assert (done.returncode, f"in use by process {cluster.process.pid}: stop it" in done.stderr) == (1, True), (
            done.stderr
        )
    assert cluster.stop() == 0, cluster.tail_of_log()


def test_a_cluster_over_a_bucket_serves_what_was_produced(tmp_path: Path) -> None:
    minio = Minio(tmp_path / "minio")
    try:
        cluster = UpNodes(
            SHAPE, ["--store", minio.store_url("bmq-nodes")], log=tmp_path / "bmq.log", environment=minio.environment
        )
        try:
            create_topic(cluster, "orders")
            writer = Writer(cluster, "orders")
            writer.write(200)
            writer.until_acknowledged(200)
            assert not writer.failed
            assert read_all(cluster, "orders", 200, group="readers") == writer.acknowledged
            assert cluster.stop() == 0, cluster.tail_of_log()
        finally:
            cluster.close()
    finally:
        minio.stop()


def test_processes_cannot_share_memory(tmp_path: Path) -> None:
    command = [str(BMQ), "up", "--nodes", SHAPE, "--store", "memory://"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False, cwd=tmp_path)
    assert done.returncode == 2
    assert (
        done.stderr
        == "error: --nodes 1c2b2p and --store memory://: processes share no memory: choose a folder or a bucket\n"
    )


def test_a_port_that_is_taken_is_named_before_anything_is_made(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for option, other in (("--listen", "--admin"), ("--admin", "--listen")):
            command = [
                str(BMQ),
                "up",
                "--nodes",
                SHAPE,
                "--data",
                "made",
                option,
                f"127.0.0.1:{port}",
                other,
                "127.0.0.1:0",
            ]
            done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False, cwd=tmp_path)
            why = "address already in use: choose another address, or stop what listens there"
            assert done.stderr == f"error: proxy 1: {option} 127.0.0.1:{port}: {why}\n"
            assert done.returncode == 1
    assert not list(tmp_path.iterdir())


def test_the_address_for_kafka_clients_is_told_from_the_admin_address(
    started: Callable[[], UpNodes], tmp_path: Path
) -> None:
    cluster = started()
    command = [str(BMQ), "cluster", "status", "--admin", cluster.servers]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False, cwd=tmp_path)
    assert (done.returncode, "it is not an admin address, perhaps the one for Kafka clients" in done.stderr) == (
        4,
        True,
    ), done.stderr
    assert cluster.stop() == 0, cluster.tail_of_log()

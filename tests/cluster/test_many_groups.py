"""Ten consumer groups cost the store hardly more requests than one: at the tail, and from the beginning. Over MinIO."""

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from time import monotonic
from urllib.request import urlopen

import pytest
from compat_server import Minio
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from prometheus_client.parser import text_string_to_metric_families
from tests.waiting import let_pass, until
from up_nodes import UpNodes

pytestmark = pytest.mark.slow

GROUPS = 10
PARTITIONS = 4
RECORD_BYTES = 1 << 10
BACKLOG_RECORDS = 96 << 10
LIVE_RECORDS = 20_000
READ_WITHIN_S = 80
SETTINGS = {
    # nearly everything becomes segments, which is what readers from the beginning read
    "BMQ_TAIL_BUDGET_BYTES": "8MiB",
    "BMQ_WAL_BUDGET_BYTES": "16MiB",
    "BMQ_BALANCE_INTERVAL_MS": "0",  # who opens a partition reads about it
}


class Nodes(UpNodes):
    """Knows every node's admin address."""

    def __init__(self, folder: Path, store: str, environment: dict[str, str]) -> None:
        super().__init__("1c2b1p", ["--store", store], log=folder / "bmq.log", environment=environment)
        assert self.process.stdout is not None
        self.admins: list[str] = []
        while "Ctrl-C" not in (line := self.process.stdout.readline()):
            self.admins += re.findall(r"(\S+) \(admin\)", line)
        assert len(self.admins) == 4, self.admins

    def store_gets(self) -> dict[str, float]:
        """GETs of all nodes so far, by node address."""
        return {admin: _gets(admin) for admin in self.admins}


def _gets(admin: str) -> float:
    with urlopen(f"http://{admin}/metrics", timeout=10) as answer:
        families = text_string_to_metric_families(answer.read().decode())
    return sum(
        sample.value
        for family in families
        for sample in family.samples
        if sample.name == "bmq_store_operations_total" and sample.labels["verb"] == "get"
    )


Cluster = Callable[[], AbstractContextManager[Nodes]]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Starts the same cluster, over a store that stays; it ends cleanly."""
    minio = Minio(tmp_path / "minio")

    @contextmanager
    def started() -> Iterator[Nodes]:
        nodes = Nodes(tmp_path, minio.store_url("groups"), {**minio.environment, **SETTINGS})
        try:
            yield nodes
            assert nodes.stop() == 0
        finally:
            nodes.close()

    try:
        yield started
    finally:
        minio.stop()


def create_topic(nodes: Nodes, name: str) -> None:
    admin = AdminClient({"bootstrap.servers": nodes.servers})
    for future in admin.create_topics([NewTopic(name, num_partitions=PARTITIONS)], request_timeout=30).values():
        future.result(60)


def produce(nodes: Nodes, topic: str, count: int, *, per_s: float = float("inf")) -> None:
    producer = Producer({"bootstrap.servers": nodes.servers, "linger.ms": 5, "batch.size": 256 << 10})
    value = bytes(RECORD_BYTES)
    began = monotonic()
    for number in range(count):
        while True:
            try:
                producer.produce(topic, value, partition=number % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.05)
        if number % 100 == 0:
            producer.poll(0)
            let_pass(began + number / per_s - monotonic(), "no more than so many a second")
    assert producer.flush(60) == 0


class Group(threading.Thread):
    """One group with one consumer; ends when it has seen `count` records."""

    def __init__(self, nodes: Nodes, topic: str, name: str, count: int) -> None:
        super().__init__(name=name)
        self.seen = 0
        self.assigned = threading.Event()
        self._topic = topic
        self._count = count
        self._settings = {
            "bootstrap.servers": nodes.servers,
            "group.id": name,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "queued.max.messages.kbytes": 4 << 10,
            "fetch.queue.backoff.ms": 10,
        }

    def run(self) -> None:
        consumer = Consumer(self._settings)
        consumer.subscribe([self._topic], on_assign=lambda *_: self.assigned.set())
        deadline = monotonic() + READ_WITHIN_S
        while self.seen < self._count and monotonic() < deadline:
            self.seen += sum(message.error() is None for message in consumer.consume(1000, 0.2))
        consumer.close()


@contextmanager
def reading(nodes: Nodes, topic: str, name: str, groups: int, count: int) -> Iterator[list[Group]]:
    """So many groups; at the end all of them have read everything."""
    threads = [Group(nodes, topic, f"{name}-{number}", count) for number in range(groups)]
    for thread in threads:
        thread.start()
    try:
        yield threads
    finally:
        for thread in threads:
            thread.join(READ_WITHIN_S + 30)
    assert [thread.seen for thread in threads] == [count] * groups


def gets_of(nodes: Nodes, before: dict[str, float]) -> float:
    return sum(count - before[admin] for admin, count in nodes.store_gets().items())


def until_open(nodes: Nodes, topic: str) -> None:
    """Until every partition's owner has read what it has to know of it."""
    consumer = Consumer({"bootstrap.servers": nodes.servers, "group.id": "ends"})

    def is_open(number: int) -> bool:
        try:
            consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=30)
        except KafkaException:
            return False
        return True

    try:
        until(lambda: all(map(is_open, range(PARTITIONS))), "all partitions to be open", 60)
    finally:
        consumer.close()


def backlog_gets(cluster: Cluster, topic: str, name: str, groups: int) -> float:
    """GETs while so many groups read a topic from its beginning, in processes that have nothing of it in memory."""
    with cluster() as nodes:
        until_open(nodes, topic)
        before = nodes.store_gets()
        with reading(nodes, topic, name, groups, BACKLOG_RECORDS):
            pass
        return gets_of(nodes, before)


def live_gets(nodes: Nodes, topic: str, groups: int) -> float:
    """GETs while so many groups read what is being written."""
    create_topic(nodes, topic)
    with reading(nodes, topic, topic, groups, LIVE_RECORDS) as threads:
        for thread in threads:
            assert thread.assigned.wait(60)
        before = nodes.store_gets()
        produce(nodes, topic, LIVE_RECORDS, per_s=4000)
    return gets_of(nodes, before)


def test_ten_groups_read_a_topic_from_its_beginning_for_the_gets_of_one(cluster: Cluster) -> None:
    with cluster() as nodes:
        create_topic(nodes, "backlog")
        produce(nodes, "backlog", BACKLOG_RECORDS)
    one = backlog_gets(cluster, "backlog", "one", 1)
    ten = backlog_gets(cluster, "backlog", "ten", GROUPS)
    print(f"GETs from the beginning: {one:.0f} for one group, {ten:.0f} for ten: {ten / one:.2f}")
    assert one > 0.5 * BACKLOG_RECORDS * RECORD_BYTES / (1 << 20)
    assert ten <= 1.1 * one


def test_ten_groups_at_the_tail_cost_no_more_gets_than_one(cluster: Cluster) -> None:
    with cluster() as nodes:
        one = live_gets(nodes, "one", 1)
        ten = live_gets(nodes, "ten", GROUPS)
    print(f"GETs at the tail: {one:.0f} for one group, {ten:.0f} for ten")
    assert ten <= 1.1 * one + 5

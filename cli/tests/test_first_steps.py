"""What somebody who has just started bmq does: the lines that it printed, a look at its metrics, Ctrl-C."""

import os
import re
import signal
import subprocess
from collections.abc import Iterator, Set
from pathlib import Path
from urllib.request import urlopen

import pytest
from cli_cluster import BMQ
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from prometheus_client.parser import text_string_to_metric_families
from tests.waiting import until

TIMEOUT_S = 30
DOCS = Path(__file__).parents[2] / "docs"
NO_METRICS = {"bmq_az"}
"""A key of clients' ids."""

MOVED_BY_A_FEW_REQUESTS = {
    "bmq_proxy_requests_total",
    "bmq_proxy_bytes_in_total",
    "bmq_proxy_bytes_out_total",
    "bmq_proxy_produced_bytes_total",
    "bmq_proxy_fetched_bytes_total",
    "bmq_proxy_produce_seconds_count",
    "bmq_proxy_fetch_seconds_count",
    "bmq_proxy_connections",
    "bmq_proxy_cache_total",
    "bmq_flush_bytes_count",
    "bmq_flush_seconds_count",
    "bmq_appended_bytes_total",
    "bmq_wal_bytes",
    "bmq_tail_bytes",
    "bmq_rolls_total",
    "bmq_store_operations_total",
    "bmq_store_bytes_total",
    "bmq_store_seconds_count",
    "bmq_group_lag_records",
    "bmq_group_lag_seconds",
    "bmq_groups",
    "bmq_build_info",
    "bmq_node_role",
    "bmq_limit",
    "bmq_event_loop_lag_seconds_count",
}


class Running:
    """`bmq up` as it was started in a terminal: what it printed, and its end."""

    def __init__(self, folder: Path) -> None:
        with (folder / "server.log").open("wb") as log:
            command = [BMQ, "up", "--data", "data", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--no-fsync"]
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, cwd=folder)
        assert self.process.stdout is not None
        self.printed: list[str] = []
        for line in self.process.stdout:
            self.printed.append(line.rstrip("\n"))
            if line.startswith("Ctrl-C"):
                break
        matched = re.match(r"bmq listens on (\S+) \(Kafka\) and (\S+) \(admin\)", self.printed[0])
        assert matched is not None, (folder / "server.log").read_text()
        self.kafka, self.admin = matched[1], matched[2]

    def metrics(self) -> str:
        """As they are served."""
        with urlopen(f"http://{self.admin}/metrics", timeout=TIMEOUT_S) as answer:
            text: str = answer.read().decode()
        return text

    def samples(self) -> dict[str, float]:
        """The sum over the labels of each."""
        found: dict[str, float] = {}
        for family in text_string_to_metric_families(self.metrics()):
            for sample in family.samples:
                found[sample.name] = found.get(sample.name, 0.0) + sample.value
        return found

    def until_moved(self, names: Set[str]) -> None:
        """Until none of them is 0: some are told with every request, some every few seconds."""

        def still() -> dict[str, float | None]:
            found = self.samples()
            return {name: found.get(name) for name in names if not found.get(name)}

        until(still, "nothing to be 0", TIMEOUT_S, holds=lambda left: not left)

    def requests(self, api: str, error: str) -> bool:
        """Whether the metrics count requests of this API with this outcome."""
        return f'bmq_proxy_requests_total{{api="{api}",error="{error}"}}' in self.metrics()


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    started = Running(tmp_path)
    yield started
    if started.process.poll() is None:
        started.process.kill()
    started.process.communicate(timeout=TIMEOUT_S)


def test_the_printed_lines_work_as_they_are_and_ctrl_c_ends_it(running: Running, tmp_path: Path) -> None:
    commands = [line.strip() for line in running.printed if line.startswith("  ")]
    assert len(commands) == 3
    create, produce, consume = (re.sub(r"\S*\bbmq (?=topics|produce|consume)", f"{BMQ} ", line) for line in commands)
    for line in (create, produce):
        done = subprocess.run(
            line, shell=True, capture_output=True, text=True, timeout=TIMEOUT_S, cwd=tmp_path, check=False
        )
        assert done.returncode == 0, done
    reader = subprocess.Popen(f"exec {consume}", shell=True, stdout=subprocess.PIPE, text=True, cwd=tmp_path)
    try:
        assert reader.stdout is not None
        assert "world" in reader.stdout.readline()
    finally:
        reader.send_signal(signal.SIGINT)
        reader.communicate(timeout=TIMEOUT_S)
    running.process.send_signal(signal.SIGINT)
    assert running.process.wait(TIMEOUT_S) == 0, (tmp_path / "server.log").read_text()


def test_every_metric_moves_that_a_few_requests_should_move(running: Running) -> None:
    servers = {"bootstrap.servers": running.kafka}
    admin = AdminClient(servers)
    (created,) = admin.create_topics([NewTopic("orders", 1, config={"segment.bytes": str(1 << 20)})]).values()
    created.result(TIMEOUT_S)
    producer = Producer(servers)
    for _ in range(100):
        producer.produce("orders", os.urandom(50_000))
    assert producer.flush(TIMEOUT_S) == 0
    running.until_moved({"bmq_rolls_total"})
    producer.produce("orders", b"in the tail")
    assert producer.flush(TIMEOUT_S) == 0
    consumer = Consumer(
        {**servers, "group.id": "readers", "auto.offset.reset": "earliest", "enable.auto.commit": False}
    )
    consumer.subscribe(["orders"])
    messages = consumer.consume(10, timeout=TIMEOUT_S)
    assert len(messages) == 10
    consumer.commit(message=messages[-1], asynchronous=False)
    (refused,) = admin.delete_topics(["nobody-made-it"]).values()
    with pytest.raises(KafkaException):
        refused.result(TIMEOUT_S)
    running.until_moved(MOVED_BY_A_FEW_REQUESTS)
    consumer.close()
    assert running.requests("Produce", "none")
    assert running.requests("DeleteTopics", "unknown_topic_or_partition")


def test_every_metric_that_operations_speaks_of_is_there(running: Running) -> None:
    producer = Producer({"bootstrap.servers": running.kafka})
    producer.produce("orders", b"a")
    assert producer.flush(TIMEOUT_S) == 0
    served = set(re.findall(r"^# TYPE (\S+) ", running.metrics(), re.MULTILINE))
    named = set(re.findall(r"\bbmq_[a-z_]+", (DOCS / "operations.md").read_text())) - NO_METRICS
    unknown = {name for name in named if not {name, name.removesuffix("_bucket")} & served}
    assert not unknown

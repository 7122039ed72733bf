"""The drill of docs/backup.md: a copy is made of a store that clients write to, bmq is started over the copy, and what
was acknowledged is there.
"""

import json
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from compat_server import BMQ, Bmq, Minio
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

pytestmark = pytest.mark.slow

TOPIC = "orders"
GROUP = "billing"
BEFORE = 2_000


class Writer:
    """Writes numbers in order, one after the other, until it is told to stop."""

    def __init__(self, servers: str) -> None:
        self._producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, "linger.ms": 5})
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.acknowledged = 0
        self._enough = threading.Event()

    def _acknowledged(self, error: KafkaError | None, _: Message) -> None:
        assert error is None, error
        self.acknowledged += 1
        if self.acknowledged >= BEFORE:
            self._enough.set()

    def _run(self) -> None:
        number = 0
        while not self._ending.is_set():
            self._producer.produce(TOPIC, b"%d" % number, partition=0, on_delivery=self._acknowledged)
            number += 1
            if number % 100 == 0:
                self._producer.poll(0.02)
        assert self._producer.flush(60) == 0

    @contextmanager
    def running(self) -> Iterator["Writer"]:
        self._thread.start()
        try:
            assert self._enough.wait(60), self.acknowledged
            yield self
        finally:
            self._ending.set()
            self._thread.join(90)


def commit(servers: str, offset: int) -> None:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": GROUP})
    (done,) = consumer.commit(offsets=[TopicPartition(TOPIC, 0, offset)], asynchronous=False)
    assert done.error is None
    consumer.close()


def committed(servers: str) -> int:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": GROUP})
    (found,) = consumer.committed([TopicPartition(TOPIC, 0)], timeout=30)
    consumer.close()
    return int(found.offset)


def read_all(servers: str) -> list[int]:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "reader", "enable.auto.commit": False})
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    _, end = consumer.get_watermark_offsets(TopicPartition(TOPIC, 0), timeout=30)
    found: list[int] = []
    while len(found) < end:
        messages = consumer.consume(10_000, timeout=20)
        assert messages, f"{len(found)} of {end}"
        found += [int(message.value() or b"") for message in messages if message.error() is None]
    consumer.close()
    return found


@pytest.mark.parametrize("store", ["folder", "minio"])
def test_what_was_acknowledged_before_the_copy_began_is_in_a_cluster_over_it(store: str, tmp_path: Path) -> None:
    environment: dict[str, str] = {}
    minio: Minio | None = None
    if store == "minio":
        minio = Minio(tmp_path / "minio")
        environment = dict(minio.environment)
        source = ["--store", minio.store_url("orders")]
        to = minio.store_url("orders").replace("/cluster?", "/copy?")
        restored = ["--store", to]
    else:
        source = ["--data", str(tmp_path / "data"), "--no-fsync"]
        to = str(tmp_path / "copy")
        restored = ["--data", to, "--no-fsync"]
    server = Bmq(source, log=tmp_path / "bmq.log", environment=environment)
    server.start()
    try:
        with Writer(server.servers).running() as writer:
            commit(server.servers, 1_234)
            before = writer.acknowledged
            command = [str(BMQ), "store", "copy", *source[:2], "--to", to, "-o", "json"]
            made = subprocess.run(
                command, capture_output=True, text=True, timeout=120, check=False, env={**os.environ, **environment}
            )
            assert made.returncode == 0, made.stderr
            after = writer.acknowledged
        assert server.stop() == 0
        said = json.loads(made.stdout)
        assert said["checked"] and said["faults"] == 0 and said["objects"] > 5
        again = Bmq(restored, log=tmp_path / "restored.log", environment=environment)
        again.start()
        try:
            assert committed(again.servers) == 1_234
            found = read_all(again.servers)
            assert found == list(range(len(found)))
            assert before <= len(found), "what was acknowledged is missing"
            assert before < after, "nobody wrote meanwhile"
        finally:
            assert again.stop() == 0
    finally:
        if server.is_running():
            server.stop()
        if minio is not None:
            minio.stop()


def test_a_copy_over_a_store_is_refused(tmp_path: Path) -> None:
    data = tmp_path / "data"
    server = Bmq(["--data", str(data), "--no-fsync"], log=tmp_path / "bmq.log")
    server.start()
    assert server.stop() == 0
    for to, code, why in (
        (data, 2, "that is the store itself"),
        (tmp_path / "copy", 0, ""),
        (tmp_path / "copy", 1, "name an empty folder"),
    ):
        command = [str(BMQ), "store", "copy", "--data", str(data), "--to", str(to)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == code, done.stderr
        assert why in done.stderr.replace("\n", " ")


def test_nothing_starts_over_a_copy_that_was_interrupted_and_it_goes_on_when_it_is_made_again(tmp_path: Path) -> None:
    data, to = tmp_path / "data", tmp_path / "copy"
    server = Bmq(["--data", str(data), "--no-fsync"], log=tmp_path / "bmq.log")
    server.start()
    producer = Producer({"bootstrap.servers": server.servers})
    producer.produce(TOPIC, b"0")
    assert producer.flush(30) == 0
    assert server.stop() == 0
    command = [str(BMQ), "store", "copy", "--data", str(data), "--to", str(to)]
    subprocess.run(command, capture_output=True, timeout=60, check=True)
    shutil.rmtree(to / "meta")  # it comes last: this is what a copy that is killed leaves
    up = [str(BMQ), "up", "--data", str(to), "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--no-fsync"]
    refused = subprocess.run(up, capture_output=True, text=True, timeout=60, check=False)
    assert refused.returncode != 0
    assert "run bmq store copy again until it is whole" in " ".join((refused.stdout + refused.stderr).split())
    subprocess.run(command, capture_output=True, timeout=60, check=True)
    again = Bmq(["--data", str(to), "--no-fsync"], log=tmp_path / "restored.log")
    again.start()
    assert read_all(again.servers) == [0]
    assert again.stop() == 0

"""kill −9 at random moments while librdkafka produces, reads and commits: nothing that was acknowledged may be lost,
changed or doubled.

BMQ_SURVIVAL_ROUNDS says how many kills (6; 2 over an emulator of a cloud), BMQ_SURVIVAL_SEED which moments (1).
"""

import os
import random
import statistics
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from compat_clients.librdkafka import BACKOFF, Librdkafka
from compat_emulator import EMULATORS, Emulator, running_emulator
from compat_server import Bmq, Minio
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from tests.waiting import let_pass, until

ROUNDS, EMULATED_ROUNDS = (int(os.environ.get("BMQ_SURVIVAL_ROUNDS", default)) for default in ("6", "2"))
SEED = int(os.environ.get("BMQ_SURVIVAL_SEED", "1"))
PARTITIONS = 4
READY_S_MAX = 30.0
"""A start over a folder waits for the file system to flush what others wrote to it too (docs/stores.md), and a test
machine is busy."""
REPLAY = f"replay with BMQ_SURVIVAL_SEED={SEED}"


def value_of(sequence: int) -> bytes:
    """What a record holds, 12 to about 2,000 bytes: made again when it is compared."""
    return b"%012d" % sequence + bytes([sequence % 251]) * (sequence * 7919 % 2000)


@dataclass
class Writer:
    """A producer that never stops trying, in a thread of its own; and what it was told."""

    servers: str
    topic: str
    idempotent: bool
    acknowledged: dict[int, dict[int, int]] = field(default_factory=lambda: defaultdict(dict))
    """{partition: {sequence: offset}}"""
    failures: list[str] = field(default_factory=list)
    sent: int = 0

    def __post_init__(self) -> None:
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"writer of {self.topic}", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(120)
        assert not self._thread.is_alive(), f"the writer of {self.topic} still waits for acknowledgements"

    def count(self) -> int:
        return sum(len(offsets) for offsets in self.acknowledged.values())

    def _run(self) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self.servers,
                "enable.idempotence": self.idempotent,
                "acks": "all",
                "linger.ms": 5,
                "message.timeout.ms": 300_000,
                "socket.timeout.ms": 10_000,
                "compression.type": "lz4" if self.idempotent else "none",
                "log_level": 2,
                **BACKOFF,
            }
        )
        while not self._stopping.is_set():
            for _ in range(20):
                self._send(producer)
            producer.poll(0)
            self._stopping.wait(0.01)
        left = producer.flush(60)
        if left:
            self.failures.append(f"{left} records were never answered")

    def _send(self, producer: Producer) -> None:
        sequence, partition = self.sent // PARTITIONS, self.sent % PARTITIONS

        def on_delivery(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                self.failures.append(f"{partition}/{sequence}: {error}")
            elif sequence in self.acknowledged[partition]:
                self.failures.append(f"{partition}/{sequence} acknowledged twice")
            else:
                self.acknowledged[partition][sequence] = message.offset()

        try:
            producer.produce(self.topic, value_of(sequence), partition=partition, on_delivery=on_delivery)
        except BufferError:
            producer.poll(0.1)
        else:
            self.sent += 1


@dataclass
class Reader:
    """A member of a group that reads what the idempotent writer writes and commits what it has read; and what it was
    told.
    """

    servers: str
    topic: str
    group: str
    seen: dict[int, list[tuple[int, bytes]]] = field(default_factory=lambda: defaultdict(list))
    committed: dict[int, int] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"reader of {self.topic}", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(60)
        assert not self._thread.is_alive(), "the reader did not close"

    def _run(self) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": self.servers,
                "group.id": self.group,
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "session.timeout.ms": 45_000,
                "log_level": 2,
                **BACKOFF,
            }
        )
        consumer.subscribe([self.topic])
        while not self._stopping.is_set():
            for message in consumer.consume(500, 0.1):
                error = message.error()
                if error is None:
                    self.seen[message.partition()].append((message.offset(), message.value() or b""))
                elif error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
                    self.failures.append(str(error))
            self._commit(consumer)
        consumer.close()

    def _commit(self, consumer: Consumer) -> None:
        ends = [TopicPartition(self.topic, partition, seen[-1][0] + 1) for partition, seen in self.seen.items()]
        try:
            for done in consumer.commit(offsets=ends, asynchronous=False) or [] if ends else []:
                if done.error is None:
                    self.committed[done.partition] = max(done.offset, self.committed.get(done.partition, 0))
        except KafkaException:
            pass  # nothing was promised


@pytest.fixture(params=["folder", "minio", *EMULATORS])
def own_bmq(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bmq]:
    with ExitStack() as stack:
        if request.param == "folder":
            server = Bmq(["--data", str(tmp_path / "data")], log=tmp_path / "bmq.log")
        else:
            store: Minio | Emulator
            emulated = request.param in EMULATORS
            store = (
                stack.enter_context(running_emulator(request.param, tmp_path))
                if emulated
                else request.getfixturevalue("minio")
            )
            server = Bmq(
                ["--store", store.store_url("bmq-survival")], log=tmp_path / "bmq.log", environment=store.environment
            )
        server.start()
        yield server
        server.stop()


@pytest.mark.timeout(180 + 15 * ROUNDS)
def test_nothing_acknowledged_is_lost_or_doubled_by_kills_at_random_moments(
    own_bmq: Bmq, reference: Librdkafka, request: pytest.FixtureRequest
) -> None:
    chance = random.Random(SEED)
    rounds = EMULATED_ROUNDS if request.node.callspec.params["own_bmq"] in EMULATORS else ROUNDS
    servers = own_bmq.servers
    for topic in ("once", "plain"):
        reference.create_topic(
            servers, topic, partitions=PARTITIONS, configs={"retention.ms": "-1", "segment.bytes": str(1024 * 1024)}
        )
    # The reader starts with committed offsets, so that it may never be told to look for a place to start at.
    start_at = [TopicPartition("once", partition, 0) for partition in range(PARTITIONS)]
    starter = Consumer({"bootstrap.servers": servers, "group.id": "readers"})
    starter.commit(offsets=start_at, asynchronous=False)
    starter.close()
    writers = [Writer(servers, "once", idempotent=True), Writer(servers, "plain", idempotent=False)]
    reader = Reader(servers, "once", "readers")
    ready_s: list[float] = []
    try:
        for number in range(rounds):
            before = [writer.count() for writer in writers]
            until(
                lambda before=before: all(w.count() > b for w, b in zip(writers, before, strict=True)),
                f"progress in round {number}",
                60,
            )
            let_pass(chance.uniform(0.0, 1.0), "it is killed at any moment")
            own_bmq.kill9()
            while chance.random() < 0.25:
                own_bmq.start_and_kill(chance.uniform(0.0, 1.5))
            ready_s.append(own_bmq.start())
            assert ready_s[-1] < READY_S_MAX, f"round {number}: ready after {ready_s[-1]:.1f} s; {REPLAY}"
    finally:
        for writer in writers:
            writer.stop()
        reader.stop()
    once, plain = writers
    print(
        f"ready after {statistics.median(ready_s):.2f} s (median), {max(ready_s):.2f} s (worst); {once.count()} + "
        f"{plain.count()} records"
    )
    assert once.failures == [], REPLAY
    log_of_once, log_of_plain = log_of(reference, servers, once), log_of(reference, servers, plain)
    for partition in range(PARTITIONS):
        assert log_of_once[partition] == [
            value_of(sequence) for sequence in range(len(once.acknowledged[partition]))
        ], f"{partition}; {REPLAY}"
        for writer, log in ((once, log_of_once), (plain, log_of_plain)):
            for sequence, offset in writer.acknowledged[partition].items():
                assert log[partition][offset] == value_of(sequence), f"{writer.topic}-{partition} at {offset}; {REPLAY}"
    assert reader.failures == [], REPLAY
    final = reference.group_offsets(servers, "readers", "once")
    for partition, seen in reader.seen.items():
        for offset, value in seen:
            assert log_of_once[partition][offset] == value, (
                f"what was read at {partition}/{offset} is not there any more; {REPLAY}"
            )
        assert final[partition] >= reader.committed.get(partition, 0), f"the commit of {partition} went back; {REPLAY}"


def log_of(reference: Librdkafka, servers: str, writer: Writer) -> dict[int, list[bytes]]:
    """Every partition from its first offset to its end; fails where an offset is missing or comes twice."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "unused"})
    ends = {
        partition: consumer.get_watermark_offsets(TopicPartition(writer.topic, partition), 30)
        for partition in range(PARTITIONS)
    }
    consumer.close()
    assert all(low == 0 for low, _ in ends.values())
    records = reference.read(
        servers,
        writer.topic,
        starts=dict.fromkeys(ends, 0),
        ends={partition: high for partition, (_, high) in ends.items()},
    )
    log: dict[int, list[bytes]] = {partition: [] for partition in ends}
    for record in records:
        assert record.offset == len(log[record.partition]), (
            f"{writer.topic}-{record.partition}: offsets are not dense; {REPLAY}"
        )
        log[record.partition].append(record.value or b"")
    return log

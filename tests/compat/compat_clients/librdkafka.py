"""librdkafka, through confluent-kafka."""

import threading
from collections.abc import Mapping, Sequence
from time import monotonic
from typing import Any

from compat_contract import ADMIN, CODECS, Record
from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

TIMEOUT_S = 30.0
BACKOFF = {"reconnect.backoff.ms": 50, "reconnect.backoff.max.ms": 500}


class Librdkafka:
    name = "confluent-kafka"
    codecs = CODECS
    idempotent = True
    assigns = True
    compresses_every_batch = False
    null_headers = True
    null_records = True
    assignors = ("range", "roundrobin", "cooperative-sticky")
    static_members = True
    keeps_membership = True
    admin_calls = ADMIN

    def __init__(self) -> None:
        self._admins: dict[str, AdminClient] = {}

    def produce(
        self, servers: str, topic: str, records: Sequence[Record], *, codec: str, idempotent: bool
    ) -> list[int]:
        producer = Producer(
            {
                "bootstrap.servers": servers,
                "compression.type": codec,
                "enable.idempotence": idempotent,
                "acks": "all",
                "linger.ms": 20,
            }
        )
        offsets = [-1] * len(records)
        errors: list[KafkaError] = []

        def delivered(index: int) -> Any:
            def on_delivery(error: KafkaError | None, message: Message) -> None:
                if error is not None:
                    errors.append(error)
                else:
                    offsets[index] = message.offset()

            return on_delivery

        for index, record in enumerate(records):
            producer.produce(
                topic,
                key=record.key,
                value=record.value,
                partition=record.partition,
                timestamp=record.timestamp_ms,
                headers=list(record.headers),
                on_delivery=delivered(index),
            )
        left = producer.flush(TIMEOUT_S)
        assert not errors, errors[0]
        assert left == 0, f"{left} records were not acknowledged within {TIMEOUT_S:g} s"
        return offsets

    def read(self, servers: str, topic: str, *, starts: Mapping[int, int], ends: Mapping[int, int]) -> list[Record]:
        consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": "unused",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
            }
        )
        try:
            consumer.assign([TopicPartition(topic, partition, start) for partition, start in starts.items()])
            return _consume(consumer, count=sum(ends.values()) - sum(starts.values()))
        finally:
            consumer.close()

    def offsets_at(self, servers: str, topic: str, *, partitions: int, timestamp_ms: int) -> dict[int, int]:
        consumer = Consumer({"bootstrap.servers": servers, "group.id": "unused"})
        try:
            found = consumer.offsets_for_times(
                [TopicPartition(topic, partition, timestamp_ms) for partition in range(partitions)], TIMEOUT_S
            )
            return {tp.partition: tp.offset for tp in found}
        finally:
            consumer.close()

    def read_group(self, servers: str, topic: str, group: str, *, count: int) -> list[Record]:
        consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": group,
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "auto.offset.reset": "earliest",
            }
        )
        try:
            consumer.subscribe([topic])
            records = _consume(consumer, count=count)
            ends: dict[int, int] = {}
            for record in records:
                ends[record.partition] = record.offset + 1
            committed = consumer.commit(
                offsets=[TopicPartition(topic, partition, end) for partition, end in ends.items()], asynchronous=False
            )
            for tp in committed or []:
                assert tp.error is None, tp.error
            return records
        finally:
            consumer.close()

    def join(
        self, servers: str, topic: str, group: str, *, assignor: str, instance_id: str | None = None
    ) -> "LibrdkafkaMember":
        return LibrdkafkaMember(servers, topic, group, assignor=assignor, instance_id=instance_id)

    def create_topic(self, servers: str, topic: str, *, partitions: int, configs: Mapping[str, str]) -> None:
        _only(self._admin(servers).create_topics([NewTopic(topic, partitions, 1, config=dict(configs))]))

    def describe_topic(self, servers: str, topic: str) -> int:
        described = self._admin(servers).list_topics(topic, TIMEOUT_S).topics[topic]
        assert described.error is None, described.error
        for partition in described.partitions.values():
            assert partition.error is None
            assert partition.leader in partition.replicas
            assert partition.isrs
        return len(described.partitions)

    def list_topics(self, servers: str) -> list[str]:
        return list(self._admin(servers).list_topics(timeout=TIMEOUT_S).topics)

    def describe_configs(self, servers: str, topic: str) -> dict[str, str]:
        entries = _only(self._admin(servers).describe_configs([ConfigResource(ResourceType.TOPIC, topic)]))
        return {name: entry.value for name, entry in entries.items()}

    def alter_configs(self, servers: str, topic: str, configs: Mapping[str, str]) -> None:
        entries = [
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in configs.items()
        ]
        _only(
            self._admin(servers).incremental_alter_configs(
                [ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)]
            )
        )

    def create_partitions(self, servers: str, topic: str, *, total: int) -> None:
        _only(self._admin(servers).create_partitions([NewPartitions(topic, total)]))

    def delete_records(self, servers: str, topic: str, before: Mapping[int, int]) -> dict[int, int]:
        futures = self._admin(servers).delete_records(
            [TopicPartition(topic, partition, offset) for partition, offset in before.items()]
        )
        return {tp.partition: future.result(TIMEOUT_S).low_watermark for tp, future in futures.items()}

    def list_groups(self, servers: str) -> list[str]:
        listed = self._admin(servers).list_consumer_groups(request_timeout=TIMEOUT_S).result(TIMEOUT_S)
        assert not listed.errors, listed.errors
        return [group.group_id for group in listed.valid]

    def describe_group(self, servers: str, group: str) -> tuple[str, int]:
        described = _only(self._admin(servers).describe_consumer_groups([group], request_timeout=TIMEOUT_S))
        return _state(described.state.name), len(described.members)

    def group_offsets(self, servers: str, group: str, topic: str) -> dict[int, int]:
        fetched = _only(self._admin(servers).list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]))
        return {tp.partition: tp.offset for tp in fetched.topic_partitions if tp.topic == topic}

    def delete_group(self, servers: str, group: str) -> None:
        _only(self._admin(servers).delete_consumer_groups([group], request_timeout=TIMEOUT_S))

    def delete_topic(self, servers: str, topic: str) -> None:
        _only(self._admin(servers).delete_topics([topic]))

    def _admin(self, servers: str) -> AdminClient:
        """Kept, because its futures end with it. Without re-bootstrapping: a call made at that moment would be lost
        with the old connection.

        It says nothing of a server that is gone: what it writes to stderr would be found there by whatever test runs
        then.
        """
        if servers not in self._admins:
            settings = {"bootstrap.servers": servers, "metadata.recovery.strategy": "none", "log_level": 2, **BACKOFF}
            self._admins[servers] = AdminClient(settings)
        return self._admins[servers]


class LibrdkafkaMember:
    """A consumer polled by a thread of its own."""

    def __init__(self, servers: str, topic: str, group: str, *, assignor: str, instance_id: str | None) -> None:
        settings = {
            "bootstrap.servers": servers,
            "group.id": group,
            "partition.assignment.strategy": assignor,
            "auto.offset.reset": "earliest",
            "auto.commit.interval.ms": 1000,
            "heartbeat.interval.ms": 300,
            "session.timeout.ms": 30_000,  # longer than a restart of bmq on a busy machine
            "topic.metadata.refresh.interval.ms": 1000,
            **BACKOFF,
        }
        if instance_id is not None:
            settings["group.instance.id"] = instance_id
        self._cooperative = assignor == "cooperative-sticky"
        self._consumer = Consumer(settings)
        self._consumer.subscribe([topic], on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_revoke)
        self._lock = threading.Lock()
        self._assignment: frozenset[int] = frozenset()
        self._consumed: list[tuple[int, int]] = []
        self._rebalances = 0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"member of {group}", daemon=True)
        self._thread.start()

    def assignment(self) -> frozenset[int]:
        with self._lock:
            return self._assignment

    def consumed(self) -> list[tuple[int, int]]:
        with self._lock:
            return list(self._consumed)

    def rebalances(self) -> int:
        with self._lock:
            return self._rebalances

    def leave(self) -> None:
        self._stopping.set()
        self._thread.join(TIMEOUT_S)
        assert not self._thread.is_alive(), "the consumer did not close"

    def _on_assign(self, consumer: Consumer, given: list[TopicPartition]) -> None:
        with self._lock:
            self._rebalances += 1
            before = self._assignment if self._cooperative else frozenset()
            self._assignment = before | {tp.partition for tp in given}

    def _on_revoke(self, consumer: Consumer, taken: list[TopicPartition]) -> None:
        with self._lock:
            self._assignment -= {tp.partition for tp in taken}

    def _run(self) -> None:
        while not self._stopping.is_set():
            message = self._consumer.poll(0.1)
            if message is None:
                continue
            error = message.error()
            if error is None:
                with self._lock:
                    self._consumed.append((message.partition(), message.offset()))
            elif not error.retriable() and error.code() not in (KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT):
                raise KafkaException(error)
        self._consumer.close()


def _consume(consumer: Consumer, *, count: int) -> list[Record]:
    records: list[Record] = []
    deadline = monotonic() + TIMEOUT_S
    while len(records) < count:
        assert monotonic() < deadline, f"{len(records)} of {count} records within {TIMEOUT_S:g} s"
        for message in consumer.consume(min(500, count - len(records)), 0.1):
            if message.error() is not None:
                raise KafkaException(message.error())
            records.append(
                Record(
                    partition=message.partition(),
                    offset=message.offset(),
                    timestamp_ms=message.timestamp()[1],
                    key=message.key(),
                    value=message.value(),
                    headers=tuple(message.headers() or ()),
                )
            )
    return records


def _only(futures: Mapping[Any, Any]) -> Any:
    ((_, future),) = futures.items()
    return future.result(TIMEOUT_S)


def _state(name: str) -> str:
    return name.replace("_", "").lower()

"""kafka-python."""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from time import monotonic
from typing import Any

from compat_contract import ADMIN, CODECS, Record
from kafka import (
    ConsumerRebalanceListener,
    KafkaAdminClient,
    KafkaConsumer,
    KafkaProducer,
    OffsetAndMetadata,
    TopicPartition,
)
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.errors import KafkaConnectionError

TIMEOUT_S = 60.0
POLL_MS = 1000
"""Longer than a rebalance: a poll that times out within one can make kafka-python 3.0 forget the assignment that it is
sent."""
ASSIGNORS = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "cooperative-sticky": CooperativeStickyAssignor,
}


class KafkaPython:
    name = "kafka-python"
    codecs = CODECS
    idempotent = True
    assigns = True
    compresses_every_batch = False
    null_headers = False
    null_records = False
    assignors = tuple(ASSIGNORS)
    static_members = True
    keeps_membership = True
    admin_calls = ADMIN

    def produce(
        self, servers: str, topic: str, records: Sequence[Record], *, codec: str, idempotent: bool
    ) -> list[int]:
        producer = KafkaProducer(
            bootstrap_servers=servers,
            compression_type=None if codec == "none" else codec,
            enable_idempotence=idempotent,
            acks="all",
            linger_ms=20,
        )
        try:
            sent = [
                producer.send(
                    topic,
                    key=record.key,
                    value=record.value,
                    partition=record.partition,
                    timestamp_ms=record.timestamp_ms,
                    headers=list(record.headers),
                )
                for record in records
            ]
            producer.flush(TIMEOUT_S)
            return [future.get(timeout=TIMEOUT_S).offset for future in sent]
        finally:
            producer.close(timeout=TIMEOUT_S)

    def read(self, servers: str, topic: str, *, starts: Mapping[int, int], ends: Mapping[int, int]) -> list[Record]:
        with _consumer(bootstrap_servers=servers, auto_offset_reset="none", enable_auto_commit=False) as consumer:
            consumer.assign([TopicPartition(topic, partition) for partition in starts])
            for partition, start in starts.items():
                consumer.seek(TopicPartition(topic, partition), start)
            return _consume(consumer, count=sum(ends.values()) - sum(starts.values()))

    def offsets_at(self, servers: str, topic: str, *, partitions: int, timestamp_ms: int) -> dict[int, int]:
        with _consumer(bootstrap_servers=servers) as consumer:
            found = consumer.offsets_for_times(
                {TopicPartition(topic, partition): timestamp_ms for partition in range(partitions)}
            )
            return {tp.partition: -1 if at is None else at.offset for tp, at in found.items()}

    def read_group(self, servers: str, topic: str, group: str, *, count: int) -> list[Record]:
        with _consumer(
            topic, bootstrap_servers=servers, group_id=group, auto_offset_reset="earliest", enable_auto_commit=False
        ) as consumer:
            records = _consume(consumer, count=count)
            consumer.commit(
                {
                    TopicPartition(topic, record.partition): OffsetAndMetadata(record.offset + 1, "", -1)
                    for record in records
                }
            )
            return records

    def join(
        self, servers: str, topic: str, group: str, *, assignor: str, instance_id: str | None = None
    ) -> "KafkaPythonMember":
        return KafkaPythonMember(servers, topic, group, assignor=assignor, instance_id=instance_id)

    def create_topic(self, servers: str, topic: str, *, partitions: int, configs: Mapping[str, str]) -> None:
        wanted = {topic: {"num_partitions": partitions, "replication_factor": 1, "configs": dict(configs)}}
        self._admin(servers, lambda admin: admin.create_topics(wanted))

    def describe_topic(self, servers: str, topic: str) -> int:
        (described,) = self._admin(servers, lambda admin: admin.describe_topics([topic]))
        assert described["error_code"] == 0, described
        for partition in described["partitions"]:
            assert partition["error_code"] == 0, partition
            assert partition["leader_id"] in partition["replica_nodes"], partition
            assert partition["isr_nodes"], partition
        return len(described["partitions"])

    def list_topics(self, servers: str) -> list[str]:
        return [
            topic["name"] if isinstance(topic, dict) else topic
            for topic in self._admin(servers, lambda admin: admin.list_topics())
        ]

    def describe_configs(self, servers: str, topic: str) -> dict[str, str]:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic)
        answer = self._admin(servers, lambda admin: admin.describe_configs([resource], config_filter="all"))
        return {name: entry["value"] for name, entry in answer["topic"][topic].items()}

    def alter_configs(self, servers: str, topic: str, configs: Mapping[str, str]) -> None:
        self._admin(
            servers, lambda admin: admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, dict(configs))])
        )

    def create_partitions(self, servers: str, topic: str, *, total: int) -> None:
        self._admin(servers, lambda admin: admin.create_partitions({topic: total}))

    def delete_records(self, servers: str, topic: str, before: Mapping[int, int]) -> dict[int, int]:
        wanted = {TopicPartition(topic, partition): offset for partition, offset in before.items()}
        answer = self._admin(servers, lambda admin: admin.delete_records(wanted))
        for deleted in answer.values():
            assert deleted["error_code"] == 0, deleted
        return {tp.partition: deleted["low_watermark"] for tp, deleted in answer.items()}

    def list_groups(self, servers: str) -> list[str]:
        return [group["group_id"] for group in self._admin(servers, lambda admin: admin.list_groups())]

    def describe_group(self, servers: str, group: str) -> tuple[str, int]:
        described = self._admin(servers, lambda admin: admin.describe_groups([group]))[group]
        return described["group_state"].lower(), len(described["members"])

    def group_offsets(self, servers: str, group: str, topic: str) -> dict[int, int]:
        offsets = self._admin(servers, lambda admin: admin.list_group_offsets({group: None}))[group]
        return {tp.partition: at.offset for tp, at in offsets.items() if tp.topic == topic}

    def delete_group(self, servers: str, group: str) -> None:
        answer = self._admin(servers, lambda admin: admin.delete_groups([group]))
        assert "NoError" in str(answer) or "OK" in str(answer), answer

    def delete_topic(self, servers: str, topic: str) -> None:
        self._admin(servers, lambda admin: admin.delete_topics([topic]))

    @staticmethod
    def _admin(servers: str, call: Callable[[KafkaAdminClient], Any]) -> Any:
        admin = KafkaAdminClient(bootstrap_servers=servers)
        try:
            return call(admin)
        finally:
            admin.close()


class KafkaPythonMember(ConsumerRebalanceListener):
    """A consumer polled by a thread of its own."""

    def __init__(self, servers: str, topic: str, group: str, *, assignor: str, instance_id: str | None) -> None:
        self._consumer = KafkaConsumer(
            bootstrap_servers=servers,
            group_id=group,
            group_instance_id=instance_id,
            partition_assignment_strategy=[ASSIGNORS[assignor]],
            auto_offset_reset="earliest",
            auto_commit_interval_ms=1000,
            heartbeat_interval_ms=300,
            session_timeout_ms=10_000,
            metadata_max_age_ms=1000,
            reconnect_backoff_max_ms=500,
        )
        self._consumer.subscribe([topic], listener=self)
        self._cooperative = assignor == "cooperative-sticky"
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

    def on_partitions_assigned(self, assigned: Any) -> None:
        with self._lock:
            self._rebalances += 1
            before = self._assignment if self._cooperative else frozenset()
            self._assignment = before | {tp.partition for tp in assigned}

    def on_partitions_revoked(self, revoked: Any) -> None:
        with self._lock:
            self._assignment -= {tp.partition for tp in revoked}

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                batches = self._consumer.poll(timeout_ms=POLL_MS)
            except (
                KafkaConnectionError
            ):  # nobody is there at the moment: kafka-python leaves it to the application to poll again
                self._stopping.wait(0.1)
                continue
            for batch in batches.values():
                with self._lock:
                    self._consumed += [(message.partition, message.offset) for message in batch]
        self._consumer.close()


@contextmanager
def _consumer(*topics: str, **settings: Any) -> Iterator[KafkaConsumer]:
    consumer = KafkaConsumer(*topics, **settings)
    try:
        yield consumer
    finally:
        consumer.close(autocommit=False)


def _consume(consumer: KafkaConsumer, *, count: int) -> list[Record]:
    records: list[Record] = []
    deadline = monotonic() + TIMEOUT_S
    while len(records) < count:
        assert monotonic() < deadline, f"{len(records)} of {count} records within {TIMEOUT_S:g} s"
        for batch in consumer.poll(timeout_ms=POLL_MS, max_records=count - len(records)).values():
            records += [
                Record(
                    partition=message.partition,
                    offset=message.offset,
                    timestamp_ms=message.timestamp,
                    key=message.key,
                    value=message.value,
                    headers=tuple((name, value) for name, value in message.headers),
                )
                for message in batch
            ]
    return records

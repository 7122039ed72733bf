"""aiokafka: every call runs an event loop of its own."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from compat_contract import ADMIN, CODECS, Record

TIMEOUT_S = 30.0
ASSIGNORS = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "sticky": StickyPartitionAssignor,
}


class Aiokafka:
    name = "aiokafka"
    codecs = CODECS
    idempotent = True
    assigns = True
    compresses_every_batch = False
    null_headers = True
    null_records = False
    assignors = tuple(ASSIGNORS)
    static_members = True
    keeps_membership = True
    admin_calls = ADMIN - {"delete_group"}

    def produce(
        self, servers: str, topic: str, records: Sequence[Record], *, codec: str, idempotent: bool
    ) -> list[int]:
        async def main() -> list[int]:
            producer = AIOKafkaProducer(
                bootstrap_servers=servers,
                compression_type=None if codec == "none" else codec,
                enable_idempotence=idempotent,
                acks="all",
                linger_ms=20,
            )
            async with producer:
                sent = [
                    await producer.send(
                        topic,
                        key=record.key,
                        value=record.value,
                        partition=record.partition,
                        timestamp_ms=record.timestamp_ms,
                        headers=list(record.headers),
                    )
                    for record in records
                ]
                return [metadata.offset for metadata in await asyncio.gather(*sent)]

        return _run(main())

    def read(self, servers: str, topic: str, *, starts: Mapping[int, int], ends: Mapping[int, int]) -> list[Record]:
        async def main() -> list[Record]:
            async with AIOKafkaConsumer(
                bootstrap_servers=servers, auto_offset_reset="none", enable_auto_commit=False
            ) as consumer:
                consumer.assign([TopicPartition(topic, partition) for partition in starts])
                for partition, start in starts.items():
                    consumer.seek(TopicPartition(topic, partition), start)
                return await _consume(consumer, count=sum(ends.values()) - sum(starts.values()))

        return _run(main())

    def offsets_at(self, servers: str, topic: str, *, partitions: int, timestamp_ms: int) -> dict[int, int]:
        async def main() -> dict[int, int]:
            async with AIOKafkaConsumer(bootstrap_servers=servers) as consumer:
                found = await consumer.offsets_for_times(
                    {TopicPartition(topic, partition): timestamp_ms for partition in range(partitions)}
                )
                return {tp.partition: -1 if at is None else at.offset for tp, at in found.items()}

        return _run(main())

    def read_group(self, servers: str, topic: str, group: str, *, count: int) -> list[Record]:
        async def main() -> list[Record]:
            consumer = AIOKafkaConsumer(
                topic, bootstrap_servers=servers, group_id=group, auto_offset_reset="earliest", enable_auto_commit=False
            )
            async with consumer:
                records = await _consume(consumer, count=count)
                await consumer.commit(
                    {TopicPartition(topic, record.partition): record.offset + 1 for record in records}
                )
                return records

        return _run(main())

    def join(
        self, servers: str, topic: str, group: str, *, assignor: str, instance_id: str | None = None
    ) -> "AiokafkaMember":
        return AiokafkaMember(servers, topic, group, assignor=assignor, instance_id=instance_id)

    def create_topic(self, servers: str, topic: str, *, partitions: int, configs: Mapping[str, str]) -> None:
        answer = self._admin(
            servers, lambda admin: admin.create_topics([NewTopic(topic, partitions, 1, topic_configs=dict(configs))])
        )
        assert [error[:2] for error in answer.topic_errors] == [(topic, 0)], answer

    def describe_topic(self, servers: str, topic: str) -> int:
        (described,) = self._admin(servers, lambda admin: admin.describe_topics([topic]))
        assert described["error_code"] == 0, described
        for partition in described["partitions"]:
            assert partition["error_code"] == 0, partition
            assert partition["leader"] in partition["replicas"], partition
            assert partition["isr"], partition
        return len(described["partitions"])

    def list_topics(self, servers: str) -> list[str]:
        return list(self._admin(servers, lambda admin: admin.list_topics()))

    def describe_configs(self, servers: str, topic: str) -> dict[str, str]:
        (answer,) = self._admin(
            servers, lambda admin: admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
        )
        ((error_code, error_message, _, name, entries),) = answer.resources
        assert (error_code, name) == (0, topic), error_message
        return {entry[0]: entry[1] for entry in entries}

    def alter_configs(self, servers: str, topic: str, configs: Mapping[str, str]) -> None:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic, dict(configs))
        (answer,) = self._admin(servers, lambda admin: admin.alter_configs([resource]))
        ((error_code, error_message, _, _),) = answer.resources
        assert error_code == 0, error_message

    def create_partitions(self, servers: str, topic: str, *, total: int) -> None:
        self._admin(servers, lambda admin: admin.create_partitions({topic: NewPartitions(total)}))

    def delete_records(self, servers: str, topic: str, before: Mapping[int, int]) -> dict[int, int]:
        wanted = {
            TopicPartition(topic, partition): RecordsToDelete(before_offset=offset)
            for partition, offset in before.items()
        }
        lows = self._admin(servers, lambda admin: admin.delete_records(wanted))
        return {tp.partition: low for tp, low in lows.items()}

    def list_groups(self, servers: str) -> list[str]:
        return [group[0] for group in self._admin(servers, lambda admin: admin.list_consumer_groups())]

    def describe_group(self, servers: str, group: str) -> tuple[str, int]:
        (answer,) = self._admin(servers, lambda admin: admin.describe_consumer_groups([group]))
        (described,) = answer.to_object()["groups"]
        assert described["error_code"] == 0, described
        return described["state"].lower(), len(described["members"])

    def group_offsets(self, servers: str, group: str, topic: str) -> dict[int, int]:
        offsets = self._admin(servers, lambda admin: admin.list_consumer_group_offsets(group))
        return {tp.partition: at.offset for tp, at in offsets.items() if tp.topic == topic}

    def delete_group(self, servers: str, group: str) -> None:
        raise NotImplementedError("aiokafka cannot delete groups")

    def delete_topic(self, servers: str, topic: str) -> None:
        answer = self._admin(servers, lambda admin: admin.delete_topics([topic]))
        assert [error[:2] for error in answer.topic_error_codes] == [(topic, 0)], answer

    @staticmethod
    def _admin(servers: str, call: Callable[[AIOKafkaAdminClient], Awaitable[Any]]) -> Any:
        async def main() -> Any:
            async with _started(AIOKafkaAdminClient(bootstrap_servers=servers)) as admin:
                return await call(admin)

        return _run(main())


class AiokafkaMember:
    """A consumer on an event loop of its own, in a thread."""

    def __init__(self, servers: str, topic: str, group: str, *, assignor: str, instance_id: str | None) -> None:
        self._settings = {
            "bootstrap_servers": servers,
            "group_id": group,
            "group_instance_id": instance_id,
            "partition_assignment_strategy": [ASSIGNORS[assignor]],
            "auto_offset_reset": "earliest",
            "auto_commit_interval_ms": 1000,
            "heartbeat_interval_ms": 300,
            "session_timeout_ms": 10_000,
            "metadata_max_age_ms": 1000,
        }
        self._topic = topic
        self._lock = threading.Lock()
        self._assignment: frozenset[int] = frozenset()
        self._consumed: list[tuple[int, int]] = []
        self._rebalances = 0
        self._loop = asyncio.new_event_loop()
        self._stopping = asyncio.Event()
        self._thread = threading.Thread(
            target=self._loop.run_until_complete, args=(self._main(),), name=f"member of {group}", daemon=True
        )
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
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join(TIMEOUT_S)
        assert not self._thread.is_alive(), "the consumer did not close"
        self._loop.close()

    async def _main(self) -> None:
        consumer = AIOKafkaConsumer(**self._settings)
        consumer.subscribe([self._topic], listener=_Listener(self))
        async with consumer:
            stopping = asyncio.ensure_future(self._stopping.wait())
            while not stopping.done():
                for batch in (await consumer.getmany(timeout_ms=100)).values():
                    with self._lock:
                        self._consumed += [(message.partition, message.offset) for message in batch]

    def assigned(self, partitions: frozenset[int]) -> None:
        with self._lock:
            self._rebalances += 1
            self._assignment = partitions

    def revoked(self) -> None:
        with self._lock:
            self._assignment = frozenset()


class _Listener(ConsumerRebalanceListener):
    def __init__(self, member: AiokafkaMember) -> None:
        self._member = member

    async def on_partitions_assigned(self, assigned: Any) -> None:
        self._member.assigned(frozenset(tp.partition for tp in assigned))

    async def on_partitions_revoked(self, revoked: Any) -> None:
        self._member.revoked()


def _run(main: Any) -> Any:
    async def bounded() -> Any:
        async with asyncio.timeout(TIMEOUT_S):
            return await main

    return asyncio.run(bounded())


@asynccontextmanager
async def _started(admin: AIOKafkaAdminClient) -> Any:
    await admin.start()
    try:
        yield admin
    finally:
        await admin.close()


async def _consume(consumer: AIOKafkaConsumer, *, count: int) -> list[Record]:
    records: list[Record] = []
    while len(records) < count:
        for batch in (await consumer.getmany(timeout_ms=200, max_records=count - len(records))).values():
            records += [
                Record(
                    partition=message.partition,
                    offset=message.offset,
                    timestamp_ms=message.timestamp,
                    key=message.key,
                    value=message.value,
                    headers=tuple(message.headers),
                )
                for message in batch
            ]
    return records

"""How far a group is behind, in records and in seconds. The seconds come from the first unread record itself."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Consumer, KafkaError, TopicPartition

from bmq_cli.kafka.connection import Connection
from bmq_cli.kafka.positions import Bounds, PartitionKey

_POLL_S: Final = 0.1
_PARTITIONS_AT_ONCE: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Lag:
    """One partition of a group. `records` and `seconds` are None where nothing is committed; `seconds` also where no
    record could be read.
    """

    committed: int | None
    end: int
    records: int | None
    seconds: float | None


def lag_of(*, committed: int | None, bounds: Bounds, first_unread_ms: int | None, now_ms: int) -> Lag:
    """The lag; `first_unread_ms` is the timestamp of the first record at or after the committed offset. Pure.

    Records that retention has taken are not counted: nobody can read them any more.
    """
    if committed is None:
        return Lag(committed=None, end=bounds.end, records=None, seconds=None)
    records = bounds.end - bounds.clamp(committed)
    if records == 0:
        return Lag(committed=committed, end=bounds.end, records=0, seconds=0.0)
    seconds = None if first_unread_ms is None else max(0, now_ms - first_unread_ms) / 1000
    return Lag(committed=committed, end=bounds.end, records=records, seconds=seconds)


def first_unread_timestamps_ms(
    connection: Connection, positions: Mapping[PartitionKey, int]
) -> dict[PartitionKey, int]:
    """The timestamp of the first record at or after each position, by reading it; within the connection's timeout.
    Missing where there was none.
    """
    found: dict[PartitionKey, int] = {}
    keys = sorted(positions)
    for first in range(0, len(keys), _PARTITIONS_AT_ONCE):
        chunk = keys[first : first + _PARTITIONS_AT_ONCE]
        found.update(_read_first(connection, {key: positions[key] for key in chunk}))
    return found


def _read_first(connection: Connection, positions: Mapping[PartitionKey, int]) -> dict[PartitionKey, int]:
    consumer = connection.consumer(
        {
            "group.id": "bmq-cli",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_uncommitted",
            # The smallest prefetch: one record is all that is wanted, and a first batch comes whole however large it
            # is.
            "queued.min.messages": 1,
            "fetch.message.max.bytes": 1,
            "fetch.wait.max.ms": 50,
        }
    )
    try:
        consumer.assign([TopicPartition(topic, partition, offset) for (topic, partition), offset in positions.items()])
        return _first_of_each(consumer, set(positions), timeout_s=connection.timeout_s)
    finally:
        consumer.close()


def _first_of_each(consumer: Consumer, open_keys: set[PartitionKey], *, timeout_s: float) -> dict[PartitionKey, int]:
    found: dict[PartitionKey, int] = {}
    waited_s = 0.0
    while open_keys and waited_s < timeout_s:
        messages = consumer.consume(len(open_keys), _POLL_S)
        waited_s = 0.0 if messages else waited_s + _POLL_S
        done: Sequence[PartitionKey] = []
        for message in messages:
            topic, partition, error = message.topic(), message.partition(), message.error()
            if topic is None or partition is None or (topic, partition) not in open_keys:
                continue
            if error is None:
                kind, timestamp_ms = message.timestamp()
                if kind != TIMESTAMP_NOT_AVAILABLE:
                    found[topic, partition] = timestamp_ms
            elif error.code() != KafkaError._PARTITION_EOF and error.retriable():
                continue
            open_keys.discard((topic, partition))
            done = [*done, (topic, partition)]
        if done:
            consumer.incremental_unassign([TopicPartition(*key) for key in done])
    return found

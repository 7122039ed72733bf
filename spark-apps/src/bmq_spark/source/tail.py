"""The newest records, that are in no segment yet: their ends and themselves, fetched from the brokers by the Kafka protocol. Only where asked for."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

import pyarrow as pa
from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, Consumer, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient

from bmq_spark.source.columns import ARROW_TYPES, arrow_schema
from bmq_spark.source.failures import RecordsGone, SourceFailed
from bmq_spark.source.slices import SourceTopic, TailSlice

TIMEOUT_S: Final = 30.0
MESSAGES_AT_ONCE: Final = 10_000
SILENT_POLLS_MAX: Final = 60
_POLL_S: Final = 1.0
_MILLISECONDS_MAX: Final = ((1 << 63) - 1) // 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Brokers:
    """How to reach them: librdkafka's settings, `bootstrap.servers` among them. A value that is sent to executors."""

    settings: Mapping[str, str]
    lane: str = ""

    def check_cluster(self, cluster_id: str) -> None:
        """Raises SourceFailed where they are another cluster's than the store."""
        admin = AdminClient(self._settings())  # named: what it answers is lost once nobody holds it
        try:
            found = admin.describe_cluster(request_timeout=TIMEOUT_S).result().cluster_id
        except KafkaException as error:
            raise self._failed(error) from error
        if found != cluster_id:
            raise SourceFailed(f"{self._where}: that is the cluster {found}, the store is that of {cluster_id}: check store and servers")

    def ends(self, partitions: Sequence[tuple[SourceTopic, int]]) -> dict[tuple[str, int], int]:
        """The high watermarks, by topic's name and partition. Raises SourceFailed."""
        with _Consumer(self) as consumer:
            try:
                return {(t.name, p): consumer.get_watermark_offsets(TopicPartition(t.name, p), timeout=TIMEOUT_S)[1] for t, p in partitions}
            except KafkaException as error:
                raise self._failed(error) from error

    def offset_at(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        """The first offset at or after a time; None where there is none. Raises SourceFailed."""
        with _Consumer(self) as consumer:
            try:
                (found,) = consumer.offsets_for_times([TopicPartition(topic, partition, timestamp_ms)], timeout=TIMEOUT_S)
            except KafkaException as error:
                raise self._failed(error) from error
            return int(found.offset) if found.offset >= 0 else None

    def read(self, piece: TailSlice, columns: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
        """The records of a slice. Raises SourceFailed."""
        place = f"topic {piece.topic.name}, partition {piece.partition}"
        at, silent = piece.from_offset, 0
        with _Consumer(self) as consumer:
            consumer.assign([TopicPartition(piece.topic.name, piece.partition, at)])
            while at < piece.below_offset:
                try:
                    messages = consumer.consume(MESSAGES_AT_ONCE, timeout=_POLL_S)
                except KafkaException as error:
                    raise self._failed(error) from error
                for message in messages:
                    if message.error() is not None:
                        raise RecordsGone(f"{place}, offset {at}: {message.error().str()} (fetched from {self._servers}): start the job again")
                inside = [message for message in messages if message.offset() < piece.below_offset]
                if inside:
                    yield _to_arrow(inside, piece, columns)
                (position,) = consumer.position([TopicPartition(piece.topic.name, piece.partition)])
                silent = silent + 1 if position.offset <= at else 0
                at = max(at, position.offset)
                if silent >= SILENT_POLLS_MAX:
                    raise SourceFailed(f"{self._where}: nothing came of {place} from offset {at} on for {silent} s: look at the brokers, start again")

    def _settings(self) -> dict[str, Any]:
        client = f"bmq-spark,lane={self.lane}" if self.lane else "bmq-spark"
        return {"client.id": client} | dict(self.settings)

    @property
    def _servers(self) -> str:
        return self.settings.get("bootstrap.servers", "")

    @property
    def _where(self) -> str:
        return f"option kafka.bootstrap.servers={self._servers}"

    def _failed(self, error: KafkaException) -> SourceFailed:
        return SourceFailed(f"{self._where}: {error.args[0].str()}: check address and settings, or set tail=none")


class _Consumer:
    """A consumer that is in no group and commits nothing; closed at the end of a `with`."""

    def __init__(self, brokers: Brokers) -> None:
        own = {
            "group.id": "bmq-spark-tail",  # librdkafka wants one; it is never joined
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "error",
            "isolation.level": "read_uncommitted",  # as segments are read
        }
        self._consumer = Consumer(brokers._settings() | own)

    def __enter__(self) -> Any:
        return self._consumer

    def __exit__(self, *_: object) -> None:
        self._consumer.close()


def _to_arrow(messages: Sequence[Message], piece: TailSlice, columns: tuple[str, ...]) -> pa.RecordBatch:
    arrays = [pa.array([_cell(message, name, piece) for message in messages], ARROW_TYPES[name]) for name in columns]
    return pa.RecordBatch.from_arrays(arrays, schema=arrow_schema(columns))


def _cell(message: Message, name: str, piece: TailSlice) -> object:
    match name:
        case "key":
            return message.key()
        case "value":
            return message.value()
        case "headers":
            headers = cast("list[tuple[str, bytes | None]] | None", message.headers())
            return [{"key": key, "value": value} for key, value in headers] if headers else None
        case "offset":
            return message.offset()
        case "timestamp":
            return min(message.timestamp()[1], _MILLISECONDS_MAX) * 1000
        case "timestampType":
            return int(message.timestamp()[0] == TIMESTAMP_LOG_APPEND_TIME)
        case _:
            return {"topic": piece.topic.name, "partition": piece.partition, "lane": piece.topic.lane}[name]

"""The newest records, that are in no segment yet: their ends and themselves, fetched from the brokers by the Kafka
protocol. Only where asked for.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar
from uuid import UUID

import pyarrow as pa
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from bmq.errors import CorruptBatch, UnsupportedMessageFormat, WireError
from bmq.wire.error_codes import ErrorCode
from bmq_spark.source.decoding import Wanted, decode
from bmq_spark.source.failures import PASSING, PAUSE_S, RecordsGone, SourceFailed, TopicGone
from bmq_spark.source.fetching import TIMEOUT_S, FetchConnection, check_security, whole_batches
from bmq_spark.source.sections import BatchBroken, Scratch
from bmq_spark.source.slices import SourceTopic, TailSlice

SILENCE_S: Final = 60
T = TypeVar("T")


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
            raise SourceFailed(
                f"{self._where}: that is the cluster {found}, the store is that of {cluster_id}: check store and "
                "servers"
            )

    def ends(self, partitions: Sequence[tuple[SourceTopic, int]]) -> dict[tuple[str, int], int]:
        """The high watermarks, by topic's name and partition. Raises SourceFailed."""
        with _Consumer(self) as consumer:
            return {(t.name, p): self._end(consumer, TopicPartition(t.name, p)) for t, p in partitions}

    def offset_at(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        """The first offset at or after a time; None where there is none. Raises SourceFailed."""
        asked = TopicPartition(topic, partition, timestamp_ms)
        with _Consumer(self) as consumer:
            (found,) = self._answer(lambda: consumer.offsets_for_times([asked], timeout=TIMEOUT_S))
            return int(found.offset) if found.offset >= 0 else None

    def read(self, piece: TailSlice, columns: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
        """The records of a slice. Raises SourceFailed."""
        name, number = piece.topic.name, piece.partition
        at, began = piece.from_offset, time.monotonic()
        scratch = Scratch()
        settings = self._settings()
        check_security(settings)
        why = "nothing came"
        while at < piece.below_offset:
            if time.monotonic() - began > SILENCE_S:
                where = f"topic {name}, partition {number}, offset {at}"
                raise SourceFailed(f"{self._where}: {where}: {why} for {SILENCE_S} s: look at the brokers, start again")
            try:
                with FetchConnection(*self._leader(name, number), settings) as leader:
                    _check_same(piece, leader.topic_id(name))
                    while at < piece.below_offset and time.monotonic() - began <= SILENCE_S:
                        fetched = leader.fetch(piece.topic.topic_id, number, at)
                        if fetched.error_code:
                            why = self._refusal(fetched.error_code, piece, at)
                            time.sleep(PAUSE_S)
                            break
                        headers = whole_batches(fetched.batches)
                        if not headers:
                            continue
                        wanted = _wanted(piece, columns, at)
                        yield from decode(fetched.batches, headers, wanted, scratch)
                        at, began, why = max(at, headers[-1].next_offset), time.monotonic(), "nothing came"
            except (OSError, WireError) as error:
                why = f"no connection to its leader ({error})"
                time.sleep(PAUSE_S)
            except (BatchBroken, CorruptBatch, UnsupportedMessageFormat) as broken:
                offset = broken.header.base_offset if isinstance(broken, BatchBroken) else at
                remedy = "`bmq store check` says more; to read on behind it begin at a later offset"
                raise SourceFailed(f"topic {name}, partition {number}, offset {offset}: {broken}: {remedy}") from broken

    def _end(self, consumer: Any, where: TopicPartition) -> int:
        return int(self._answer(lambda: consumer.get_watermark_offsets(where, timeout=TIMEOUT_S))[1])

    def _answer(self, question: Callable[[], T]) -> T:
        """What the brokers say; what passes by itself is asked again for TIMEOUT_S. Raises SourceFailed."""
        began = time.monotonic()
        while True:
            try:
                return question()
            except KafkaException as error:
                if error.args[0].code() not in PASSING or time.monotonic() - began > TIMEOUT_S:
                    raise self._failed(error) from error
            time.sleep(PAUSE_S)

    def _leader(self, topic: str, partition: int) -> tuple[str, int]:
        """Host and port. Raises SourceFailed where the brokers do not answer, OSError where there is no leader now."""
        with _Consumer(self) as consumer:
            try:
                found = consumer.list_topics(topic, timeout=TIMEOUT_S)
            except KafkaException as error:
                raise self._failed(error) from error
        known = found.topics[topic].partitions.get(partition)
        broker = None if known is None else found.brokers.get(known.leader)
        if broker is None:
            raise ConnectionError(f"topic {topic}, partition {partition} has no leader")
        return broker.host, broker.port

    def _refusal(self, code: int, piece: TailSlice, at: int) -> str:
        """What to say of an error that may pass. Raises RecordsGone, SourceFailed where it does not."""
        where = f"topic {piece.topic.name}, partition {piece.partition}, offset {at}"
        if code == ErrorCode.offset_out_of_range:
            raise RecordsGone(f"{where}: it is gone (fetched from {self._servers}): start the job again")
        name = ErrorCode(code).name if code in set(ErrorCode) else str(code)
        if code not in PASSING:
            raise SourceFailed(f"{self._where}: {where}: {name}: look at the brokers, start again")
        return name

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


def _check_same(piece: TailSlice, now: UUID | None) -> None:
    """Raises TopicGone where the name is another topic's now; None: whoever was asked knows of none, or has not heard
    of it yet.
    """
    if now is not None and now != piece.topic.topic_id:
        raise TopicGone(
            f"topic {piece.topic.name}, partition {piece.partition}: the topic was deleted while it was read, and "
            f"made again (its id was {piece.topic.topic_id}, and is {now}): start again, for the records of the "
            "new one"
        )


def _wanted(piece: TailSlice, columns: tuple[str, ...], from_offset: int) -> Wanted:
    return Wanted(
        topic=piece.topic.name,
        partition=piece.partition,
        lane=piece.topic.lane,
        columns=columns,
        from_offset=from_offset,
        below_offset=piece.below_offset,
    )

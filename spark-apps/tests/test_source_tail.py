"""What is in no segment yet, fetched from librdkafka's mock of brokers: whatever a record has in it, it is what a
segment would give.
"""

import struct
from collections.abc import Iterator
from uuid import UUID

import crc32c
import pytest
from confluent_kafka import Producer
from tests.bare_client import BareClient

from bmq.values import TopicId
from bmq.wire.batches import Record, build_batch
from bmq_spark.source.columns import ALL
from bmq_spark.source.failures import RecordsGone, SourceFailed
from bmq_spark.source.fetching import FetchConnection
from bmq_spark.source.slices import SourceTopic, TailSlice
from bmq_spark.source.tail import Brokers

TOPIC = SourceTopic(name="orders", lane="", topic_id=TopicId(UUID(int=1)), partition_count=1)
TIME_MS = 1_700_000_000_000


@pytest.fixture(scope="module")
def mock() -> Iterator[Producer]:
    """The brokers live as long as it does."""
    yield Producer({"test.mock.num.brokers": 1, "log_level": 0})


def address(mock: Producer) -> tuple[str, int]:
    (broker,) = mock.list_topics(timeout=30).brokers.values()
    return broker.host, broker.port


def produce(mock: Producer, topic: str, batch: bytes) -> None:
    """As it is: librdkafka would not send some of it. Produce version 7."""

    assert mock.list_topics(topic, timeout=30).topics[topic]
    data = [{"name": topic, "partition_data": [{"index": 0, "records": batch}]}]
    with BareClient(address(mock)) as client:
        answer = client.ask(0, 7, {"acks": 1, "timeout_ms": 10_000, "topic_data": data})
    assert answer.responses[0].partition_responses[0].error_code == 0


def changed(batch: bytes, old: bytes, new: bytes) -> bytes:
    """With another checksum."""
    data = bytearray(batch.replace(old, new))
    struct.pack_into(">I", data, 17, crc32c.crc32c(bytes(data[21:])))
    return bytes(data)


def brokers(mock: Producer, **settings: str) -> Brokers:
    host, port = address(mock)
    return Brokers(settings={"bootstrap.servers": f"{host}:{port}"} | settings)


def read(mock: Producer, topic: str, from_offset: int, below_offset: int) -> list[dict[str, object]]:
    with FetchConnection(*address(mock), {}) as connection:
        topic_id = connection.topic_id(topic)
    assert topic_id is not None
    where = SourceTopic(name=topic, lane="dev", topic_id=TopicId(topic_id), partition_count=1)
    piece = TailSlice(topic=where, partition=0, from_offset=from_offset, below_offset=below_offset)
    return [row for batch in brokers(mock).read(piece, ALL) for row in batch.to_pylist()]


def test_a_header_key_that_is_not_utf_8_is_read_as_java_reads_it(mock: Producer) -> None:
    plain = build_batch([Record(0, TIME_MS, b"k", b"v", [("good", b"1")])])
    odd = changed(build_batch([Record(0, TIME_MS, b"k", b"v", [("XXXX", None)])]), b"XXXX", b"\xff\xfe\xfd\xfc")
    for batch in (plain, odd, plain):
        produce(mock, "headers", batch)
    assert [row["headers"] for row in read(mock, "headers", 0, 3)] == [
        [{"key": "good", "value": b"1"}],
        [{"key": "\ufffd" * 4, "value": None}],
        [{"key": "good", "value": b"1"}],
    ]


@pytest.mark.parametrize("codec", range(5))
def test_records_of_batches_of_every_codec_are_cut_to_what_is_wanted(mock: Producer, codec: int) -> None:
    topic = f"codec-{codec}"
    for first in (0, 10):
        produce(
            mock,
            topic,
            build_batch(
                [Record(n, TIME_MS + n, b"k%d" % n, b"v" * 100) for n in range(first, first + 10)], codec=codec
            ),
        )
    rows = read(mock, topic, 5, 17)
    assert [(row["offset"], row["key"], row["lane"]) for row in rows] == [(n, b"k%d" % n, "dev") for n in range(5, 17)]


def test_an_offset_that_is_not_there_is_named(mock: Producer) -> None:
    produce(mock, "short", build_batch([Record(0, TIME_MS, None, b"v")]))
    with pytest.raises(RecordsGone, match="topic short, partition 0, offset 7: it is gone"):
        read(mock, "short", 7, 9)


def test_a_listener_that_asks_for_more_than_it_can_is_refused_at_once(mock: Producer) -> None:
    piece = TailSlice(topic=TOPIC, partition=0, from_offset=0, below_offset=1)
    with pytest.raises(
        SourceFailed, match=r"option kafka.security.protocol=sasl_ssl: tail=protocol speaks plaintext and ssl"
    ):
        next(brokers(mock, **{"security.protocol": "SASL_SSL"}).read(piece, ALL))

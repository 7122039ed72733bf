"""librdkafka outside of the Cluster: writes some records, reads all."""

from time import monotonic

from confluent_kafka import Consumer, Producer, TopicPartition

END_S = 60


def read_all(servers: str, topic: str, *, client_id: str = "e2e") -> list[bytes]:
    """The values of all records from the beginning to what is the end now."""
    settings = {
        "bootstrap.servers": servers,
        "group.id": "e2e-reader",
        "enable.auto.commit": False,
        "client.id": client_id,
    }
    consumer = Consumer(settings)
    try:
        partitions = consumer.list_topics(topic, timeout=30).topics[topic].partitions
        ends = {one: consumer.get_watermark_offsets(TopicPartition(topic, one), timeout=30) for one in partitions}
        consumer.assign([TopicPartition(topic, one, low) for one, (low, high) in ends.items() if low < high])
        left = sum(high - low for low, high in ends.values())
        values: list[bytes] = []
        deadline = monotonic() + END_S
        while left > 0:
            assert monotonic() < deadline, f"{left} records of {topic} were not read within {END_S} s"
            for message in consumer.consume(1000, timeout=1):
                offset, partition, value = message.offset(), message.partition(), message.value()
                if (
                    message.error() is None
                    and offset is not None
                    and partition is not None
                    and offset < ends[partition][1]
                ):
                    values.append(value or b"")
                    left -= 1
        return values
    finally:
        consumer.close()


def write(servers: str, topic: str, *values: str, client_id: str = "e2e") -> None:
    """Writes and waits until all are acknowledged."""
    failed: list[str] = []
    producer = Producer({"bootstrap.servers": servers, "client.id": client_id})
    for value in values:
        producer.produce(
            topic, value.encode(), on_delivery=lambda error, _: failed.append(str(error)) if error else None
        )
    assert producer.flush(END_S) == 0
    assert failed == []

"""Topics on the servers under measurement, made and removed by the same client (librdkafka) on each."""

from itertools import count

from confluent_kafka import Consumer, ConsumerGroupState, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from tests.waiting import until

from benchmarks.servers import Server

_numbers = count(1)
LOOKED_AT = 50


def fresh(name: str) -> str:
    """A topic name that was not used before: what was deleted under another goes at its own pace."""
    return f"{name}-{next(_numbers)}"


def create(server: Server, topic: str, *, partitions: int, **configs: str | int) -> None:
    """Underscores in a configuration's name stand for dots. Returns when the first partitions can be asked for their
    ends.
    """
    admin = AdminClient({"bootstrap.servers": server.address})
    named = {key.replace("_", "."): str(value) for key, value in configs.items()}
    admin.create_topics([NewTopic(topic, num_partitions=partitions, replication_factor=1, config=named)])[topic].result(
        30
    )
    until(
        lambda: end_offset(server, topic, partitions=min(partitions, LOOKED_AT)),
        f"topic {topic} of {server.name} to be ready",
        60,
        holds=lambda end: end == 0,
        not_yet=KafkaException,
        every_s=0.1,
    )


def delete(server: Server, topic: str) -> None:
    """Returns when Kafka has deleted its files too: on some disks that takes longer than writing them, and would be the
    next one's to bear.
    """
    admin = AdminClient({"bootstrap.servers": server.address})  # it has to outlive its future
    admin.delete_topics([topic])[topic].result(30)
    until(
        lambda: not any((server.folder / "data").glob(f"{topic}-*")),
        f"the files of {topic} of {server.name} to go",
        120,
        every_s=0.1,
    )


def end_offset(server: Server, topic: str, *, partitions: int) -> int:
    """The sum of all partitions' ends: how many records were written."""
    consumer = Consumer({"bootstrap.servers": server.address, "group.id": "ends", "enable.auto.commit": False})
    try:
        return sum(
            consumer.get_watermark_offsets(TopicPartition(topic, index), timeout=30)[1] for index in range(partitions)
        )
    finally:
        consumer.close()


def until_stable(server: Server, group: str) -> None:
    """Until its one member has its partitions."""
    admin = AdminClient({"bootstrap.servers": server.address})
    until(
        lambda: admin.describe_consumer_groups([group])[group].result(30).state,
        f"group {group} of {server.name} to be stable",
        holds=lambda state: state == ConsumerGroupState.STABLE,
        every_s=0.1,
    )

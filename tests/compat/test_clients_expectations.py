"""What programs that were written for Kafka expect of a broker beside the contract of the clients: assignments,
configurations, a deleted topic.
"""

from time import monotonic

import pytest
from compat_server import Bmq
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewPartitions, NewTopic, ResourceType

WAIT_S = 30


@pytest.fixture
def admin(bmq: Bmq) -> AdminClient:
    return AdminClient({"bootstrap.servers": bmq.servers})


def test_a_topic_may_be_created_and_grown_with_an_assignment(bmq: Bmq, admin: AdminClient, topic: str) -> None:
    [created] = admin.create_topics([NewTopic(topic, num_partitions=2, replica_assignment=[[1], [1]])]).values()
    created.result(WAIT_S)
    [grown] = admin.create_partitions([NewPartitions(topic, 3, replica_assignment=[[1]])]).values()
    grown.result(WAIT_S)
    partitions = admin.list_topics(topic, timeout=WAIT_S).topics[topic].partitions
    assert [(one.leader, one.replicas) for one in partitions.values()] == [(1, [1])] * 3
    [refused] = admin.create_topics(
        [NewTopic(f"{topic}-elsewhere", num_partitions=1, replica_assignment=[[2]])]
    ).values()
    with pytest.raises(KafkaException) as error:
        refused.result(WAIT_S)
    assert error.value.args[0].code() == KafkaError.INVALID_REPLICA_ASSIGNMENT


def test_a_broker_says_where_it_listens_and_what_bmq_up_was_told(bmq: Bmq, admin: AdminClient) -> None:
    [described] = admin.describe_configs([ConfigResource(ResourceType.BROKER, "1")]).values()
    rows = described.result(WAIT_S)
    assert rows["advertised.listeners"].value == f"PLAINTEXT://{bmq.servers}"
    assert rows["group.initial.rebalance.delay.ms"].value == "0"
    assert {"num.io.threads", "log.cleaner.threads", "compression.type"} <= rows.keys()


def test_a_topic_with_any_compression_type_is_made(admin: AdminClient, topic: str) -> None:
    [created] = admin.create_topics([NewTopic(topic, 1, config={"compression.type": "zstd"})]).values()
    created.result(WAIT_S)


def test_a_transactional_producer_fails_at_once_and_says_why(bmq: Bmq, topic: str) -> None:
    """librdkafka goes on asking after every code but one, and then says only that it timed out."""
    producer = Producer({"bootstrap.servers": bmq.servers, "transactional.id": topic})
    began_s = monotonic()
    with pytest.raises(KafkaException) as error:
        producer.init_transactions(WAIT_S)
    assert monotonic() - began_s < WAIT_S / 2
    assert error.value.args[0].fatal()
    assert "transactions are not served by this version of bmq" in error.value.args[0].str()


def test_a_consumer_of_a_deleted_topic_reads_the_other(bmq: Bmq, admin: AdminClient, topic: str) -> None:
    for future in admin.create_topics([NewTopic(topic, 1), NewTopic(f"{topic}-gone", 1)]).values():
        future.result(WAIT_S)
    consumer = Consumer(
        {
            "bootstrap.servers": bmq.servers,
            "group.id": topic,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0), TopicPartition(f"{topic}-gone", 0, 0)])
    consumer.poll(0.2)
    [deleted] = admin.delete_topics([f"{topic}-gone"]).values()
    deleted.result(WAIT_S)
    producer = Producer({"bootstrap.servers": bmq.servers})
    producer.produce(topic, b"value", partition=0)
    assert producer.flush(WAIT_S) == 0
    until_s = monotonic() + WAIT_S
    while (message := consumer.poll(0.5)) is None or message.error() is not None:
        assert monotonic() < until_s
    assert message.value() == b"value"
    consumer.close()

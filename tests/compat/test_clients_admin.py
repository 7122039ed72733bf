"""Administration by each client: what it changes, another client sees."""

from compat_clients.librdkafka import Librdkafka
from compat_contract import Client, Record
from compat_server import Bmq
from tests.waiting import until


def test_client_creates_describes_alters_grows_and_deletes_a_topic(
    bmq: Bmq, client: Client, reference: Librdkafka, topic: str
) -> None:
    servers = bmq.servers
    client.create_topic(servers, topic, partitions=2, configs={"retention.ms": "123456789", "cleanup.policy": "delete"})
    assert topic in client.list_topics(servers)
    assert client.describe_topic(servers, topic) == 2
    assert client.describe_configs(servers, topic)["retention.ms"] == "123456789"

    client.alter_configs(servers, topic, {"retention.ms": "-1", "max.message.bytes": "65536"})
    seen = reference.describe_configs(servers, topic)
    assert (seen["retention.ms"], seen["max.message.bytes"]) == ("-1", "65536")
    assert client.describe_configs(servers, topic)["max.message.bytes"] == "65536"

    client.create_partitions(servers, topic, total=5)
    assert client.describe_topic(servers, topic) == 5
    records = [
        Record(partition=partition, timestamp_ms=1_700_000_000_000, key=b"k", value=b"%d" % index)
        for partition in range(5)
        for index in range(4)
    ]
    assert client.produce(servers, topic, records, codec="none", idempotent=False) == [0, 1, 2, 3] * 5

    assert client.delete_records(servers, topic, {0: 3, 4: 1}) == {0: 3, 4: 1}
    assert reference.offsets_at(servers, topic, partitions=5, timestamp_ms=0) == {0: 3, 1: 0, 2: 0, 3: 0, 4: 1}
    kept = reference.read(servers, topic, starts={0: 3, 4: 1}, ends={0: 4, 4: 4})
    assert [record.value for record in sorted(kept, key=lambda record: (record.partition, record.offset))] == [
        b"3",
        b"1",
        b"2",
        b"3",
    ]

    client.delete_topic(servers, topic)
    until(lambda: client.list_topics(servers), "the topic to be gone", holds=lambda topics: topic not in topics)


def test_client_lists_describes_and_deletes_a_group(
    bmq: Bmq, client: Client, reference: Librdkafka, topic: str
) -> None:
    servers, group = bmq.servers, f"{topic}-group"
    reference.create_topic(servers, topic, partitions=2, configs={"retention.ms": "-1"})
    records = [
        Record(partition=partition, timestamp_ms=1_700_000_000_000, key=None, value=b"v")
        for partition in range(2)
        for _ in range(3)
    ]
    reference.produce(servers, topic, records, codec="none", idempotent=True)
    member = reference.join(servers, topic, group, assignor="range")
    until(member.assignment, "both partitions to be owned", holds=lambda owned: owned == {0, 1})
    assert group in client.list_groups(servers)
    assert client.describe_group(servers, group) == ("stable", 1)
    until(
        lambda: client.group_offsets(servers, group, topic),
        "all to be committed",
        holds=lambda offsets: offsets == {0: 3, 1: 3},
    )
    member.leave()
    assert client.describe_group(servers, group) == ("empty", 0)
    deleter: Client = client if "delete_group" in client.admin_calls else reference
    deleter.delete_group(servers, group)
    assert group not in client.list_groups(servers)
    assert client.group_offsets(servers, group, topic) in ({}, {0: -1, 1: -1})

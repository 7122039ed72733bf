"""Lanes whose clients may read topics of the base: at a capped rate, without being able to change them, until they
write to one of that name.
"""

from collections.abc import Iterator
from pathlib import Path
from time import monotonic

import pytest
from compat_server import Bmq
from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, NewPartitions, NewTopic, ResourceType
from lane_clients import BASE, admin, committed, consumer, make_lane, own_topics, poll_values, read, topics_seen, write

from bmq.config.topic_config import READING_LANES_FIRST_OFFSET

pytestmark = pytest.mark.slow
RATE = 200_000


@pytest.fixture
def bmq(tmp_path: Path) -> Iterator[Bmq]:
    running = Bmq(["--data", str(tmp_path / "data"), "--no-fsync"], log=tmp_path / "bmq.log")
    running.start()
    api = f"127.0.0.1:{running.admin_port}"
    try:
        client = admin(running.servers)
        for name in ("orders", "private"):
            client.create_topics([NewTopic(name, num_partitions=1)])[name].result(20)
        make_lane(api, "dev", reads_base={"enabled": True, "topics": ["ord*"], "bytes_per_second": RATE})
        yield running
        assert running.stop() == 0, running.tail_of_log()
    finally:
        if running.is_running():
            running.kill9()


def api(bmq: Bmq) -> str:
    return f"127.0.0.1:{bmq.admin_port}"


def test_a_lane_reads_the_base_until_it_writes_and_commits_into_groups_of_its_own(bmq: Bmq) -> None:
    write(bmq.servers, BASE, "orders", ["base-0", "base-1"])
    assert topics_seen(bmq.servers, "dev").keys() == {"orders"}, "and not the one that it may not read"
    assert read(bmq.servers, "dev", "orders", 2) == ["base-0", "base-1"]
    assert committed(bmq.servers, "dev", "orders") == 2
    assert committed(bmq.servers, BASE, "orders") < 0
    write(bmq.servers, BASE, "orders", ["base-2"])
    assert read(bmq.servers, "dev", "orders", 1) == ["base-2"]
    assert own_topics(api(bmq), "dev") == []
    write(bmq.servers, "dev", "orders", ["dev-0"])
    write(bmq.servers, BASE, "orders", ["base-3"])
    assert own_topics(api(bmq), "dev") == ["dev:orders"]
    assert read(bmq.servers, "dev", "orders", 1) == ["dev-0"], (
        "offsets of the base mean nothing in the lane's own topic"
    )
    assert read(bmq.servers, BASE, "orders", 4) == ["base-0", "base-1", "base-2", "base-3"]


def test_a_reader_of_the_base_goes_over_to_the_lanes_topic_when_somebody_writes_to_it(bmq: Bmq) -> None:
    write(bmq.servers, BASE, "orders", [f"base-{i}" for i in range(5)])
    client = consumer(bmq.servers, "dev")
    try:
        client.subscribe(["orders"])
        assert len(poll_values(client, 5)) == 5
        write(bmq.servers, "dev", "orders", [f"dev-{i}" for i in range(20)])
        write(bmq.servers, BASE, "orders", ["base-5"])
        assert poll_values(client, 20) == [f"dev-{i}" for i in range(20)], (
            "from its beginning, though the reader was at 5"
        )
        assert poll_values(client, 1, timeout_s=2) == []
    finally:
        client.close()


def test_an_offset_of_the_base_is_not_taken_for_one_of_the_lanes_own(bmq: Bmq) -> None:
    write(bmq.servers, BASE, "orders", [f"base-{i}" for i in range(5)])
    client = consumer(bmq.servers, "dev")
    try:
        client.assign([TopicPartition("orders", 0, 0)])
        while (message := client.poll(10)) is not None and message.value() != b"base-4":
            pass
        assert message is not None
        seen = TopicPartition("orders", 0, 5, leader_epoch=message.leader_epoch())
        write(bmq.servers, "dev", "orders", [f"dev-{i}" for i in range(20)])
        with pytest.raises(KafkaException, match="UNKNOWN_TOPIC_OR_PART"):
            client.commit(offsets=[seen], asynchronous=False)
    finally:
        client.close()
    assert committed(bmq.servers, "dev", "orders") < 0
    assert read(bmq.servers, "dev", "orders", 20) == [f"dev-{i}" for i in range(20)]
    assert committed(bmq.servers, "dev", "orders") == READING_LANES_FIRST_OFFSET + 20


def test_reads_of_the_base_are_capped_together_and_the_lanes_own_are_not(bmq: Bmq) -> None:
    one_each = {"batch.num.messages": 1}
    write(bmq.servers, BASE, "orders", ["x" * 10_000 for _ in range(150)], **one_each)
    write(bmq.servers, "dev", "own", ["y" * 10_000 for _ in range(150)], **one_each)
    began = monotonic()
    assert len(read(bmq.servers, "dev", "own", 150, group="c", quiet_s=0)) == 150
    own_s = monotonic() - began
    clients = [consumer(bmq.servers, "dev", group) for group in ("a", "b")]
    try:
        began = monotonic()
        for client in clients:
            client.subscribe(["orders"])
        found = [0, 0]
        while sum(found) < 120:
            for index, client in enumerate(clients):
                found[index] += len(poll_values(client, 5, timeout_s=0.2))
            assert monotonic() - began < 60
        took_s = monotonic() - began
    finally:
        for client in clients:
            client.close()
    size_bytes = 10_000 * sum(found)
    assert size_bytes <= RATE * (took_s + 1) + 2 * 10_000, (
        "no more than the rate, a second's worth at once, and a batch each"
    )
    assert size_bytes >= RATE * (took_s - 3) / 2, "and not much less"
    assert 150 * 10_000 / own_s > 1.5 * RATE, f"{own_s:.1f} s for the lane's own"


def test_nothing_that_a_lane_does_changes_the_base(bmq: Bmq) -> None:
    write(bmq.servers, BASE, "orders", [f"base-{i}" for i in range(5)])
    client = admin(bmq.servers, "dev")
    resource = ConfigResource(
        ResourceType.TOPIC,
        "orders",
        incremental_configs=[ConfigEntry("retention.ms", "1", incremental_operation=AlterConfigOpType.SET)],
    )
    cluster = ConfigResource(
        ResourceType.BROKER,
        "1",
        incremental_configs=[ConfigEntry("num.partitions", "9", incremental_operation=AlterConfigOpType.SET)],
    )
    for asked in (
        client.delete_topics(["orders"])["orders"],
        client.delete_records([TopicPartition("orders", 0, 5)])[TopicPartition("orders", 0)],
        client.create_partitions([NewPartitions("orders", 7)])["orders"],
        client.incremental_alter_configs([resource])[resource],
        client.incremental_alter_configs([cluster])[cluster],
    ):
        with pytest.raises(KafkaException):
            asked.result(20)
    assert read(bmq.servers, BASE, "orders", 5) == [f"base-{i}" for i in range(5)]
    assert len(admin(bmq.servers).list_topics("orders", timeout=20).topics["orders"].partitions) == 1
    write(bmq.servers, "dev", "orders", ["dev-0"])
    assert client.delete_topics(["orders"])["orders"].result(20) is None
    assert own_topics(api(bmq), "dev") == []
    assert read(bmq.servers, "dev", "orders", 5, group="again") == [f"base-{i}" for i in range(5)], (
        "without its own, the base's shows again"
    )

"""Lanes with the clients that people use: what is written in one is seen in it and nowhere else."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from compat_server import Bmq
from confluent_kafka import KafkaException
from confluent_kafka.admin import NewTopic
from lane_clients import BASE, admin, committed, consumer, groups_seen, make_lane, own_topics, poll_values, read, rest, topics_seen, write

pytestmark = pytest.mark.slow


@pytest.fixture
def bmq(tmp_path: Path) -> Iterator[Bmq]:
    running = Bmq(["--data", str(tmp_path / "data"), "--no-fsync"], log=tmp_path / "bmq.log")
    running.start()
    try:
        yield running
        assert running.stop() == 0, running.tail_of_log()
    finally:
        if running.is_running():
            running.kill9()


def api(bmq: Bmq) -> str:
    return f"127.0.0.1:{bmq.admin_port}"


def create(bmq: Bmq, lane: str, name: str, partitions: int = 1) -> None:
    client = admin(bmq.servers, lane)  # it has to outlive its answer
    client.create_topics([NewTopic(name, num_partitions=partitions)])[name].result(20)


def test_two_lanes_and_the_base_use_the_same_names_and_each_sees_its_own(bmq: Bmq) -> None:
    create(bmq, BASE, "orders", 3)
    for lane in ("dev", "test"):
        make_lane(api(bmq), lane)
    for lane in (BASE, "dev", "test"):
        write(bmq.servers, lane, "orders", [f"{lane}-{i}" for i in range(20)])
    for _ in range(2):
        for lane in (BASE, "dev", "test"):
            assert sorted(read(bmq.servers, lane, "orders", 20, group=f"g{_}")) == sorted(f"{lane}-{i}" for i in range(20)), lane
            assert topics_seen(bmq.servers, lane).keys() - {"__consumer_offsets"} == {"orders"}
        bmq.restart()
    for lane in (BASE, "dev", "test"):
        assert groups_seen(bmq.servers, lane) == {"g0", "g1"}, lane
        write(bmq.servers, lane, "orders", ["more"])
        assert read(bmq.servers, lane, "orders", 1, group="g0") == ["more"], "each lane's group went on where it was"
    assert own_topics(api(bmq), "dev") == ["dev:orders"]
    assert own_topics(api(bmq), "") == ["orders"]


@pytest.mark.parametrize("reset", ["earliest", "latest"])
def test_a_lanes_topic_is_made_at_the_first_write_and_its_consumer_was_there_before(bmq: Bmq, reset: str) -> None:
    create(bmq, BASE, "orders", 2)
    write(bmq.servers, BASE, "orders", ["of the base"])
    make_lane(api(bmq), "dev")
    client = consumer(bmq.servers, "dev", **{"auto.offset.reset": reset})
    try:
        client.subscribe(["orders"])
        assert poll_values(client, 1, timeout_s=5) == []
        assert len(client.assignment()) == 2
        assert topics_seen(bmq.servers, "dev") == {}
        assert own_topics(api(bmq), "dev") == [], "neither a consumer nor a list of topics makes one"
        write(bmq.servers, "dev", "orders", ["first", "second"])
        assert sorted(poll_values(client, 2)) == ["first", "second"]
    finally:
        client.close()
    assert own_topics(api(bmq), "dev") == ["dev:orders"]
    assert len(admin(bmq.servers, "dev").list_topics("orders", timeout=20).topics["orders"].partitions) == 2
    assert read(bmq.servers, BASE, "orders", 1) == ["of the base"]


def test_many_writers_at_once_make_a_topic_once_and_lose_nothing(bmq: Bmq) -> None:
    create(bmq, BASE, "orders", 4)
    make_lane(api(bmq), "dev")
    write(bmq.servers, "dev", "orders", [str(i) for i in range(5_000)], **{"enable.idempotence": True})
    assert sorted(map(int, read(bmq.servers, "dev", "orders", 5_000))) == list(range(5_000))
    assert own_topics(api(bmq), "dev") == ["dev:orders"]


def test_a_topic_that_the_base_does_not_have_is_made_as_the_cluster_makes_topics(bmq: Bmq) -> None:
    make_lane(api(bmq), "dev")
    write(bmq.servers, "dev", "only-here", ["x"])
    create(bmq, "dev", "made", 5)
    assert own_topics(api(bmq), "dev") == ["dev:made", "dev:only-here"]
    assert read(bmq.servers, "dev", "only-here", 1) == ["x"]
    assert topics_seen(bmq.servers, BASE).keys() - {"__consumer_offsets"} == set()


def test_nobody_outside_reaches_what_a_lane_has_by_any_name(bmq: Bmq) -> None:
    make_lane(api(bmq), "dev")
    write(bmq.servers, "dev", "orders", ["secret"])
    assert read(bmq.servers, "dev", "orders", 1) == ["secret"]
    assert committed(bmq.servers, "dev", "orders") == 1
    number = rest(api(bmq), "GET", "/v1/lanes/dev")[1]["number"]
    with pytest.raises(KafkaException, match="INVALID_GROUP_ID"):
        committed(bmq.servers, BASE, "orders", f":dev#{number}:g")
    with pytest.raises(KafkaException):
        create(bmq, BASE, "dev:other")
    client = admin(bmq.servers, BASE)
    with pytest.raises(KafkaException):
        client.delete_topics(["dev:orders"])["dev:orders"].result(20)
    assert client.list_topics("dev:orders", timeout=20).topics["dev:orders"].error is not None
    assert read(bmq.servers, BASE, "orders", 0, group="g") == []
    assert groups_seen(bmq.servers, BASE) <= {"g"}
    assert own_topics(api(bmq), "dev") == ["dev:orders"]

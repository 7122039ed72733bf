"""Lanes with the clients that people use: what is written in one is seen in it and nowhere else."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from compat_server import BMQ, Bmq
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic
from lane_clients import (
    BASE,
    admin,
    committed,
    consumer,
    groups_seen,
    make_lane,
    own_topics,
    poll_values,
    read,
    rest,
    topics_seen,
    write,
)
from tests.waiting import until

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
            assert sorted(read(bmq.servers, lane, "orders", 20, group=f"g{_}")) == sorted(
                f"{lane}-{i}" for i in range(20)
            ), lane
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


def test_a_lane_that_does_not_exist_gets_errors_and_nothing_of_the_base(bmq: Bmq) -> None:
    create(bmq, BASE, "orders")
    write(bmq.servers, BASE, "orders", ["of the base"])
    for lane in ("nowhere", "No", ""):
        client = (
            admin(bmq.servers, lane) if lane else AdminClient({"bootstrap.servers": bmq.servers, "client.id": "lane="})
        )
        assert client.list_topics(timeout=20).topics == {}
        error = client.list_topics("orders", timeout=20).topics["orders"].error
        assert error is not None
        assert error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
        with pytest.raises(KafkaException) as refused:
            client.create_topics([NewTopic("new", num_partitions=1)])["new"].result(20)
        assert "does not exist" in str(refused.value)
    with pytest.raises(AssertionError):
        write(bmq.servers, "nowhere", "orders", ["x"], **{"message.timeout.ms": 2_000})
    reader = consumer(bmq.servers, "nowhere")
    reader.subscribe(["orders"])
    errors = {
        message.error().code()
        for _ in range(50)
        if (message := reader.poll(0.1)) is not None and message.error() is not None
    }
    assert errors & {KafkaError.GROUP_AUTHORIZATION_FAILED, KafkaError.TOPIC_AUTHORIZATION_FAILED}
    reader.close()
    assert "there is no such lane" in bmq.log.read_text()
    assert read(bmq.servers, BASE, "orders", 1) == ["of the base"]
    assert topics_seen(bmq.servers, BASE).keys() - {"__consumer_offsets"} == {"orders"}


def test_a_deleted_lane_takes_its_topics_and_groups_along_and_a_later_one_of_its_name_begins_anew(bmq: Bmq) -> None:
    create(bmq, BASE, "orders")
    write(bmq.servers, BASE, "orders", ["of the base"])
    make_lane(api(bmq), "dev")
    write(bmq.servers, "dev", "orders", ["old", "older"])
    assert read(bmq.servers, "dev", "orders", 2) == ["old", "older"]
    live = consumer(bmq.servers, "dev", "live")
    live.subscribe(["orders"])
    assert len(poll_values(live, 2)) == 2
    assert rest(api(bmq), "DELETE", "/v1/lanes/dev")[0] == 204
    until(
        lambda: rest(api(bmq), "GET", "/v1/groups?lane=dev")[1]["items"],
        "the lane's groups to go",
        holds=lambda items: items == [],
    )
    assert own_topics(api(bmq), "dev") == []
    assert admin(bmq.servers, "dev").list_topics(timeout=20).topics == {}
    live.close()
    bmq.restart()
    make_lane(api(bmq), "dev")
    assert committed(bmq.servers, "dev", "orders") < 0
    write(bmq.servers, "dev", "orders", ["new"])
    assert read(bmq.servers, "dev", "orders", 1) == ["new"]
    assert groups_seen(bmq.servers, "dev") == {"g"}
    assert read(bmq.servers, BASE, "orders", 1) == ["of the base"]


def test_a_lane_ends_by_itself_when_its_time_to_live_is_over(bmq: Bmq) -> None:
    make_lane(api(bmq), "short", ttl_seconds=4)
    make_lane(api(bmq), "long", ttl_seconds=600)
    for lane in ("short", "long"):
        write(bmq.servers, lane, "orders", [lane])
    assert read(bmq.servers, "short", "orders", 1) == ["short"]
    until(lambda: rest(api(bmq), "GET", "/v1/lanes/short")[0], "the lane to go", holds=lambda status: status == 404)
    assert [one["name"] for one in rest(api(bmq), "GET", "/v1/lanes")[1]["items"]] == ["long"]
    assert own_topics(api(bmq), "short") == []
    until(
        lambda: rest(api(bmq), "GET", "/v1/groups?lane=short")[1]["items"],
        "the lane's groups to go",
        holds=lambda items: items == [],
    )
    assert read(bmq.servers, "long", "orders", 1) == ["long"]
    assert "its time to live is over" in bmq.log.read_text()


def test_the_command_makes_shows_and_deletes_lanes(bmq: Bmq) -> None:
    def run(*arguments: str) -> tuple[int, str, str]:
        environment = {**os.environ, "BMQ_ADMIN_URL": f"http://{api(bmq)}"}
        done = subprocess.run(
            [str(BMQ), "lanes", *arguments], env=environment, capture_output=True, text=True, timeout=60, check=False
        )
        return done.returncode, done.stdout, done.stderr

    code, out, err = run(
        "create", "dev", "--ttl", "2h", "--reads-base", "ord*", "--reads-base", "payments", "--bytes-per-second", "4096"
    )
    assert (code, "created lane dev, which ends at" in out) == (0, True), err
    assert run("create", "dev")[0] != 0
    assert "write for example 90s" in run("create", "other", "--ttl", "soon")[2]
    write(bmq.servers, "dev", "mine", ["x"])
    assert read(bmq.servers, "dev", "mine", 1) == ["x"]
    code, out, _ = run("describe", "dev", "-o", "json")
    shown = json.loads(out)
    assert (shown["topic_names"], shown["group_ids"], shown["ttl_seconds"]) == (["mine"], ["g"], 7_200)
    assert shown["reads_base"] == {"enabled": True, "topics": ["ord*", "payments"], "bytes_per_second": 4096}
    assert "1 topic: mine\n1 group: g" in run("describe", "dev")[1]
    assert "ord*,payments at 4 KiB/s" in run("list")[1]
    code, out, err = run("delete", "dev", "nowhere", "--yes")
    assert (code, out, "nowhere" in err) == (3, "deleted lane dev\n", True), (code, out, err)
    assert run("list", "-o", "json")[1].strip() == "[]"


def test_the_commands_for_topics_and_records_go_into_a_lane(bmq: Bmq) -> None:
    make_lane(api(bmq), "dev")

    def run(*arguments: str, lines: str = "") -> tuple[int, str, str]:
        command = [str(BMQ), *arguments, "-b", bmq.servers]
        done = subprocess.run(command, input=lines, capture_output=True, text=True, timeout=60, check=False)
        return done.returncode, done.stdout, done.stderr

    assert run("topics", "create", "orders", "--lane", "dev", "--partitions", "2")[0] == 0
    assert run("produce", "orders", "--lane", "dev", lines="hello\n")[0] == 0
    assert "hello" in run("consume", "orders", "--lane", "dev", "--from", "beginning", "--count", "1")[1]
    assert "orders" in run("topics", "list", "--lane", "dev")[1]
    assert "orders" not in run("topics", "list")[1]
    code, _, err = run("topics", "list", "--lane", "nowhere")
    assert (code, "bmq lanes create nowhere" in err) == (3, True), err
    assert run("topics", "list", "--lane", "No Lane")[0] == 2

"""Topics that are written by their names, by a sidecar beside a started bmq."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import grpc
import pytest
from compat_server import BMQ, Bmq
from confluent_kafka.admin import AdminClient, NewTopic
from databus_process import Databus
from grpc_calls import LISTEN, Client, texts
from test_control_plane import channels, ready
from test_databus import values
from tests.waiting import until

FILE = """
apiVersion: bmq.io/v1alpha1
kind: Channel
metadata: {name: orders}
spec: {topic: orders-raw}
---
apiVersion: bmq.io/v1alpha1
kind: Channel
metadata: {name: closed}
spec: {enabled: false}
"""


def made(bmq: Bmq, *names: str) -> None:
    admin = AdminClient({"bootstrap.servers": bmq.servers})
    for one in admin.create_topics([NewTopic(name, 1) for name in names]).values():
        one.result(30)


def topics(bmq: Bmq) -> set[str]:
    found = AdminClient({"bootstrap.servers": bmq.servers}).list_topics(timeout=30)
    return {name for name in found.topics if not name.startswith("__")}


def shown(databus: Databus) -> dict[str, Any]:
    with urlopen(f"http://{databus.address}/v1/channels", timeout=10) as answer:
        found: dict[str, Any] = json.load(answer)
        return found


@pytest.fixture
def alone(bmq: Bmq, tmp_path: Path) -> Iterator[Databus]:
    """Without channels."""
    options = ["--any-topic", "--any-topic-lane-header", "X-Lane", *LISTEN]
    sidecar = Databus(bmq.servers, None, tmp_path / "alone", spools=False, options=options)
    try:
        yield sidecar
    finally:
        sidecar.stop()


def test_a_topic_that_there_is_is_written_by_its_name_and_another_one_is_not_made(bmq: Bmq, alone: Databus) -> None:
    bmq.start()
    made(bmq, "free", "streamed")
    alone.start()
    assert alone.post("free", b"one")[0] == 200
    status, answer = alone.post_many("free", [{"text": "two"}, {"text": "three"}])
    assert (status, answer["results"][1]["offset"]) == (200, 2)
    lines = "application/x-ndjson"
    command = ["curl", "-sS", alone.url("streamed"), "-H", f"content-type: {lines}", "-H", f"accept: {lines}"]
    command += ["--data-binary", '{"text": "a"}\n{"text": "b"}\n']
    told = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    assert json.loads(told.splitlines()[-1]) == {"end": {"status": 200, "written": 2, "refused": 0}}
    with Client(alone) as client:
        (result,) = client.write("free", *texts("four"))
        assert result.written.offset == 3
        refused = client.refusal("nowhere", *texts("x"))
        assert refused.code() is grpc.StatusCode.NOT_FOUND and "the cluster has none" in refused.details()
    for name in ("nowhere", "nowhere-else", "__consumer_offsets", "no%20name"):
        assert alone.post(name, b"x")[0] == 404, name
    assert topics(bmq) == {"free", "streamed"}
    assert values(bmq, "free", 4) == ["one", "two", "three", "four"]
    assert shown(alone) == {"channels": [], "anyTopic": {"written": ["free", "streamed"], "trouble": None}}
    assert alone.value("bmq_databus_messages_total", channel="free", status="200") == 4


def test_the_same_key_at_two_topics_is_two_requests(bmq: Bmq, alone: Databus) -> None:
    bmq.start()
    made(bmq, "free", "other")
    alone.start()
    key = {"idempotency-key": '"k1"'}
    first = alone.post("free", b"one", headers=key)
    assert first == alone.post("free", b"one", headers=key) == alone.post("other", b"one", headers=key)
    assert alone.post("free", b"another", headers=key)[0] == 422
    assert values(bmq, "free", 1) == values(bmq, "other", 1) == ["one"]


def test_a_header_names_the_lane_of_what_is_written(bmq: Bmq, alone: Databus) -> None:
    bmq.start()
    made(bmq, "free")
    subprocess.run(
        [str(BMQ), "lanes", "create", "dev", "--ttl", "8h", "--admin", f"127.0.0.1:{bmq.admin_port}"],
        check=True,
        timeout=60,
    )
    alone.start()
    assert alone.post("free", b"dev", headers={"x-lane": "dev"})[0] == 200
    assert alone.post("free", b"base")[0] == 200
    assert alone.post("free", b"none", headers={"x-lane": "nowhere"})[0] == 403
    assert values(bmq, "free", 1) == ["base"]


def test_channels_of_a_file_go_before_topics_and_their_topics_are_written_by_them_alone(
    bmq: Bmq, tmp_path: Path
) -> None:
    bmq.start()
    made(bmq, "orders", "orders-raw", "closed", "free")
    sidecar = Databus(bmq.servers, FILE, tmp_path / "sidecar", options=["--any-topic"])
    sidecar.start()
    try:
        assert sidecar.post("orders", b"by its channel")[0] == 200
        assert sidecar.post("closed", b"x")[0] == 403
        status, answer = sidecar.post("orders-raw", b"past its channel")
        assert status == 404 and "write to that (orders)" in answer["error"]
        assert sidecar.post("free", b"x")[0] == 200
        assert values(bmq, "orders-raw", 1) == ["by its channel"]
    finally:
        sidecar.stop()


def test_channels_of_a_control_plane_go_before_topics_while_they_are_declared(bmq: Bmq, tmp_path: Path) -> None:
    bmq.start()
    made(bmq, "free", "free-raw")
    control_plane = f"http://127.0.0.1:{bmq.admin_port}"
    sidecar = Databus(bmq.servers, None, tmp_path / "sidecar", control_plane=control_plane, options=["--any-topic"])
    sidecar.start()
    try:
        until(lambda: ready(sidecar)[0] == 200, "the sidecar to know that there are no channels", 10)
        assert sidecar.post("free-raw", b"a topic")[0] == 200
        channels(bmq, "create", "free", "--topic", "free-raw")
        until(lambda: sidecar.post("free-raw", b"no")[0] == 404, "the topic to be the channel's", 10)
        assert sidecar.post("free", b"a channel")[0] == 200
        channels(bmq, "delete", "free", "--yes")
        until(lambda: sidecar.post("free-raw", b"a topic again")[0] == 200, "the topic to be free", 10)
        found = values(bmq, "free-raw", 3)
        assert (found[0], found[-2], found[-1]) == ("a topic", "a channel", "a topic again")
        assert values(bmq, "free", 0) == []
    finally:
        sidecar.stop()


def test_a_cluster_that_is_away_is_told_and_a_topic_that_is_deleted_is_not_made_anew(bmq: Bmq, alone: Databus) -> None:
    bmq.start()
    made(bmq, "free", "gone")
    alone.start()
    assert alone.post("gone", b"x")[0] == 200
    admin = AdminClient({"bootstrap.servers": bmq.servers})
    admin.delete_topics(["gone"])["gone"].result(30)
    assert alone.post("gone", b"x")[0] in (404, 503)
    assert topics(bmq) == {"free"}
    bmq.kill9()
    until(lambda: shown(alone)["anyTopic"]["trouble"] is not None, "the cluster to be known as away", 30)
    status, answer = alone.post("free", b"x")
    assert status == 503 and "see that it runs" in answer["error"]
    code, told = ready(alone)
    assert code == 200 and "is not reached" in told["channels"]["*"]


def test_explain_says_that_a_name_is_a_topic(tmp_path: Path) -> None:
    (tmp_path / "value").write_text("x")
    (tmp_path / "channels.yaml").write_text(FILE)

    def explained(name: str, *options: str) -> tuple[int, str]:
        command = [str(BMQ), "databus", "explain", name, "--message", str(tmp_path / "value"), *options]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        return done.returncode, done.stdout + done.stderr

    code, text = explained("free", "--any-topic", "--any-topic-lane-header", "X-Lane", "--header", "x-lane=dev")
    assert code == 0 and "no channel is declared" in text and "lane dev" in text
    file = ("--channels", str(tmp_path / "channels.yaml"))
    assert explained("free", *file)[0] == 3
    assert explained("free", *file, "--any-topic")[0] == 0
    code, text = explained("orders-raw", *file, "--any-topic")
    assert code == 3 and "by channel orders alone" in text
    code, text = explained("free")
    assert code == 2 and "--any-topic" in text

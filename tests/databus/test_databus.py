"""A sidecar beside a started bmq: what was answered is in the topic, whatever dies."""

import base64
import json
import socket
import threading
from functools import partial
from http.client import HTTPException
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from compat_server import Bmq
from confluent_kafka import Consumer, Message
from confluent_kafka.admin import AdminClient, NewTopic
from databus_process import CHANNELS, Databus
from tests.waiting import let_pass, until

MEBIBYTE = 1 << 20


def records(bmq: Bmq, topic: str, count: int) -> list[Message]:
    """All that the topic has, `count` at least. A machine that is busy reads some thousands a second."""
    consumer = Consumer(
        {
            "bootstrap.servers": bmq.servers,
            "group.id": "test",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic])
    found: list[Message] = []

    def have(count: int, within_s: float = 0.2) -> bool:
        found.extend(one for one in consumer.consume(1000, within_s) if not one.error())
        return len(found) >= count

    try:
        until(
            lambda: have(count),
            f"{count} records of {topic}",
            60 + count / 2_000,
            shows=lambda: f"{len(found)} are there",
        )
        while have(len(found) + 1, within_s=1.0):
            pass
    finally:
        consumer.close()
    return found


def values(bmq: Bmq, topic: str, count: int) -> list[str]:
    return [(one.value() or b"").decode() for one in records(bmq, topic, count)]


def test_what_is_written_in_each_form_is_in_the_topic_where_the_answer_says(bmq: Bmq, databus: Databus) -> None:
    bmq.start()
    databus.start()
    headers = {"bmq-header-trace": "t1", "content-type": "application/octet-stream"}
    status, first = databus.post("orders", b"\x00raw\xff", query="?key=k1&timestamp=1700000000000", headers=headers)
    assert (status, first["status"]) == (200, 200)
    many = [
        {"text": "zwei", "key": "k2", "headers": {"a": "1", "b": None}},
        {"json": {"c": [1, 2.50]}},
        {"base64": base64.b64encode(b"\x00\x01").decode(), "keyBase64": "AAE="},
        {"key": "tombstone"},
    ]
    status, answer = databus.post_many("orders", many)
    assert (status, [one["status"] for one in answer["results"]]) == (200, [200] * 4)
    lines = "\n".join(json.dumps({"text": f"line {n}"}) for n in range(3)).encode()
    status, streamed = databus.post("orders", lines, media="application/x-ndjson")
    assert status == 200
    told = [first, *answer["results"], *streamed["results"]]
    found = records(bmq, "orders", 8)
    assert [(one["partition"], one["offset"]) for one in told] == [(one.partition(), one.offset()) for one in found]
    assert [one.value() for one in found] == [
        b"\x00raw\xff",
        b"zwei",
        b'{"c": [1, 2.5]}',
        b"\x00\x01",
        None,
        b"line 0",
        b"line 1",
        b"line 2",
    ]
    assert [one.key() for one in found[:5]] == [b"k1", b"k2", None, b"\x00\x01", b"tombstone"]
    assert (found[0].timestamp()[1], found[0].headers()) == (1_700_000_000_000, [("trace", b"t1")])
    assert found[1].headers() == [("a", b"1"), ("b", None)]


@pytest.mark.parametrize("channel", ["orders", "clicks"])
def test_what_the_cluster_refuses_a_batch_for_is_refused_alone(bmq: Bmq, databus: Databus, channel: str) -> None:
    """A batch is as large as librdkafka makes it, and the cluster refuses whole ones."""
    bmq.start()
    topic = "orders" if channel == "orders" else "clicks-raw"
    admin = AdminClient({"bootstrap.servers": bmq.servers})
    admin.create_topics([NewTopic(topic, 1, config={"max.message.bytes": "100000"})])[topic].result(30)
    databus.start()
    many: list[dict[str, Any]] = [{"text": f"{n:04}" + "x" * 1_000} for n in range(1_000)]
    many[500]["timestamp"] = 253_402_300_799_000
    lines = "\n".join(map(json.dumps, many)).encode()
    _, answer = databus.post(channel, lines, media="application/x-ndjson")
    taken = 200 if channel == "orders" else 202
    statuses = [one["status"] for one in answer["results"]]
    wanted = [taken] * 1_000 if channel == "clicks" else [*[200] * 500, 400, *[200] * 499]
    assert statuses == wanted
    assert {int(value[:4]) for value in values(bmq, topic, 999)} == {n for n in range(1_000) if n != 500}
    if channel == "clicks":
        until((databus.spool / "clicks" / "refused.jsonl").exists, "what is refused to be kept", 30)
        assert len((databus.spool / "clicks" / "refused.jsonl").read_text().splitlines()) == 1


def test_each_message_that_is_not_taken_is_told_with_its_reason_and_the_others_are_taken(
    bmq: Bmq, databus: Databus
) -> None:
    bmq.start()
    databus.start()
    many = [
        {"text": "good"},
        {"text": "a", "json": 1},
        {"txt": "misspelled"},
        {"text": "x" * (2 * MEBIBYTE)},
        {"text": "nowhere", "partition": 77},
        "no object",
        {"text": "also good"},
    ]
    status, answer = databus.post_many("orders", many)
    assert status == 207
    assert [one["status"] for one in answer["results"]] == [200, 400, 400, 413, 404, 400, 200]
    reasons = [one.get("error", "") for one in answer["results"]]
    assert "one of text, json and base64" in reasons[1]
    assert "txt" in reasons[2]
    assert values(bmq, "orders", 2) == ["good", "also good"]
    for channel, body, media, wanted, said in (
        ("nobody", b"x", "text/plain", 404, "there are clicks, closed, orders"),
        ("closed", b"x", "text/plain", 403, "turned off"),
        ("orders", b"[1, 2", "application/json", 400, "no JSON array"),
        ("orders", b'{"text": "caf\xe9"}', "application/json", 400, "utf-8"),
        ("orders", b'{"total": 5}', "application/json", 400, "text, json or base64"),
        ("orders", b"a=b", "application/x-www-form-urlencoded", 415, "say text/plain"),
        ("orders", b"x" * (17 * MEBIBYTE), "text/plain", 413, "16777216 bytes at most"),
    ):
        status, answer = databus.post(channel, body, media=media)
        assert status == wanted
        assert said in answer["error"]
    status, answer = databus.post("orders", b"not gzip", headers={"content-encoding": "gzip"})
    assert (status, "no gzip" in answer["error"]) == (400, True)
    assert databus.stop() == 0


def test_what_was_accepted_while_there_was_no_cluster_is_sent_in_order_though_the_sidecar_was_killed(
    bmq: Bmq, databus: Databus
) -> None:
    databus.start()
    for n in range(100):
        status, answer = databus.post_many("clicks", [{"text": f"{n}-{part}", "key": "k"} for part in range(10)])
        assert (status, answer["results"][9]) == (202, {"status": 202})
        if n == 50:
            databus.kill9()
            databus.start()
    databus.kill9()
    databus.start()
    assert databus.value("bmq_databus_spool_messages", channel="clicks") == 1000
    bmq.start()
    wanted = [f"{n}-{part}" for n in range(100) for part in range(10)]
    assert values(bmq, "clicks-raw", 1000) == wanted
    until(lambda: databus.value("bmq_databus_spool_messages", channel="clicks") == 0, "an empty spool")
    assert databus.stop() == 0
    databus.start()
    assert databus.value("bmq_databus_spool_messages", channel="clicks") == 0


@pytest.mark.slow
def test_nothing_that_was_accepted_is_lost_though_sidecar_and_cluster_are_killed_again_and_again(
    bmq: Bmq, databus: Databus
) -> None:
    bmq.start()
    databus.start()
    accepted: list[str] = []
    for turn in range(10):
        stop = threading.Event()

        def write(turn: int = turn, stop: threading.Event = stop) -> None:
            n = 0
            while not stop.is_set():
                texts = [f"{turn}-{n}-{part}" for part in range(5)]
                try:
                    status, _ = databus.post_many("clicks", [{"text": text, "key": "k"} for text in texts])
                except (OSError, HTTPException):
                    return
                if status == 202:
                    accepted.extend(texts)
                n += 1

        writer = threading.Thread(target=write)
        writer.start()
        before = len(accepted)
        until(lambda before=before: len(accepted) > before + 100, "a hundred messages more")  # type: ignore[misc]
        if turn % 3 == 2:
            bmq.kill9()
            bmq.start()
        databus.kill9()
        stop.set()
        writer.join()
        databus.start()
    until(lambda: databus.value("bmq_databus_spool_messages", channel="clicks") == 0, "an empty spool", 120)
    found, known = values(bmq, "clicks-raw", len(accepted)), set(accepted)
    assert known <= set(found)
    assert [text for text in dict.fromkeys(found) if text in known] == accepted


def test_what_a_channel_accepted_is_sent_though_it_accepts_nothing_any_more(
    bmq: Bmq, databus: Databus, tmp_path: Path
) -> None:
    databus.start()
    for n in range(3):
        assert databus.post("clicks", f"m{n}".encode())[0] == 202
    databus.kill9()
    bmq.start()
    later = Databus(bmq.servers, CHANNELS.replace("accepted", "durable"), tmp_path)
    later.start()
    assert values(bmq, "clicks-raw", 3) == ["m0", "m1", "m2"]
    assert later.stop() == 0


def test_a_writer_whose_message_is_under_way_when_the_sidecar_ends_is_told_so(
    databus: Databus,
) -> None:
    databus.start()
    answers: list[tuple[int, Any]] = []
    writing = threading.Thread(target=lambda: answers.append(databus.post("orders", b"x")))
    writing.start()
    let_pass(1, "the message is with the producer, which finds no cluster")
    began = monotonic()
    assert databus.stop() == 0
    assert monotonic() - began < 15
    writing.join()
    [(status, answer)] = answers
    told = "may have it all the same", "this sidecar is ending", "not written: the cluster at"
    assert (status, any(one in answer["error"] for one in told)) == (503, True)
    assert "cluster is not reached" in databus.log.read_text()


def test_a_unix_socket_takes_the_same_and_is_one_sidecars(bmq: Bmq, tmp_path: Path) -> None:
    bmq.start()
    path = tmp_path / "bus.sock"
    first, second = (Databus(bmq.servers, CHANNELS, tmp_path / name, unix=path) for name in ("one", "two"))
    first.start()
    try:
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(60)
            client.connect(str(path))
            head = "POST /v1/channels/orders/messages HTTP/1.1\r\nhost: bus\r\ncontent-length: 6\r\nconnection: close"
            client.sendall(f"{head}\r\ncontent-type: application/x-www-form-urlencoded\r\n\r\na form".encode())
            answer = b"".join(iter(partial(client.recv, 4096), b""))
        assert answer.startswith(b"HTTP/1.1 415")
        assert b"say text/plain" in answer
        with pytest.raises(AssertionError, match="''"):
            second.start()
        assert "another process listens there: choose another path" in second.log.read_text()
        second.stop()
        first.kill9()
        first.start()
        assert first.post("orders", b"once more")[0] == 200
    finally:
        first.stop()


def test_a_file_of_channels_that_is_wrong_is_told_in_a_line(bmq: Bmq, tmp_path: Path) -> None:
    for text, said in (
        ("kind: Topic", "document 1 is of kind 'Topic': channels are documents of kind: Channel alone"),
        (": : :", "line 1: it is not YAML"),
        ("orders: {}", "has no kind"),
        ("", "there is no Channel of bmq.io/v1alpha1: write one"),
        (CHANNELS.replace("accepted", "maybe"), "acknowledgement"),
        (CHANNELS + CHANNELS, "stands there twice"),
        (CHANNELS.replace("clicks-raw", "a b"), "spec.topic"),
    ):
        sidecar = Databus(bmq.servers, text, tmp_path)
        with pytest.raises(AssertionError, match="''"):
            sidecar.start()
        assert sidecar.stop() != 0
        [line] = [one for one in sidecar.log.read_text().splitlines() if one.startswith("error")]
        assert said in line
        sidecar.log.unlink()

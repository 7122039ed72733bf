"""What channels say of their messages, by a sidecar beside a started bmq, and as `explain` tells it."""

import json
import subprocess
from pathlib import Path
from time import monotonic
from typing import Any

from compat_server import BMQ, Bmq
from databus_process import Databus
from test_databus import records
from test_databus_away import ready
from tests.waiting import until

CHANNELS = """
apiVersion: bmq.io/v1alpha1
kind: Channel
metadata: {name: orders}
spec:
  key: {field: $.customer.id}
  redact: {replace: [$.card.number], remove: [$.card.cvc]}
---
apiVersion: bmq.io/v1alpha1
kind: Channel
metadata: {name: slow}
spec: {rate: {messagesPerSecond: 2}}
---
apiVersion: bmq.io/v1alpha1
kind: Channel
metadata: {name: few}
spec: {acknowledgement: accepted, sampling: {percent: 50, by: key}}
---
apiVersion: bmq.io/v1alpha1
kind: Channel
metadata: {name: murmured}
spec: {partitioner: murmur2}
---
apiVersion: bmq.io/v1alpha1
kind: Channel
metadata: {name: small}
spec: {acknowledgement: accepted, compression: zstd, batching: {lingerMs: 200, maxBytes: 100000}}
---
apiVersion: bmq.io/v1alpha1
kind: Channel
metadata: {name: checked}
spec:
  schema: {json: {type: object, required: [total]}}
  deadLetter: dead
---
apiVersion: bmq.io/v1alpha1
kind: Channel
metadata: {name: laned}
spec: {lane: {header: X-Lane}}
---
apiVersion: bmq.io/v1alpha1
kind: Channel
metadata: {name: laned-later}
spec: {topic: laned, acknowledgement: accepted, lane: {baggage: lane}}
---
apiVersion: bmq.io/v1alpha1
kind: Channel
metadata: {name: dead}
spec: {acknowledgement: accepted}
"""
ORDER = {"customer": {"id": "c1"}, "card": {"number": "4111", "cvc": 1}, "total": 12345678901234567890123}
JSON = "application/json"


def test_keys_come_from_a_field_and_what_is_redacted_is_not_in_the_topic(bmq: Bmq, tmp_path: Path) -> None:
    bmq.start()
    sidecar = Databus(bmq.servers, CHANNELS, tmp_path / "databus")
    sidecar.start()
    try:
        status, answer = sidecar.post_many("orders", [{"json": ORDER}, {"json": {"card": 1}}, {"text": "4111"}])
        assert status == 207
        assert [one["status"] for one in answer["results"]] == [200, 422, 422]
        (record,) = records(bmq, "orders", 1)
        assert record.key() == b"c1"
        written = {**ORDER, "card": {"number": "[redacted]"}}
        assert json.loads(record.value() or b"") == written
    finally:
        sidecar.stop()


def test_a_sidecar_refuses_what_is_beyond_the_rate_and_a_stream_waits(bmq: Bmq, tmp_path: Path) -> None:
    bmq.start()
    sidecar = Databus(bmq.servers, CHANNELS, tmp_path / "databus")
    sidecar.start()
    lines = b'{"text": "a"}\n' * 4
    try:
        status, answer = sidecar.post_many("slow", [{"text": str(one)} for one in range(4)])
        assert status == 207
        assert [(one["status"], one.get("retryAfter")) for one in answer["results"]] == [
            (200, None),
            (200, None),
            (429, 1),
            (429, 1),
        ]
        begin_s = monotonic()
        told = streamed(sidecar, "slow", lines)
        assert told[-1] == {"end": {"status": 200, "written": 4, "refused": 0}}
        assert monotonic() - begin_s > 1.0
    finally:
        sidecar.stop()


def test_a_sample_by_key_has_all_messages_of_a_key_and_partitioners_have_producers(bmq: Bmq, tmp_path: Path) -> None:
    bmq.start()
    sidecar = Databus(bmq.servers, CHANNELS, tmp_path / "databus")
    sidecar.start()
    try:
        messages = [{"text": "x", "key": f"key-{one % 40}"} for one in range(200)]
        status, answer = sidecar.post_many("few", messages)
        assert status == 207
        kept = [one["status"] for one in answer["results"]]
        assert kept[:40] * 5 == kept and set(kept) == {200, 202}
        assert all(one.get("sampledOut", False) == (one["status"] == 200) for one in answer["results"])
        assert len(records(bmq, "few", kept.count(202))) == kept.count(202)
        assert sidecar.post("murmured", b"x", query="?key=k")[0] == 200
    finally:
        sidecar.stop()


def test_a_channel_that_compresses_takes_less_of_the_store(bmq: Bmq, tmp_path: Path) -> None:
    bmq.start()
    sidecar = Databus(bmq.servers, CHANNELS, tmp_path / "databus")
    sidecar.start()
    value = b"the same again and again " * 40_000

    def stored_bytes() -> int:
        return sum(path.stat().st_size for path in (tmp_path / "data").rglob("*") if path.is_file())

    try:
        before = stored_bytes()
        assert sidecar.post("small", value)[0] == 202
        (record,) = records(bmq, "small", 1)
        assert record.value() == value
        assert stored_bytes() - before < len(value) // 4
    finally:
        sidecar.stop()


def test_messages_go_to_the_lane_that_their_request_names_and_to_no_other(bmq: Bmq, tmp_path: Path) -> None:
    bmq.start()
    admin = ["--admin", f"127.0.0.1:{bmq.admin_port}"]
    subprocess.run([str(BMQ), "lanes", "create", "dev", "--ttl", "8h", *admin], check=True, timeout=60)
    sidecar = Databus(bmq.servers, CHANNELS, tmp_path / "databus")
    sidecar.start()
    try:
        assert sidecar.post("laned", b"base")[0] == 200
        assert sidecar.post("laned", b"dev", headers={"x-lane": "dev"})[0] == 200
        in_baggage = {"baggage": "user=1,lane=dev"}
        assert sidecar.post("laned-later", b"dev later", headers=in_baggage)[0] == 202
        assert sidecar.post("laned", b"no", headers={"x-lane": "De v"})[0] == 422
        status, answer = sidecar.post("laned", b"no", headers={"x-lane": "nowhere"})
        assert status == 403 and "lane nowhere: there is no such lane" in answer["error"]
        assert values_in_lane(bmq, "dev", 2) == ["dev", "dev later"]
        assert [one.value() for one in records(bmq, "laned", 1)] == [b"base"]
    finally:
        sidecar.stop()


def test_lanes_that_are_not_there_hold_up_nobody_and_are_written_to_once_they_are(bmq: Bmq, tmp_path: Path) -> None:
    bmq.start()
    sidecar = Databus(bmq.servers, CHANNELS, tmp_path / "databus")
    sidecar.start()
    assert sidecar.process is not None
    threads = Path(f"/proc/{sidecar.process.pid}/task")
    try:
        for channel, outer in (("laned", {"x-lane": "dev"}), ("laned-later", {"baggage": "lane=dev"})):
            for _ in range(2):
                assert sidecar.post(channel, b"too early", headers=outer)[0] in (403, 202)
            one = {"name": "baggage" if "baggage" in outer else "x-lane"}
            prefix = "lane=" if "baggage" in outer else ""
            many = [{"text": "x", "headers": [{**one, "text": f"{prefix}no{number}"}]} for number in range(400)]
            sidecar.post_many(channel, many)
        until(
            lambda: sidecar.value("bmq_databus_spool_messages", channel="laned-later") == 0, "the spool to be sent", 60
        )
        assert sidecar.value("bmq_databus_spool_refused_total", channel="laned-later") == 402
        assert len(list(threads.iterdir())) < 200, "each producer has some threads"
        admin = ["--admin", f"127.0.0.1:{bmq.admin_port}"]
        subprocess.run([str(BMQ), "lanes", "create", "dev", *admin], check=True, timeout=60)
        until(
            lambda: sidecar.post("laned", b"dev", headers={"x-lane": "dev"})[0] == 200, "the lane to be written to", 30
        )
        assert sidecar.post("laned-later", b"dev later", headers={"baggage": "lane=dev"})[0] == 202
        assert values_in_lane(bmq, "dev", 2) == ["dev", "dev later"]
    finally:
        assert sidecar.stop() == 0


def test_a_message_with_several_targets_is_answered_when_all_have_it_and_each_is_told(bmq: Bmq, tmp_path: Path) -> None:
    bmq.start()
    other = Bmq(["--data", str(tmp_path / "other"), "--no-fsync"], log=tmp_path / "other.log")
    other.start()
    targets = f"[{{topic: moved}}, {{topic: moved-2}}, {{topic: moved, bootstrapServers: '{other.servers}'}}]"
    head = "apiVersion: bmq.io/v1alpha1\nkind: Channel\nmetadata: {name: moving}\n"
    sidecar = Databus(bmq.servers, f"{head}spec: {{targets: {targets}}}\n", tmp_path / "databus")
    sidecar.start()
    try:
        messages = [{"text": str(one), "key": "k"} for one in range(20)]
        status, answer = sidecar.post_many("moving", messages)
        assert status == 200
        names = ["moved", "moved-2", f"moved@{other.servers}"]
        assert all([target["target"] for target in one["targets"]] == names for one in answer["results"])
        wanted = [str(one).encode() for one in range(20)]
        for cluster, topic in ((bmq, "moved"), (bmq, "moved-2"), (other, "moved")):
            assert [one.value() for one in records(cluster, topic, 20)] == wanted
        other.stop()
        until(lambda: "moving" in ready(sidecar)[1].get("channels", {}), "the sidecar to know that it is away")
        status, answer = sidecar.post("moving", b"last")
        told = f"moved@{other.servers}: not written: the cluster at {other.servers} is not reached since "
        assert status == 503 and answer["error"].startswith(told)
        assert [target["status"] for target in answer["targets"]] == [200, 200, 503]
    finally:
        sidecar.stop()
        other.stop()


def values_in_lane(bmq: Bmq, lane: str, count: int) -> list[str]:
    command = [str(BMQ), "consume", "laned", "-b", bmq.servers, "--lane", lane, "--from", "beginning", "--follow"]
    command += ["--count", str(count), "--format", "%s\\n"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    return sorted(done.stdout.split("\n")[:-1])


def test_what_does_not_fit_is_a_dead_letter_by_the_other_channels_acknowledgement(bmq: Bmq, tmp_path: Path) -> None:
    bmq.start()
    sidecar = Databus(bmq.servers, CHANNELS, tmp_path / "databus")
    sidecar.start()
    try:
        status, answer = sidecar.post_many("checked", [{"json": {"total": 1}}, {"json": {}}, {"json": {"total": 2}}])
        assert status == 207
        first, dead, last = answer["results"]
        assert (first["status"], last["status"], dead["status"], dead["deadLetter"]) == (200, 200, 202, "dead")
        assert "total is missing" in dead["error"]
        (record,) = records(bmq, "dead", 1)
        assert dict(record.headers() or [])["bmq-dead-letter-channel"] == b"checked"
        assert len(records(bmq, "checked", 2)) == 2
    finally:
        sidecar.stop()


def streamed(sidecar: Databus, channel: str, lines: bytes) -> list[Any]:
    command = ["curl", "-sN", "--data-binary", "@-", "-H", "content-type: application/x-ndjson"]
    command += ["-H", "accept: application/x-ndjson", sidecar.url(channel)]
    answer = subprocess.run(command, input=lines, capture_output=True, check=True, timeout=60).stdout
    return [json.loads(line) for line in answer.splitlines()]


def explained(tmp_path: Path, channel: str, value: bytes, *options: str) -> tuple[int, str]:
    """Exit code and what was said."""
    channels, message = tmp_path / "channels.yaml", tmp_path / "message"
    channels.write_text(CHANNELS)
    message.write_bytes(value)
    command = [str(BMQ), "databus", "explain", channel, "--channels", str(channels), "--message", str(message)]
    done = subprocess.run([*command, *options], capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stdout + done.stderr


def test_explain_says_what_a_message_would_become_and_changes_nothing(tmp_path: Path) -> None:
    code, text = explained(tmp_path, "orders", json.dumps(ORDER).encode(), "--partition", "2")
    assert code == 0
    assert "'c1', by $.customer.id" in text and "4111" not in text and "2, which its writer named" in text
    code, text = explained(tmp_path, "orders", json.dumps(ORDER).encode(), "-o", "json", "--header", "a=b")
    document = json.loads(text)
    assert code == 0 and document["written"]
    assert [one["step"] for one in document["steps"]] == ["enabled", "redact", "key", "partition"]
    (message,) = document["messages"]
    assert (message["key"], message["partition"], message["headers"]) == ("c1", None, [{"name": "a", "value": "b"}])
    assert "12345678901234567890123" in message["value"]


def test_explain_ends_with_1_where_a_message_would_not_be_written_and_says_why(tmp_path: Path) -> None:
    code, text = explained(tmp_path, "orders", b"4111")
    assert code == 1 and "it would not be written: it has no key" in text
    code, text = explained(tmp_path, "orders", b"no JSON", "-o", "json")
    assert code == 1 and "nothing can be taken out" in json.loads(text)["why"]
    assert explained(tmp_path, "none", b"")[0] == 3
    code, text = explained(tmp_path, "orders", b"{}", "--header", "a")
    assert code == 2 and "NAME=TEXT" in text

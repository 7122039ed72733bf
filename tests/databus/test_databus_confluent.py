"""Confluent's REST API, by a sidecar beside a started bmq: curl, and a client that reads while it writes."""

import json
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from compat_server import Bmq, tool, tools_folder
from confluent_kafka.admin import AdminClient
from databus_process import CHANNELS, Databus
from test_any_topic_written import made
from test_databus import records, values

JSON = "application/json"


def string(text: str, **fields: Any) -> dict[str, Any]:
    return {"value": {"type": "STRING", "data": text}, **fields}


def url(databus: Databus, topic: str, *, root: str = "/v3", cluster: str = "any") -> str:
    return f"http://{databus.address}{root}/clusters/{cluster}/topics/{topic}/records"


def asked(address: str, body: bytes | None = None, **headers: str) -> tuple[int, list[Any]]:
    """Status, and the objects of the answer."""
    named = {"content-type": JSON, **{name.replace("_", "-"): value for name, value in headers.items()}}
    try:
        with urlopen(Request(address, data=body, headers=named), timeout=40) as answer:
            return answer.status, [json.loads(line) for line in answer.read().splitlines()]
    except HTTPError as error:
        return error.code, [json.loads(line) for line in error.read().splitlines()]


def produced(databus: Databus, topic: str, *records: dict[str, Any], **headers: str) -> tuple[int, list[Any]]:
    return asked(url(databus, topic), "".join(map(json.dumps, records)).encode(), **headers)


@pytest.fixture
def sidecar(bmq: Bmq, tmp_path: Path) -> Iterator[Databus]:
    started = Databus(bmq.servers, CHANNELS, tmp_path / "sidecar", options=["--any-topic"])
    try:
        yield started
    finally:
        started.stop()


def test_a_client_finds_the_cluster_and_its_record_is_in_the_topic(bmq: Bmq, sidecar: Databus) -> None:
    bmq.start()
    made(bmq, "free")
    sidecar.start()
    admin = AdminClient({"bootstrap.servers": bmq.servers})
    known = admin.describe_cluster(request_timeout=30).result().cluster_id
    for root in ("/v3", "/kafka/v3"):
        status, (listed,) = asked(f"http://{sidecar.address}{root}/clusters")
        (cluster,) = listed["data"]
        assert (status, listed["kind"], cluster["cluster_id"]) == (200, "KafkaClusterList", known)
        assert asked(cluster["metadata"]["self"]) == (200, [cluster])
        record = {
            "partition_id": 0,
            "headers": [{"name": "Header-1", "value": "SGVhZGVyLTE="}],
            "key": {"type": "BINARY", "data": "Zm9vYmFy"},
            "value": {"type": "JSON", "data": {"foo": "bar"}},
            "timestamp": "2021-02-05T19:14:42Z",
        }
        status, (told,) = asked(url(sidecar, "free", root=root, cluster=known), json.dumps(record).encode())
        assert status == 200
        assert told == {
            "error_code": 200,
            "cluster_id": known,
            "topic_name": "free",
            "partition_id": 0,
            "offset": told["offset"],
            "timestamp": "2021-02-05T19:14:42Z",
            "key": {"type": "BINARY", "size": 6},
            "value": {"type": "JSON", "size": 14},
        }
    for at, found in enumerate(records(bmq, "free", 2)):
        assert (found.offset(), found.key(), found.value()) == (at, b"foobar", b'{"foo": "bar"}')
        assert found.headers() == [("Header-1", b"Header-1")] and found.timestamp()[1] == 1_612_552_482_000


def test_each_record_of_a_body_has_an_object_and_a_wrong_one_keeps_none_back(bmq: Bmq, sidecar: Databus) -> None:
    bmq.start()
    sidecar.start()
    wrong = {"value": {"type": "AVRO", "data": 1}}
    status, told = produced(sidecar, "orders", string("a"), wrong, string("b"), string("c", partition_id=77))
    assert status == 200
    assert [one["error_code"] for one in told] == [200, 400, 200, 40403]
    assert "no schema registry" in told[1]["message"] and "no partition 77" in told[3]["message"]
    assert values(bmq, "orders", 2) == ["a", "b"]
    status, told = produced(sidecar, "clicks", string("x"))
    assert (status, told[0]["error_code"], told[0]["offset"]) == (200, 200, -1)
    assert values(bmq, "clicks-raw", 1) == ["x"]


def test_what_could_not_be_looked_at_has_a_status_and_the_same_shape(bmq: Bmq, sidecar: Databus) -> None:
    bmq.start()
    sidecar.start()
    body = json.dumps(string("x")).encode()
    cases = [
        (asked(url(sidecar, "nowhere"), body), 404, 40403, "the cluster has none"),
        (asked(url(sidecar, "closed"), body), 403, 40301, "turned off"),
        (asked(url(sidecar, "orders"), body, content_type="text/plain"), 415, 415, "records are application/json"),
        (asked(url(sidecar, "orders"), b""), 400, 400, "no record"),
        (asked(url(sidecar, "orders"), b"[1]"), 400, 400, "begins none"),
        (asked(url(sidecar, "orders"), body + b"{"), 400, 400, "ends within a record"),
        (asked(f"http://{sidecar.address}/v3/clusters/other"), 404, 40403, "no cluster 'other'"),
        (asked(url(sidecar, "orders", cluster="x" * 65), b"{}"), 404, 40403, "64 characters at most"),
        (asked(f"http://{sidecar.address}/v3/clusters/x/topics"), 404, 40403, "is not served"),
        (asked(url(sidecar, "orders")), 405, 405, "use POST"),
    ]
    for (status, told), wanted, code, why in cases:
        assert (status, told[0]["error_code"]) == (wanted, code), told
        assert why in told[0]["message"]
    assert values(bmq, "orders", 0) == []


def test_a_key_has_the_same_answer_again_also_after_a_restart(bmq: Bmq, sidecar: Databus) -> None:
    sidecar.start()  # without a cluster, so that nothing is sent of which a killed process has not written that it was
    key = {"idempotency_key": '"r1"'}
    first = produced(sidecar, "clicks", string("once"), string("twice"), **key)
    assert first[0] == 200 and [one["error_code"] for one in first[1]] == [200, 200]
    assert first == produced(sidecar, "clicks", string("once"), string("twice"), **key)
    sidecar.kill9()
    sidecar.start()
    assert first == produced(sidecar, "clicks", string("once"), string("twice"), **key)
    status, told = produced(sidecar, "clicks", string("another"), **key)
    assert (status, told[0]["error_code"]) == (422, 422)
    bmq.start()
    assert values(bmq, "clicks-raw", 2) == ["once", "twice"]


def test_a_stream_is_answered_record_by_record_while_it_lasts(bmq: Bmq, sidecar: Databus) -> None:
    bmq.start()
    sidecar.start()
    host, port = sidecar.address.rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=40) as connection:
        head = f"POST /v3/clusters/c/topics/orders/records HTTP/1.1\r\nhost: {host}\r\ncontent-type: {JSON}\r\n"
        connection.sendall(f"{head}transfer-encoding: chunked\r\n\r\n".encode())
        answer = connection.makefile("rb")

        def send(data: bytes) -> None:
            connection.sendall(b"%x\r\n%b\r\n" % (len(data), data))

        def chunk() -> bytes:
            found = answer.read(int(answer.readline(), 16))
            answer.readline()
            return found

        one = json.dumps(string('{one} \\ "')).encode()
        send(one[:9])
        send(one[9:])
        assert answer.readline().split()[1] == b"200"
        while answer.readline() != b"\r\n":
            pass
        assert json.loads(chunk())["offset"] == 0
        send(b"{}\n" + json.dumps({"value": {"type": "X"}}, indent=2).encode())
        told = b""
        while told.count(b"\n") < 2:
            told += chunk()
        assert [json.loads(line)["error_code"] for line in told.splitlines()] == [200, 400]
        send(b" ]")
        last = json.loads(chunk())
        assert last["error_code"] == 400 and "2 records were written, and 1 refused" in last["message"]
        assert chunk() == b""
    assert [found.value() for found in records(bmq, "orders", 2)] == [b'{one} \\ "', None]


def test_curl_streams_many_and_a_cluster_that_is_away_is_told_in_each(bmq: Bmq, sidecar: Databus) -> None:
    bmq.start()
    sidecar.start()
    count = 5_000
    body = "".join(json.dumps(string(str(one))) for one in range(count))
    command = ["curl", "-sS", "-X", "POST", "-T", "-", url(sidecar, "orders"), "-H", f"content-type: {JSON}"]
    done = subprocess.run(command, input=body, capture_output=True, text=True, timeout=120, check=True)
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert [one["error_code"] for one in told] == [200] * count
    assert sorted(values(bmq, "orders", count), key=int) == [str(one) for one in range(count)]
    bmq.kill9()
    status, (result,) = produced(sidecar, "orders", string("late"))
    assert status == 200 and result["error_code"] in (50302, 50003)


def test_a_token_is_asked_for_in_the_same_shape(bmq: Bmq, tmp_path: Path) -> None:
    (tmp_path / "tokens").write_text("a-token-of-32-characters-or-more")
    bmq.start()
    sidecar = Databus(bmq.servers, CHANNELS, tmp_path / "it", options=["--token-file", str(tmp_path / "tokens")])
    sidecar.start()
    try:
        status, (told,) = produced(sidecar, "orders", string("x"))
        assert (status, told["error_code"]) == (401, 40101)
        token = {"authorization": "Bearer a-token-of-32-characters-or-more"}
        assert produced(sidecar, "orders", string("x"), **token)[1][0]["error_code"] == 200
    finally:
        sidecar.stop()


def test_a_client_that_others_made_for_this_api(bmq: Bmq, sidecar: Databus) -> None:
    tool("get", "rest-client")
    bmq.start()
    made(bmq, "free")
    sidecar.start()
    python = tools_folder() / "rest-client" / "bin" / "python"
    command = [python, Path(__file__).with_name("rest_client.py"), f"http://{sidecar.address}", "free"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    listed, cluster, *told, nowhere, another = map(json.loads, done.stdout.splitlines())
    assert listed["data"] == [cluster]
    assert [(one["error_code"], one["cluster_id"]) for one in told] == [(200, cluster["cluster_id"])] * 3
    assert [one["value"]["type"] for one in told] == ["STRING", "JSON", "BINARY"]
    assert nowhere.startswith("API error: 404") and '"error_code":40403' in nowhere
    assert another.startswith("API error: 404") and "there is no cluster 'another' here" in another
    found = {one.value(): (one.key(), one.headers()) for one in records(bmq, "free", 3)}
    assert found == {
        b"plain": (None, None),
        b'{"of": ["JSON", 1]}': (b'"k"', [("from", b"rest")]),
        b"\x00\x01\x02\xff": (b"k", None),
    }

"""Clients that nobody here wrote, and those that break HTTP, against a started sidecar: streams, requests that come
again, tokens.
"""

import asyncio
import json
import shutil
import signal
import socket
import subprocess
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import httpx
import pytest
import zstandard
from compat_server import Bmq
from databus_process import CHANNELS, Databus
from test_databus import MEBIBYTE, values
from tests.waiting import until

STREAM = {"content-type": "application/x-ndjson", "accept": "application/x-ndjson"}
TOKEN, OTHER = "a-token-of-24-characters", "another-one-of-24-chars!"
STREAMS_MAX = 128


class Raw:
    """A connection, byte for byte."""

    def __init__(self, databus: Databus) -> None:
        host, port = databus.address.rsplit(":", 1)
        self._socket = socket.create_connection((host, int(port)), timeout=60)

    def __enter__(self) -> "Raw":
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def begin(self, channel: str, *, version: str = "1.1", **headers: str) -> None:
        """A request's first lines; _ in names of headers for -."""
        lines = [f"POST /v1/channels/{channel}/messages HTTP/{version}", "host: x"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        self.send("\r\n".join([*lines, "", ""]).encode())

    def stream(self, channel: str, **headers: str) -> None:
        """One in chunks."""
        self.begin(channel, **{"transfer-encoding": "chunked", **STREAM, **headers})

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def chunk(self, data: bytes) -> None:
        self.send(b"%x\r\n%s\r\n" % (len(data), data))

    def until(self, wanted: bytes) -> bytes:
        """What comes, up to what has `wanted`."""
        found = b""
        while wanted not in found:
            data = self._socket.recv(65_536)
            assert data, found
            found += data
        return found

    def rest(self) -> bytes:
        return b"".join(iter(partial(self._socket.recv, 65_536), b""))


def line(text: str) -> bytes:
    return json.dumps({"text": text}).encode() + b"\n"


def lines_of(text: str | bytes) -> list[Any]:
    return [json.loads(one) for one in text.splitlines()]


def test_curl_streams_a_file_and_is_told_each_result_and_how_many_there_are(bmq: Bmq, databus: Databus) -> None:
    bmq.start()
    databus.start()
    curl = shutil.which("curl")
    assert curl is not None
    body = b"".join(line(f"{n}") for n in range(50_000)) + b"no json\n" + b'{"text": "last"}'
    headers = [part for name, value in STREAM.items() for part in ("-H", f"{name}: {value}")]
    for channel, status in (("orders", 200), ("clicks", 202)):
        command = [curl, "-sS", "-T", "-", "-X", "POST", *headers, databus.url(channel)]
        done = subprocess.run(command, input=body, capture_output=True, timeout=120, check=True)
        found = lines_of(done.stdout)
        assert [one["status"] for one in found[:-1]] == [status] * 50_000 + [400, status]
        assert found[-1] == {"end": {"status": 200, "written": 50_001, "refused": 1}}
    wanted = [*map(str, range(50_000)), "last"]
    assert values(bmq, "orders", 50_001) == wanted
    assert values(bmq, "clicks-raw", 50_001) == wanted
    assert databus.value("bmq_databus_messages_total", channel="orders", status="400") == 1


def test_aiohttp_has_each_result_before_it_sends_the_next_message(bmq: Bmq, databus: Databus) -> None:
    bmq.start()
    databus.start()

    async def main() -> None:
        answered = asyncio.Event()
        answered.set()

        async def body() -> AsyncIterator[bytes]:
            for n in range(20):
                await answered.wait()
                answered.clear()
                yield line(f"{n}")

        async with (
            aiohttp.ClientSession() as session,
            session.post(databus.url("orders"), data=body(), headers=STREAM) as answer,
        ):
            assert (answer.status, answer.content_type) == (200, "application/x-ndjson")
            for n in range(20):
                assert json.loads(await answer.content.readline()) == {"status": 200, "partition": 0, "offset": n}
                answered.set()
            assert json.loads(await answer.content.readline())["end"]["written"] == 20

    asyncio.run(asyncio.wait_for(main(), 60))


def test_httpx_which_reads_when_all_is_sent_and_one_that_asks_for_no_stream(bmq: Bmq, databus: Databus) -> None:
    bmq.start()
    databus.start()
    packed = zstandard.compress(b"".join(line(f"{n}") for n in range(1_000)))
    with httpx.Client(timeout=60) as client:
        headers = {**STREAM, "content-encoding": "zstd"}
        answer = client.post(databus.url("orders"), content=iter([packed[:100], packed[100:]]), headers=headers)
        assert (answer.status_code, lines_of(answer.content)[-1]["end"]["written"]) == (200, 1_000)
        plain = client.post(databus.url("orders"), content=line("a"), headers={"content-type": "application/x-ndjson"})
        assert plain.json() == {"results": [{"status": 200, "partition": 0, "offset": 1_000}]}
        refused = client.post(databus.url("orders"), content=line("a"), headers={**STREAM, "idempotency-key": "k"})
        assert (refused.status_code, "a stream has no" in refused.json()["error"]) == (400, True)
        refused = client.post(databus.url("orders"), content=b"a", headers={**STREAM, "content-encoding": "br"})
        assert (refused.status_code, "use gzip or zstd" in refused.json()["error"]) == (400, True)


def test_a_stream_is_answered_to_its_last_line_when_the_sidecar_ends_though_the_cluster_is_away(
    bmq: Bmq, databus: Databus
) -> None:
    bmq.start()
    databus.start()
    with Raw(databus) as client, Raw(databus) as accepted:
        client.stream("orders")
        client.chunk(line("a"))
        client.until(b'"offset":0}')
        accepted.stream("clicks")
        accepted.chunk(line("a"))
        accepted.until(b'"status":202')
        bmq.signal(signal.SIGSTOP)  # and not killed yet: what is known to be away is not handed over
        client.chunk(line("b"))
        accepted.chunk(line("b"))
        accepted.until(b'"status":202')
        bmq.kill9()
        until(lambda: "cluster is not reached" in databus.log.read_text(), "the cluster is missed")
        assert databus.stop() == 0
        told = client.rest()
        assert b'{"status":503,"error":"the cluster did not take it in time, and may have it all the same' in told
        assert b'{"end":{"status":503,"written":1,"refused":1,"error":"this sidecar is ending' in told
        assert b'{"end":{"status":503,"written":2,"refused":0,"error":"this sidecar is ending' in accepted.rest()
    bmq.start()
    databus.start()
    assert values(bmq, "clicks-raw", 2) == ["a", "b"]


def test_who_opens_more_streams_than_there_may_be_is_told_and_the_others_go_on(bmq: Bmq, databus: Databus) -> None:
    bmq.start()
    databus.start()
    clients = [Raw(databus) for _ in range(STREAMS_MAX + 1)]
    for client in clients[:-1]:
        client.stream("clicks")
        client.until(b"200 OK")
    assert databus.value("bmq_databus_streams") == STREAMS_MAX
    clients[-1].stream("clicks")
    refused = clients[-1].until(b"}")
    assert b"503 Service Unavailable" in refused
    assert b"retry-after: 1" in refused
    assert b"128 streams are open already" in refused
    clients[0].chunk(line("a"))
    clients[0].until(b'"status":202')
    assert databus.post("clicks", b"b")[0] == 202
    for client in clients[:-1]:
        client.__exit__()
    until(lambda: databus.value("bmq_databus_streams") == 0, "no open streams")
    clients[-1].__exit__()


def test_broken_http_is_told_where_it_can_be_and_no_half_of_it_is_written(bmq: Bmq, databus: Databus) -> None:
    bmq.start()
    databus.start()
    with Raw(databus) as client:
        client.stream("clicks")
        client.chunk(line("whole") + b'{"text": "ha')
        client.until(b'"status":202')
        client.send(b"zz\r\nno chunk")
        told = client.rest()
        assert b'{"end":{"status":400,"written":1,"refused":0,"error":"the body is no HTTP: illegal chunk' in told
    with Raw(databus) as client:
        client.begin("clicks", transfer_encoding="chunked", content_type="application/x-ndjson")
        client.chunk(line("not written"))
        client.send(b"zz\r\nno chunk")
        assert b"400 Bad Request" in client.rest()
    with Raw(databus) as client:
        client.begin("clicks", content_type="text/plain", content_length="5")
        client.send(b"exactMORE THAN IT SAID\r\n\r\n")
        told = client.rest()
        assert b"202 Accepted" in told
        assert b"illegal request line" in told
    with Raw(databus) as client:
        client.begin("clicks", version="1.0", content_length="15", **STREAM)
        client.send(b'{"text":"1.0"}\n')
        told = client.rest()
        assert told.startswith(b"HTTP/1.1 200 OK")
        assert b"chunked" not in told.lower()
        assert told.endswith(b'\r\n{"status":202}\n{"end":{"status":200,"written":1,"refused":0}}\n')
    with Raw(databus) as client:
        client.send(b"POST / HTTP/1.1\r\nhost")
        assert b"408 Request Timeout" in client.rest()
    assert values(bmq, "clicks-raw", 3) == ["whole", "exact", "1.0"]
    assert "Traceback" not in databus.log.read_text()


def test_a_request_whose_end_is_said_in_two_ways_is_refused_with_what_follows(bmq: Bmq, databus: Databus) -> None:
    bmq.start()
    databus.start()
    with Raw(databus) as client:
        client.begin("clicks", content_type="text/plain", content_length="5", transfer_encoding="chunked")
        client.send(b"0\r\n\r\n")
        client.begin("clicks", content_type="text/plain", content_length="1")
        client.send(b"x")
        told = client.rest()
    assert told.startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert b"it has both Content-Length and Transfer-Encoding" in told
    assert told.count(b"content-length") == 1
    assert databus.value("bmq_databus_messages_total") == 0
    assert databus.post("clicks", b"y")[0] == 202


def test_who_waits_to_be_told_to_go_on_is_told_so_only_where_the_body_is_wanted(bmq: Bmq, databus: Databus) -> None:
    bmq.start()
    databus.start()
    with Raw(databus) as client:
        client.stream("clicks", expect="100-continue")
        told = client.until(b"200 OK")
        assert told.index(b"100 Continue") < told.index(b"200 OK")
    for channel, size_bytes, wanted in (("nobody", 5, b"404"), ("closed", 5, b"403"), ("orders", 1 << 30, b"413")):
        with Raw(databus) as client:
            client.begin(channel, expect="100-continue", content_length=str(size_bytes), content_type="text/plain")
            told = client.until(b'{"error"')
            assert told.startswith(b"HTTP/1.1 " + wanted)


def test_a_large_body_to_a_channel_that_there_is_not_is_answered_also_where_it_is_sent_first(databus: Databus) -> None:
    databus.start()
    for _ in range(3):
        status, answer = databus.post("nobody", bytes(40 * MEBIBYTE), headers={"connection": "close"})
        assert (status, "there is no channel" in answer["error"]) == (404, True)


def test_a_request_that_comes_again_with_its_key_is_answered_alike_and_written_once(bmq: Bmq, databus: Databus) -> None:
    bmq.start()
    databus.start()
    key = {"idempotency-key": '"8e03978e-40d5"'}
    first = databus.post("orders", b"once", headers=key)
    assert first == (200, {"status": 200, "partition": 0, "offset": 0})
    assert databus.post("orders", b"once", headers=key) == first
    status, answer = databus.post("orders", b"another", headers=key)
    assert (status, "take a new key" in answer["error"]) == (422, True)
    assert databus.post("orders", b"once", query="?key=k", headers=key)[0] == 422
    status, many = databus.post("clicks", line("a") + b"x\n", media="application/x-ndjson", headers=key)
    assert (status, [one["status"] for one in many["results"]]) == (207, [202, 400])
    assert databus.post("clicks", line("a") + b"x\n", media="application/x-ndjson", headers=key) == (status, many)
    assert databus.post("orders", b"x", headers={"idempotency-key": "a b"})[0] == 400
    assert values(bmq, "orders", 1) == ["once"]
    assert values(bmq, "clicks-raw", 1) == ["a"]
    assert databus.value("bmq_databus_answered_again_total") == 2


def test_a_request_that_comes_again_while_the_first_is_under_way_is_told_to_wait(databus: Databus) -> None:
    databus.start()
    headers = {"idempotency_key": "k", "content_type": "text/plain", "content_length": "1"}
    with Raw(databus) as first, Raw(databus) as again, Raw(databus) as other:
        first.begin("orders", **headers)
        first.send(b"a")
        until(lambda: "cluster is not reached" in databus.log.read_text(), "the first is under way")
        again.begin("orders", **headers)
        again.send(b"a")
        told = again.until(b"}")
        assert b"409 Conflict" in told
        assert b"retry-after: 1" in told
        other.begin("orders", **headers)
        other.send(b"b")
        assert b"422 " in other.until(b"}")
        assert databus.stop() == 0
        told = first.rest()
        assert told.startswith(b"HTTP/1.1 503 ")
        # The client library had it, or it waited for the cluster to come back.
        assert b"may have it all the same" in told or b"not written: " in told


def test_with_a_file_of_tokens_who_presents_none_of_them_may_only_ask_for_health(bmq: Bmq, tmp_path: Path) -> None:
    bmq.start()
    file = tmp_path / "tokens"
    file.write_text(f"{TOKEN}\n")
    databus = Databus(bmq.servers, CHANNELS, tmp_path / "bus", options=["--token-file", str(file)])
    databus.start()
    try:
        for headers, said in (
            ({}, "no bearer token"),
            ({"authorization": f"Bearer {OTHER}"}, "none of this sidecar's"),
        ):
            answer = httpx.post(databus.url("orders"), content=b"x", headers={"content-type": "text/plain", **headers})
            assert answer.status_code == 401
            assert answer.headers["www-authenticate"].startswith('Bearer realm="bmq-databus"')
            assert said in answer.json()["error"]
        assert httpx.get(f"http://{databus.address}/v1/channels").status_code == 401
        for path in ("livez", "readyz", "metrics"):
            assert httpx.get(f"http://{databus.address}/{path}").status_code == 200
        headers = {"authorization": f"bearer {TOKEN}"}
        assert databus.post("orders", b"x", headers=headers)[0] == 200
        file.write_text(f"{OTHER}\n")
        headers = {"authorization": f"Bearer {OTHER}"}
        until(lambda: databus.post("orders", b"x", headers=headers)[0] == 200, "the other token is taken")
        assert databus.post("orders", b"x", headers={"authorization": f"Bearer {TOKEN}"})[0] == 401
    finally:
        databus.stop()
    file.write_text("short\n")
    with pytest.raises(AssertionError, match="''"):
        databus.start()
    assert databus.stop() != 0
    assert "--token-file" in databus.log.read_text()


def test_health_and_metrics_have_an_address_of_their_own_where_nothing_else_is(bmq: Bmq, tmp_path: Path) -> None:
    bmq.start()
    file = tmp_path / "tokens"
    file.write_text(f"{TOKEN}\n")
    with socket.create_server(("127.0.0.1", 0)) as found:
        health = f"127.0.0.1:{found.getsockname()[1]}"
    options = ["--token-file", str(file), "--health-listen", health]
    databus = Databus(bmq.servers, CHANNELS, tmp_path / "bus", options=options)
    databus.start()
    try:
        for path in ("livez", "readyz", "metrics"):
            assert httpx.get(f"http://{health}/{path}").status_code == 200
        headers = {"authorization": f"Bearer {TOKEN}", "content-type": "text/plain"}
        assert httpx.get(f"http://{health}/v1/channels", headers=headers).status_code == 404
        refused = httpx.post(f"http://{health}/v1/channels/orders/messages", content=b"x" * 1000, headers=headers)
        assert refused.status_code == 404 and "is served here" in refused.json()["error"]
        assert httpx.post(f"http://{health}/metrics", content=b"x", headers=headers).status_code == 404
        assert databus.post("orders", b"x", headers={"authorization": f"Bearer {TOKEN}"})[0] == 200
        other = Databus(bmq.servers, CHANNELS, tmp_path / "other", options=options)
        with pytest.raises(AssertionError, match="''"):
            other.start()
        assert other.stop() != 0 and "--health-listen" in other.log.read_text()
    finally:
        assert databus.stop() == 0

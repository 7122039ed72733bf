"""Spans that a process sends to an OpenTelemetry collector; here one that keeps what it gets."""

import gzip
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from free_ports import free_port
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from server_process import Server, server_arguments

pytestmark = pytest.mark.slow

WITHOUT = """
import sys
sys.modules["opentelemetry.sdk"] = None
import bmq_cli.main
bmq_cli.main.run()
"""
"""bmq where the optional dependency is missing."""


class Collector:
    """Takes OTLP over HTTP."""

    def __init__(self) -> None:
        self.requests: list[ExportTraceServiceRequest] = []
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                if self.headers.get("content-encoding") == "gzip":
                    body = gzip.decompress(body)
                assert self.path == "/v1/traces"
                collector.requests.append(ExportTraceServiceRequest.FromString(body))
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        self.endpoint = f"http://127.0.0.1:{self._server.server_port}"

    def spans(self) -> list[tuple[dict[str, Any], Any]]:
        """Each with the attributes of whose it is."""
        return [
            (values(resource.resource.attributes), span)
            for request in self.requests
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def values(attributes: Any) -> dict[str, Any]:
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in attributes}


@pytest.fixture
def collector() -> Iterator[Collector]:
    found = Collector()
    yield found
    found.close()


def traced(endpoint: str, folder: Path, *more: str) -> tuple[Server, int]:
    port = free_port()
    arguments = server_arguments("controller,broker,proxy", 7, "memory://", "--otlp-endpoint", endpoint, *more)
    arguments[arguments.index("--listen") + 1] = f"127.0.0.1:{port}"
    return Server(arguments, log=folder / "bmq.log"), port


def write_and_read(port: int) -> None:
    settings = {"bootstrap.servers": f"127.0.0.1:{port}", "client.id": "orders-writer"}
    producer = Producer(settings)
    producer.produce("orders", b"value")
    assert producer.flush(60) == 0
    consumer = Consumer({**settings, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["orders"])
    deadline = monotonic() + 60
    while (message := consumer.poll(0.2)) is None or message.error() is not None:
        assert monotonic() < deadline
    assert consumer.poll(1.5) is None
    consumer.close()


def test_requests_and_flushes_become_spans_that_tell_how_long_they_took(collector: Collector, tmp_path: Path) -> None:
    server, port = traced(collector.endpoint, tmp_path, "--otlp-sample-ratio", "1")
    try:
        server.until_it_serves()
        write_and_read(port)
        assert server.stop() == 0
    finally:
        server.close()
    spans = collector.spans()
    assert {resource["service.name"] for resource, _ in spans} == {"bmq"}
    assert {resource["service.instance.id"] for resource, _ in spans} == {"7"}
    by_name = {span.name: span for _, span in spans}
    assert set(by_name) == {"Produce", "Fetch", "Flush"}
    took_ms = [(span.name, (span.end_time_unix_nano - span.start_time_unix_nano) / 1e6) for _, span in spans]
    assert all(0 <= each < 60_000 for _, each in took_ms)
    assert any(name == "Fetch" and each > 300 for name, each in took_ms), (
        "one that waited for records, as the client asked for: half a second"
    )
    produced = values(by_name["Produce"].attributes)
    assert (produced["bmq.error"], produced["bmq.listener"], produced["messaging.client.id"]) == (
        "none",
        "internal",
        "orders-writer",
    )
    assert produced["bmq.request_id"].startswith("c") and produced["bmq.request_bytes"] > 0
    assert values(by_name["Flush"].attributes)["bmq.wal_object_bytes"] > 0


def test_nothing_is_kept_at_a_ratio_of_nothing_and_a_collector_that_is_not_there_disturbs_nobody(
    collector: Collector, tmp_path: Path
) -> None:
    for number, (endpoint, ratio) in enumerate(((collector.endpoint, "0"), (f"http://127.0.0.1:{free_port()}", "1"))):
        folder = tmp_path / str(number)
        folder.mkdir()
        server, port = traced(endpoint, folder, "--otlp-sample-ratio", ratio)
        try:
            server.until_it_serves()
            write_and_read(port)
            began = monotonic()
            assert server.stop() == 0
            assert monotonic() - began < 20
        finally:
            server.close()
    assert collector.spans() == []


def test_without_the_dependency_the_key_is_refused_and_nothing_else_misses_it(tmp_path: Path) -> None:
    command = [sys.executable, "-c", WITHOUT, *server_arguments("broker", 1, "memory://")]
    done = subprocess.run(
        [*command, "--otlp-endpoint", "http://127.0.0.1:4318"], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 2
    assert done.stderr == (
        "error: otlp_endpoint http://127.0.0.1:4318: OpenTelemetry is not installed: pip install 'bmq-core[otel]', "
        "or leave it out\n"
    )
    server = Server(
        server_arguments("controller,broker,proxy", 1, "memory://"),
        log=tmp_path / "log",
        bmq=[sys.executable, "-c", WITHOUT],
    )
    try:
        server.until_it_serves()
        assert server.stop() == 0
    finally:
        server.close()

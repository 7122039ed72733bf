"""A sidecar that is called by gRPC at a Unix socket, and what gRPC's own tools ask of it."""

import socket
import stat
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import grpc
import pytest
from compat_server import Bmq
from databus_process import CHANNELS, Databus
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from grpc_calls import LISTEN, SERVICE, WITHIN_S, Client, texts
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse  # type: ignore[import-untyped]
from grpc_reflection.v1alpha.reflection_pb2 import (  # type: ignore[import-untyped]
    ServerReflectionRequest,
    ServerReflectionResponse,
)
from test_databus import values
from tests.waiting import until

from bmq_databus.v1.databus_pb2 import WriteStreamRequest

TOKEN = "a-token-of-24-characters"
BEARER = (("authorization", f"Bearer {TOKEN}"),)
SERVING, NOT_SERVING = HealthCheckResponse.SERVING, HealthCheckResponse.NOT_SERVING
NAME = SERVICE.removeprefix("/")


@pytest.fixture
def databus(bmq: Bmq, tmp_path: Path) -> Iterator[Databus]:
    (tmp_path / "tokens").write_text(TOKEN)
    options = [*LISTEN, "--grpc-unix", str(tmp_path / "g.sock"), "--token-file", str(tmp_path / "tokens")]
    sidecar = Databus(bmq.servers, CHANNELS, tmp_path, options=options)
    try:
        yield sidecar
    finally:
        sidecar.stop()


@pytest.fixture
def opened(bmq: Bmq, databus: Databus) -> Iterator[ExitStack]:
    bmq.start()
    databus.start()
    with ExitStack() as stack:
        yield stack


def at_socket(databus: Databus, path: Path) -> Databus:
    """The same, for those who call it there."""
    found = Databus.__new__(Databus)
    found.__dict__.update(databus.__dict__)
    found.grpc_address = f"unix:{path}"
    return found


def health(address: str, service: str = "", **options: Any) -> int:
    with grpc.insecure_channel(address, [("grpc.use_local_subchannel_pool", 1)]) as channel:
        check = channel.unary_unary("/grpc.health.v1.Health/Check")
        answer = check(HealthCheckRequest(service=service).SerializeToString(), timeout=WITHIN_S, **options)
        return int(HealthCheckResponse.FromString(answer).status)


def test_calls_come_by_the_unix_socket_too(bmq: Bmq, databus: Databus, opened: ExitStack, tmp_path: Path) -> None:
    path = tmp_path / "g.sock"
    client = opened.enter_context(Client(at_socket(databus, path)))
    token = {"authorization": f"Bearer {TOKEN}"}
    (result,) = client.write("orders", *texts("one"), **token)
    assert result.written.offset == 0
    large = texts("x" * 900_000) * 3
    assert len(client.write("orders", *large, **token)) == 3
    assert client.refusal("orders", *texts("x")).code() is grpc.StatusCode.UNAUTHENTICATED
    requests = (WriteStreamRequest(channel="orders", messages=texts(str(one))) for one in range(500))
    told = [one for answer in client.stream(requests, timeout=WITHIN_S, metadata=BEARER) for one in answer.results]
    assert [one.written.offset for one in told] == list(range(4, 504))
    mode = path.stat().st_mode
    assert stat.S_ISSOCK(mode) and stat.S_IMODE(mode) == 0o660
    assert stat.S_IMODE((tmp_path / ".g.sock.inner").stat().st_mode) & 0o077 == 0
    assert len(values(bmq, "orders", 504)) == 504
    databus.stop()
    assert not (tmp_path / ".g.sock.inner").exists()
    databus.start()
    again = opened.enter_context(Client(at_socket(databus, path)))
    assert again.write("orders", *texts("after its restart"), **token)[0].written.offset == 504


def test_a_client_of_the_socket_that_never_reads_is_cut_and_others_go_on(
    bmq: Bmq, databus: Databus, opened: ExitStack, tmp_path: Path
) -> None:
    there = at_socket(databus, tmp_path / "g.sock")
    deaf = opened.enter_context(Client(there, ("grpc.http2.bdp_probe", 0), ("grpc.http2.lookahead_bytes", 65_536)))

    told = threading.Event()

    def many() -> Iterator[WriteStreamRequest]:
        for _ in range(2_000):
            yield WriteStreamRequest(channel="clicks", messages=texts("x") * 1_000)
        told.wait(60)

    calls = deaf.stream(many(), timeout=120, metadata=BEARER)
    until(lambda: "takes no answer" in databus.log.read_text(), "the client to be cut", 90)
    told.set()
    with pytest.raises(grpc.RpcError):
        list(calls)
    with Client(there) as other:
        (result,) = other.write("orders", *texts("other"), authorization=f"Bearer {TOKEN}")
        assert result.written.offset == 0


def test_health_is_told_to_everybody_as_readyz_tells_it(bmq: Bmq, tmp_path: Path, databus: Databus) -> None:
    databus.start()
    for service in ("", NAME, "grpc.health.v1.Health"):
        assert health(databus.grpc_address, service) == SERVING, "a cluster that is away changes nothing"
    assert health(f"unix:{tmp_path / 'g.sock'}") == SERVING
    with pytest.raises(grpc.RpcError) as refused:
        health(databus.grpc_address, "other.Service")
    assert refused.value.code() is grpc.StatusCode.NOT_FOUND
    with pytest.raises(grpc.RpcError) as refused:
        health(databus.grpc_address, "x" * 5_000)
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    away = f"http://127.0.0.1:{bmq.admin_port}"
    unknowing = Databus(bmq.servers, None, tmp_path / "unknowing", control_plane=away, options=LISTEN)
    unknowing.start()
    try:
        assert health(unknowing.grpc_address) == NOT_SERVING
        with grpc.insecure_channel(unknowing.grpc_address) as channel:
            watch = channel.unary_stream("/grpc.health.v1.Health/Watch")
            told = watch(HealthCheckRequest().SerializeToString(), timeout=120)
            assert HealthCheckResponse.FromString(next(told)).status == NOT_SERVING
            bmq.start()
            assert HealthCheckResponse.FromString(next(told)).status == SERVING
            assert unknowing.stop() == 0
            with pytest.raises(grpc.RpcError) as ended:
                next(told)
            assert ended.value.code() is grpc.StatusCode.UNAVAILABLE
    finally:
        unknowing.stop()


def test_who_watches_or_asks_what_is_served_presents_a_token(databus: Databus, opened: ExitStack) -> None:
    channel = opened.enter_context(grpc.insecure_channel(databus.grpc_address))
    watch = channel.unary_stream("/grpc.health.v1.Health/Watch")
    with pytest.raises(grpc.RpcError) as refused:
        next(watch(HealthCheckRequest().SerializeToString(), timeout=WITHIN_S))
    assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
    questions = [
        ServerReflectionRequest(list_services=""),
        ServerReflectionRequest(file_containing_symbol=NAME),
        ServerReflectionRequest(file_containing_symbol="nobody.Service"),
    ]
    for version in ("v1", "v1alpha"):
        info = channel.stream_stream(f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo")
        asked = [one.SerializeToString() for one in questions]
        with pytest.raises(grpc.RpcError) as refused:
            next(info(iter(asked), timeout=WITHIN_S))
        assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
        answers = [ServerReflectionResponse.FromString(one) for one in info(iter(asked), timeout=30, metadata=BEARER)]
        assert NAME in [one.name for one in answers[0].list_services_response.service]
        (file,) = answers[1].file_descriptor_response.file_descriptor_proto
        assert [one.name for one in FileDescriptorProto.FromString(file).service] == ["Databus"]
        assert answers[2].error_response.error_code == grpc.StatusCode.NOT_FOUND.value[0]


def test_watches_are_bounded_and_leave_room_for_writers(databus: Databus, opened: ExitStack) -> None:
    channel = opened.enter_context(grpc.insecure_channel(databus.grpc_address))
    watch = channel.unary_stream("/grpc.health.v1.Health/Watch")
    request = HealthCheckRequest().SerializeToString()
    watching = [watch(request, timeout=120, metadata=BEARER) for _ in range(32)]
    assert {HealthCheckResponse.FromString(next(one)).status for one in watching} == {SERVING}
    with pytest.raises(grpc.RpcError) as refused:
        next(watch(request, timeout=WITHIN_S, metadata=BEARER))
    assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    with Client(databus) as client:
        assert client.write("orders", *texts("x"), authorization=f"Bearer {TOKEN}")[0].written.offset == 0
    assert health(databus.grpc_address) == SERVING


def test_a_socket_that_is_in_use_or_cannot_be_is_told(databus: Databus, opened: ExitStack, tmp_path: Path) -> None:
    for name, why in (("g.sock", "--grpc-unix"), ("x" * 95, "--grpc-unix")):
        options = ["--grpc-unix", str(tmp_path / name)]
        other = Databus("127.0.0.1:1", CHANNELS, tmp_path / "other", options=options)
        with pytest.raises(AssertionError, match=why):
            other.start()
        other.stop()
    with socket.socket(socket.AF_UNIX) as still:
        still.connect(str(tmp_path / "g.sock"))

"""Sidecar and cluster are killed again and again, apart and together: what was acknowledged is in its topic."""

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPException
from pathlib import Path

import grpc
import pytest
from compat_server import Bmq
from databus_process import CHANNELS, Databus
from grpc_calls import LISTEN, Client
from grpc_calls import texts as grpc_texts
from test_databus import values
from tests.waiting import until

from bmq_databus.v1.databus_pb2 import WriteStreamRequest

PARTS = 20


@pytest.fixture
def databus(bmq: Bmq, tmp_path: Path) -> Iterator[Databus]:
    sidecar = Databus(bmq.servers, CHANNELS, tmp_path, options=LISTEN)
    try:
        yield sidecar
    finally:
        sidecar.stop()


class Writer(threading.Thread):
    """Writes until it is over, whatever fails, and notes what was acknowledged."""

    def __init__(self, name: str, write: Callable[["Writer"], None]) -> None:
        super().__init__(name=name)
        self.acknowledged: list[str] = []
        self.is_over = threading.Event()
        self._write = write
        self._count = 0

    def texts(self, count: int) -> list[str]:
        """That were never written before."""
        self._count += count
        return [f"{self.name}-{n}" for n in range(self._count - count, self._count)]

    def run(self) -> None:
        while not self.is_over.is_set():
            try:
                self._write(self)
                self.is_over.wait(0.01)  # a hundred kills are for what is under way, not for millions of messages
            except (
                OSError,
                HTTPException,
                ValueError,
                grpc.RpcError,
            ):  # nobody is there for now, or left within an answer
                self.is_over.wait(0.05)


def bodies(databus: Databus, channel: str, count: int) -> Callable[[Writer], None]:
    def write(writer: Writer) -> None:
        texts = writer.texts(count)
        _, answer = databus.post_many(channel, [{"text": text} for text in texts])
        results = answer.get("results", [])
        told = [text for text, one in zip(texts, results, strict=False) if one["status"] in (200, 202)]
        writer.acknowledged.extend(told)

    return write


def a_stream(databus: Databus, channel: str) -> Callable[[Writer], None]:
    def write(writer: Writer) -> None:
        host, _, port = databus.address.rpartition(":")
        with socket.create_connection((host, int(port)), timeout=40) as connection:
            head = f"POST /v1/channels/{channel}/messages HTTP/1.1\r\nhost: {host}\r\ntransfer-encoding: chunked\r\n"
            media = "application/x-ndjson"
            connection.sendall(f"{head}content-type: {media}\r\naccept: {media}\r\n\r\n".encode())
            lines = connection.makefile("rb")
            while not writer.is_over.wait(0.01):
                texts = writer.texts(PARTS)
                data = b"".join(json.dumps({"text": text}).encode() + b"\n" for text in texts)
                connection.sendall(b"%x\r\n%b\r\n" % (len(data), data))
                left = iter(texts)
                for _ in texts:
                    if next(results(lines))["status"] in (200, 202):
                        writer.acknowledged.append(next(left))
                    else:
                        next(left)

    return write


def calls(databus: Databus, channel: str, count: int) -> Callable[[Writer], None]:
    """By gRPC, one after the other."""

    def write(writer: Writer) -> None:
        texts = writer.texts(count)
        with Client(databus) as client:
            for text, one in zip(texts, client.write(channel, *grpc_texts(*texts)), strict=True):
                if not one.HasField("error"):
                    writer.acknowledged.append(text)

    return write


def a_grpc_stream(databus: Databus, channel: str) -> Callable[[Writer], None]:
    def write(writer: Writer) -> None:
        left: list[str] = []

        def requests() -> Iterator[WriteStreamRequest]:
            while not writer.is_over.wait(0.01):
                texts = writer.texts(PARTS)
                left.extend(texts)
                yield WriteStreamRequest(channel=channel, messages=grpc_texts(*texts))

        with Client(databus) as client:
            for response in client.stream(requests()):
                for one in response.results:
                    text = left.pop(0)
                    if not one.HasField("error"):
                        writer.acknowledged.append(text)

    return write


def results(lines: Iterator[bytes]) -> Iterator[dict[str, int]]:
    """Those of a stream's answer, without what frames it."""
    for line in lines:
        if line.startswith(b'{"status"'):
            yield json.loads(line)
        elif line.startswith(b'{"end"'):
            break
    raise ConnectionError("the stream is over")


@contextmanager
def writing(*writers: Writer) -> Iterator[None]:
    for one in writers:
        one.start()
    try:
        yield
    finally:
        for one in writers:
            one.is_over.set()
        for one in writers:
            one.join(60)


@pytest.mark.parametrize("kills", [3, pytest.param(100, marks=[pytest.mark.slow, pytest.mark.timeout(3_600)])])
def test_nothing_that_was_acknowledged_is_missing_though_sidecar_and_cluster_are_killed(
    bmq: Bmq, databus: Databus, kills: int
) -> None:
    bmq.start()
    databus.start()
    durable = [
        Writer("durable", bodies(databus, "orders", 5)),
        Writer("durable-stream", a_stream(databus, "orders")),
        Writer("durable-call", calls(databus, "orders", 5)),
        Writer("durable-grpc-stream", a_grpc_stream(databus, "orders")),
    ]
    accepted = [
        Writer("accepted", bodies(databus, "clicks", 5)),
        Writer("accepted-one", bodies(databus, "clicks", 1)),
        Writer("accepted-stream", a_stream(databus, "clicks")),
        Writer("accepted-call", calls(databus, "clicks", 5)),
        Writer("accepted-grpc-stream", a_grpc_stream(databus, "clicks")),
    ]
    with writing(*durable, *accepted):
        for kill in range(kills):
            before = {one: len(one.acknowledged) for one in (*durable, *accepted)}

            def all_went_on(before: dict[Writer, int] = before) -> bool:
                return all(len(one.acknowledged) > count + 10 for one, count in before.items())

            until(all_went_on, f"all writers to go on before kill {kill}", 180)
            if kill % 3 != 1:
                databus.kill9()
            if kill % 3 != 0:
                bmq.kill9()
                bmq.start()
            if kill % 3 != 1:
                databus.start()
    until(lambda: databus.value("bmq_databus_spool_messages", channel="clicks") == 0, "an empty spool", 300)
    for topic, writers in (("orders", durable), ("clicks-raw", accepted)):
        acknowledged = [text for one in writers for text in one.acknowledged]
        found = values(bmq, topic, len(acknowledged))
        missing = set(acknowledged) - set(found)
        print(
            f"{topic}: {len(acknowledged)} acknowledged, {len(found) - len(set(found))} twice, {len(missing)} missing"
        )
        assert not missing

"""Calls to a started sidecar: by gRPC's own client, and frame by frame."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import grpc
from databus_process import Databus

from bmq_databus.v1.databus_pb2 import (
    Message,
    Result,
    WriteRequest,
    WriteResponse,
    WriteStreamRequest,
    WriteStreamResponse,
)

SERVICE = "/bmq.databus.v1.Databus"
LISTEN = ("--grpc-listen", "127.0.0.1:0")
WITHIN_S = 60
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SETTINGS, HEADERS, DATA, RESET, PING, WINDOW_UPDATE = 4, 1, 0, 3, 6, 8
ENDS = 1
LITERAL, INDEXED = b"\x40\x01x\x01y", b"\xbe"
"""An entry of metadata that the connection keeps, and the same one again."""
NO_WINDOW = b"\x00\x04\x00\x00\x00\x00"
"""A setting: answers have no room."""


class Client:
    """A connection of its own."""

    def __init__(self, databus: Databus, *options: tuple[str, Any]) -> None:
        self._channel = grpc.insecure_channel(
            databus.grpc_address, [("grpc.use_local_subchannel_pool", 1), ("grpc.enable_retries", 0), *options]
        )
        self.call = self._channel.unary_unary(
            f"{SERVICE}/Write",
            request_serializer=WriteRequest.SerializeToString,
            response_deserializer=WriteResponse.FromString,
        )
        self.stream = self._channel.stream_stream(
            f"{SERVICE}/WriteStream",
            request_serializer=WriteStreamRequest.SerializeToString,
            response_deserializer=WriteStreamResponse.FromString,
        )
        self.raw = self._channel.unary_unary(f"{SERVICE}/Write")
        """A request's bytes, whatever they are."""

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self._channel.close()

    def write(self, channel: str, *messages: Message, **metadata: str) -> list[Result]:
        """Their results; _ in names of metadata for -."""
        named = [(name.replace("_", "-"), value) for name, value in metadata.items()]
        request = WriteRequest(channel=channel, messages=messages)
        return list(self.call(request, timeout=WITHIN_S, metadata=named).results)

    def refusal(self, channel: str, *messages: Message, **metadata: str) -> grpc.RpcError:
        """Why they are not written."""
        try:
            found = self.write(channel, *messages, **metadata)
        except grpc.RpcError as error:
            return error
        raise AssertionError(f"it is answered: {found}")


def texts(*values: str) -> list[Message]:
    return [Message(value=value.encode()) for value in values]


class Frames:
    """A connection, frame by frame, that has acknowledged what the other end sets."""

    def __init__(self, databus: Databus, settings: bytes = b"", *, acknowledges: bool = True) -> None:
        host, port = databus.grpc_address.rsplit(":", 1)
        self._socket = socket.create_connection((host, int(port)), timeout=WITHIN_S)
        self._host = databus.grpc_address
        self._stream = -1
        self._frames = self._come()
        self._socket.sendall(PREFACE)
        self._frame(SETTINGS, settings, stream=0)
        if acknowledges:
            self.acknowledge()

    def call(self, name: str) -> None:
        """Begins one; all else is of this one."""
        self._stream += 2
        self._frame(HEADERS, self._head(name), flags=4)

    def calls(self, name: str, many: int, *, entries: int) -> None:
        """Begins so many at once, each with so many entries of metadata, which are a byte each but for the first."""
        begun = []
        for at in range(many):
            self._stream += 2
            more = INDEXED * entries if at else LITERAL + INDEXED * (entries - 1)
            begun.append(framed(HEADERS, self._head(name) + more, flags=4, stream=self._stream))
        self._socket.sendall(b"".join(begun))

    def acknowledge(self) -> None:
        """What the other end sets: it is bound to nothing that it sets before."""
        while next(self._frames)[:2] != (SETTINGS, 0):
            pass
        self._frame(SETTINGS, b"", flags=1, stream=0)

    def answered(self, many: int) -> bytes:
        """Until so many have ended; what was told last."""
        for kind, flags, payload in self._frames:
            many -= kind == RESET or (kind == HEADERS and flags & ENDS)
            if not many:
                return payload
        raise AssertionError("the connection ended")

    def request(self, request: bytes, *, of_bytes: int | None = None, ends: bool = False) -> None:
        """What there is of one that says to have so many bytes."""
        whole = b"\x00" + (len(request) if of_bytes is None else of_bytes).to_bytes(4, "big") + request
        for at in range(0, len(whole), 16_384):
            is_last = at + 16_384 >= len(whole)
            self._frame(DATA, whole[at : at + 16_384], flags=int(ends and is_last))

    def rest(self) -> bytes:
        """Until the other end closes."""
        found = b""
        try:
            while data := self._socket.recv(65_536):
                found += data
        except ConnectionError:
            pass
        return found

    def ping(self) -> None:
        """One that is answered."""
        self._frame(PING, b"12345678", stream=0)

    def close(self) -> None:
        self._socket.close()

    def _come(self) -> Iterator[tuple[int, int, bytes]]:
        """Kind, flags and payload of each."""
        found = b""
        while data := self._socket.recv(65_536):
            found += data
            while len(found) >= 9 and len(found) >= (end := 9 + int.from_bytes(found[:3], "big")):
                frame, found = found[:end], found[end:]
                yield frame[3], frame[4], frame[9:]

    def _head(self, name: str) -> bytes:
        headers = {":method": "POST", ":scheme": "http", ":path": f"{SERVICE}/{name}", ":authority": self._host}
        headers |= {"content-type": "application/grpc", "te": "trailers"}
        return b"".join(
            b"\x00" + bytes([len(one)]) + one.encode() + bytes([len(value)]) + value.encode()
            for one, value in headers.items()
        )

    def _frame(self, kind: int, payload: bytes, *, flags: int = 0, stream: int | None = None) -> None:
        number = self._stream if stream is None else stream
        self._socket.sendall(framed(kind, payload, flags=flags, stream=number))


def framed(kind: int, payload: bytes, *, flags: int, stream: int) -> bytes:
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


@contextmanager
def frames(databus: Databus, settings: bytes = b"", *, acknowledges: bool = True) -> Iterator[Frames]:
    opened = Frames(databus, settings, acknowledges=acknowledges)
    try:
        yield opened
    finally:
        opened.close()

"""A relay before a started bmq that passes everything on, but never the requests of one API; or whose offsets nobody
leads for a while.
"""

import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Iterator

from bmq.wire import messages
from bmq.wire.apis import ApiKey
from bmq.wire.error_codes import ErrorCode
from bmq.wire.frames import parse_response_header

_HOST = "127.0.0.1"


@contextlib.contextmanager
def deaf_to(api_key: int, address: str) -> Iterator[str]:
    """Gives the relay's address; clients that come by it are told no other one."""
    with _relay(address, lambda: _Deaf(api_key)) as relay:
        yield relay


@contextlib.contextmanager
def led_by_nobody(address: str, error: ErrorCode, *, answers: int) -> Iterator[tuple[str, list[int]]]:
    """Its address, and what fills with the correlation ids of questions for offsets: so many are answered with the
    error for every partition.
    """
    asked: list[int] = []
    with _relay(address, lambda: _Unled(error, answers, asked)) as relay:
        yield relay, asked


class _Deaf:
    def __init__(self, api_key: int) -> None:
        self._api_key = api_key

    def request(self, frame: bytes) -> bool:
        """Whether it is passed on; without its size."""
        return int.from_bytes(frame[:2], "big") != self._api_key

    def answer(self, frame: bytes) -> bytes:
        """What is passed on instead."""
        return frame


class _Unled(_Deaf):
    """Of one connection."""

    def __init__(self, error: ErrorCode, answers: int, asked: list[int]) -> None:
        super().__init__(-1)
        self._error = error
        self._answers = answers
        self._asked = asked
        self._versions: dict[bytes, int] = {}

    def request(self, frame: bytes) -> bool:
        if int.from_bytes(frame[:2], "big") == ApiKey.LIST_OFFSETS:
            self._versions[frame[4:8]] = int.from_bytes(frame[2:4], "big")
        return super().request(frame)

    def answer(self, frame: bytes) -> bytes:
        version = self._versions.pop(frame[4:8], None)
        if version is None:
            return frame
        self._asked.append(int.from_bytes(frame[4:8], "big"))
        if len(self._asked) > self._answers:
            return frame
        _, start = parse_response_header(frame[4:], api_key=ApiKey.LIST_OFFSETS, api_version=version)
        message = messages.decode_response(ApiKey.LIST_OFFSETS, version, frame[4 + start :])
        for topic in message.topics:
            for partition in topic.partitions:
                partition.error_code, partition.offset, partition.timestamp = int(self._error), -1, -1
        changed = frame[4 : 4 + start] + bytes(messages.encode_response(ApiKey.LIST_OFFSETS, version, message))
        return struct.pack(">i", len(changed)) + changed


@contextlib.contextmanager
def _relay(address: str, between: Callable[[], _Deaf]) -> Iterator[str]:
    port = int(address.rpartition(":")[2])
    with socket.create_server((_HOST, 0)) as listening:
        own_port = listening.getsockname()[1]
        told, instead = (_HOST.encode() + struct.pack(">i", number) for number in (port, own_port))
        connections: list[socket.socket] = []

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    client, _ = listening.accept()
                    server = socket.create_connection((_HOST, port))
                    connections.extend((client, server))
                    one = between()
                    threading.Thread(target=_requests, args=(client, server, one)).start()
                    threading.Thread(target=_answers, args=(server, client, told, instead, one)).start()

        accepting = threading.Thread(target=accept)
        accepting.start()
        try:
            yield f"{_HOST}:{own_port}"
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            accepting.join()
            for connection in connections:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
                connection.close()


def _frames(source: socket.socket) -> Iterator[bytes]:
    with contextlib.suppress(OSError), source.makefile("rb") as stream:
        while len(size := stream.read(4)) == 4:
            yield size + stream.read(int.from_bytes(size, "big"))


def _requests(client: socket.socket, server: socket.socket, between: _Deaf) -> None:
    for frame in _frames(client):
        if between.request(frame[4:]):
            server.sendall(frame)


def _answers(server: socket.socket, client: socket.socket, told: bytes, instead: bytes, between: _Deaf) -> None:
    with contextlib.suppress(OSError):
        for frame in _frames(server):
            client.sendall(between.answer(frame.replace(told, instead)))

"""Clients of HTTP on bare sockets: requests made once and sent as they are, answers looked at as far as needed."""

import asyncio
import re
from collections.abc import Callable
from time import perf_counter
from typing import Final, cast

_HEAD_END: Final = b"\r\n\r\n"
_LENGTH: Final = re.compile(rb"(?i)\r\ncontent-length: (\d+)")
_LAST_LINE: Final = b'{"end":'
_RESULT: Final = b'"status":20'
_CODE, _FINE = b'"error_code":', b'"error_code":200'
"""Of a record, as Confluent's REST API tells it with a status that says nothing of it."""


def post(path: str, body: bytes, *, media: str) -> bytes:
    """A whole request."""
    head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: {media}\r\ncontent-length: {len(body)}\r\n\r\n"
    return head.encode() + body


class ClosedLoop(asyncio.Protocol):
    """A connection on which every answer sends the next request, until the time is over."""

    def __init__(self, request: bytes, *, until_s: float) -> None:
        self.took_s: list[float] = []
        self.failures: list[bytes] = []
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._request = request
        self._until_s = until_s
        self._received = bytearray()
        self._sent_s = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The event loop's."""
        self._transport = cast(asyncio.Transport, transport)
        self._send()

    def connection_lost(self, exc: Exception | None) -> None:
        """The event loop's."""
        if not self.lost.done():
            self.lost.set_result(None)

    def data_received(self, data: bytes) -> None:
        """The event loop's."""
        received = self._received
        received += data
        head = received.find(_HEAD_END)
        if head < 0:
            return
        length = _LENGTH.search(received, 0, head + 2)
        assert length is not None, bytes(received[:200])
        if len(received) < head + len(_HEAD_END) + int(length[1]):
            return
        now_s = perf_counter()
        self.took_s.append(now_s - self._sent_s)
        is_refused = _CODE in received and _FINE not in received
        if is_refused or not received.startswith(b"HTTP/1.1 20") or received.startswith(b"HTTP/1.1 207"):
            self.failures.append(bytes(received[:300]))
        received.clear()
        if now_s < self._until_s:
            self._send()
        else:
            self._transport.close()

    def _send(self) -> None:
        self._sent_s = perf_counter()
        self._transport.write(self._request)


async def closed_loops(port: int, request: bytes, *, connections: int, seconds: float) -> list[float]:
    """How long each answer took, in seconds, sorted. Raises AssertionError with one that failed."""
    loop, until_s = asyncio.get_running_loop(), perf_counter() + seconds
    made = [
        (await loop.create_connection(lambda: ClosedLoop(request, until_s=until_s), "127.0.0.1", port))[1]
        for _ in range(connections)
    ]
    for one in made:
        await one.lost
        assert not one.failures, one.failures[0]
    return sorted(took for one in made for took in one.took_s)


class Streaming(asyncio.Protocol):
    """One stream: sends the same lines over and over, as fast as they are taken, and counts results."""

    def __init__(self, head: bytes, lines: bytes, *, is_over: Callable[[], bool]) -> None:
        self.results = 0
        self.end = b""
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._head = head
        self._chunk = b"%x\r\n%s\r\n" % (len(lines), lines)
        self._is_over = is_over
        self._is_paused = False
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The event loop's."""
        self._transport = cast(asyncio.Transport, transport)
        self._transport.write(self._head)
        asyncio.get_running_loop().call_soon(self._send)

    def connection_lost(self, exc: Exception | None) -> None:
        """The event loop's."""
        if not self.lost.done():
            self.lost.set_result(None)

    def pause_writing(self) -> None:
        """The event loop's."""
        self._is_paused = True

    def resume_writing(self) -> None:
        """The event loop's."""
        self._is_paused = False
        self._send()

    def data_received(self, data: bytes) -> None:
        """The event loop's."""
        whole = self._received + data
        cut = whole.rfind(b"\n") + 1
        self.results += whole.count(_RESULT, 0, cut)
        self._received = whole[cut:]
        if (end := whole.find(_LAST_LINE)) >= 0:
            self.end = whole[end:]
            self._transport.close()

    def _send(self) -> None:
        while not self._is_paused and not self._transport.is_closing():
            if self._is_over():
                self._transport.write(b"0\r\n\r\n")
                return
            self._transport.write(self._chunk)


async def stream(port: int, path: str, lines: bytes, *, seconds: float) -> float:
    """Results a second of one stream. Raises AssertionError where it did not end well."""
    began_s = perf_counter()
    head = (
        f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/x-ndjson\r\n"
        "accept: application/x-ndjson\r\ntransfer-encoding: chunked\r\n\r\n"
    ).encode()
    made: Streaming
    _, made = await asyncio.get_running_loop().create_connection(
        lambda: Streaming(head, lines, is_over=lambda: perf_counter() > began_s + seconds), "127.0.0.1", port
    )
    await made.lost
    took_s = perf_counter() - began_s
    assert made.end.startswith(b'{"end":{"status":200,'), made.end[:300]
    return (made.results - 1) / took_s  # the last line has a status of its own

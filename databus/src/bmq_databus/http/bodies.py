"""A request's body: read up to a bound, and decompressed up to the same."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from bmq.errors import BatchTooLarge, CorruptBatch
from bmq.wire.compression import Codec, decompress
from bmq_databus.errors import DatabusError

BODY_BYTES_MAX: Final = 16 << 20
"""What one request may have, also when it is decompressed."""
STALL_S: Final = 10.0
"""A body of which nothing comes for so long is given up: others wait for the room that it has."""

Receive = Callable[[], Awaitable[Mapping[str, Any]]]
_CODECS: Final = {"gzip": Codec.GZIP, "zstd": Codec.ZSTD}


class BodyTooLarge(DatabusError):
    """It has more bytes than one request may."""


class BadBody(DatabusError):
    """It is not what its headers say."""


class ClientGone(DatabusError):
    """The client left before all of its body was there."""


class TooSlow(DatabusError):
    """The client stalls within its body."""


class TooMuchAtOnce(DatabusError):
    """The bodies of all requests together have no room for more."""


class BodyRoom:
    """Room for the bodies of all requests, each until it is answered."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self.held_bytes = 0

    @contextmanager
    def one(self) -> Iterator["OneBody"]:
        """For one request, which holds what it took until its end."""
        body = OneBody(self)
        try:
            yield body
        finally:
            self.held_bytes -= body.held_bytes

    def take(self, size_bytes: int) -> None:
        """Raises TooMuchAtOnce."""
        if self.held_bytes + size_bytes > self._bytes_max:
            raise TooMuchAtOnce(f"requests with {self.held_bytes} bytes are being answered: try again in a moment")
        self.held_bytes += size_bytes


class OneBody:
    """What one request holds of the room."""

    def __init__(self, room: BodyRoom) -> None:
        self._room = room
        self.held_bytes = 0

    def take(self, size_bytes: int) -> None:
        """Raises TooMuchAtOnce."""
        self._room.take(size_bytes)
        self.held_bytes += size_bytes


async def read_body(receive: Receive, *, encoding: str, bytes_max: int, room: OneBody) -> bytes:
    """All of it. Raises BodyTooLarge, BadBody, ClientGone, TooMuchAtOnce."""
    parts: list[bytes] = []
    size_bytes = 0
    while True:
        try:
            async with asyncio.timeout(STALL_S):
                event = await receive()
        except TimeoutError:
            raise TooSlow(f"nothing more of the body came for {STALL_S:g} s") from None
        if event["type"] == "http.disconnect":
            raise ClientGone("the client left within its body")
        part = event.get("body", b"")
        size_bytes += len(part)
        if size_bytes > bytes_max:
            raise _too_large(bytes_max)
        room.take(len(part))
        if part:
            parts.append(part)
        if not event.get("more_body", False):
            break
    body = parts[0] if len(parts) == 1 else b"".join(parts)
    if encoding in ("", "identity"):
        return body
    codec = _CODECS.get(encoding)
    if codec is None:
        raise BadBody(f"content-encoding {encoding[:40]!r} is not served: use gzip or zstd")
    try:
        opened = bytes(decompress(codec, body, bytes_max=bytes_max))
    except BatchTooLarge:
        raise _too_large(bytes_max) from None
    except CorruptBatch as error:
        raise BadBody(f"the body is no {encoding}: {error}") from None
    room.take(len(opened))
    return opened


def _too_large(bytes_max: int) -> BodyTooLarge:
    return BodyTooLarge(f"a body has {bytes_max} bytes at most: send fewer messages at a time")

"""A whole request's body: read up to a bound, and decompressed up to the same."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from bmq.errors import BatchTooLarge, CorruptBatch
from bmq.wire.compression import Codec, decompress
from bmq_databus.errors import DatabusError
from bmq_databus.http.incoming import STALL_S, BadBody, Incoming, TooSlow
from bmq_databus.http.opening import unknown_encoding

BODY_BYTES_MAX: Final = 16 << 20
"""What one request may have, also when it is decompressed."""
WITHIN_S: Final = 120.0
"""A whole body comes within so long, however steadily it trickles."""
_CODECS: Final = {"gzip": Codec.GZIP, "x-gzip": Codec.GZIP, "zstd": Codec.ZSTD}


class BodyTooLarge(DatabusError):
    """It has more bytes than one request may."""


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


async def read_body(incoming: Incoming, *, encoding: str, bytes_max: int, room: OneBody) -> bytes:
    """All of it. Raises BodyTooLarge, BadBody, ClientGone, TooSlow, TooMuchAtOnce."""
    if encoding not in ("", "identity", *_CODECS):
        raise unknown_encoding(encoding)
    declared = incoming.headers.get("content-length", "")
    if declared.isdecimal() and int(declared[:20]) > bytes_max:
        raise _too_large(bytes_max)
    try:
        async with asyncio.timeout(WITHIN_S):
            body = await _read(incoming, bytes_max=bytes_max, room=room)
    except TimeoutError:
        raise TooSlow(f"the body did not come within {WITHIN_S:g} s") from None
    codec = _CODECS.get(encoding)
    if codec is None:
        return body
    try:
        opened = bytes(decompress(codec, body, bytes_max=bytes_max))
    except BatchTooLarge:
        raise _too_large(bytes_max) from None
    except CorruptBatch as error:
        raise BadBody(f"the body is no {encoding}: {error}") from None
    room.take(len(opened))
    return opened


async def _read(incoming: Incoming, *, bytes_max: int, room: OneBody) -> bytes:
    parts = bytearray()
    while (part := await incoming.part(stall_s=STALL_S)) is not None:
        if len(parts) + len(part) > bytes_max:
            raise _too_large(bytes_max)
        room.take(len(part))
        parts += part
    return bytes(parts)


def _too_large(bytes_max: int) -> BodyTooLarge:
    return BodyTooLarge(f"a body has {bytes_max} bytes at most: send fewer messages at a time, or a stream of lines")

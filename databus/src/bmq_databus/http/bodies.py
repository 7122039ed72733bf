"""A whole request's body: read up to a bound, and decompressed up to the same."""

import asyncio
from functools import partial
from typing import Final

from bmq.errors import BatchTooLarge, CorruptBatch
from bmq.fairness.own_threads import OwnThreads
from bmq.wire.compression import Codec, decompress
from bmq_databus.errors import DatabusError
from bmq_databus.http.incoming import STALL_S, BadBody, Incoming, TooSlow
from bmq_databus.http.opening import unknown_encoding
from bmq_databus.requests.room import OneBody

BODY_BYTES_MAX: Final = 16 << 20
"""What one request may have, also when it is decompressed."""
WITHIN_S: Final = 120.0
"""A whole body comes within so long, however steadily it trickles…"""
LARGE_WITHIN_S: Final = 30.0
"""…and its rest within so long once it has more than a small one: it keeps room from others."""
OPENING_THREADS: Final = 2
_CODECS: Final = {"gzip": Codec.GZIP, "x-gzip": Codec.GZIP, "zstd": Codec.ZSTD}


class BodyTooLarge(DatabusError):
    """It has more bytes than one request may."""


class Bodies:
    """How those of all requests are read."""

    def __init__(self) -> None:
        self._threads = OwnThreads(OPENING_THREADS, name="open bodies")

    async def read(self, incoming: Incoming, *, encoding: str, bytes_max: int, room: OneBody) -> bytes:
        """All of it. Raises BodyTooLarge, BadBody, ClientGone, TooSlow, TooMuchAtOnce."""
        if encoding not in ("", "identity", *_CODECS):
            raise unknown_encoding(encoding)
        declared = incoming.headers.get("content-length", "")
        if declared.isdecimal() and int(declared[:20]) > bytes_max:
            raise _too_large(bytes_max)
        body = await _read(incoming, bytes_max=bytes_max, room=room)
        codec = _CODECS.get(encoding)
        if codec is None:
            return body
        opening = partial(decompress, codec, body, bytes_max=bytes_max)
        try:
            # It lets go of Python's lock, and few bytes may open to many.
            opened = bytes(await asyncio.get_running_loop().run_in_executor(self._threads, opening))
        except BatchTooLarge:
            raise _too_large(bytes_max) from None
        except CorruptBatch as error:
            raise BadBody(f"the body is no {encoding}: {error}") from None
        room.take(len(opened))
        return opened


async def _read(incoming: Incoming, *, bytes_max: int, room: OneBody) -> bytes:
    if incoming.has_rest:  # most bodies are short, and timers take longer than these
        whole = await incoming.part(stall_s=STALL_S) or b""
        if len(whole) > bytes_max:
            raise _too_large(bytes_max)
        room.take(len(whole))
        return whole
    parts = bytearray()
    loop = asyncio.get_running_loop()
    within_s = WITHIN_S
    try:
        async with asyncio.timeout(within_s) as until:
            while (part := await incoming.part(stall_s=STALL_S)) is not None:
                if len(parts) + len(part) > bytes_max:
                    raise _too_large(bytes_max)
                was_small = room.is_small
                room.take(len(part))
                parts += part
                if was_small and not room.is_small:
                    within_s = LARGE_WITHIN_S
                    until.reschedule(loop.time() + within_s)
    except TimeoutError:
        raise TooSlow(f"the body did not come within {within_s:g} s") from None
    return bytes(parts)


def _too_large(bytes_max: int) -> BodyTooLarge:
    return BodyTooLarge(f"a body has {bytes_max} bytes at most: send fewer messages at a time, or a stream of lines")

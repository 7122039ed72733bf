"""A whole request's body: read up to a bound, and decompressed up to the same; and the room that bodies and answers of
all requests share.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final

from bmq.errors import BatchTooLarge, CorruptBatch
from bmq.fairness.fair_room import FairRoom
from bmq.fairness.own_threads import OwnThreads
from bmq.wire.compression import Codec, decompress
from bmq_databus.errors import DatabusError
from bmq_databus.http.incoming import STALL_S, BadBody, Incoming, TooSlow
from bmq_databus.http.opening import unknown_encoding

BODY_BYTES_MAX: Final = 16 << 20
"""What one request may have, also when it is decompressed."""
SMALL_BYTES: Final = 32 << 10
"""So much each request has whatever the others hold."""
CHANNEL_TIMES: Final = 2
"""What the requests of one channel hold is at most so many times what they leave to others."""
WITHIN_S: Final = 120.0
"""A whole body comes within so long, however steadily it trickles…"""
LARGE_WITHIN_S: Final = 30.0
"""…and its rest within so long once it has more than a small one: it keeps room from others."""
OPENING_THREADS: Final = 2
_CODECS: Final = {"gzip": Codec.GZIP, "x-gzip": Codec.GZIP, "zstd": Codec.ZSTD}


class BodyTooLarge(DatabusError):
    """It has more bytes than one request may."""


class TooMuchAtOnce(DatabusError):
    """The bodies of all requests together have no room for more."""


class BodyRoom:
    """Room for the bodies of all requests, and for their answers until they are taken."""

    def __init__(self, bytes_max: int, *, small_bytes: int = SMALL_BYTES) -> None:
        self._bytes_max = bytes_max
        self.small_bytes = small_bytes
        self._room = FairRoom(bytes_max, times=CHANNEL_TIMES)

    @property
    def held_bytes(self) -> int:
        """By all, beside what is small."""
        return self._bytes_max - self._room.left

    @contextmanager
    def one(self, channel: str) -> Iterator["OneBody"]:
        """For one request to the channel, which holds what it took until its end."""
        body = OneBody(self, channel)
        try:
            yield body
        finally:
            body.hold(0)

    def has(self, size_bytes: int, *, channel: str) -> bool:
        """Whether requests of the channel may hold so much more."""
        return self._room.has(size_bytes, address=channel)

    def change(self, more_bytes: int, *, channel: str) -> None:
        """They do; below 0: they hold so much less."""
        if more_bytes > 0:
            self._room.take(more_bytes, address=channel)
        elif more_bytes < 0:
            self._room.give_back(-more_bytes, address=channel)


class OneBody:
    """What one request holds of the room."""

    def __init__(self, room: BodyRoom, channel: str) -> None:
        self._room = room
        self._channel = channel
        self.held_bytes = 0

    @property
    def is_small(self) -> bool:
        """Whether it keeps no room from others."""
        return self.held_bytes <= self._room.small_bytes

    def take(self, size_bytes: int) -> None:
        """So much more. Raises TooMuchAtOnce."""
        more_bytes = self._beyond(self.held_bytes + size_bytes) - self._beyond(self.held_bytes)
        if more_bytes and not self._room.has(more_bytes, channel=self._channel):
            raise TooMuchAtOnce(
                f"requests with {self._room.held_bytes} bytes are being answered, and channel {self._channel} has its "
                "part of them: try again in a moment, or send less at a time"
            )
        self.hold(self.held_bytes + size_bytes)

    def hold(self, size_bytes: int) -> None:
        """So much in all, whether there is room or not."""
        self._room.change(self._beyond(size_bytes) - self._beyond(self.held_bytes), channel=self._channel)
        self.held_bytes = size_bytes

    def _beyond(self, size_bytes: int) -> int:
        return max(0, size_bytes - self._room.small_bytes)


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
    loop = asyncio.get_running_loop()
    within_s = WITHIN_S
    parts = bytearray()
    try:
        async with asyncio.timeout(within_s) as whole:
            while (part := await incoming.part(stall_s=STALL_S)) is not None:
                if len(parts) + len(part) > bytes_max:
                    raise _too_large(bytes_max)
                was_small = room.is_small
                room.take(len(part))
                parts += part
                if was_small and not room.is_small:
                    within_s = LARGE_WITHIN_S
                    whole.reschedule(loop.time() + within_s)
    except TimeoutError:
        raise TooSlow(f"the body did not come within {within_s:g} s") from None
    return bytes(parts)


def _too_large(bytes_max: int) -> BodyTooLarge:
    return BodyTooLarge(f"a body has {bytes_max} bytes at most: send fewer messages at a time, or a stream of lines")

"""How messages lie in a spool's segments, and what became of them in the file beside each (docs/formats/spool.md).
Pure.
"""

import struct
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec
from crc32c import crc32c
from typing_extensions import Buffer

from bmq_databus.errors import SpoolDamaged, SpoolTooNew

MAGIC: Final = b"bmqspool"
VERSION: Final = 1
_HEAD: Final = struct.Struct("<8sHQ")
_CRC: Final = struct.Struct("<I")
HEAD_BYTES: Final = _HEAD.size + _CRC.size
FRAME_MAGIC: Final = b"bmqf"
_FRAME: Final = struct.Struct("<4sIIQ")
FRAME_HEAD_BYTES: Final = _FRAME.size + 2 * _CRC.size
FRAME_BYTES_MAX: Final = 128 << 20
"""The most that a frame is written with, and read with by a sidecar. Earlier versions may have written longer ones."""
FRAME_LENGTH_MAX: Final = (1 << 32) - 1
"""What its length can say."""
_STEP: Final = struct.Struct("<BQI")
STEP_BYTES: Final = _STEP.size + _CRC.size


class FrameHead(msgspec.Struct, frozen=True):
    """So many messages from the number `first` on, in so many bytes behind the head."""

    length: int
    count: int
    first: int
    crc: int


class Once(msgspec.Struct, frozen=True, array_like=True):
    """The key of a request that was accepted, and its answer, for whoever comes again with it."""

    key: str
    fingerprint: bytes
    """Equal for equal requests alone."""
    until_ms: int
    """When its window is over, since 1970."""
    status: int
    body: bytes


class Spooled(msgspec.Struct, frozen=True, array_like=True):
    """A message as it will be produced. `partition` -1: by its key. Later versions add fields at the end, which earlier
    ones pass over.
    """

    topic: str
    partition: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp_ms: int
    accepted_ms: int
    lane: str = ""
    """Empty: the base."""
    partitioner: str = ""
    """As librdkafka calls it; empty: as it does by itself."""
    once: Once | None = None
    """The key of the request whose first accepted message it is; None: it has no key."""


class _Last(Spooled, frozen=True, array_like=True):
    """A frame's last message, which has the spool's id behind all: the last bytes of the payload are it."""

    spool_id: bytes = b""


_messages_of: Final = msgspec.msgpack.Decoder(tuple[Spooled, ...])
_pack: Final = msgspec.msgpack.Encoder().encode


class Step(msgspec.Struct, frozen=True):
    """What became of `count` messages from `first` on: one of the kinds below."""

    kind: int
    first: int
    count: int


BEGUN: Final = 1
"""Handed to the producer: whether they are in the topic is not known until they are SENT or REFUSED."""
SENT: Final = 2
REFUSED: Final = 3
"""The cluster takes them never: they went to the file of refused ones."""
DAMAGED: Final = 4
"""The disk has lost them."""


def encode_head(first: int) -> bytes:
    """What a segment begins with whose first message has the sequence number `first`."""
    head = _HEAD.pack(MAGIC, VERSION, first)
    return head + _CRC.pack(crc32c(head))


def decode_head(data: Buffer) -> int:
    """The sequence number of the first message. Raises SpoolDamaged, SpoolTooNew."""
    view = memoryview(data)
    if len(view) < HEAD_BYTES:
        raise SpoolDamaged("it ends within its head")
    magic, version, first = _HEAD.unpack_from(view)
    if magic != MAGIC or crc32c(view[: _HEAD.size]) != _CRC.unpack_from(view, _HEAD.size)[0]:
        raise SpoolDamaged("its head is no segment's")
    if version > VERSION:
        raise SpoolTooNew(f"it has version {version}, this sidecar knows {VERSION}: use the newer one to send it")
    assert isinstance(first, int)
    return first


def encode_frame(first: int, messages: Sequence[Spooled], *, spool_id: bytes = b"") -> list[bytes]:
    """A frame, in two parts. With an id of the spool its payload ends with that."""
    if spool_id:
        messages = [*messages[:-1], _Last(**msgspec.structs.asdict(messages[-1]), spool_id=spool_id)]
    payload = _pack(messages)
    assert len(payload) <= FRAME_BYTES_MAX, f"a frame of {len(payload)} bytes"
    head = _FRAME.pack(FRAME_MAGIC, len(payload), len(messages), first)
    return [head + _CRC.pack(crc32c(head)) + _CRC.pack(crc32c(payload)), payload]


def decode_frame_head(data: Buffer) -> FrameHead:
    """However long the frame is. Raises SpoolDamaged where it is none."""
    view = memoryview(data)
    if len(view) < FRAME_HEAD_BYTES:
        raise SpoolDamaged("it ends within a frame's head")
    magic, length, count, first = _FRAME.unpack_from(view)
    if magic != FRAME_MAGIC or crc32c(view[: _FRAME.size]) != _CRC.unpack_from(view, _FRAME.size)[0]:
        raise SpoolDamaged("a frame's head is damaged")
    if not 0 < count <= length:
        raise SpoolDamaged(f"a frame claims {count} messages in {length} bytes")
    return FrameHead(length, count, first, _CRC.unpack_from(view, _FRAME.size + _CRC.size)[0])


def decode_frame(head: FrameHead, payload: Buffer) -> tuple[Spooled, ...]:
    """A frame's messages. Raises SpoolDamaged."""
    messages = _decoded(head.crc, payload)
    if len(messages) != head.count:
        raise SpoolDamaged(f"a frame has {len(messages)} messages and says {head.count}")
    return messages


def decode_headless(frame: Buffer) -> tuple[Spooled, ...]:
    """The messages of a whole frame of whose head the payload's checksum alone is believed. Raises SpoolDamaged."""
    view = memoryview(frame)
    return _decoded(_CRC.unpack_from(view, _FRAME.size + _CRC.size)[0], view[FRAME_HEAD_BYTES:])


def _decoded(crc: int, payload: Buffer) -> tuple[Spooled, ...]:
    if crc32c(payload) != crc:
        raise SpoolDamaged("a frame's checksum is wrong")
    try:
        messages: tuple[Spooled, ...] = _messages_of.decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise SpoolDamaged(f"a frame has no messages: {error}") from error
    return messages


def encode_step(step: Step) -> bytes:
    """What is appended beside the segment."""
    body = _STEP.pack(step.kind, step.first, step.count)
    return body + _CRC.pack(crc32c(body))


def decode_steps(data: Buffer) -> Iterator[Step]:
    """All up to the first that is torn or damaged: what follows it may be of any order, and is as good as not
    written.
    """
    view = memoryview(data)
    for at in range(0, len(view) - STEP_BYTES + 1, STEP_BYTES):
        body = view[at : at + _STEP.size]
        if crc32c(body) != _CRC.unpack_from(view, at + _STEP.size)[0]:
            return
        yield Step(*_STEP.unpack(body))

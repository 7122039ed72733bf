"""Requests as they lie on the wire: cut into messages before any of these is decoded, so that what few bytes claim is
bounded, and so is what is done in one go. Pure.

An empty message has two bytes, and takes hundreds once it is decoded; so does a header.
"""

from collections.abc import Iterator
from typing import Final

from google.protobuf.message import DecodeError

from bmq_databus.errors import BadMessage
from bmq_databus.grpc.errors import BadRequest
from bmq_databus.messages.forms import (
    HEADERS_MAX,
    MESSAGES_MAX,
    PARTITION_MAX,
    TIMESTAMP_MS_MAX,
    NewMessage,
)
from bmq_databus.v1.databus_pb2 import Message

OTHER_FIELDS_MAX: Final = 16
"""What a request, or a message, may have beside its messages, or headers."""
FEW_BYTES: Final = 16 << 10
"""A message of so many is decoded before it is known how many headers it has."""
CUT_IN_ONE_GO: Final = 1_000
"""So many fields take about a millisecond."""
_CHANNEL: Final = 1 << 3 | 2
_MESSAGE: Final = 2 << 3 | 2
_VARINT_BYTES_MAX: Final = 10
_decoded: Final = Message.FromString


class Cut:
    """A request that is being cut: `go_on` until it is over."""

    def __init__(self, request: bytes) -> None:
        self._request = request
        self._at = 0
        self._others = 0
        self._channel = b""
        self.size_bytes = len(request)
        self.messages: list[bytes] = []

    @property
    def channel(self) -> str:
        """Empty: it names none. Raises BadRequest."""
        try:
            return self._channel.decode()
        except UnicodeDecodeError:
            raise BadRequest("the channel's name is no UTF-8") from None

    def go_on(self) -> bool:
        """Some more of it; whether there may be more. Raises BadRequest."""
        request, at, messages = self._request, self._at, self.messages
        size = len(request)
        for _ in range(CUT_IN_ONE_GO):
            if at >= size:
                break
            tag = request[at]
            if tag in (_MESSAGE, _CHANNEL):
                length, begin = _varint(request, at + 1)
                at = begin + length
                if at > size:
                    raise BadRequest("the request ends within a message")
                if tag == _MESSAGE:
                    messages.append(request[begin:at])
                    continue
                self._channel = request[begin:at]
            else:
                at = _passed(request, at)
            self._others += 1
            if self._others > OTHER_FIELDS_MAX:
                raise BadRequest("the request has fields that mean nothing here")
        if len(messages) > MESSAGES_MAX:
            raise BadRequest(f"a request has {MESSAGES_MAX} messages at most: send fewer at a time")
        self._at = at
        if at >= size:
            self._request = b""  # messages are copies
        return at < size


def message_of(wire: bytes) -> NewMessage | BadMessage:
    """One message, or what is wrong with it."""
    try:
        if len(wire) > FEW_BYTES and _has_too_many_fields(wire):
            return BadMessage(f"a message has {HEADERS_MAX} headers at most")
        written = _decoded(wire)
    except (BadRequest, DecodeError):
        return BadMessage("it is no message of bmq.databus.v1, or a header's name is no UTF-8")
    headers: tuple[tuple[str, bytes | None], ...] = ()
    if written.headers:
        headers = tuple((one.name, one.value if one.HasField("value") else None) for one in written.headers)
        if len(headers) > HEADERS_MAX:
            return BadMessage(f"{len(headers)} headers: a message has {HEADERS_MAX} at most")
        if any("\0" in name for name, _ in headers):
            return BadMessage("a header's name has a NUL")
    timestamp_ms = partition = -1
    if written.HasField("timestamp_ms"):
        timestamp_ms = written.timestamp_ms
        if not 1 <= timestamp_ms <= TIMESTAMP_MS_MAX:
            return BadMessage(f"timestamp_ms {timestamp_ms}: it is from 1 to {TIMESTAMP_MS_MAX}")
    if written.HasField("partition"):
        partition = written.partition
        if not 0 <= partition <= PARTITION_MAX:
            return BadMessage(f"partition {partition}: it is from 0 to {PARTITION_MAX}")
    return NewMessage(
        written.key if written.HasField("key") else None,
        written.value if written.HasField("value") else None,
        headers,
        timestamp_ms,
        partition,
    )


def _has_too_many_fields(wire: bytes) -> bool:
    """Raises BadRequest."""
    return sum(1 for _ in _fields(wire, at_most=HEADERS_MAX + OTHER_FIELDS_MAX + 1)) > HEADERS_MAX + OTHER_FIELDS_MAX


def _fields(wire: bytes, *, at_most: int) -> Iterator[int]:
    at = 0
    while at < len(wire) and at_most:
        at = _passed(wire, at)
        at_most -= 1
        yield at


def _passed(wire: bytes, at: int) -> int:
    """Behind the field that begins there. Raises BadRequest."""
    tag, at = _varint(wire, at)
    match tag & 7:
        case 0:
            _, at = _varint(wire, at)
        case 1:
            at += 8
        case 2:
            length, at = _varint(wire, at)
            at += length
        case 5:
            at += 4
        case _:
            raise BadRequest("the request is no message of bmq.databus.v1")
    if at > len(wire):
        raise BadRequest("the request ends within a field")
    return at


def _varint(wire: bytes, at: int) -> tuple[int, int]:
    """It, and where it ends. Raises BadRequest."""
    found = shift = 0
    for byte in wire[at : at + _VARINT_BYTES_MAX]:
        at += 1
        found |= (byte & 0x7F) << shift
        if byte < 0x80:
            return found, at
        shift += 7
    raise BadRequest("the request is no message of bmq.databus.v1")

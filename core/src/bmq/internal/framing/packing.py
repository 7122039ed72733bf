"""Headers to bytes and back: msgpack, typed by msgspec; and wire Messages, exactly as they are, whatever their API's
versions can say.
"""

import struct
from collections.abc import Generator, Mapping
from typing import Any, Final, Generic, TypeVar
from uuid import UUID

import msgspec
from typing_extensions import Buffer

from bmq.errors import WireError
from bmq.wire.message import Message

T = TypeVar("T")


def _plain(value: Any) -> Any:
    """What msgspec does not know by itself: mappings that are no dicts."""
    if isinstance(value, Mapping):
        return dict(value)
    raise NotImplementedError(f"a {type(value).__name__} cannot travel")


_encoder: Final = msgspec.msgpack.Encoder(uuid_format="bytes", enc_hook=_plain)

_NESTED: Final = (Mapping, list, tuple)
_PLAIN: Final = frozenset((str, int, float, bool, bytes, type(None)))
"""What msgspec packs as it is. Most of what a long answer has are maps of these alone."""
_FEW_MAX: Final = 15
"""So many elements a msgpack map or array may have whose count is in its first byte."""
_MESSAGE: Final = 1
_UUID: Final = 2


class Packed(Generic[T]):
    """Packs and reads one kind of header. A type with fields can gain some at its end, with defaults, and is still read
    by older nodes.
    """

    __slots__ = ("_decoder", "_name")

    def __init__(self, kind: Any) -> None:
        self._decoder: msgspec.msgpack.Decoder[T] = msgspec.msgpack.Decoder(kind)
        self._name = getattr(kind, "__name__", str(kind))

    def encode(self, value: T) -> bytes:
        """The header's bytes."""
        return _encoder.encode(value)

    def decode(self, header: Buffer) -> T:
        """Raises WireError and nothing else."""
        try:
            return self._decoder.decode(header)
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            raise WireError(f"a header that is no {self._name}: {error}") from error


def pack_message(value: Any) -> msgspec.Raw:
    """A wire Message, or a mapping of its fields, nested in any mixture: what Owner.group_call takes and gives."""
    return msgspec.Raw(_encoder.encode(_packable(value)))


Pieces = Generator[bytes, None, bytes]
"""A header that is packed as it is sent, a piece at a time; what it returns is the last piece."""


def pack_in_pieces(value: Any, *, piece_bytes: int) -> Pieces:
    """What `pack_message` packs, of so many bytes each, or of one element of an array that has no arrays of its own."""
    if not isinstance(value, _NESTED):
        return bytes(pack_message(value))
    packed = bytearray()
    yield from _pack_onto(packed, value, piece_bytes)
    return bytes(packed)


def whole(header: bytes | Pieces) -> bytes:
    """A header that may be packed in pieces."""
    if isinstance(header, bytes):
        return header
    packed: list[bytes] = []
    while True:
        try:
            packed.append(next(header))
        except StopIteration as end:
            return b"".join((*packed, end.value))


def unpack_message(raw: Buffer) -> Any:
    """The same again: Messages as Messages, mappings as dicts, arrays as lists, buffers as bytes. Raises WireError and
    nothing else.
    """
    try:
        return _message_decoder.decode(raw)
    except (msgspec.DecodeError, ValueError, TypeError, RecursionError) as error:
        raise WireError(f"a message that cannot be read: {error}") from error


def _pack_onto(packed: bytearray, value: Any, piece_bytes: int) -> Generator[bytes, None, None]:
    if isinstance(value, Mapping):
        packed += _count(len(value), few=0x80, many=0xDE)
        for name, field in value.items():
            packed += _encoder.encode(name)
            if isinstance(field, _NESTED):
                yield from _pack_onto(packed, field, piece_bytes)
            else:
                packed += _encoder.encode(_packable(field))
        return
    packed += _count(len(value), few=0x90, many=0xDC)
    for element in value:
        if type(element) is dict and _PLAIN.issuperset(map(type, element.values())):
            packed += _encoder.encode(element)
        elif _is_nested(element):
            yield from _pack_onto(packed, element, piece_bytes)
        else:
            packed += _encoder.encode(_packable(element))
        if len(packed) >= piece_bytes:
            yield bytes(packed)
            packed.clear()


def _is_nested(element: Any) -> bool:
    """Whether it is an array or a map that has some of its own."""
    inner = element.values() if isinstance(element, Mapping) else element if isinstance(element, list | tuple) else ()
    return any(isinstance(one, _NESTED) for one in inner)


def _count(count: int, *, few: int, many: int) -> bytes:
    """How a map or an array of so many begins."""
    if count <= _FEW_MAX:
        return bytes((few | count,))
    return struct.pack(">BH", many, count) if count < 1 << 16 else struct.pack(">BI", many + 1, count)


def _packable(value: Any) -> Any:
    # msgspec would write a UUID as plain bytes and knows no Message: both are marked, so that they come back as what
    # they were.
    if isinstance(value, Message):
        return msgspec.msgpack.Ext(_MESSAGE, _encoder.encode(_packable(value.__dict__)))
    if isinstance(value, Mapping):
        return {name: _packable(field) for name, field in value.items()}
    if isinstance(value, list | tuple):
        return [_packable(element) for element in value]
    if isinstance(value, UUID):
        return msgspec.msgpack.Ext(_UUID, value.bytes)
    return value


def _unpack(code: int, data: memoryview) -> Any:
    if code == _MESSAGE:
        message = Message.__new__(Message)
        message.__dict__ = _fields_decoder.decode(data)
        return message
    if code == _UUID:
        return UUID(bytes=bytes(data))
    raise ValueError(f"an extension {code}, which this bmq does not know")


_message_decoder: Final = msgspec.msgpack.Decoder(ext_hook=_unpack)
_fields_decoder: Final = msgspec.msgpack.Decoder(dict[str, Any], ext_hook=_unpack)

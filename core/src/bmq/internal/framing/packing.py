"""Headers to bytes and back: msgpack, typed by msgspec; and wire Messages, exactly as they are, whatever their API's
versions can say.
"""

from collections.abc import Mapping
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


def unpack_message(raw: Buffer) -> Any:
    """The same again: Messages as Messages, mappings as dicts, arrays as lists, buffers as bytes. Raises WireError and
    nothing else.
    """
    try:
        return _message_decoder.decode(raw)
    except (msgspec.DecodeError, ValueError, TypeError, RecursionError) as error:
        raise WireError(f"a message that cannot be read: {error}") from error


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

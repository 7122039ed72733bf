"""A record as Confluent's REST API has it (v3, `POST .../records`), and what is told of one that is written.

Keys and values say what they are: `BINARY` is base64, `STRING` a text, `JSON` whatever stands there. One without data,
or with null, is null. Types that need a schema registry are refused.
"""

from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Final

import msgspec
from typing_extensions import Buffer

from bmq_databus.errors import BadMessage
from bmq_databus.messages.forms import (
    HEADERS_BYTES_FEW,
    HEADERS_MAX,
    HEADERS_QUOTES_MAX,
    NOT_JSON,
    PARTITION_MAX,
    TIMESTAMP_MS_MAX,
    NewMessage,
    kept,
    said,
)

TYPES: Final = ("BINARY", "JSON", "STRING")
FIELDS: Final = (
    "a record is an object with key, value, headers, partition_id and timestamp, each of which may be left out"
)


class _Data(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A key or a value; what asks for a schema is known so that it can be refused by its name."""

    type: str | None = None
    data: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    subject: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    subject_name_strategy: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    schema: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    schema_id: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    schema_version: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class _Header(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    value: bytes | None = None


_Headers = Annotated[tuple[_Header, ...], msgspec.Meta(max_length=HEADERS_MAX)]


class _Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    partition_id: Annotated[int, msgspec.Meta(ge=0, le=PARTITION_MAX)] | None = None
    headers: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    key: _Data | None = None
    value: _Data | None = None
    timestamp: Annotated[datetime, msgspec.Meta(tz=True)] | None = None


class Written(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is told of a key or a value."""

    type: str
    size: int


class Record(msgspec.Struct, frozen=True):
    """One that may be written, and what its writer said of it."""

    message: NewMessage
    key: Written | None
    value: Written | None
    timestamp: str | None


_record: Final = msgspec.json.Decoder(_Record)
_headers: Final = msgspec.json.Decoder(_Headers | None)
_text: Final = msgspec.json.Decoder(str)
_base64: Final = msgspec.json.Decoder(bytes)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MS: Final = timedelta(milliseconds=1)
_NULL: Final = b"null"
_SCHEMA_FIELDS: Final = ("subject", "subject_name_strategy", "schema", "schema_id", "schema_version")


def record_of(text: Buffer) -> Record | BadMessage:
    """A record, or what is wrong with it."""
    try:
        return _checked(_record.decode(text))
    except NOT_JSON as error:
        return BadMessage(f"{said(error)}: {FIELDS}")
    except BadMessage as bad:
        return kept(bad)


def _checked(written: _Record) -> Record:
    """Raises BadMessage."""
    key, key_is = _data(written.key, "key")
    value, value_is = _data(written.value, "value")
    timestamp_ms = -1
    if written.timestamp is not None:
        timestamp_ms = (written.timestamp - _EPOCH) // _MS
        if not 0 < timestamp_ms <= TIMESTAMP_MS_MAX:
            raise BadMessage("timestamp: a time since 1970 is wanted")
    partition = -1 if written.partition_id is None else written.partition_id
    message = NewMessage(key, value, _headers_of(written.headers), timestamp_ms, partition)
    return Record(message, key_is, value_is, None if timestamp_ms < 0 else time_text(timestamp_ms))


def time_text(time_ms: int) -> str:
    """As Confluent's API writes it."""
    text = (_EPOCH + time_ms * _MS).isoformat(timespec="milliseconds")
    return text.replace(".000", "").replace("+00:00", "Z")


def _data(written: _Data | None, name: str) -> tuple[bytes | None, Written | None]:
    if written is None:
        return None, None
    if (needs := next((one for one in _SCHEMA_FIELDS if _is_said(getattr(written, one))), None)) is not None:
        raise BadMessage(f"{name}.{needs}: there is no schema registry here: write type BINARY, JSON or STRING")
    if written.type not in TYPES:
        given = "is missing" if written.type is None else f"{written.type[:40]!r} is not served"
        raise BadMessage(f"{name}.type {given}: there is no schema registry here: write BINARY, JSON or STRING")
    data = _bytes(written.type, written.data, name)
    return data, Written(written.type, 0 if data is None else len(data))


def _bytes(kind: str, data: Any, name: str) -> bytes | None:
    if not _is_said(data):
        return None
    try:
        match kind:
            case "BINARY":
                return _base64.decode(data)
            case "STRING":
                return _text.decode(data).encode()
    except NOT_JSON as error:
        wanted = "base64" if kind == "BINARY" else "a text"
        raise BadMessage(f"{name}.data: {said(error)}: data of {kind} is {wanted}") from None
    return bytes(data)


def _is_said(raw: msgspec.Raw | msgspec.UnsetType) -> bool:
    """Whether it is there and not null."""
    return isinstance(raw, msgspec.Raw) and bytes(memoryview(raw)[:5]) != _NULL


def _headers_of(text: msgspec.Raw | msgspec.UnsetType) -> tuple[tuple[str, bytes | None], ...]:
    if not isinstance(text, msgspec.Raw):
        return ()
    if memoryview(text).nbytes > HEADERS_BYTES_FEW and bytes(text).count(b'"') > HEADERS_QUOTES_MAX:
        raise BadMessage(f"headers of more than {HEADERS_BYTES_FEW} bytes have {HEADERS_QUOTES_MAX} quotes at most")
    try:
        found = _headers.decode(text) or ()
    except NOT_JSON as error:
        raise BadMessage(
            f"headers: {said(error)}: an array of objects with a name and a value in base64, or null"
        ) from None
    if any("\0" in one.name for one in found):
        raise BadMessage("a header's name has a NUL")
    return tuple((one.name, one.value) for one in found)

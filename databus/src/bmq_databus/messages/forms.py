"""The forms in which messages come in a request's body: one as it is, many as a JSON array, a stream of lines of JSON.

A message of the JSON forms has at most one value, as `text`, `json` or `base64`; one that has none is a tombstone. It
may have a key (`key`, or `keyBase64`), headers, a timestamp (ms since 1970) and a partition. Headers are an object of
texts, or, where one has bytes or a name stands twice, an array of objects with a `name` and maybe `text` or `base64`.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Annotated, Final, TypeVar

import msgspec
from typing_extensions import Buffer

from bmq_databus.errors import BadMessage

PARTITION_MAX: Final = (1 << 31) - 1
TIMESTAMP_MS_MAX: Final = 253_402_300_799_999
"""The last ms of the year 9999; later ones are seconds or ns by mistake."""
SAID_CHARS_MAX: Final = 500
"""An error may have a field's name, which its writer has chosen."""
HEADERS_MAX: Final = 1_000
HEADERS_BYTES_FEW: Final = 256 << 10
HEADERS_QUOTES_MAX: Final = 8 * HEADERS_MAX
"""One message's headers in JSON have no more of the latter where they have more bytes than the former: they are decoded
before it is known how many there are."""
MESSAGES_MAX: Final = 10_000
BODY_HEADERS_MAX: Final = 100_000
"""In one body, of all its messages together."""
ARRAY_BYTES_MAX: Final = 4 << 20
ARRAY_COMMAS_MAX: Final = 200_000
"""An array is taken apart in one go, before it is known how many messages it has."""
SLICE_BYTES: Final = 32 << 10
"""So much JSON, or one message, is decoded in one go."""
MESSAGE_WORK_BYTES: Final = 128
"""What a message costs beside its bytes, as bytes of one."""
FIELDS: Final = (
    "a message is an object with text, json or base64, and maybe key, keyBase64, headers, timestamp, partition"
)


Encoded = TypeVar("Encoded", bytes, memoryview)


class NewMessage(msgspec.Struct, frozen=True):
    """A message as its writer wants it. `partition` and `timestamp_ms` -1: not said."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_ms: int = -1
    partition: int = -1


class _Header(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One of the array form; without text and base64 its value is null."""

    name: str
    text: str | msgspec.UnsetType = msgspec.UNSET
    base64: bytes | msgspec.UnsetType = msgspec.UNSET


_Texts = Annotated[dict[str, str | None], msgspec.Meta(max_length=HEADERS_MAX)]
_Listed = Annotated[tuple[_Header, ...], msgspec.Meta(max_length=HEADERS_MAX)]


class _Written(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """As it stands in JSON."""

    text: str | msgspec.UnsetType = msgspec.UNSET
    json: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    base64: bytes | msgspec.UnsetType = msgspec.UNSET
    key: str | None = None
    key_base64: bytes | None = None
    headers: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    timestamp: Annotated[int, msgspec.Meta(ge=1, le=TIMESTAMP_MS_MAX)] | msgspec.UnsetType = msgspec.UNSET
    partition: Annotated[int, msgspec.Meta(ge=0, le=PARTITION_MAX)] | msgspec.UnsetType = msgspec.UNSET


_one: Final = msgspec.json.Decoder(_Written)
_headers_of: Final = msgspec.json.Decoder(_Texts | _Listed)
_raws: Final = msgspec.json.Decoder(list[msgspec.Raw])
NOT_JSON: Final = (msgspec.MsgspecError, UnicodeError, RecursionError)
"""What decoding raises."""


def from_json(text: Buffer) -> NewMessage:
    """One message, as an object. Raises BadMessage."""
    try:
        return _message(_one.decode(text))
    except NOT_JSON as error:
        raise BadMessage(f"{said(error)}: {FIELDS}") from None


def tried(text: Buffer) -> NewMessage | BadMessage:
    """One message as `from_json`, or what is wrong with it."""
    try:
        return _message(_one.decode(text))
    except NOT_JSON as error:
        return BadMessage(f"{said(error)}: {FIELDS}")
    except BadMessage as bad:
        return kept(bad)


def from_json_array(text: bytes) -> Iterator[list[NewMessage | BadMessage]]:
    """Many, each as itself or what is wrong with it, in slices of bounded work. Raises BadMessage where the body is no
    array at all, and while it is read where there are too many headers.
    """
    if len(text) > ARRAY_BYTES_MAX or text.count(b",") > ARRAY_COMMAS_MAX:
        raise BadMessage(
            f"an array of {len(text)} bytes: it has {ARRAY_BYTES_MAX} bytes and {ARRAY_COMMAS_MAX} commas at most; "
            "send lines of JSON (application/x-ndjson) instead"
        )
    return in_slices(map(memoryview, _each(text)), tried)


def from_json_lines(text: bytes) -> Iterator[list[NewMessage | BadMessage]]:
    """One in each line, empty lines aside; as `from_json_array`. Raises BadMessage where there are too many."""
    if (count := text.count(b"\n")) > MESSAGES_MAX:
        raise _too_many(count)
    return in_slices(filter(bytes.strip, text.split(b"\n")), tried)


def in_slices(
    texts: Iterable[Encoded], decode: Callable[[Encoded], NewMessage | BadMessage]
) -> Iterator[list[NewMessage | BadMessage]]:
    """Each as itself or what is wrong with it, in slices of bounded work. Raises BadMessage, while it is read, where
    there are too many headers.
    """
    found: list[NewMessage | BadMessage] = []
    work_bytes = headers = 0
    for text in texts:
        one = decode(text)
        found.append(one)
        if isinstance(one, NewMessage):
            headers += len(one.headers)
            if headers > BODY_HEADERS_MAX:
                raise BadMessage(f"more than {BODY_HEADERS_MAX} headers in all messages: send fewer messages at a time")
        work_bytes += len(text) + MESSAGE_WORK_BYTES
        if work_bytes >= SLICE_BYTES:
            yield found
            found, work_bytes = [], 0
    if found:
        yield found


def _too_many(count: int) -> BadMessage:
    return BadMessage(f"{count} messages: a body has {MESSAGES_MAX} at most")


def raw(
    body: bytes,
    *,
    key: bytes | None,
    headers: Sequence[tuple[str, bytes]],
    timestamp: str | None,
    partition: str | None,
) -> NewMessage:
    """The body is the value. Raises BadMessage."""
    if len(headers) > HEADERS_MAX:
        raise BadMessage(f"{len(headers)} headers: a message has {HEADERS_MAX} at most")
    return NewMessage(
        key=key,
        value=body,
        headers=tuple(headers),
        timestamp_ms=_number("timestamp", timestamp, TIMESTAMP_MS_MAX),
        partition=_number("partition", partition, PARTITION_MAX),
    )


def _each(text: bytes) -> list[msgspec.Raw]:
    try:
        found: list[msgspec.Raw] = _raws.decode(text)
    except NOT_JSON as error:
        raise BadMessage(f"the body is no JSON array of messages: {said(error)}") from None
    if len(found) > MESSAGES_MAX:
        raise _too_many(len(found))
    return found


def kept(bad: BadMessage) -> BadMessage:
    """Without the frames that it was raised in, which have more than the message: ten thousand are kept at a time."""
    return BadMessage(*bad.args)


def _message(written: _Written) -> NewMessage:
    text, json, base64 = written.text, written.json, written.base64
    unset = msgspec.UNSET
    if (text is not unset) + (json is not unset) + (base64 is not unset) > 1:
        raise BadMessage("a message has one of text, json and base64 as its value")
    value: bytes | None = None
    if isinstance(text, str):
        value = text.encode()
    elif isinstance(json, msgspec.Raw):
        value = bytes(json)
    elif isinstance(base64, bytes):
        value = base64
    if written.key is not None and written.key_base64 is not None:
        raise BadMessage("a message has one of key and keyBase64")
    headers = () if written.headers is unset else _headers(written.headers)
    if headers and any("\0" in name for name, _ in headers):
        raise BadMessage("a header's name has a NUL")
    return NewMessage(
        written.key_base64 if written.key is None else written.key.encode(),
        value,
        headers,
        -1 if written.timestamp is msgspec.UNSET else written.timestamp,
        -1 if written.partition is msgspec.UNSET else written.partition,
    )


def _headers(text: msgspec.Raw | msgspec.UnsetType) -> tuple[tuple[str, bytes | None], ...]:
    if not isinstance(text, msgspec.Raw):
        return ()
    if memoryview(text).nbytes > HEADERS_BYTES_FEW and bytes(text).count(b'"') > HEADERS_QUOTES_MAX:
        raise BadMessage(f"headers of more than {HEADERS_BYTES_FEW} bytes have {HEADERS_QUOTES_MAX} quotes at most")
    try:
        written = _headers_of.decode(text)
    except NOT_JSON as error:
        raise BadMessage(f"headers: {said(error)}: {FIELDS}") from None
    if isinstance(written, dict):
        return tuple((name, None if content is None else content.encode()) for name, content in written.items())
    return tuple((one.name, _content(one)) for one in written)


def _content(header: _Header) -> bytes | None:
    text, base64 = header.text, header.base64
    if isinstance(text, str):
        if isinstance(base64, bytes):
            raise BadMessage("a header has one of text and base64 as its value")
        return text.encode()
    return base64 if isinstance(base64, bytes) else None


def said(error: Exception) -> str:
    """What is wrong with what was to be JSON."""
    return "it is nested too deep" if isinstance(error, RecursionError) else str(error)[:SAID_CHARS_MAX]


def _number(name: str, text: str | None, most: int) -> int:
    if text is None:
        return -1
    if not (text.isascii() and text.isdecimal()) or int(text[:20]) > most or len(text) > 20:
        raise BadMessage(f"{name} {text[:40]!r}: a whole number from 0 to {most} is wanted")
    return int(text)

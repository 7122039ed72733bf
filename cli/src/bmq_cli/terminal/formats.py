"""Records as text: kcat's format strings, JSON lines both ways, KEY=VALUE options. Pure: bytes and values in, bytes and
values out.
"""

import base64
import binascii
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from bmq_cli.terminal.exit_codes import CommandFailed, ExitCode
from bmq_cli.terminal.times import parse_timestamp_ms

Header = tuple[str, bytes | None]
_INT64_MAX: Final = 2**63 - 1
_INT32_MAX: Final = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A record as it was read. `timestamp_ms` is None where the log has none; `append_time` says that the broker set
    it.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int | None = None
    append_time: bool = False
    key: bytes | None = None
    value: bytes | None = None
    headers: Sequence[Header] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NewRecord:
    """A record to send. `partition` and `timestamp_ms` are None where the producer shall choose."""

    key: bytes | None = None
    value: bytes | None = None
    headers: Sequence[Header] = ()
    timestamp_ms: int | None = None
    partition: int | None = None


_Render = Callable[[Record], bytes]


def _length(text: bytes | None) -> bytes:
    return b"-1" if text is None else b"%d" % len(text)


def _headers(record: Record) -> bytes:
    return b",".join(name.encode() + b"=" + (b"NULL" if value is None else value) for name, value in record.headers)


DIRECTIVES: Final[dict[str, tuple[str, _Render]]] = {
    "%k": ("key", lambda record: record.key or b""),
    "%v": ("value", lambda record: record.value or b""),
    "%s": ("value, as in kcat", lambda record: record.value or b""),
    "%t": ("topic", lambda record: record.topic.encode()),
    "%p": ("partition", lambda record: b"%d" % record.partition),
    "%o": ("offset", lambda record: b"%d" % record.offset),
    "%T": (
        "timestamp in milliseconds, -1 without one",
        lambda record: b"%d" % (-1 if record.timestamp_ms is None else record.timestamp_ms),
    ),
    "%h": ("headers: name=value,name=value", _headers),
    "%K": ("key's length in bytes, -1 for none", lambda record: _length(record.key)),
    "%S": ("value's length in bytes, -1 for none", lambda record: _length(record.value)),
    "%%": ("a percent sign", lambda record: b"%"),
}
_ESCAPES: Final = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}
_HEX_DIGITS: Final = frozenset("0123456789abcdefABCDEF")


def compile_format(text: str) -> _Render:
    r"""A function that renders a record as `text` says: the directives above, and the escapes \n \t \r \0 \\ \xHH.

    Raises CommandFailed (usage) for a directive or escape that does not exist.
    """
    parts: list[bytes | _Render] = []
    position = 0
    while position < len(text):
        match text[position]:
            case "%":
                name = text[position : position + 2]
                if name not in DIRECTIVES:
                    raise _unknown(text, name, f"use {' '.join(DIRECTIVES)}")
                parts.append(DIRECTIVES[name][1])
                position += 2
            case "\\":
                escaped, length = _escape(text, position)
                parts.append(escaped)
                position += length
            case character:
                parts.append(character.encode("utf-8", "surrogateescape"))
                position += 1
    merged = _merge(parts)
    return lambda record: b"".join(part if isinstance(part, bytes) else part(record) for part in merged)


def unescape(text: str) -> bytes:
    r"""`text` with its escapes (\t and so on) as the bytes that they stand for. Raises CommandFailed (usage)."""
    return compile_format(text.replace("%", "%%"))(Record(topic="", partition=0, offset=0))


def _escape(text: str, position: int) -> tuple[bytes, int]:
    following = text[position + 1 : position + 2]
    if following == "x":
        digits = text[position + 2 : position + 4]
        if len(digits) == 2 and _HEX_DIGITS.issuperset(digits):
            return bytes([int(digits, 16)]), 4
    elif following in _ESCAPES:
        return _ESCAPES[following], 2
    raise _unknown(text, text[position : position + 2], r"use \n \t \r \0 \\ \xHH")


def _merge(parts: Sequence[bytes | _Render]) -> list[bytes | _Render]:
    merged: list[bytes | _Render] = []
    for part in parts:
        if isinstance(part, bytes) and merged and isinstance(merged[-1], bytes):
            merged[-1] += part
        else:
            merged.append(part)
    return merged


def _unknown(text: str, name: str, remedy: str) -> CommandFailed:
    return CommandFailed(f"format {text!r}", f"{name!r} means nothing in it", remedy, code=ExitCode.USAGE)


class BadLine(Exception):
    """A line that is no record; the message says why."""


def to_document(record: Record) -> dict[str, Any]:
    """The record for JSON and YAML: text where the bytes are UTF-8, else `{"base64": …}`; None stays None."""
    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
        "timestamp_type": None if record.timestamp_ms is None else "append" if record.append_time else "create",
        "key": encode_bytes(record.key),
        "value": encode_bytes(record.value),
        "headers": [{"name": name, "value": encode_bytes(value)} for name, value in record.headers],
    }


def to_json_line(record: Record) -> bytes:
    """One line of JSON, with its line break."""
    return json.dumps(to_document(record), ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def encode_bytes(data: bytes | None) -> str | dict[str, str] | None:
    """Bytes for JSON."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def decode_bytes(value: Any, *, field: str) -> bytes | None:
    """What JSON holds for bytes: a string, None, `{"base64": …}`; anything else is sent as its own compact JSON. Raises
    BadLine.
    """
    match value:
        case None:
            return None
        case str():
            return _utf8(value, field=field)
        case {"base64": str(text), **rest} if not rest:
            try:
                return base64.b64decode(text, validate=True)
            except (binascii.Error, ValueError) as error:
                raise BadLine(f"{field}: not base64 ({error})") from error
        case _:
            return _utf8(json.dumps(value, ensure_ascii=False, separators=(",", ":")), field=field)


_FIELDS: Final = frozenset({"key", "value", "headers", "timestamp", "partition"})
_IGNORED: Final = frozenset({"topic", "offset", "timestamp_type"})
"""What `consume -o json` prints and a new record cannot choose."""


def from_json_line(line: bytes) -> NewRecord:
    """The record that a line of JSON describes: key, value, headers, timestamp, partition, each optional. Raises
    BadLine.
    """
    try:
        document = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise BadLine(f"not JSON ({error})") from error
    if not isinstance(document, dict):
        raise BadLine("not a JSON object")
    if unknown := sorted(document.keys() - _FIELDS - _IGNORED):
        raise BadLine(f"unknown field {unknown[0]!r}: use {', '.join(sorted(_FIELDS))}")
    return NewRecord(
        key=decode_bytes(document.get("key"), field="key"),
        value=decode_bytes(document.get("value"), field="value"),
        headers=_decode_headers(document.get("headers")),
        timestamp_ms=_decode_timestamp(document.get("timestamp")),
        partition=_decode_number(document.get("partition"), field="partition", maximum=_INT32_MAX),
    )


def _decode_headers(value: Any) -> list[Header]:
    match value:
        case None:
            return []
        case dict():
            return [
                (_header_name(name), decode_bytes(content, field=f"header {name}")) for name, content in value.items()
            ]
        case list():
            return [_decode_header(item) for item in value]
        case _:
            raise BadLine('headers: neither an object nor a list of {"name": …, "value": …}')


def _decode_header(item: Any) -> Header:
    match item:
        case {"name": str(name), **rest} if rest.keys() <= {"value"}:
            return _header_name(name), decode_bytes(rest.get("value"), field=f"header {name}")
        case _:
            raise BadLine('headers: a list holds objects {"name": …, "value": …}')


def _decode_timestamp(value: Any) -> int | None:
    if isinstance(value, str):
        timestamp_ms = parse_timestamp_ms(value)
        if timestamp_ms is None:
            raise BadLine(f"timestamp: {value[:40]!r} is neither milliseconds since 1970 nor an ISO 8601 time")
        return timestamp_ms
    return _decode_number(value, field="timestamp", maximum=_INT64_MAX)


def _decode_number(value: Any, *, field: str, maximum: int) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= maximum:
        raise BadLine(f"{field}: not a whole number from 0 to {maximum}")
    return value


def _header_name(name: str) -> str:
    _utf8(name, field="a header's name")
    return name


def _utf8(text: str, *, field: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise BadLine(f"{field}: half a surrogate pair is no text") from error


def key_and_value(pair: str, *, option: str) -> tuple[str, str]:
    """`key=value` in two. Raises CommandFailed (usage)."""
    key, separator, value = pair.partition("=")
    if not separator or not key.strip():
        raise CommandFailed(
            f"{option} {pair}", "not KEY=VALUE", f"for example {option} name=value", code=ExitCode.USAGE
        )
    return key.strip(), value

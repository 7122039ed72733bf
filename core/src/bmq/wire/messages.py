"""Requests and responses of every API in every version as one version-agnostic Message each; safe against any bytes.

The hot paths Produce and Fetch have hand-written ones of their own (`produce`, `fetch`). Field names: `message_fields`
lists them.
"""

import struct
from functools import cache

from typing_extensions import Buffer

from bmq.errors import WireError
from bmq.wire.decoding import Reader, message_reader
from bmq.wire.encoding import Encoded, Writer, message_writer
from bmq.wire.limits import ELEMENTS_MAX, TAGS_MAX
from bmq.wire.message import Fields, Message
from bmq.wire.schemas import Field, api_schema

__all__ = [
    "Encoded",
    "Fields",
    "Message",
    "decode_request",
    "decode_response",
    "encode_element",
    "encode_request",
    "encode_response",
    "message_fields",
]


def decode_request(api_key: int, version: int, body: Buffer, *, elements_max: int = ELEMENTS_MAX) -> Message:
    """The request's body (without header). Bytes after it are ignored, as Kafka does. Raises WireError and nothing
    else.
    """
    return _decode(_reader(api_key, version, is_request=True), api_key, version, body, elements_max)


def decode_response(api_key: int, version: int, body: Buffer, *, elements_max: int = ELEMENTS_MAX) -> Message:
    """The response's body (without header). Raises WireError and nothing else."""
    return _decode(_reader(api_key, version, is_request=False), api_key, version, body, elements_max)


def encode_request(api_key: int, version: int, message: Fields) -> bytes:
    """The body. Raises AssertionError for what no version has or this one cannot carry."""
    return _encode(_writer(api_key, version, is_request=True), api_key, version, message)


def encode_response(api_key: int, version: int, message: Fields) -> bytes:
    """The body; what this version lacks is left out. Raises AssertionError for what no version has or this one cannot
    carry.
    """
    return _encode(_writer(api_key, version, is_request=False), api_key, version, message)


def encode_element(api_key: int, version: int, name: str, element: Fields) -> Encoded:
    """One element of a response's array `name`, to be put there in its place: a long answer is written in pieces, or
    from kept ones.

    Raises as `encode_response`.
    """
    return Encoded(_encode(_element_writer(api_key, version, name), api_key, version, element))


def message_fields(api_key: int, *, is_request: bool) -> str:
    """The fields of an API's message with the versions that have them, one a line, nested ones indented: for people."""
    schema = api_schema(api_key)
    return "\n".join(_described(schema.request if is_request else schema.response, ""))


def _decode(read: Reader, api_key: int, version: int, body: Buffer, elements_max: int) -> Message:
    raw = body if isinstance(body, bytes) else bytes(body)
    try:
        message: Message = read(raw, 0, [elements_max, TAGS_MAX])[0]
    except (struct.error, IndexError, UnicodeDecodeError, WireError) as error:
        reason = "it is truncated" if isinstance(error, struct.error | IndexError) else error
        cause = error.with_traceback(None)  # which has all that was decoded
        raise WireError(f"malformed {api_schema(api_key).name} of version {version}: {reason}") from cause
    return message


def _encode(write: Writer, api_key: int, version: int, message: Fields) -> bytes:
    out = bytearray()
    try:
        write(out, message)
    except struct.error as error:
        raise AssertionError(f"{api_schema(api_key).name} of version {version}: {error}") from error
    return bytes(out)


@cache
def _reader(api_key: int, version: int, *, is_request: bool) -> Reader:
    fields, flexible = _schema(api_key, version, is_request=is_request)
    return message_reader(fields, version, flexible=flexible)


@cache
def _writer(api_key: int, version: int, *, is_request: bool) -> Writer:
    fields, flexible = _schema(api_key, version, is_request=is_request)
    return message_writer(fields, version, flexible=flexible)


@cache
def _element_writer(api_key: int, version: int, name: str) -> Writer:
    fields, flexible = _schema(api_key, version, is_request=False)
    [field] = [field for field in fields if field.name == name and field.array and field.type == "struct"]
    return message_writer(field.fields, version, flexible=flexible)


def _schema(api_key: int, version: int, *, is_request: bool) -> tuple[tuple[Field, ...], bool]:
    try:
        schema = api_schema(api_key)
    except KeyError:
        raise WireError(f"API key {api_key} is not known") from None
    if not schema.versions[0] <= version <= schema.versions[1]:
        raise WireError(
            f"version {version} of {schema.name} is not known; versions {schema.versions[0]} to "
            f"{schema.versions[1]} are"
        )
    return schema.request if is_request else schema.response, version >= schema.flexible_from


def _described(fields: tuple[Field, ...], indent: str) -> list[str]:
    lines = []
    for field in fields:
        kind = field.type + ("[]" if field.array else "") + ("" if field.nullable is None else " or None")
        default = f" = {field.default!r}" if field.has_default else ""
        tag = "" if field.tag is None else f", tag {field.tag}"
        lines.append(
            f"{indent}{field.name}: {kind}{default}  (versions {field.versions[0]} to {field.versions[1]}{tag})"
        )
        lines += _described(field.fields, indent + "    ")
    return lines

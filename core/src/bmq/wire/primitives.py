"""Writing the protocol's variable-length values by hand; the counterpart of `cursor`."""

import struct
from typing import Final
from uuid import UUID

_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_NO_UUID: Final = bytes(16)
SENTENCE_BYTES_MAX: Final = 2_000
"""Sentences quote what they are about, which may be as long as any string."""


def write_uvarint(out: bytearray, value: int) -> None:
    """Appends an unsigned varint."""
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def uvarint_bytes(value: int) -> int:
    """How long an unsigned varint is."""
    return max(1, -(-value.bit_length() // 7))


def write_count(out: bytearray, count: int | None, *, flexible: bool) -> None:
    """Appends the length of an array or of bytes; None is null."""
    if count is None:
        count = -1
    if flexible:
        write_uvarint(out, count + 1)
    else:
        out += _INT32.pack(count)


def write_string(out: bytearray, text: str | None, *, flexible: bool) -> None:
    """Appends a string; None is null."""
    if text is None:
        out += b"\x00" if flexible else b"\xff\xff"
        return
    raw = text.encode()
    if flexible:
        write_uvarint(out, len(raw) + 1)
    else:
        out += _INT16.pack(len(raw))
    out += raw


def write_sentence(out: bytearray, text: str | None, *, flexible: bool) -> None:
    """Appends a string for people, of which the first 2,000 bytes do."""
    write_string(out, sentence(text), flexible=flexible)


def sentence(text: str | None) -> str | None:
    """As much of it as an answer has: it may be there for each of thousands of elements."""
    if text is not None and len(text) > SENTENCE_BYTES_MAX // 4 and len(raw := text.encode()) > SENTENCE_BYTES_MAX:
        return f"{raw[:SENTENCE_BYTES_MAX].decode(errors='ignore')}…"
    return text


def write_uuid(out: bytearray, value: UUID | None) -> None:
    """Appends a UUID; None is zero."""
    out += _NO_UUID if value is None else value.bytes

"""The bytes of an object of a table's log: one line that says kind, format version, checksum and length, then JSON.

What is cut off, changed or of another kind is Corrupt; what a newer bmq wrote is FormatTooNew, refused by name.
docs/formats/parquet-table.md has the fields. What the JSON means is `state`'s.
"""

import json
import re
import zlib
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final

from crc32c import crc32c

from bmq_spark.errors import Corrupt, FormatTooNew

FORMAT_VERSION: Final = 2
"""The newest that is read. What is written is no newer than it has to be: `state.format_of`."""
_HEADER: Final = re.compile(rb"([a-z-]{1,40}) ([1-9][0-9]{0,8}) ([0-9a-f]{8}) ([0-9]{1,12})\n")
_OBJECT_BYTES_MAX: Final = 1 << 30


class Kind(StrEnum):
    """What an object of the log is."""

    COMMIT = "bmq-table-commit"
    """What one version adds and removes; plain JSON."""
    SNAPSHOT = "bmq-table-snapshot"
    """All that holds at a version; JSON compressed by zlib."""


def encode(kind: Kind, fields: Mapping[str, Any], *, version: int = 1) -> bytes:
    """The object's bytes, of that format version."""
    text = json.dumps(fields, separators=(",", ":"), ensure_ascii=False).encode()
    body = zlib.compress(text, 6) if kind is Kind.SNAPSHOT else text + b"\n"
    start = b"%s %d" % (kind.encode(), version)
    return b"%s %08x %d\n" % (start, crc32c(body, crc32c(start)), len(body)) + body


def decode(kind: Kind, content: bytes, *, name: str) -> dict[str, Any]:
    """The fields of an object. Raises Corrupt or FormatTooNew, which call it `name`."""
    header = _HEADER.match(content)
    if header is None or header[1] != kind.encode():
        raise Corrupt(f"{name}: no {kind} object")
    if int(header[2]) > FORMAT_VERSION:
        raise FormatTooNew(
            f"{name}: {kind} of version {int(header[2])}, and this bmq reads up to {FORMAT_VERSION}: upgrade it"
        )
    body = content[header.end() :]
    if len(body) != int(header[4]) or header[4] != b"%d" % len(body):
        raise Corrupt(f"{name}: {len(body)} bytes where {int(header[4])} were written")
    if crc32c(body, crc32c(header[1] + b" " + header[2])) != int(header[3], 16):
        raise Corrupt(f"{name}: its checksum does not match")
    return _fields(kind, body, name)


def _fields(kind: Kind, body: bytes, name: str) -> dict[str, Any]:
    try:
        if kind is Kind.SNAPSHOT:
            unpack = zlib.decompressobj()
            text = unpack.decompress(body, _OBJECT_BYTES_MAX)
            if not unpack.eof or unpack.unused_data:
                raise Corrupt(f"{name}: its compressed part does not end where it should")
        else:
            text = body
        fields = json.loads(text)
    except (zlib.error, ValueError) as error:
        raise Corrupt(f"{name}: {error}") from error
    if not isinstance(fields, dict):
        raise Corrupt(f"{name}: no JSON object")
    return fields

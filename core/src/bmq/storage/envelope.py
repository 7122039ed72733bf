"""The first 24 bytes that every object of bmq shares: which kind it is, in which format version, and whose it is.

    magic          4 bytes   "bmqW" WAL object, "bmqX" WAL seal, "bmqL" flat-log entry, "bmqS" segment, "bmqI" segment
    index,
                             "bmqP" manifest page, "bmqN" metadata snapshot, "bmqG" coordinator snapshot
    format version uint16
    flags          uint16    0 until one is defined; an unknown flag is refused like a newer version
    nonce          16 bytes  the writer's own: tells after a conflict whether the object is one's own

All integers of bmq's own formats are big-endian.
"""

import struct
from typing import Final

from typing_extensions import Buffer

from bmq.errors import Corrupt, FormatTooNew
from bmq.values import Nonce

_ENVELOPE: Final = struct.Struct(">4sHH16s")
ENVELOPE_SIZE_BYTES: Final = _ENVELOPE.size


def encode_envelope(*, magic: bytes, version: int, nonce: Nonce) -> bytes:
    """The 24 bytes."""
    assert len(magic) == 4
    assert len(nonce) == 16
    return _ENVELOPE.pack(magic, version, 0, nonce)


def decode_envelope(data: Buffer, *, magic: bytes, version_max: int, what: str) -> tuple[int, Nonce]:
    """(format version, nonce). Raises Corrupt where it is not a `what`, FormatTooNew where the version or a flag is
    unknown.
    """
    view = memoryview(data)
    if len(view) < ENVELOPE_SIZE_BYTES:
        raise Corrupt(f"{what}: {len(view)} bytes are too few for an envelope")
    found, version, flags, nonce = _ENVELOPE.unpack_from(view)
    if found != magic:
        raise Corrupt(f"{what}: magic {found!r} instead of {magic!r}")
    if version > version_max or flags:
        raise FormatTooNew(
            f"{what}: format version {version} flags {flags:#x}; this bmq reads up to version {version_max}: upgrade it"
        )
    if version < 1:
        raise Corrupt(f"{what}: format version {version}")
    return version, Nonce(nonce)


def nonce_of(data: Buffer) -> Nonce | None:
    """The nonce of any object of bmq from its first bytes; None where they are none of bmq's."""
    view = memoryview(data)
    if len(view) < ENVELOPE_SIZE_BYTES or bytes(view[:3]) != b"bmq":
        return None
    return Nonce(bytes(view[8:24]))

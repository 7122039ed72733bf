"""What bmq's binary formats share: checksums over parts, checked lengths, short texts of fixed width. Pure; owns no
format.
"""

import struct
from collections.abc import Iterable
from typing import Final

from crc32c import crc32c
from typing_extensions import Buffer

from bmq.errors import Corrupt

CLUSTER_ID_SIZE_BYTES: Final = 64
"""The field's width; a cluster id is at most that many bytes of UTF-8, padded with zeros."""
_CRC: Final = struct.Struct(">I")
CRC_SIZE_BYTES: Final = _CRC.size


def bytes_view(data: Buffer) -> memoryview:
    """A view whose length is in bytes, whatever the buffer's own item is."""
    view = memoryview(data)
    return view if view.format == "B" and view.ndim == 1 else view.cast("B")


def crc_of(parts: Iterable[Buffer], crc: int = 0) -> int:
    """CRC32C of the parts joined, after what `crc` covers already."""
    for part in parts:
        crc = crc32c(part, crc)
    return crc


def encode_crc(crc: int) -> bytes:
    """The 4 bytes that end a checksummed section."""
    return _CRC.pack(crc)


def checked(section: Buffer, *, what: str) -> memoryview:
    """The section without the CRC32C that ends it. Raises Corrupt where the two do not agree."""
    view = bytes_view(section)
    if len(view) < CRC_SIZE_BYTES:
        raise Corrupt(f"{what}: {len(view)} bytes are too few for a checksum")
    body = view[:-CRC_SIZE_BYTES]
    (expected,) = _CRC.unpack(view[-CRC_SIZE_BYTES:])
    found = crc32c(body)
    if found != expected:
        raise Corrupt(f"{what}: checksum {found:#010x} instead of {expected:#010x}")
    return body


def section(data: memoryview, position: int, length: int, *, what: str) -> memoryview:
    """`length` bytes from `position`. Raises Corrupt where they are not all there."""
    if position < 0 or length < 0 or position + length > len(data):
        raise Corrupt(f"{what}: bytes {position} to {position + length} of {len(data)} are not there")
    return data[position : position + length]


def encode_cluster_id(cluster_id: str) -> bytes:
    """UTF-8 for a `64s` field and its length byte. Raises ValueError where it is longer than 64 bytes."""
    raw = cluster_id.encode()
    if len(raw) > CLUSTER_ID_SIZE_BYTES:
        raise ValueError(
            f"cluster id {cluster_id!r} has {len(raw)} bytes, at most {CLUSTER_ID_SIZE_BYTES} are possible"
        )
    return raw


def decode_cluster_id(length: int, field: bytes, *, what: str) -> str:
    """The text of a padded field. Raises Corrupt."""
    if length > len(field) or any(field[length:]):
        raise Corrupt(f"{what}: a cluster id of {length} bytes")
    try:
        return field[:length].decode()
    except UnicodeDecodeError as error:
        raise Corrupt(f"{what}: the cluster id is not UTF-8") from error

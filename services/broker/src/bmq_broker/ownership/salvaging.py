"""What is left of a WAL object whose checksum does not hold: which runs are whole, and which are damaged. Pure.

Each batch has a checksum of its own over all but its first bytes, and those follow from the directory, or stand there
as they were. So the object's checksum can be computed as it was before a batch was damaged; where it then holds, the
directory and all other runs are proven to be as they were written. Where it does not, nothing is: any entry of the
directory may name another partition than it did.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from crc32c import crc32c
from typing_extensions import Buffer

from bmq.errors import BmqError
from bmq.storage.binary import CRC_SIZE_BYTES, bytes_view
from bmq.storage.wal import WAL_ENTRY_SIZE_BYTES, WAL_HEADER_SIZE_BYTES, WalEntry, WalObject, decode_wal_unchecked
from bmq.wire.batch_headers import CRC_START, LOG_OVERHEAD_BYTES, MAGIC, BatchHeader, check_crc, split

_POLYNOMIAL: Final = 0x82F63B78
"""CRC32C's, reflected."""
_BITS: Final = 32
_BATCH_HEAD: Final = struct.Struct(">qiibI")
"""Base offset, length, leader epoch, magic, checksum: what stands before the bytes that a batch's checksum covers."""
_STORED: Final = struct.Struct(">I")

_Matrix = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Salvaged:
    """`wal` has the entries of whole runs alone."""

    wal: WalObject
    damaged: tuple[WalEntry, ...]


def salvage(data: Buffer) -> Salvaged | None:
    """None: what of the object is whole cannot be told. Blocking, as long as reading a few times over it takes."""
    view = bytes_view(data)
    try:
        wal = decode_wal_unchecked(view)
        runs = [(entry, split(wal.run(entry))) for entry in wal.entries]
    except BmqError:
        return None
    (stored,) = _STORED.unpack(view[-CRC_SIZE_BYTES:])
    # what was carried forward has an earlier epoch than its run; so has a batch whose epoch is what changed
    for carried in (True, False):
        crc, damaged = _as_written(wal, runs, carried=carried)
        if crc == stored:
            whole = tuple(entry for entry in wal.entries if entry not in damaged)
            return Salvaged(
                wal=WalObject(header=wal.header, entries=whole, data=wal.data), damaged=tuple(dict.fromkeys(damaged))
            )
    return None


def _as_written(
    wal: WalObject, runs: Sequence[tuple[WalEntry, Sequence[BatchHeader]]], *, carried: bool
) -> tuple[int, list[WalEntry]]:
    """(the object's checksum as it was, entries with damaged batches), if the directory is whole.

    `carried`: epochs of batches that are below their run's are as they were written; otherwise all are the run's.
    """
    crc = crc32c(wal.data[: WAL_HEADER_SIZE_BYTES + len(wal.entries) * WAL_ENTRY_SIZE_BYTES])
    damaged = []
    for entry, headers in runs:
        run = wal.run(entry)
        offset = int(entry.base_offset)
        for index, header in enumerate(headers):
            batch = run[header.position : header.position + header.size_bytes]
            epoch = (
                header.leader_epoch if carried and 0 <= header.leader_epoch < entry.leader_epoch else entry.leader_epoch
            )
            if header.base_offset == offset and header.leader_epoch == epoch and _is_whole(run, header):
                crc = crc32c(batch, crc)
                offset = header.next_offset
            else:
                head = _BATCH_HEAD.pack(offset, header.size_bytes - LOG_OVERHEAD_BYTES, epoch, MAGIC, header.crc)
                crc = _followed_by(crc32c(head, crc), header.crc, header.size_bytes - CRC_START)
                damaged.append(entry)
                # its own length in offsets may be what changed
                offset = headers[index + 1].base_offset if index + 1 < len(headers) else 0
    return crc, damaged


def _is_whole(run: memoryview, header: BatchHeader) -> bool:
    try:
        check_crc(run, header)
    except BmqError:
        return False
    return True


def _followed_by(crc: int, other: int, size_bytes: int) -> int:
    """The CRC32C of what `crc` is of, followed by `size_bytes` that `other` is of (as crc32_combine of zlib)."""
    power = _squared(_squared(_squared(_one_bit())))  # of one byte
    while size_bytes:
        if size_bytes & 1:
            crc = _times(power, crc)
        power = _squared(power)
        size_bytes >>= 1
    return crc ^ other


def _one_bit() -> _Matrix:
    return (_POLYNOMIAL, *(1 << bit for bit in range(_BITS - 1)))


def _times(matrix: _Matrix, vector: int) -> int:
    total = 0
    for row in matrix:
        if vector & 1:
            total ^= row
        vector >>= 1
    return total


def _squared(matrix: _Matrix) -> _Matrix:
    return tuple(_times(matrix, row) for row in matrix)

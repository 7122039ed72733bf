"""The records of batches, decompressed one behind the other into memory that is used again and again. CRCs are checked
here.

Memory that is new costs several times what decompression does (each page is given and zeroed by the system), so a
reader has one Scratch.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from bmq.errors import BatchTooLarge, CorruptBatch, UnsupportedCompression
from bmq.wire.batches import HEADER_SIZE_BYTES, BatchHeader, check_crc
from bmq.wire.compression import decompress_into
from bmq.wire.limits import DECOMPRESSED_BYTES_MAX

DECODED_BYTES: Final = 4 << 20
"""A RecordBatch is made of so many bytes of records or more, unless there are no more. More than this leaves the
processor's cache."""


class BatchBroken(Exception):
    """The batch with this header cannot be read; `why` is what bmq says of it."""

    def __init__(self, header: BatchHeader, why: str) -> None:
        super().__init__(why)
        self.header = header
        self.why = why


@dataclass(frozen=True, slots=True, kw_only=True)
class Sections:
    """The records of several batches: from `starts` to `ends` of `data`, which holds only until the next Sections are
    asked for.
    """

    data: bytes | bytearray
    headers: Sequence[BatchHeader]
    starts: Sequence[int]
    ends: Sequence[int]


class Scratch:
    """Where one reader decompresses. It grows to what the largest batches need: at most DECODED_BYTES and
    DECOMPRESSED_BYTES_MAX together.
    """

    def __init__(self) -> None:
        self.data = bytearray()

    def append(self, data: memoryview, header: BatchHeader, size: int) -> int:
        """Puts a batch's records behind the first `size` bytes; the new size. Raises CorruptBatch,
        UnsupportedCompression, BatchTooLarge.
        """
        payload = data[header.position + HEADER_SIZE_BYTES : header.end]
        while True:
            room = memoryview(self.data)[size : size + DECOMPRESSED_BYTES_MAX]
            written = decompress_into(header.attributes & 7, payload, room)
            if written is not None:
                return size + written
            if len(room) == DECOMPRESSED_BYTES_MAX:
                raise BatchTooLarge(
                    f"{len(payload)} bytes decompress to more than {DECOMPRESSED_BYTES_MAX}, which is the most allowed"
                )
            self._grow(size)

    def _grow(self, used: int) -> None:
        grown = bytearray(min(max(2 * len(self.data), 2 * DECODED_BYTES), DECODED_BYTES + DECOMPRESSED_BYTES_MAX))
        grown[:used] = memoryview(self.data)[:used]
        self.data = grown


def sections_of(data: bytes, headers: Sequence[BatchHeader], scratch: Scratch) -> Iterator[Sections]:
    """The records of these batches of `data`, in groups. Records that are not compressed are not copied, where all are.
    Raises BatchBroken.
    """
    view = memoryview(data)
    is_copied = any(header.attributes & 7 for header in headers)
    group: list[BatchHeader] = []
    starts: list[int] = []
    ends: list[int] = []
    size = 0
    for header in headers:
        try:
            check_crc(view, header)
            start = size if is_copied else header.position + HEADER_SIZE_BYTES
            end = scratch.append(view, header, size) if is_copied else header.end
            if header.record_count > end - start:
                raise CorruptBatch(f"{header.record_count} records in {end - start} bytes")
        except (CorruptBatch, UnsupportedCompression, BatchTooLarge) as error:
            raise BatchBroken(header, str(error)) from error
        group.append(header)
        starts.append(start)
        ends.append(end)
        size += end - start
        if size >= DECODED_BYTES:
            yield Sections(data=scratch.data if is_copied else data, headers=group, starts=starts, ends=ends)
            group, starts, ends, size = [], [], [], 0
    if group:
        yield Sections(data=scratch.data if is_copied else data, headers=group, starts=starts, ends=ends)

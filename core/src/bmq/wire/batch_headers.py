"""The 61 bytes before the records of a Kafka record batch (message format 2): reading, checking, re-numbering. Hot
path.

Batches stay opaque bytes; nothing here looks at records. Source: the record batch format of the Kafka protocol guide.
"""

import struct
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

from crc32c import crc32c
from typing_extensions import Buffer

from bmq.errors import CorruptBatch, UnsupportedMessageFormat
from bmq.wire.compression import Codec, codec_of

_HEADER: Final = struct.Struct(">qiibIhiqqqhii")
_PREFIX: Final = struct.Struct(">qiib")
_UINT32: Final = struct.Struct(">I")
_INT64: Final = struct.Struct(">q")
_PRODUCER: Final = struct.Struct(">qhi")
_INT32: Final = struct.Struct(">i")
_INT16: Final = struct.Struct(">h")

HEADER_SIZE_BYTES: Final = _HEADER.size
LOG_OVERHEAD_BYTES: Final = 12
"""Base offset and length: what stands before the bytes that the length counts."""
_LEADER_EPOCH_AT: Final = 12
_CRC_AT: Final = 17
CRC_START: Final = 21
"""The CRC covers the batch from here: the attributes on. Base offset and leader epoch are outside it."""
_MAX_TIMESTAMP_AT: Final = 35
_PRODUCER_AT: Final = 43

CODEC_MASK: Final = 0x07
LOG_APPEND_TIME_BIT: Final = 0x08
TRANSACTIONAL_BIT: Final = 0x10
CONTROL_BIT: Final = 0x20
MAGIC: Final = 2
NO_TIMESTAMP: Final = -1
_OLD_MESSAGE_BYTES_MIN: Final = 14
"""CRC, magic, attributes, key length, value length of message format 0."""


class BatchHeader(NamedTuple):
    """A batch's header. `position` is where the batch starts in the buffer it was read from, `size_bytes` its whole
    length.
    """

    position: int
    base_offset: int
    size_bytes: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp_ms: int
    max_timestamp_ms: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def codec(self) -> Codec:
        """Raises UnsupportedCompression for a number that is no codec."""
        return codec_of(self.attributes & CODEC_MASK)

    @property
    def is_log_append_time(self) -> bool:
        return bool(self.attributes & LOG_APPEND_TIME_BIT)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_BIT)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL_BIT)

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        """Sequences wrap from 2**31 - 1 to 0. -1 without a producer id."""
        if self.base_sequence < 0:
            return -1
        return (self.base_sequence + self.last_offset_delta) & 0x7FFF_FFFF

    @property
    def end(self) -> int:
        """Where the next batch starts in the same buffer."""
        return self.position + self.size_bytes


_header: Final[Callable[[tuple[int, ...]], BatchHeader]] = partial(tuple.__new__, BatchHeader)
"""As calling it, without a call of Python's."""


def max_timestamp_of(batch: Buffer) -> int:
    """The largest timestamp (ms) that the header of a whole batch tells."""
    max_timestamp_ms: int = _INT64.unpack_from(batch, _MAX_TIMESTAMP_AT)[0]
    return max_timestamp_ms


def read_header(buffer: Buffer, position: int = 0, *, whole: bool = True) -> BatchHeader:
    """The header of the batch that starts at `position` and lies wholly in `buffer`, or without `whole` begins there.

    Raises CorruptBatch where the batch is truncated or a count is negative, UnsupportedMessageFormat for magic 0 and 1.
    """
    left = memoryview(buffer).nbytes - position
    if left < HEADER_SIZE_BYTES:
        raise _why_too_short(buffer, position, left)
    (
        base_offset,
        length,
        leader_epoch,
        magic,
        crc,
        attributes,
        last_offset_delta,
        base_timestamp_ms,
        max_timestamp_ms,
        producer_id,
        producer_epoch,
        base_sequence,
        record_count,
    ) = _HEADER.unpack_from(buffer, position)
    size_bytes = length + LOG_OVERHEAD_BYTES
    if magic != MAGIC:
        raise _wrong_magic(magic, length)
    if size_bytes < HEADER_SIZE_BYTES or (whole and size_bytes > left):
        raise CorruptBatch(f"a batch of {size_bytes} bytes where {left} are left")
    if record_count < 0 or last_offset_delta < 0 or base_offset < 0 or base_offset + last_offset_delta >= 1 << 63:
        raise CorruptBatch(
            f"a batch with base offset {base_offset}, last offset delta {last_offset_delta} and {record_count} records"
        )
    return _header(
        (
            position,
            base_offset,
            size_bytes,
            leader_epoch,
            magic,
            crc,
            attributes,
            last_offset_delta,
            base_timestamp_ms,
            max_timestamp_ms,
            producer_id,
            producer_epoch,
            base_sequence,
            record_count,
        )
    )


def only_header(records: Buffer) -> BatchHeader | None:
    """The header of a payload of one whole batch; None: it has several, or none. Raises as `split`."""
    size_bytes = memoryview(records).nbytes
    if not size_bytes:
        return None
    header = read_header(records)
    if header.size_bytes == size_bytes:
        return header
    read_header(records, header.size_bytes)
    return None


def split(records: Buffer, *, count_max: int | None = None) -> list[BatchHeader]:
    """The headers of a payload of whole batches, one after the other, with nothing left over. With `count_max` only so
    many of the first: what is behind those is not looked at. An empty payload has none.

    Raises CorruptBatch (truncated, trailing bytes, negative sizes) or UnsupportedMessageFormat. Checks no CRC.
    """
    view = memoryview(records)
    size = view.nbytes
    position = 0
    headers: list[BatchHeader] = []
    while position < size and (count_max is None or len(headers) < count_max):
        header = read_header(view, position)
        headers.append(header)
        position += header.size_bytes
    return headers


def check_crc(buffer: Buffer, header: BatchHeader) -> None:
    """Raises CorruptBatch where the batch's CRC32C does not hold."""
    found = _crc_of(memoryview(buffer), header)
    if found != header.crc:
        raise CorruptBatch(f"the batch at {header.position} has CRC {found:#010x}, its header says {header.crc:#010x}")


def patched(
    buffer: Buffer,
    header: BatchHeader,
    *,
    base_offset: int,
    leader_epoch: int,
    log_append_time_ms: int | None = None,
    max_timestamp_ms: int | None = None,
) -> bytearray:
    """A copy of the batch with its place in the log: one copy, and the CRC anew only where a time is given.

    `log_append_time_ms` sets the timestamp type to LogAppendTime and the max timestamp; `max_timestamp_ms` corrects the
    latter alone.
    """
    copy = bytearray(memoryview(buffer)[header.position : header.end])
    _INT64.pack_into(copy, 0, base_offset)
    _INT32.pack_into(copy, _LEADER_EPOCH_AT, leader_epoch)
    if log_append_time_ms is not None:
        _INT16.pack_into(copy, CRC_START, header.attributes | LOG_APPEND_TIME_BIT)
        max_timestamp_ms = log_append_time_ms
    if max_timestamp_ms is not None:
        _INT64.pack_into(copy, _MAX_TIMESTAMP_AT, max_timestamp_ms)
        _UINT32.pack_into(copy, _CRC_AT, crc32c(memoryview(copy)[CRC_START:]))
    return copy


def of_producer(buffer: Buffer, header: BatchHeader, *, producer_id: int, base_sequence: int) -> bytearray:
    """A copy of the batch as that of an idempotent producer's, with CreateTime and the CRC anew."""
    copy = bytearray(memoryview(buffer)[header.position : header.end])
    _INT16.pack_into(copy, CRC_START, header.attributes & ~LOG_APPEND_TIME_BIT)
    _PRODUCER.pack_into(copy, _PRODUCER_AT, producer_id, 0, base_sequence)
    _UINT32.pack_into(copy, _CRC_AT, crc32c(memoryview(copy)[CRC_START:]))
    return copy


def _crc_of(view: memoryview, header: BatchHeader) -> int:
    return crc32c(view[header.position + CRC_START : header.end])


def _wrong_magic(magic: int, length: int) -> CorruptBatch | UnsupportedMessageFormat:
    if magic in {0, 1} and length >= _OLD_MESSAGE_BYTES_MIN:
        return UnsupportedMessageFormat(
            f"message format {magic}; this server takes format 2 only (Kafka 0.11 and newer)"
        )
    return CorruptBatch(f"a batch with magic {magic}; the only one in use is {MAGIC}")


def _why_too_short(buffer: Buffer, position: int, left: int) -> CorruptBatch | UnsupportedMessageFormat:
    """A message of format 0 or 1 can be shorter than a header of format 2."""
    if left >= _PREFIX.size:
        _, length, _, magic = _PREFIX.unpack_from(buffer, position)
        if magic != MAGIC:
            return _wrong_magic(magic, length)
    return CorruptBatch(f"{left} bytes are too few for a batch's header")

"""The records inside a batch: walking, validating, looking up by time, building.

Everything here costs time per record and may decompress, so services call it from a thread. Counts and lengths are
checked against the bytes that are left before anything is made of them; what does not hold raises CorruptBatch.
"""

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from crc32c import crc32c
from typing_extensions import Buffer

from bmq.errors import CorruptBatch
from bmq.wire.batch_headers import (
    CODEC_MASK,
    CONTROL_BIT,
    HEADER_SIZE_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    NO_TIMESTAMP,
    TRANSACTIONAL_BIT,
    BatchHeader,
)
from bmq.wire.compression import Codec, Section, compress, decompress
from bmq.wire.limits import DECOMPRESSED_BYTES_MAX, RECORD_HEADERS_MAX

_CRC_COVERED: Final = struct.Struct(">hiqqqhii")
_BEFORE_CRC: Final = struct.Struct(">qiibI")
_SMALLEST_RECORD_BYTES: Final = 7
"""Length, attributes, timestamp delta, offset delta, key length, value length, header count: one byte each."""
_VARINT_BYTES_MAX: Final = 10
INT64_MAX: Final = (1 << 63) - 1

RecordHeaders = Sequence[tuple[str, bytes | None]]


class Record(NamedTuple):
    """One record. A header's key is UTF-8; what is not is kept with surrogate escapes."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: RecordHeaders = ()


def iterate_records(
    batch: Buffer, header: BatchHeader, *, decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX
) -> Iterator[Record]:
    """The batch's records in order.

    Raises CorruptBatch, BatchTooLarge (decompresses to more than the cap) or UnsupportedCompression, possibly after
    some records.
    """
    section = section_of(batch, header, decompressed_bytes_max)
    for start, end in bounds(section, header):
        yield record_of(section, start, end, header)


def counted_records(
    batch: Buffer, header: BatchHeader, *, decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX
) -> Iterator[Record]:
    """The same, counted: where not all is validated a batch was taken with as many records as it has offsets, and
    nobody looked at what each says of its own. One with fewer has the gaps that its records say. Raises as
    `iterate_records`.
    """
    records = iterate_records(batch, header, decompressed_bytes_max=decompressed_bytes_max)
    if header.record_count != header.last_offset_delta + 1:
        return records
    return (record._replace(offset=offset) for offset, record in enumerate(records, header.base_offset))


def first_at_or_after(
    batch: Buffer,
    header: BatchHeader,
    timestamp_ms: int,
    *,
    from_offset: int = 0,
    decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX,
) -> tuple[int, int] | None:
    """(offset, timestamp) of the first record from `from_offset` on at or after a time, None where there is none.
    Raises like `iterate_records`.
    """
    if header.max_timestamp_ms < timestamp_ms:
        return None
    for offset, found_ms in _times(batch, header, decompressed_bytes_max):
        if found_ms >= timestamp_ms and offset >= from_offset:
            return offset, found_ms
    return None


def with_max_timestamp(
    batch: Buffer, header: BatchHeader, *, from_offset: int = 0, decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX
) -> tuple[int, int] | None:
    """(offset, timestamp) of the first record from `from_offset` on with the largest timestamp of those, None where
    none has one.

    Raises like `iterate_records`.
    """
    best: tuple[int, int] | None = None
    for offset, found_ms in _times(batch, header, decompressed_bytes_max):
        if found_ms > (NO_TIMESTAMP if best is None else best[1]) and offset >= from_offset:
            best = (offset, found_ms)
    return best


def build_empty_batch(*, base_offset: int, offset_count: int, leader_epoch: int, timestamp_ms: int) -> bytes:
    """A batch that takes offsets and has no records, as Kafka's compaction leaves them: readers go on behind it. At
    most 2^31 offsets.
    """
    return assembled(
        b"",
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        last_offset_delta=offset_count - 1,
        base_timestamp_ms=timestamp_ms,
        max_timestamp_ms=timestamp_ms,
        record_count=0,
    )


def build_batch(
    records: Iterable[Record],
    *,
    base_offset: int = 0,
    leader_epoch: int = -1,
    codec: int = 0,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    is_control: bool = False,
    is_transactional: bool = False,
    first_offset: int | None = None,
    next_offset: int | None = None,
) -> bytes:
    """One record batch. Offsets of the records are ignored: they become `base_offset`, `base_offset` + 1, …

    With `first_offset` and `next_offset` they count: each record lies as far behind the batch's first offset as its own
    lies behind the one, and the batch goes to the other, so that it may have gaps, also at its ends, or nothing else.
    """
    body = bytearray()
    count = 0
    base_timestamp_ms = max_timestamp_ms = NO_TIMESTAMP
    for number, record in enumerate(records):
        if number == 0:
            base_timestamp_ms = max_timestamp_ms = record.timestamp_ms
        max_timestamp_ms = max(max_timestamp_ms, record.timestamp_ms)
        delta = number if first_offset is None else record.offset - first_offset
        _append_record(body, record, timestamp_delta=record.timestamp_ms - base_timestamp_ms, offset_delta=delta)
        count += 1
    assert count > 0 or next_offset is not None, "a batch without records and without offsets"
    last = count - 1 if first_offset is None or next_offset is None else next_offset - first_offset - 1
    return assembled(
        body,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        attributes=codec | (CONTROL_BIT if is_control else 0) | (TRANSACTIONAL_BIT if is_transactional else 0),
        last_offset_delta=last,
        base_timestamp_ms=base_timestamp_ms,
        max_timestamp_ms=max_timestamp_ms,
        producer=(producer_id, producer_epoch, base_sequence),
        record_count=count,
    )


def assembled(
    body: Buffer,
    *,
    base_offset: int,
    leader_epoch: int,
    attributes: int = 0,
    last_offset_delta: int,
    base_timestamp_ms: int,
    max_timestamp_ms: int,
    producer: tuple[int, int, int] = (-1, -1, -1),
    record_count: int,
) -> bytes:
    """A batch of records that are encoded, compressed here with the codec that `attributes` says; one without records
    is not. `producer` is (id, epoch, base sequence).
    """
    if not record_count:
        attributes &= ~CODEC_MASK
    covered = _CRC_COVERED.pack(
        attributes, last_offset_delta, base_timestamp_ms, max_timestamp_ms, *producer, record_count
    )
    codec = attributes & CODEC_MASK
    payload: Buffer = body if codec == Codec.NONE else compress(codec, body)
    crc = crc32c(payload, crc32c(covered))
    length = HEADER_SIZE_BYTES - LOG_OVERHEAD_BYTES + len(memoryview(payload))
    return b"".join((_BEFORE_CRC.pack(base_offset, length, leader_epoch, MAGIC, crc), covered, payload))


def _times(batch: Buffer, header: BatchHeader, decompressed_bytes_max: int) -> Iterator[tuple[int, int]]:
    if header.is_log_append_time and header.record_count == header.last_offset_delta + 1:
        # Every record has the batch's time, so the first is as good as any: no need to open the batch.
        yield header.base_offset, header.max_timestamp_ms
        return
    section = section_of(batch, header, decompressed_bytes_max)
    if header.is_log_append_time:
        for start, end in bounds(section, header):
            offset, timestamp_ms, _ = place_of(section, start, end, header)
            yield offset, timestamp_ms
        return
    yield from _create_times(section, header)


def _create_times(section: Section, header: BatchHeader) -> Iterator[tuple[int, int]]:
    """What `bounds` and `place_of` find, varints of one byte read in place: a batch may hold millions of records."""
    position = 0
    size = len(section)
    base_offset, base_timestamp_ms, last_offset_delta = (
        header.base_offset,
        header.base_timestamp_ms,
        header.last_offset_delta,
    )
    try:
        for index in range(header.record_count):
            raw = section[position]
            if raw < 0x80:
                length = (raw >> 1) ^ -(raw & 1)
                position += 1
            else:
                length, position = read_signed_varint(section, position)
            end = position + length
            if length < _SMALLEST_RECORD_BYTES - 1 or end > size:
                raise CorruptBatch(f"record {index} has {length} bytes where {size - position} are left")
            raw = section[position + 1]
            if raw < 0x80:
                timestamp_delta = (raw >> 1) ^ -(raw & 1)
                position += 2
            else:
                timestamp_delta, position = read_signed_varint(section, position + 1)
            raw = section[position]
            if raw < 0x80:
                offset_delta = (raw >> 1) ^ -(raw & 1)
            else:
                offset_delta, position = read_signed_varint(section, position)
                position -= 1
            timestamp_ms = base_timestamp_ms + timestamp_delta
            if (
                position >= end
                or not 0 <= offset_delta <= last_offset_delta
                or not NO_TIMESTAMP <= timestamp_ms <= INT64_MAX
            ):
                raise CorruptBatch(
                    f"record {index} has offset delta {offset_delta} and timestamp {timestamp_ms}, or is truncated"
                )
            yield base_offset + offset_delta, timestamp_ms
            position = end
    except IndexError:
        raise CorruptBatch(f"{header.record_count} records are promised, the bytes end before") from None
    if position != size:
        raise CorruptBatch(f"{size - position} bytes are left after {header.record_count} records")


def section_of(batch: Buffer, header: BatchHeader, decompressed_bytes_max: int) -> Section:
    """The batch's records, decompressed. Raises CorruptBatch, BatchTooLarge or UnsupportedCompression."""
    payload = memoryview(batch)[header.position + HEADER_SIZE_BYTES : header.end]
    section = decompress(header.codec, payload, bytes_max=decompressed_bytes_max)
    if header.record_count * _SMALLEST_RECORD_BYTES > len(section):
        raise CorruptBatch(f"{header.record_count} records in {len(section)} bytes")
    return section


def bounds(section: Section, header: BatchHeader) -> Iterator[tuple[int, int]]:
    """Where each record's bytes after its length start and end; raises unless they fill the section exactly."""
    position = 0
    section_end = len(section)
    for index in range(header.record_count):
        try:
            length, start = read_signed_varint(section, position)
        except IndexError:
            raise CorruptBatch(f"{header.record_count} records are promised, the bytes end after {index}") from None
        position = start + length
        if length < _SMALLEST_RECORD_BYTES - 1 or position > section_end:
            raise CorruptBatch(f"record {index} has {length} bytes where {section_end - start} are left")
        yield start, position
    if position != section_end:
        raise CorruptBatch(f"{section_end - position} bytes are left after {header.record_count} records")


def place_of(section: Section, start: int, end: int, header: BatchHeader) -> tuple[int, int, int]:
    """Where a record of these bounds lies: (offset, timestamp, position of the key length)."""
    try:
        timestamp_delta, position = read_signed_varint(section, start + 1)
        offset_delta, position = read_signed_varint(section, position)
    except IndexError:
        raise CorruptBatch("a record is truncated") from None
    if position > end:
        raise CorruptBatch("a record is truncated")
    if not 0 <= offset_delta <= header.last_offset_delta:
        raise CorruptBatch(
            f"a record with offset delta {offset_delta} in a batch that ends at {header.last_offset_delta}"
        )
    if header.is_log_append_time:
        return header.base_offset + offset_delta, header.max_timestamp_ms, position
    timestamp_ms = header.base_timestamp_ms + timestamp_delta
    if not NO_TIMESTAMP <= timestamp_ms <= INT64_MAX:
        raise CorruptBatch(f"a record with timestamp {timestamp_ms}")
    return header.base_offset + offset_delta, timestamp_ms, position


def record_of(section: Section, start: int, end: int, header: BatchHeader) -> Record:
    """The record of these bounds. Raises CorruptBatch."""
    offset, timestamp_ms, position = place_of(section, start, end, header)
    try:
        key, position = _nullable(section, position, end)
        value, position = _nullable(section, position, end)
        count, position = read_signed_varint(section, position)
        headers = _record_headers(section, position, end, count)
    except IndexError:
        raise CorruptBatch("a record is truncated") from None
    return Record(offset, timestamp_ms, key, value, headers)


def _record_headers(section: Section, position: int, end: int, count: int) -> RecordHeaders:
    if count == 0 and position == end:
        return ()
    check_header_count(count, end - position)
    headers = []
    for _ in range(count):
        key, position = _nullable(section, position, end)
        value, position = _nullable(section, position, end)
        if key is None:
            raise CorruptBatch("a record header without a key")
        headers.append((key.decode("utf-8", "surrogateescape"), value))
    if position != end:
        raise CorruptBatch(f"{end - position} bytes are left after a record")
    return tuple(headers)


def check_header_count(count: int, left: int) -> None:
    """Raises CorruptBatch unless `count` record headers can be in the bytes that are left."""
    if not 0 <= count <= min(RECORD_HEADERS_MAX, left // 2):
        raise CorruptBatch(f"{count} record headers in {left} bytes; at most {RECORD_HEADERS_MAX} are allowed")


def _nullable(section: Section, position: int, end: int) -> tuple[bytes | None, int]:
    length, position = read_signed_varint(section, position)
    if length == -1:
        return None, position
    if length < 0 or position + length > end:
        raise CorruptBatch(f"a field of {length} bytes where {end - position} are left")
    return bytes(section[position : position + length]), position + length


def read_signed_varint(section: Section, position: int) -> tuple[int, int]:
    """A zigzag varint and the position after it. Raises IndexError at the end of the bytes."""
    byte = section[position]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), position + 1
    raw = byte & 0x7F
    for index in range(1, _VARINT_BYTES_MAX):
        byte = section[position + index]
        raw |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return (raw >> 1) ^ -(raw & 1), position + index + 1
    raise CorruptBatch("a varint of more than ten bytes")


def _append_record(body: bytearray, record: Record, *, timestamp_delta: int, offset_delta: int) -> None:
    one = bytearray(b"\x00")
    append_signed_varint(one, timestamp_delta)
    append_signed_varint(one, offset_delta)
    _append_nullable(one, record.key)
    _append_nullable(one, record.value)
    append_signed_varint(one, len(record.headers))
    for key, value in record.headers:
        _append_nullable(one, key.encode("utf-8", "surrogateescape"))
        _append_nullable(one, value)
    append_signed_varint(body, len(one))
    body += one


def _append_nullable(out: bytearray, data: bytes | None) -> None:
    if data is None:
        out.append(1)
    else:
        append_signed_varint(out, len(data))
        out += data


def append_signed_varint(out: bytearray, value: int) -> None:
    """Writes what `read_signed_varint` reads."""
    raw = (value << 1) ^ (value >> 63)
    while raw >= 0x80:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    out.append(raw)

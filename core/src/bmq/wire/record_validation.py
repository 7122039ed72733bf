"""Proving that a batch's records are what its header says. Costs time per record and may decompress: for threads.

`count_records` walks the lengths alone; `validate_records` looks at every field. Neither makes anything of keys, values
or headers.
"""

from typing import Final, NamedTuple

from typing_extensions import Buffer

from bmq.errors import BatchTooLarge, CorruptBatch, MostlyEmpty
from bmq.wire.batch_headers import CODEC_MASK, HEADER_SIZE_BYTES, NO_TIMESTAMP, BatchHeader
from bmq.wire.compression import Codec, Section, plain
from bmq.wire.limits import BATCH_HEADERS_MAX, DECOMPRESSED_BYTES_MAX
from bmq.wire.records import INT64_MAX, check_header_count, read_signed_varint, section_of

SPARE_BYTES: Final = 64 << 10
"""Compressed bytes that need not hold anything. Of the others each holds four fifths of a byte at least: no codec makes
one stream larger by more than a sixth."""


COPIED_RECORD_BYTES: Final = 128
"""Records of fewer bytes are copied before they are looked at: a byte of a copy is found faster, and that of a larger
record costs less than its copy."""


ALIKE_BEFORE: Final = 2
"""So many records as long as the one before them, and those behind are looked at together…"""
LOOKED_AT: Final = 256
"""…so many at a time…"""
WORTH: Final = 8
"""…where fewer were as long, it is tried after twice as many the next time."""
LENGTH_BYTES_MAX: Final = 2
"""Lengths that take more bytes are counted one by one; who pads them writes small numbers in many."""


class RecordsSummary(NamedTuple):
    """What `validate_records` found. Timestamps are -1 where no record has one; the offset is the first with the max
    timestamp.
    """

    max_timestamp_ms: int
    min_timestamp_ms: int
    offset_of_max_timestamp: int


def count_records(batch: Buffer, header: BatchHeader, *, decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX) -> None:
    """The cheap proof: as many records as the header and its last offset say, with lengths that fill the batch exactly.

    About a fifth of what `validate_records` costs, a twentieth where records are as long as each other, and never more
    steps than records are promised: of nothing but zeros each byte would be one. Raises CorruptBatch, BatchTooLarge
    (decompresses to more than the cap) or UnsupportedCompression.
    """
    _check_counts(header)
    if header.attributes & CODEC_MASK or header.size_bytes < COPIED_RECORD_BYTES * header.record_count:
        section = _section_of(batch, header, decompressed_bytes_max)
    else:
        payload = memoryview(batch)[header.position + HEADER_SIZE_BYTES : header.end]
        section = plain(payload, bytes_max=decompressed_bytes_max)
    size = len(section)
    position = 0
    left, before, alike, tried_after = header.record_count, -1, 0, ALIKE_BEFORE
    try:
        while left:
            begin = position
            raw = section[position]
            position += 1
            if raw >= 0x80:  # of two bytes as a rule: read in place
                byte = section[position]
                if byte < 0x80:
                    raw += (byte << 7) - 0x80
                    position += 1
                else:
                    raw, position = _longer(section, position, raw)
            if raw & 1:
                raise CorruptBatch(f"record {header.record_count - left} has a negative length")
            position += raw >> 1
            left -= 1
            if raw != before:
                before, alike = raw, 0
            elif (alike := alike + 1) >= tried_after and left and position - begin - (raw >> 1) <= LENGTH_BYTES_MAX:
                found = _as_long(section, begin, position, min(left, LOOKED_AT))
                left -= found
                position += found * (position - begin)
                alike, tried_after = 0, ALIKE_BEFORE if found >= WORTH else 2 * tried_after
    except IndexError:
        count = header.record_count - left
        raise CorruptBatch(f"the bytes end before record {count}, the header promises {header.record_count}") from None
    if position != size:
        raise CorruptBatch(f"{header.record_count} records in {position} bytes where {size} are there")


def _as_long(section: Section, begin: int, end: int, most: int) -> int:
    """How many of the next records, of that many at most, are as long as the one from `begin` to before `end`, whose
    length takes two bytes at most: all first bytes are looked at together, and all second ones, a record apart.
    """
    apart = end - begin
    stop = end + apart * most
    for at in (0, 1):
        found = bytes(section[end + at : stop : apart])
        most = min(most, len(found) - len(found.lstrip(bytes((section[begin + at],)))))
    return most


def validate_records(
    batch: Buffer,
    header: BatchHeader,
    *,
    decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX,
    headers_max: int = BATCH_HEADERS_MAX,
) -> RecordsSummary:
    """The whole proof: as many records, with offset deltas 0, 1, 2, … up to the last, and lengths that add up in every
    record.

    Raises CorruptBatch, BatchTooLarge (decompresses to more than the cap, or has more headers than `headers_max`) or
    UnsupportedCompression.
    """
    _check_counts(header)
    section = _section_of(batch, header, decompressed_bytes_max)
    try:
        largest, smallest, at_largest = _walk(section, header.record_count, headers_max)
    except IndexError:
        raise CorruptBatch("the batch ends in a record") from None
    if header.is_log_append_time:
        return RecordsSummary(header.max_timestamp_ms, header.max_timestamp_ms, header.base_offset)
    max_timestamp_ms = header.base_timestamp_ms + largest
    min_timestamp_ms = header.base_timestamp_ms + smallest
    if max_timestamp_ms > INT64_MAX or min_timestamp_ms < NO_TIMESTAMP:
        raise CorruptBatch(f"records with timestamps from {min_timestamp_ms} to {max_timestamp_ms}")
    return RecordsSummary(max_timestamp_ms, min_timestamp_ms, header.base_offset + at_largest)


def _section_of(batch: Buffer, header: BatchHeader, decompressed_bytes_max: int) -> Section:
    """As `section_of`. Raises MostlyEmpty, too: members, blocks and frames may be empty, and cost as much as full ones,
    so that a batch of hardly anything else would cost seconds each time that it is opened.
    """
    section = section_of(batch, header, decompressed_bytes_max)
    compressed_bytes = header.size_bytes - HEADER_SIZE_BYTES
    if compressed_bytes > SPARE_BYTES + len(section) * 5 // 4 and header.codec is not Codec.NONE:
        raise MostlyEmpty(f"{compressed_bytes} compressed bytes for {len(section)}: leave out what holds nothing")
    return section


def _check_counts(header: BatchHeader) -> None:
    if header.record_count == 0 or header.last_offset_delta != header.record_count - 1:
        raise CorruptBatch(
            f"a batch of {header.record_count} records whose last offset delta is {header.last_offset_delta}"
        )


def _walk(section: Section, count: int, headers_max: int) -> tuple[int, int, int]:
    """(largest timestamp delta, smallest, which record has the largest first). Raises IndexError at the end of the
    bytes.

    Hot: varints of one byte are read in place, and compared as they are written (zigzag: twice the value, odd where
    negative).
    """
    size = len(section)
    position = 0
    largest = smallest = at_largest = 0
    for expected in range(count):
        raw = section[position]
        position += 1
        if raw >= 0x80:
            raw, position = _longer(section, position, raw)
        end = position + (raw >> 1)
        if raw & 1 or end > size:
            raise CorruptBatch(f"record {expected} does not fit the {size - position} bytes that are left")
        raw = section[position + 1]
        position += 2
        if raw >= 0x80:
            raw, position = _longer(section, position, raw)
        delta = (raw >> 1) ^ -(raw & 1)
        if expected == 0:
            largest = smallest = delta
        elif delta > largest:
            largest, at_largest = delta, expected
        elif delta < smallest:
            smallest = delta
        raw = section[position]
        position += 1
        if raw >= 0x80:
            raw, position = _longer(section, position, raw)
        if raw != expected << 1:
            raise CorruptBatch(f"record {expected} has another offset delta")
        position = _after_nullable(section, position)
        position = _after_nullable(section, position)
        if section[position] == 0:
            position += 1
        else:
            position, headers = _after_headers(section, position, end, headers_max)
            headers_max -= headers
        if position != end:
            raise CorruptBatch(f"the lengths in record {expected} do not add up")
    if position != size:
        raise CorruptBatch(f"{size - position} bytes are left after {count} records")
    return largest, smallest, at_largest


def _longer(section: Section, position: int, first: int) -> tuple[int, int]:
    """The rest of a varint of more than one byte, still in zigzag, and the position after it."""
    byte = section[position]
    if byte < 0x80:
        return first & 0x7F | byte << 7, position + 1
    value, position = read_signed_varint(section, position - 1)
    return value << 1 ^ value >> 63, position


def _after_nullable(section: Section, position: int) -> int:
    """Past a key or a value; null has length -1."""
    raw = section[position]
    position += 1
    if raw >= 0x80:
        raw, position = _longer(section, position, raw)
    if not raw & 1:
        return position + (raw >> 1)
    if raw != 1:
        raise CorruptBatch("a record with a key or value of negative length")
    return position


def _after_headers(section: Section, position: int, end: int, headers_max: int) -> tuple[int, int]:
    """The position after them, and how many there are."""
    count, position = read_signed_varint(section, position)
    check_header_count(count, end - position)
    if count > headers_max:
        raise BatchTooLarge(
            "the records of the batch have more headers together than may be looked at: send fewer records in a batch"
        )
    for index in range(2 * count):
        length, position = read_signed_varint(section, position)
        if length > 0:
            position += length
        elif length < -(index & 1):
            raise CorruptBatch("a record header with a key or value of negative length")
    return position, count

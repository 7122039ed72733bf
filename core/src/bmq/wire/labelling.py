"""Records that get a header of their own, and are otherwise as they were: nothing of them is copied but into the batch
that they go to, however large or many their values and headers are. Costs time per record and header: for threads.
"""

from collections.abc import Callable, Sequence
from mmap import mmap
from typing import Final, NamedTuple

from typing_extensions import Buffer

from bmq.errors import BatchTooLarge, CorruptBatch
from bmq.wire.batch_headers import NO_TIMESTAMP, BatchHeader
from bmq.wire.compression import MAPPED_BYTES_MIN, Section, in_slices
from bmq.wire.limits import RECORD_HEADERS_MAX
from bmq.wire.records import (
    append_signed_varint,
    assembled,
    check_header_count,
    place_of,
    read_signed_varint,
)

NULLS: Final = b"\x01\x01"
"""A key and a value that are null."""


class Labelled(NamedTuple):
    """One record: where it belongs, and the bytes of its parts."""

    offset: int
    timestamp_ms: int
    fields: Buffer
    """Key and value, with their lengths."""
    header_count: int
    headers: Buffer
    """As many, with their lengths."""
    size_bytes: int


Label = Callable[[Sequence[bytes | None]], bytes]
"""What a record's headers of the name say now, to what its new one says."""


def labelled(
    section: Section, start: int, end: int, header: BatchHeader, *, name: bytes, label: Label, headers_max: int
) -> Labelled:
    """The record of these bounds with one header `name`, in place of all that it has: the last one, behind as many of
    its others as a record may have.

    Raises CorruptBatch where `bmq.wire.records:record_of` does, BatchTooLarge where it has more than `headers_max`.
    """
    offset, timestamp_ms, position = place_of(section, start, end, header)
    try:
        headers_at = _behind_field(section, _behind_field(section, position, end), end)
        count, first = read_signed_varint(section, headers_at)
        if count > headers_max:
            raise BatchTooLarge(f"a record with {count} headers where {headers_max} are left")
        said, spans = _others(section, first, end, count, name)
    except IndexError:
        raise CorruptBatch("a record is truncated") from None
    kept = spans[: RECORD_HEADERS_MAX - 1]
    new = one_header(name, label(said))
    if len(kept) == count:
        headers = b"".join((section[first:end], new))
    else:
        headers = b"".join((*(section[at:behind] for at, behind in kept), new))
    fields = memoryview(section)[position:headers_at]
    return Labelled(offset, timestamp_ms, fields, len(kept) + 1, headers, len(fields) + len(headers))


def one_header(name: bytes, value: bytes) -> bytes:
    """A record's header as it is written."""
    out = bytearray()
    for field in (name, value):
        append_signed_varint(out, len(field))
        out += field
    return bytes(out)


def batch_of(
    records: Sequence[Labelled], *, codec: int, producer: tuple[int, int, int], first_offset: int, next_offset: int
) -> bytes:
    """A batch of these, each as far behind its begin as it lies behind `first_offset`, that goes to `next_offset`."""
    base_ms = records[0].timestamp_ms if records else NO_TIMESTAMP
    chunks: list[Buffer] = []
    size_bytes = 0
    for record in records:
        before, between = bytearray(b"\x00"), bytearray()
        append_signed_varint(before, record.timestamp_ms - base_ms)
        append_signed_varint(before, record.offset - first_offset)
        append_signed_varint(between, record.header_count)
        length = bytearray()
        append_signed_varint(length, len(before) + len(between) + record.size_bytes)
        chunks += (length + before, record.fields, between, record.headers)
        size_bytes += len(length) + len(before) + len(between) + record.size_bytes
    return assembled(
        _joined(chunks, size_bytes),
        base_offset=0,
        leader_epoch=-1,
        attributes=codec,
        last_offset_delta=next_offset - first_offset - 1,
        base_timestamp_ms=base_ms,
        max_timestamp_ms=max((record.timestamp_ms for record in records), default=NO_TIMESTAMP),
        producer=producer,
        record_count=len(records),
    )


def _behind_field(section: Section, position: int, end: int) -> int:
    """Where a key or a value ends."""
    length, position = read_signed_varint(section, position)
    if length < -1 or position + length > end:
        raise CorruptBatch(f"a field of {length} bytes where {end - position} are left")
    return position + max(length, 0)


def _others(
    section: Section, position: int, end: int, count: int, name: bytes
) -> tuple[list[bytes | None], list[tuple[int, int]]]:
    """(what headers of the name say, where each other one lies)."""
    if count != 0 or position != end:
        check_header_count(count, end - position)
    said: list[bytes | None] = []
    spans: list[tuple[int, int]] = []
    for _ in range(count):
        at = position
        length, key_at = read_signed_varint(section, position)
        if length < 0 or key_at + length > end:
            raise CorruptBatch(f"a record header whose key has {length} bytes where {end - key_at} are left")
        value_length, value_at = read_signed_varint(section, key_at + length)
        position = value_at + max(value_length, 0)
        if value_length < -1 or position > end:
            raise CorruptBatch(f"a field of {value_length} bytes where {end - value_at} are left")
        if length == len(name) and section[key_at : key_at + length] == name:
            said.append(None if value_length < 0 else bytes(section[value_at:position]))
        else:
            spans.append((at, position))
    if position != end:
        raise CorruptBatch(f"{end - position} bytes are left after a record")
    return said, spans


def _joined(chunks: Sequence[Buffer], size_bytes: int) -> Buffer:
    if size_bytes < MAPPED_BYTES_MIN:
        return b"".join(chunks)
    joined = memoryview(mmap(-1, size_bytes))
    at = 0
    for chunk in chunks:
        for part in in_slices(memoryview(chunk)):
            joined[at : at + len(part)] = part
            at += len(part)
    assert at == size_bytes
    return joined

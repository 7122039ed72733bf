"""From record batches to Arrow: every column of many records at once, without an object for each record. Pure.

Owns what Spark sees of a record: -1 where a batch has no timestamp, null where a record has no headers, both as Spark's own Kafka source has them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bmq.errors import BatchTooLarge, CorruptBatch, UnsupportedCompression
from bmq.wire.batches import BatchHeader, check_crc, iterate_records
from bmq.wire.compression import Codec
from bmq.wire.limits import DECOMPRESSED_BYTES_MAX
from bmq.wire.records import section_of
from bmq_spark.source.columns import ARROW_TYPES, arrow_schema
from bmq_spark.source.record_layout import Bytes, Fields, Ints, Misfit, find_records, read_fields, read_headers

DECODED_BYTES: Final = 16 << 20
"""A RecordBatch is made of so many bytes of records or more, unless there are no more."""
_MICROSECONDS_MAX: Final = (1 << 63) - 1
_MILLISECONDS_MAX: Final = _MICROSECONDS_MAX // 1000


class BatchBroken(Exception):
    """The batch with this header cannot be read; `why` is what bmq says of it."""

    def __init__(self, header: BatchHeader, why: str) -> None:
        super().__init__(why)
        self.header = header
        self.why = why


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which records, and what of them. Batches whose largest timestamp is below `min_timestamp_ms` may be left out, and some are."""

    topic: str
    partition: int
    lane: str
    columns: tuple[str, ...]
    from_offset: int
    below_offset: int
    min_timestamp_ms: int | None = None


@dataclass(slots=True)
class _Sections:
    """Decompressed records of several batches, one after the other in `data`."""

    data: bytes
    headers: list[BatchHeader]
    starts: list[int]
    ends: list[int]


def decode(data: bytes, headers: Sequence[BatchHeader], wanted: Wanted) -> Iterator[pa.RecordBatch]:
    """The records of these batches of `data`, which are in order. Raises BatchBroken, also after some were given."""
    for sections in _opened(data, [header for header in headers if _has_wanted(header, wanted)]):
        try:
            found = _to_arrow(sections, wanted)
        except Misfit:
            raise _what_is_wrong(data, sections.headers) from None
        if found.num_rows:
            yield found


def _has_wanted(header: BatchHeader, wanted: Wanted) -> bool:
    if header.is_control or not header.record_count:
        return False
    if header.last_offset < wanted.from_offset or header.base_offset >= wanted.below_offset:
        return False
    return wanted.min_timestamp_ms is None or header.max_timestamp_ms >= wanted.min_timestamp_ms


def _opened(data: bytes, headers: list[BatchHeader]) -> Iterator[_Sections]:
    """The batches' records, CRC checked, as many together as DECODED_BYTES take. Records that are not compressed are not copied."""
    parts: list[bytes | memoryview] = []
    group = _Sections(b"", [], [], [])
    size = 0
    view = memoryview(data)
    copied = any(header.attributes & 7 for header in headers)
    for header in headers:
        try:
            check_crc(view, header)
            section = section_of(view, header, DECOMPRESSED_BYTES_MAX) if header.codec is not Codec.NONE else view[header.position + 61 : header.end]
        except (CorruptBatch, UnsupportedCompression, BatchTooLarge) as error:
            raise BatchBroken(header, str(error)) from error
        start = size if copied else header.position + 61
        group.headers.append(header)
        group.starts.append(start)
        group.ends.append(start + len(section))
        parts.append(section)
        size += len(section)
        if size >= DECODED_BYTES:
            group.data = b"".join(parts) if copied else data
            yield group
            parts, group, size = [], _Sections(b"", [], [], []), 0
    if group.headers:
        group.data = b"".join(parts) if copied else data
        yield group


def _what_is_wrong(data: bytes, headers: Sequence[BatchHeader]) -> BatchBroken:
    for header in headers:
        try:
            for _ in iterate_records(data, header):
                pass
        except (CorruptBatch, UnsupportedCompression, BatchTooLarge) as error:
            return BatchBroken(header, str(error))
    return BatchBroken(headers[0], f"{len(headers)} batches from here on hold something that is not a record")


def _to_arrow(sections: _Sections, wanted: Wanted) -> pa.RecordBatch:
    headers = sections.headers
    counts = np.array([header.record_count for header in headers], np.int64)
    begin, end = find_records(sections.data, sections.starts, sections.ends, counts.tolist())
    data = np.frombuffer(sections.data, np.uint8)
    fields = read_fields(data, begin, end)
    last_delta = np.repeat(np.array([header.last_offset_delta for header in headers], np.int64), counts)
    if (fields.offset_delta < 0).any() or (fields.offset_delta > last_delta).any():
        raise Misfit
    offsets = np.repeat(np.array([header.base_offset for header in headers], np.int64), counts) + fields.offset_delta
    columns = _Columns(sections, data, fields, counts, offsets, wanted)
    table = pa.RecordBatch.from_arrays([columns.column(name) for name in wanted.columns], schema=arrow_schema(wanted.columns))
    if headers[0].base_offset >= wanted.from_offset and headers[-1].last_offset < wanted.below_offset:
        return table
    inside = np.flatnonzero((offsets >= wanted.from_offset) & (offsets < wanted.below_offset))
    if inside.size and inside[-1] - inside[0] + 1 == inside.size:
        return table.slice(int(inside[0]), int(inside.size))
    return table.take(pa.array(inside))


@dataclass(slots=True)
class _Columns:
    """One method for each column that is not the same in all rows."""

    sections: _Sections
    data: Bytes
    fields: Fields
    counts: Ints
    offsets: Ints
    wanted: Wanted

    def column(self, name: str) -> pa.Array:
        """The column `name`, of all records."""
        match name:
            case "key":
                return _binary(self.sections.data, self.fields.key_start, self.fields.key_length)
            case "value":
                return _binary(self.sections.data, self.fields.value_start, self.fields.value_length)
            case "headers":
                return self._headers()
            case "offset":
                return pa.array(self.offsets)
            case "timestamp":
                return self._timestamps()
            case "timestampType":
                kinds = np.array([header.is_log_append_time for header in self.sections.headers], np.int32)
                return pa.array(np.repeat(kinds, self.counts))
            case _:
                constant = {"topic": self.wanted.topic, "partition": self.wanted.partition, "lane": self.wanted.lane}[name]
                return pa.repeat(pa.scalar(constant, ARROW_TYPES[name]), len(self.offsets))

    def _timestamps(self) -> pa.Array:
        headers = self.sections.headers
        # With LogAppendTime every record has the batch's largest time; else the sum wraps where a record is corrupt, and is refused.
        appended = np.array([header.is_log_append_time for header in headers])
        base = np.array([header.max_timestamp_ms if header.is_log_append_time else header.base_timestamp_ms for header in headers], np.int64)
        delta = np.where(np.repeat(appended, self.counts), 0, self.fields.timestamp_delta)
        milliseconds = np.repeat(base, self.counts) + delta
        if (milliseconds < -1).any():
            raise Misfit
        return pa.array(np.minimum(milliseconds, _MILLISECONDS_MAX) * 1000).view(ARROW_TYPES["timestamp"])

    def _headers(self) -> pa.Array:
        counts = self.fields.header_count
        kind = ARROW_TYPES["headers"]
        if not counts.any():
            return pa.nulls(len(counts), kind)
        found = read_headers(self.data, self.fields)
        keys = _text(_binary(self.sections.data, found.key_start, found.key_length))
        values = _binary(self.sections.data, found.value_start, found.value_length)
        items = pa.StructArray.from_arrays([keys, values], fields=list(kind.value_type))
        bounds = np.zeros(len(counts) + 1, np.int32)
        np.cumsum(counts, out=bounds[1:])
        return pa.ListArray.from_arrays(pa.array(bounds), items, type=kind, mask=pa.array(counts == 0))


def _binary(data: bytes, starts: Ints, lengths: Ints) -> pa.Array:
    """The byte strings at ascending positions of `data`; a length of -1 is null.

    The buffer is read as an array in which they and the gaps between them take turns; Arrow's own `take` copies every other one.
    """
    count = len(starts)
    null = lengths < 0
    if null.all():
        return pa.nulls(count, pa.binary())
    bounds = np.empty(2 * count + 1, np.int32)
    bounds[0:-1:2] = starts
    bounds[1::2] = starts + np.maximum(lengths, 0)
    bounds[-1] = bounds[-2]
    turns = pa.Array.from_buffers(pa.binary(), 2 * count, [None, pa.py_buffer(bounds), pa.py_buffer(data)])
    return turns.take(pa.array(np.arange(0, 2 * count, 2), mask=null if null.any() else None))


def _text(raw: pa.Array) -> pa.Array:
    """As UTF-8; what is not gets U+FFFD, as Java's decoder does it."""
    try:
        return pc.cast(raw, pa.string())
    except pa.ArrowInvalid:
        return pa.array([item.decode("utf-8", "replace") for item in raw.to_pylist()], pa.string())

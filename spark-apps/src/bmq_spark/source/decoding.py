"""From record batches to Arrow: every column of many records at once, without an object for each record. Pure.

Owns what Spark sees of a record: -1 where a batch has no timestamp, null where a record has no headers, both as Spark's
own Kafka source has them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bmq.errors import BatchTooLarge, CorruptBatch, UnsupportedCompression
from bmq.wire.batches import BatchHeader, iterate_records
from bmq_spark.source.columns import ARROW_TYPES, arrow_schema
from bmq_spark.source.record_layout import Bytes, Fields, Ints, Misfit, find_records, read_fields, read_headers
from bmq_spark.source.sections import BatchBroken, Scratch, Sections, sections_of

_MICROSECONDS_MAX: Final = (1 << 63) - 1
_MILLISECONDS_MAX: Final = _MICROSECONDS_MAX // 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which records, and what of them. Batches whose largest timestamp is below `min_timestamp_ms` may be left out, and
    some are.
    """

    topic: str
    partition: int
    lane: str
    columns: tuple[str, ...]
    from_offset: int
    below_offset: int
    min_timestamp_ms: int | None = None


def decode(
    data: bytes, headers: Sequence[BatchHeader], wanted: Wanted, scratch: Scratch | None = None
) -> Iterator[pa.RecordBatch]:
    """The records of these batches of `data`, which are in order. Raises BatchBroken, also after some were given.

    Whoever decodes again and again brings `scratch`; nothing of it is in what is given.
    """
    for sections in sections_of(
        data, [header for header in headers if _has_wanted(header, wanted)], scratch or Scratch()
    ):
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


def _what_is_wrong(data: bytes, headers: Sequence[BatchHeader]) -> BatchBroken:
    for header in headers:
        try:
            before = -1
            for record in iterate_records(data, header):
                if record.offset <= before:
                    return BatchBroken(header, f"a record with offset {record.offset} comes after that with {before}")
                before = record.offset
        except (CorruptBatch, UnsupportedCompression, BatchTooLarge) as error:
            return BatchBroken(header, str(error))
    return BatchBroken(headers[0], f"{len(headers)} batches from here on hold something that is not a record")


def _to_arrow(sections: Sections, wanted: Wanted) -> pa.RecordBatch:
    headers = sections.headers
    counts = np.array([header.record_count for header in headers], np.int64)
    begin, end = find_records(sections.data, sections.starts, sections.ends, counts.tolist())
    data = np.frombuffer(sections.data, np.uint8)
    fields = read_fields(data, begin, end)
    last_delta = np.repeat(np.array([header.last_offset_delta for header in headers], np.int64), counts)
    if (fields.offset_delta < 0).any() or (fields.offset_delta > last_delta).any():
        raise Misfit
    offsets = np.repeat(np.array([header.base_offset for header in headers], np.int64), counts) + fields.offset_delta
    if (np.diff(offsets) <= 0).any():
        raise Misfit
    columns = _Columns(sections, data, fields, counts, offsets, wanted)
    table = pa.RecordBatch.from_arrays(
        [columns.column(name) for name in wanted.columns], schema=arrow_schema(wanted.columns)
    )
    if headers[0].base_offset >= wanted.from_offset and headers[-1].last_offset < wanted.below_offset:
        return table
    inside = np.flatnonzero((offsets >= wanted.from_offset) & (offsets < wanted.below_offset))
    if inside.size and inside[-1] - inside[0] + 1 == inside.size:
        return table.slice(int(inside[0]), int(inside.size))
    return table.take(_array(inside, pa.int64()))


@dataclass(slots=True)
class _Columns:
    """One method for each column that is not the same in all rows."""

    sections: Sections
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
                return _array(self.offsets, pa.int64())
            case "timestamp":
                return self._timestamps()
            case "timestampType":
                kinds = np.array([header.is_log_append_time for header in self.sections.headers], np.int32)
                return _array(np.repeat(kinds, self.counts), pa.int32())
            case _:
                constant = {"topic": self.wanted.topic, "partition": self.wanted.partition, "lane": self.wanted.lane}[
                    name
                ]
                return pa.repeat(pa.scalar(constant, ARROW_TYPES[name]), len(self.offsets))

    def _timestamps(self) -> pa.Array:
        headers = self.sections.headers
        # With LogAppendTime every record has the batch's largest time. What Spark cannot hold becomes the first or last
        # time that it can.
        appended = np.array([header.is_log_append_time for header in headers])
        base = np.array(
            [header.max_timestamp_ms if header.is_log_append_time else header.base_timestamp_ms for header in headers],
            np.int64,
        )
        delta = np.where(np.repeat(appended, self.counts), 0, self.fields.timestamp_delta)
        base = np.repeat(base, self.counts)
        milliseconds = base + delta
        wrapped = (delta > 0) != (milliseconds > base)
        milliseconds = np.where(
            wrapped & (delta != 0), np.where(delta > 0, _MILLISECONDS_MAX, -_MILLISECONDS_MAX), milliseconds
        )
        return _array(np.clip(milliseconds, -_MILLISECONDS_MAX, _MILLISECONDS_MAX) * 1000, ARROW_TYPES["timestamp"])

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
        return pa.Array.from_buffers(kind, len(counts), [_bitmap(counts != 0), pa.py_buffer(bounds)], children=[items])


def _array(values: npt.NDArray[Any], kind: pa.DataType, valid: npt.NDArray[np.bool_] | None = None) -> pa.Array:
    """Numbers as they lie in memory. `pa.array` would import pandas, if it is there, to see whether they are pandas'
    own: a quarter of a second.
    """
    return pa.Array.from_buffers(kind, len(values), [None if valid is None else _bitmap(valid), pa.py_buffer(values)])


def _bitmap(valid: npt.NDArray[np.bool_]) -> pa.Buffer:
    return pa.py_buffer(np.packbits(valid, bitorder="little"))


def _binary(data: bytes | bytearray, starts: Ints, lengths: Ints) -> pa.Array:
    """The byte strings at ascending positions of `data`; a length of -1 is null.

    The buffer is read as an array in which they and the gaps between them take turns; Arrow's own `take` copies every
    other one.
    """
    count = len(starts)
    valid = lengths >= 0
    if not valid.any():
        return pa.nulls(count, pa.binary())
    bounds = np.empty(2 * count + 1, np.int32)
    bounds[0:-1:2] = starts
    bounds[1::2] = starts + np.maximum(lengths, 0)
    bounds[-1] = bounds[-2]
    turns = pa.Array.from_buffers(pa.binary(), 2 * count, [None, pa.py_buffer(bounds), pa.py_buffer(data)])
    return turns.take(_array(np.arange(0, 2 * count, 2), pa.int64(), None if valid.all() else valid))


def _text(raw: pa.Array) -> pa.Array:
    """As UTF-8; what is not gets U+FFFD, as Java's decoder does it."""
    try:
        return pc.cast(raw, pa.string())
    except pa.ArrowInvalid:
        return pa.array([item.decode("utf-8", "replace") for item in raw.to_pylist()], pa.string())

"""Parting a batch by what a header of its records says. Costs time per record and may decompress: for threads.

A part holds the records that it has as they were, at the offsets behind its first one that they have in the batch, and
has the batch's producer, sequence and last offset: so whoever numbers batches takes it for the whole, and readers find
gaps in it, as Kafka's compaction leaves them.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from typing_extensions import Buffer

from bmq.errors import BatchTooLarge, CorruptBatch
from bmq.wire.batch_headers import LOG_APPEND_TIME_BIT, NO_TIMESTAMP, BatchHeader
from bmq.wire.compression import COPIED_BYTES, Section, in_slices
from bmq.wire.limits import BATCH_HEADERS_MAX
from bmq.wire.records import Record, assembled, bounds, place_of, record_of, section_of

Choose = Callable[[int, Sequence[bytes]], str]
"""(a record's number in the batch, what the header says in it) to the name of its part; REST: the rest's."""
REST: Final = ""
LOOKED_THROUGH_BYTES: Final = 64 << 10
"""So much is searched in one go, which gives up the interpreter to nobody: 0.2 ms at most."""


class _Places:
    """Where a name is in a section, whatever the case of its letters. Who asks for ever later positions has each byte
    looked at once, whatever name and bytes are: `bytes.find` compares a long name anew at each byte of a short record.
    """

    def __init__(self, section: Section, name: str) -> None:
        self._section = section
        self._searched = re.compile(re.escape(name.encode()))
        self._overlap_bytes = len(name) - 1
        self._slice = b""
        """What is searched now, in lower case…"""
        self._begin = 0
        """…and where that begins."""
        self._next = -1

    def at_or_behind(self, position: int) -> int:
        """The first one; the section's size: there is none."""
        if self._next >= position:
            return self._next
        while (found := self._searched.search(self._slice, max(0, position - self._begin))) is None:
            self._begin = max(position, self._begin + len(self._slice) - self._overlap_bytes)
            end = self._begin + self._overlap_bytes + LOOKED_THROUGH_BYTES
            self._slice = bytes(self._section[self._begin : end]).lower()
            if len(self._slice) <= self._overlap_bytes:
                self._next = len(self._section)
                return self._next
        self._next = self._begin + found.start()
        return self._next


class _Part:
    """Its records as they were, one behind the other: an object for each of them would take longer to free, all at
    once, than others may wait.
    """

    __slots__ = ("body", "count", "max_timestamp_ms")

    def __init__(self) -> None:
        self.body = bytearray()
        self.count = 0
        self.max_timestamp_ms = NO_TIMESTAMP

    def add(self, record: memoryview, timestamp_ms: int) -> None:
        """Behind all others."""
        if len(record) <= COPIED_BYTES:
            self.body += record
        else:
            for part in in_slices(record):
                self.body += part
        self.count += 1
        self.max_timestamp_ms = max(self.max_timestamp_ms, timestamp_ms)


def parted(
    batch: Buffer,
    header: BatchHeader,
    *,
    wanted: str,
    choose: Choose,
    decompressed_bytes_max: int,
    headers_max: int = BATCH_HEADERS_MAX,
    step: Callable[[], None] | None = None,
) -> Mapping[str, bytes] | None:
    """The batch's parts by what `choose` says, the rest's among them, though that may have no record; None: all of it
    is the rest's. `wanted` is the header's name in lower case; records without it are the rest's. `step` is
    called for each record, and for each header of those that may name one.

    Raises CorruptBatch, BatchTooLarge (decompresses to more than the cap, or the records that may name one have more
    headers than `headers_max`), UnsupportedCompression, and what `choose` raises.
    """
    if header.record_count != header.last_offset_delta + 1:
        raise CorruptBatch(f"{header.record_count} records whose last offset delta is {header.last_offset_delta}")
    section = section_of(batch, header, decompressed_bytes_max)
    places = _Places(section, wanted)
    if places.at_or_behind(0) == len(section):
        return None
    parts: dict[str, _Part] = {REST: _Part()}
    view = memoryview(section)
    begin = 0
    for number, (start, end) in enumerate(bounds(section, header)):
        if step is not None:
            step()
        offset, timestamp_ms, position = place_of(section, start, end, header)
        if offset != header.base_offset + number:
            raise CorruptBatch(f"record {number} says offset delta {offset - header.base_offset}")
        said: list[bytes] = []
        if places.at_or_behind(position) <= end - len(wanted):
            record = record_of(section, start, end, header)
            if step is not None:
                for _ in record.headers:
                    step()
            headers_max -= len(record.headers)
            if headers_max < 0:
                raise BatchTooLarge(f"a batch with too many headers: {number + 1} records have them all")
            said = _said(record, wanted)
        lane = choose(number, said) if said else REST
        if lane not in parts:
            parts[lane] = _Part()
        parts[lane].add(view[begin:end], timestamp_ms)
        begin = end
    return {name: _built(header, one) for name, one in parts.items()} if len(parts) > 1 else None


def emptied(header: BatchHeader, *, max_timestamp_ms: int) -> bytes:
    """A batch without its records, with all else that an owner judges it by but for the codec."""
    return _assembled(header, b"", 0, attributes=header.attributes, max_timestamp_ms=max_timestamp_ms)


def _said(record: Record, wanted: str) -> list[bytes]:
    return [content or b"" for name, content in record.headers if name.isascii() and name.lower() == wanted]


def _built(header: BatchHeader, part: _Part) -> bytes:
    """The largest timestamp is that of its records, and never below the batch's first one, from which theirs are
    counted.
    """
    return _assembled(
        header,
        memoryview(part.body),
        part.count,
        attributes=header.attributes & ~LOG_APPEND_TIME_BIT,
        max_timestamp_ms=max(header.base_timestamp_ms, part.max_timestamp_ms),
    )


def _assembled(header: BatchHeader, body: Buffer, count: int, *, attributes: int, max_timestamp_ms: int) -> bytes:
    return assembled(
        body,
        base_offset=header.base_offset,
        leader_epoch=header.leader_epoch,
        attributes=attributes,
        last_offset_delta=header.last_offset_delta,
        base_timestamp_ms=header.base_timestamp_ms,
        max_timestamp_ms=max_timestamp_ms,
        producer=(header.producer_id, header.producer_epoch, header.base_sequence),
        record_count=count,
    )

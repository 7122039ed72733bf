"""Batches of messages that tell themselves apart, also in one that cannot be opened."""

import re
import struct
from collections.abc import Sequence
from random import Random
from typing import NamedTuple

from crc32c import crc32c

from bmq.errors import CorruptBatch
from bmq.wire.batch_headers import CRC_START
from bmq.wire.batches import check_crc, iterate_records, split
from bmq.wire.messages import Message
from bmq.wire.records import Record, build_batch

_KEY_LENGTH_AT = 61 + 4
"""In a batch of one short record, which begins with its length, attributes, and two deltas of a byte each."""
_VALUE = re.compile(rb"#\d+")


class Found(NamedTuple):
    """A message as it was read. `headers` None: its batch cannot be opened."""

    offset: int
    value: bytes
    headers: tuple[tuple[str, bytes | None], ...] | None


def batch_of(values: Sequence[bytes], rng: Random) -> bytes:
    """Compressed at times; one of a single message can at times not be opened (docs/decisions/0037)."""
    if len(values) == 1 and rng.random() < 0.1:
        data = bytearray(build_batch([Record(0, 1_000, b"", values[0])]))
        data[_KEY_LENGTH_AT] = 0x7E  # the key reaches beyond its record
        struct.pack_into(">I", data, CRC_START - 4, crc32c(memoryview(data)[CRC_START:]))
        return bytes(data)
    return build_batch([Record(0, 1_000, None, value) for value in values], codec=rng.choice((0, 0, 1)))


def found_in(part: Message, from_offset: int) -> list[Found]:
    """The messages of a fetched partition at and above an offset."""
    data = part.records or b""
    found: list[Found] = []
    for header in split(data):
        check_crc(data, header)
        try:
            found += [
                Found(record.offset, record.value or b"", tuple(record.headers))
                for record in iterate_records(data, header)
            ]
        except CorruptBatch:
            match = _VALUE.search(bytes(memoryview(data)[header.position : header.end]))
            assert match is not None, "a batch that cannot be opened is none that was written"
            found.append(Found(header.base_offset, match.group(), None))
    return [one for one in found if one.offset >= from_offset]

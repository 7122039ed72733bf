"""Counting records by their lengths, many at a time where they are alike, against a walk of one after another."""

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bmq.errors import CorruptBatch
from bmq.wire.batches import count_records, read_header
from bmq.wire.primitives import write_uvarint
from bmq.wire.record_validation import LOOKED_AT

HEADER_BYTES = 61
EDGES = (7, 8, 62, 63, 64, 65, 8_190, 8_191, 8_192, 8_193)
"""Where a length takes one byte more; the largest of two is 8,191."""
runs = st.lists(
    st.tuples(st.sampled_from(EDGES), st.one_of(st.integers(1, 12), st.just(LOOKED_AT + 3))), min_size=1, max_size=6
)


def with_length(length: int, body: bytes) -> bytes:
    out = bytearray()
    write_uvarint(out, 2 * length)
    return bytes(out) + body


def batch_of(section: bytes, count: int) -> bytes:
    header = struct.pack(">qiibIhiqqqhii", 0, len(section) + 49, 0, 2, 0, 0, count - 1, 5, 5, -1, -1, -1, count)
    assert len(header) == HEADER_BYTES
    return header + section


def is_counted_one_by_one(section: bytes, count: int) -> bool:
    at = 0
    for _ in range(count):
        raw = shift = 0
        while True:
            if at >= len(section) or shift > 63:
                return False
            byte = section[at]
            at += 1
            raw |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        if raw & 1:
            return False
        at += raw >> 1
    return at == len(section)


def is_counted(section: bytes, count: int) -> bool:
    batch = batch_of(section, count)
    try:
        count_records(batch, read_header(batch))
    except CorruptBatch:
        return False
    return True


@given(runs, st.integers(-2, 2), st.data())
@settings(max_examples=300, deadline=None)
def test_as_many_are_counted_as_one_after_the_other(
    lengths: list[tuple[int, int]], more: int, data: st.DataObject
) -> None:
    parts = [
        with_length(length, (b"\x80\x01" + bytes(length))[:length]) for length, often in lengths for _ in range(often)
    ]
    section = bytearray(b"".join(parts))
    assert is_counted(bytes(section), len(parts))
    for _ in range(data.draw(st.integers(0, 3))):
        at = sum(map(len, parts[: data.draw(st.integers(0, len(parts) - 1))])) + data.draw(st.integers(0, 2))
        if at < len(section):
            section[at] = data.draw(st.integers(0, 255))
    del section[len(section) - data.draw(st.sampled_from((0, 0, 1, 2, 64))) :]
    count = max(1, len(parts) + more)
    assert is_counted(bytes(section), count) == is_counted_one_by_one(bytes(section), count)


@pytest.mark.parametrize("length", EDGES[2:])
def test_one_that_is_longer_than_those_around_it_is_seen(length: int) -> None:
    alike = with_length(length, bytes(length))
    other = with_length(length + 1, bytes(length))
    for before in (1, 2, 3, 4, 7, 300):
        section = alike * before + other + alike * 20
        assert not is_counted(section, before + 21), (length, before)
        assert is_counted(alike * before + other + b"x" + alike * 20, before + 21), (length, before)


def test_lengths_of_three_bytes_that_begin_alike_are_told_apart() -> None:
    short, long = with_length(8_192, bytes(8_192)), with_length(16_384, bytes(16_384))
    assert short[:2] == long[:2]
    assert is_counted(short * 4 + long * 2 + short * 5, 11)


def test_lengths_that_are_padded_are_looked_at_one_by_one() -> None:
    """Two bytes of three are alike, and the third makes another number of it."""
    short, long = b"\x8a\x80\x00" + bytes(5), b"\x8a\x80\x01" + bytes(5)
    assert is_counted(short * 10, 10)
    assert not is_counted_one_by_one(short * 4 + long * 6, 10)
    assert not is_counted(short * 4 + long * 6, 10)

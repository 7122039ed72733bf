"""Record batches: what is built reads back, what kio writes reads the same, what is damaged is refused by name."""

import contextlib
import datetime
import io
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.records.readers import read_batch
from kio.records.schema import NewRecordBatch
from kio.records.schema import Record as KioRecord
from kio.records.schema import RecordHeader as KioRecordHeader
from kio.records.writers import write_new_batch

from bmq.errors import (
    BatchTooLarge,
    CorruptBatch,
    MostlyEmpty,
    RequestError,
    UnsupportedCompression,
    UnsupportedMessageFormat,
)
from bmq.wire.batches import (
    HEADER_SIZE_BYTES,
    Record,
    build_batch,
    check_crc,
    count_records,
    first_at_or_after,
    iterate_records,
    patched,
    read_header,
    split,
    validate_records,
    with_max_timestamp,
)
from bmq.wire.compression import Codec, compress
from bmq.wire.record_validation import SPARE_BYTES

CODECS = (0, 1, 2, 3, 4)
payloads = st.none() | st.binary(max_size=300)
records = st.builds(
    Record,
    offset=st.just(0),
    timestamp_ms=st.integers(0, 1 << 45),
    key=payloads,
    value=payloads,
    headers=st.lists(st.tuples(st.text(max_size=8), payloads), max_size=4).map(tuple),
)
record_lists = st.lists(records, min_size=1, max_size=20)


def numbered(records: list[Record], base_offset: int) -> list[Record]:
    return [record._replace(offset=base_offset + delta) for delta, record in enumerate(records)]


@given(record_lists, st.sampled_from(CODECS), st.integers(0, 1 << 50))
@settings(max_examples=150, deadline=None)
def test_what_is_built_reads_back(records: list[Record], codec: int, base_offset: int) -> None:
    batch = build_batch(
        records, codec=codec, base_offset=base_offset, producer_id=7, producer_epoch=3, base_sequence=2**31 - 1
    )
    (header,) = split(batch)
    check_crc(batch, header)
    assert (header.size_bytes, header.codec, header.record_count) == (len(batch), codec, len(records))
    assert header.next_offset == base_offset + len(records)
    assert header.last_sequence == (2**31 - 2 + len(records)) % 2**31
    assert list(iterate_records(batch, header)) == numbered(records, base_offset)
    count_records(batch, header)
    times = [record.timestamp_ms for record in records]
    summary = validate_records(batch, header)
    assert summary == (max(times), min(times), base_offset + times.index(max(times)))
    assert header.max_timestamp_ms == max(times)
    assert with_max_timestamp(batch, header) == (base_offset + times.index(max(times)), max(times))


@given(record_lists, st.integers(-10, 1 << 45))
@settings(max_examples=100, deadline=None)
def test_a_time_is_found_at_the_first_record_at_or_after_it(records: list[Record], timestamp_ms: int) -> None:
    batch = build_batch(records, codec=4)
    expected = next(((i, r.timestamp_ms) for i, r in enumerate(records) if r.timestamp_ms >= timestamp_ms), None)
    assert first_at_or_after(batch, read_header(batch), timestamp_ms) == expected


@given(record_lists)
@settings(max_examples=60, deadline=None)
def test_kio_reads_what_is_built(records: list[Record]) -> None:
    records = [record._replace(timestamp_ms=record.timestamp_ms // 1000 * 1000 % 10**14) for record in records]
    batch = build_batch(records, base_offset=5)
    theirs, size = read_batch(batch, 0)
    assert size == len(batch)
    assert [(r.offset, r.key, r.value, int(r.timestamp.timestamp() * 1000)) for r in theirs.records] == [
        (r.offset, r.key, r.value, r.timestamp_ms) for r in numbered(records, 5)
    ]
    assert [[(h.key, h.value) for h in r.headers] for r in theirs.records] == [
        [(k.encode(), v) for k, v in r.headers] for r in records
    ]


def test_what_kio_writes_is_read() -> None:
    when = datetime.datetime(2024, 5, 1, tzinfo=datetime.UTC)
    theirs = [
        KioRecord(
            attributes=0,
            timestamp=when,
            offset=i,
            key=b"k",
            value=b"v" * i,
            headers=(KioRecordHeader(key=b"h", value=None),),
        )
        for i in range(70)
    ]
    out = io.BytesIO()
    write_new_batch(
        out, NewRecordBatch(producer_id=-1, producer_epoch=-1, base_sequence=-1, records=tuple(theirs), attributes=0)
    )
    batch = out.getvalue()
    (header,) = split(batch)
    check_crc(batch, header)
    assert validate_records(batch, header).max_timestamp_ms == when.timestamp() * 1000
    assert [(r.offset, r.value, r.headers) for r in iterate_records(batch, header)] == [
        (i, b"v" * i, (("h", None),)) for i in range(70)
    ]


def test_several_batches_in_one_payload_are_split_with_their_positions() -> None:
    parts = [build_batch([Record(0, 1, None, bytes(n))], base_offset=n) for n in range(3)]
    headers = split(b"".join(parts))
    assert [h.position for h in headers] == [0, len(parts[0]), len(parts[0]) + len(parts[1])]
    assert [h.base_offset for h in headers] == [0, 1, 2]
    assert split(b"") == []


@pytest.mark.parametrize("codec", CODECS)
def test_truncated_anywhere_or_followed_by_bytes_is_corrupt(codec: int) -> None:
    batch = build_batch([Record(0, 1, b"key", b"value" * 20)], codec=codec)
    for cut in range(1, len(batch)):
        with pytest.raises(CorruptBatch):
            split(batch[:cut])
    with pytest.raises(CorruptBatch):
        split(batch + b"\x00" * 70)


@given(record_lists, st.sampled_from(CODECS), st.data())
@settings(max_examples=150, deadline=None)
def test_a_flipped_bit_fails_the_crc_or_shows_in_the_uncovered_fields(
    records: list[Record], codec: int, data: st.DataObject
) -> None:
    batch = bytearray(build_batch(records, codec=codec))
    at = data.draw(st.integers(16, len(batch) - 1))
    batch[at] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises((CorruptBatch, UnsupportedMessageFormat)):
        check_crc(batch, split(batch)[0])


@given(record_lists, st.sampled_from(CODECS), st.data())
@settings(max_examples=200, deadline=None)
def test_damaged_records_raise_a_typed_error_and_nothing_else(
    records: list[Record], codec: int, data: st.DataObject
) -> None:
    batch = bytearray(build_batch(records, codec=codec))
    for _ in range(data.draw(st.integers(1, 4))):
        batch[data.draw(st.integers(HEADER_SIZE_BYTES, len(batch) - 1))] = data.draw(st.integers(0, 255))
    header = read_header(batch)
    for read in (iterate_records, validate_records, count_records, with_max_timestamp):
        with contextlib.suppress(RequestError):
            found = read(batch, header)
            list(found) if read is iterate_records else found


@given(st.binary(max_size=200), st.integers(0, 2**31 - 1))
@settings(max_examples=200, deadline=None)
def test_random_bytes_as_records_raise_a_typed_error(body: bytes, count: int) -> None:
    batch = bytearray(build_batch([Record(0, 1, None, None)])[:HEADER_SIZE_BYTES] + body)
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    struct.pack_into(">i", batch, 57, count)
    try:
        list(iterate_records(batch, read_header(batch)))
    except RequestError:
        return
    assert count == 0 or len(body) >= 7 * count


@pytest.mark.parametrize(("at", "count"), [(57, 2), (57, 0), (57, 2**31 - 1), (23, 1), (23, 7)])
def test_a_header_that_counts_other_than_its_records_is_corrupt(at: int, count: int) -> None:
    batch = bytearray(build_batch([Record(0, 1, None, b"v")]))
    struct.pack_into(">i", batch, at, count)
    with pytest.raises(CorruptBatch):
        validate_records(batch, read_header(batch))
    with pytest.raises(CorruptBatch):
        count_records(batch, read_header(batch))


@given(record_lists, st.sampled_from(CODECS), st.data())
@settings(max_examples=150, deadline=None)
def test_what_is_valid_can_be_read_and_counted(records: list[Record], codec: int, data: st.DataObject) -> None:
    section = bytearray(build_batch(records)[HEADER_SIZE_BYTES:])
    for _ in range(data.draw(st.integers(1, 2))):
        section[data.draw(st.integers(0, len(section) - 1))] = data.draw(st.integers(0, 255))
    batch = bytearray(build_batch(records, codec=codec)[:HEADER_SIZE_BYTES] + compress(codec, section))
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    header = read_header(batch)
    try:
        validate_records(batch, header)
    except RequestError:
        return
    count_records(batch, header)
    assert [record.offset for record in iterate_records(batch, header)] == list(range(len(records)))


def test_offset_deltas_with_a_gap_are_corrupt_but_readable() -> None:
    batch = bytearray(build_batch([Record(0, 1, None, b"a"), Record(0, 1, None, b"b")]))
    second = HEADER_SIZE_BYTES + 8
    assert batch[second + 3] == 2
    batch[second + 3] = 4
    struct.pack_into(">i", batch, 23, 2)
    assert [r.offset for r in iterate_records(batch, read_header(batch))] == [0, 2]
    struct.pack_into(">i", batch, 23, 1)
    with pytest.raises(CorruptBatch):
        validate_records(batch, read_header(batch))


def test_a_new_place_in_the_log_keeps_the_crc() -> None:
    batch = build_batch([Record(0, 1, b"k", b"v")])
    copy = patched(batch, read_header(batch), base_offset=900, leader_epoch=4)
    header = read_header(copy)
    check_crc(copy, header)
    assert (header.base_offset, header.leader_epoch, header.crc) == (900, 4, read_header(batch).crc)
    assert copy[16:] == batch[16:]


def test_log_append_time_is_the_time_of_every_record() -> None:
    payload = bytearray(
        build_batch([Record(0, 1, None, b"x")])
        + build_batch([Record(0, 1, None, b"a"), Record(0, 9, None, b"b")], codec=1)
    )
    header = split(payload)[1]
    payload[header.position :] = patched(payload, header, base_offset=10, leader_epoch=1, log_append_time_ms=5000)
    header = split(payload)[1]
    check_crc(payload, header)
    assert header.is_log_append_time
    assert header.codec == 1
    assert [(r.offset, r.timestamp_ms) for r in iterate_records(payload, header)] == [(10, 5000), (11, 5000)]
    assert first_at_or_after(payload, header, 5000) == with_max_timestamp(payload, header) == (10, 5000)
    assert validate_records(payload, header).max_timestamp_ms == 5000
    assert first_at_or_after(payload, header, 5001) is None


@pytest.mark.parametrize("magic", [0, 1])
def test_old_message_formats_are_refused_by_name(magic: int) -> None:
    message = struct.pack(">qiIb", 0, 20, 0, magic) + bytes(15)
    for padded in (message, message + bytes(60)):
        with pytest.raises(UnsupportedMessageFormat):
            split(padded)


def test_a_codec_that_does_not_exist_is_refused() -> None:
    batch = bytearray(build_batch([Record(0, 1, None, b"x")]))
    batch[22] = 5
    with pytest.raises(UnsupportedCompression):
        validate_records(batch, read_header(batch))


@pytest.mark.parametrize("codec", CODECS)
def test_records_that_decompress_to_more_than_the_cap_are_too_large(codec: int) -> None:
    batch = build_batch([Record(0, 1, None, bytes(100_000))], codec=codec)
    with pytest.raises(BatchTooLarge):
        validate_records(batch, read_header(batch), decompressed_bytes_max=50_000)
    assert validate_records(batch, read_header(batch), decompressed_bytes_max=110_000).max_timestamp_ms == 1


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD])
def test_a_batch_that_is_mostly_parts_of_nothing_is_not_proved_and_is_read(codec: Codec) -> None:
    """Each part costs as much as one that holds something."""
    good = build_batch([Record(0, 5, b"k", b"v" * 100)], codec=codec)
    nothing = compress(codec, b"")
    for count, is_proved in ((SPARE_BYTES // 2 // len(nothing), True), (2 * SPARE_BYTES // len(nothing), False)):
        data = bytearray(good[:61] + nothing * count + good[61:])
        data[8:12] = (len(data) - 12).to_bytes(4, "big")
        batch = bytes(patched(bytes(data), split(bytes(data))[0], base_offset=0, leader_epoch=0, max_timestamp_ms=6))
        header = split(batch)[0]
        for proof in (count_records, validate_records):
            if is_proved:
                proof(batch, header)
            else:
                with pytest.raises(MostlyEmpty, match="holds nothing"):
                    proof(batch, header)
        assert [record.value for record in iterate_records(batch, header)] == [b"v" * 100]

"""The columns that numpy makes of batches are those that bmq's own reader finds record by record."""

import struct
from typing import Any

import crc32c
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bmq.wire.batch_headers import patched
from bmq.wire.batches import Record, build_batch, build_empty_batch, iterate_records, split
from bmq.wire.limits import DECOMPRESSED_BYTES_MAX
from bmq_spark.source import record_layout
from bmq_spark.source.columns import ALL, arrow_schema
from bmq_spark.source.decoding import Wanted, decode
from bmq_spark.source.sections import BatchBroken, Scratch

SOME = st.one_of(st.none(), st.binary(max_size=5), st.binary(min_size=120, max_size=200))
HEADERS = st.lists(st.tuples(st.text(max_size=4), SOME), max_size=3)
RECORDS = st.builds(Record, st.just(0), st.integers(-1, 1 << 42), SOME, SOME, HEADERS)
GAPS = st.lists(st.integers(0, 2), min_size=7, max_size=7)
"""Offsets without a record in front of each record of a batch, and behind the last one."""
BATCHES = st.lists(
    st.tuples(st.lists(RECORDS, min_size=1, max_size=6), GAPS, st.integers(0, 4), st.booleans(), st.booleans()),
    min_size=1,
    max_size=5,
)


def wanted(**changes: object) -> Wanted:
    given_ = {
        "topic": "orders",
        "partition": 3,
        "lane": "dev",
        "columns": ALL,
        "from_offset": 0,
        "below_offset": 1 << 62,
    } | changes
    return Wanted(**given_)  # type: ignore[arg-type]


def one_by_one(data: bytes, want: Wanted) -> list[dict[str, object]]:
    """The dumb twin."""
    rows = []
    for header in split(data):
        for record in () if header.is_control else iterate_records(data, header):
            if want.from_offset <= record.offset < want.below_offset:
                rows.append(
                    {
                        "key": record.key,
                        "value": record.value,
                        "headers": [{"key": key, "value": value} for key, value in record.headers] or None,
                        "topic": want.topic,
                        "partition": want.partition,
                        "offset": record.offset,
                        "timestamp": record.timestamp_ms * 1000,
                        "timestampType": int(header.is_log_append_time),
                        "lane": want.lane,
                    }
                )
    return rows


def rows_of(batches: list[pa.RecordBatch]) -> list[dict[str, object]]:
    table = pa.Table.from_batches(batches, schema=arrow_schema(ALL))
    table.validate(full=True)
    place = table.schema.get_field_index("timestamp")
    return table.set_column(place, "timestamp", table["timestamp"].cast(pa.int64())).to_pylist()


def log_of(batches: list[tuple[list[Record], list[int], int, bool, bool]]) -> bytes:
    data, offset = b"", 0
    for records, gaps, codec, is_control, is_appended in batches:
        placed = [
            record._replace(offset=offset + number + sum(gaps[: number + 1])) for number, record in enumerate(records)
        ]
        following = placed[-1].offset + 1 + gaps[-1]
        one = build_batch(
            placed,
            base_offset=offset,
            first_offset=offset,
            next_offset=following,
            codec=codec,
            is_control=is_control,
        )
        if is_appended:
            one = bytes(
                patched(one, split(one)[0], base_offset=offset, leader_epoch=1, log_append_time_ms=1_700_000_000_000)
            )
        data += one + build_empty_batch(base_offset=following, offset_count=2, leader_epoch=1, timestamp_ms=-1)
        offset = following + 2
    return data


@settings(max_examples=300, deadline=None)
@given(BATCHES, st.integers(0, 20), st.integers(0, 30), st.booleans())
def test_columns_are_what_each_record_has(
    batches: list[tuple[list[Record], list[int], int, bool, bool]], start: int, length: int, in_lockstep: bool
) -> None:
    data = log_of(batches)
    want = wanted(from_offset=start, below_offset=start + length)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(record_layout, "_LOCKSTEP_PAYS", 0 if in_lockstep else 1 << 30)
        assert rows_of(list(decode(data, split(data), want))) == one_by_one(data, want)


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=80), st.integers(1, 6), st.booleans())
def test_bytes_that_are_no_records_are_refused_by_both_or_by_none(
    section: bytes, count: int, in_lockstep: bool
) -> None:
    good = build_batch([Record(0, 5, b"k", b"v")] * count)
    header = split(good)[0]
    data = bytes(
        patched(
            good[:61] + section,
            header._replace(size_bytes=61 + len(section)),
            base_offset=0,
            leader_epoch=0,
            max_timestamp_ms=9,
        )
    )
    data = data[:8] + (49 + len(section)).to_bytes(4, "big") + data[12:]
    try:
        expected: list[dict[str, object]] | None = one_by_one(data, wanted())
        offsets: list[Any] = [row["offset"] for row in expected]
        if offsets != sorted(set(offsets)):
            expected = None
    except Exception as error:  # noqa: BLE001
        if "with timestamp" in str(error):
            return  # a time before 1970 is no reason not to read a record
        expected = None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(record_layout, "_LOCKSTEP_PAYS", 0 if in_lockstep else 1 << 30)
        if expected is None:
            with pytest.raises(BatchBroken):
                list(decode(data, split(data), wanted()))
        else:
            assert rows_of(list(decode(data, split(data), wanted()))) == expected


def test_a_batch_with_another_crc_is_named() -> None:
    good, bad = (
        build_batch([Record(0, 5, b"k", b"v")]),
        bytearray(build_batch([Record(0, 5, b"k", b"value")], base_offset=1)),
    )
    bad[-3] ^= 1
    data = good + bytes(bad)
    with pytest.raises(BatchBroken, match="CRC") as broken:
        list(decode(data, split(data), wanted()))
    assert broken.value.header.base_offset == 1


@pytest.mark.parametrize("deltas", [(0, 0, 2), (2, 1, 0), (0, 0, 0)])
def test_a_batch_whose_offsets_do_not_rise_is_named(deltas: tuple[int, ...]) -> None:
    """It would have rows twice, or more than one for an offset: two sources would give two tables."""
    good = build_batch([Record(0, 5, b"k", b"v")])
    records = bytearray(build_batch([Record(0, 5, b"k", b"v")] * 3, base_offset=1))
    size = (len(records) - 61) // 3
    for number, delta in enumerate(deltas):
        assert records[61 + number * size + 3] == 2 * number
        records[61 + number * size + 3] = 2 * delta
    bad = patched(bytes(records), split(bytes(records))[0], base_offset=1, leader_epoch=0, max_timestamp_ms=6)
    data = good + bytes(bad)
    with pytest.raises(BatchBroken, match="comes after") as broken:
        list(decode(data, split(data), wanted()))
    assert broken.value.header.base_offset == 1


def test_a_codec_that_does_not_exist_is_named() -> None:
    good = bytearray(build_batch([Record(0, 5, b"k", b"v")]))
    good[22] |= 7
    data = bytes(patched(bytes(good), split(bytes(good))[0], base_offset=0, leader_epoch=0, max_timestamp_ms=5))
    with pytest.raises(BatchBroken, match="codec 7 does not exist"):
        list(decode(data, split(data), wanted()))


def test_header_keys_that_are_not_utf_8_are_read_as_java_reads_them() -> None:
    data = build_batch([Record(0, 5, b"k", b"v", [("\udcff", b"x")])])
    assert rows_of(list(decode(data, split(data), wanted())))[0]["headers"] == [{"key": "�", "value": b"x"}]


LAST_US = ((1 << 63) - 1) // 1000 * 1000


@pytest.mark.parametrize(
    ("ms", "us"), [((1 << 63) - 1, LAST_US), (1_763_870_000_000_000_000, LAST_US), (-5, -5000), (-(1 << 63), -LAST_US)]
)
def test_a_timestamp_beyond_what_spark_can_hold_becomes_the_last_one_and_one_before_1970_stays(
    ms: int, us: int
) -> None:
    data = build_batch([Record(0, ms, b"k", b"v")])
    assert rows_of(list(decode(data, split(data), wanted())))[0]["timestamp"] == us


@pytest.mark.parametrize(
    ("base", "delta", "us"), [((1 << 63) - 1, 10, LAST_US), (-(1 << 63), -10, -LAST_US), (5, -3, 2000)]
)
def test_a_timestamp_that_wraps_becomes_the_last_one_of_its_side(base: int, delta: int, us: int) -> None:
    good = bytearray(build_batch([Record(0, 0, b"k", b"v"), Record(1, delta, b"k", b"v")]))
    struct.pack_into(">q", good, 27, base)
    struct.pack_into(">I", good, 17, crc32c.crc32c(bytes(good[21:])))
    data = bytes(good)
    assert rows_of(list(decode(data, split(data), wanted())))[1]["timestamp"] == us


def test_batches_older_than_asked_for_are_not_opened() -> None:
    old, new = (
        bytearray(build_batch([Record(0, 5, b"k", b"v")])),
        build_batch([Record(0, 50, b"k", b"v")], base_offset=1),
    )
    old[-3] ^= 1  # its CRC would be found wrong
    data = bytes(old) + new
    assert [row["offset"] for row in rows_of(list(decode(data, split(data), wanted(min_timestamp_ms=50))))] == [1]


def test_only_the_columns_asked_for_are_made() -> None:
    data = build_batch([Record(0, 5, b"k", b"v")])
    found = list(decode(data, split(data), wanted(columns=("offset", "value"))))
    assert found[0].to_pylist() == [{"offset": 0, "value": b"v"}]


def test_batches_of_any_size_and_codec_share_memory_and_nothing_given_before_changes() -> None:
    sizes = [10, 3 << 20, 9 << 20, 100, 20 << 20, 5]
    data, records = b"", []
    for offset, (size, codec) in enumerate(zip(sizes, (4, 3, 2, 0, 1, 4), strict=True)):
        records.append(bytes([65 + offset]) * size)
        data += build_batch([Record(0, 5, b"k", records[-1])], base_offset=offset, codec=codec)
    scratch = Scratch()
    for _ in range(2):
        found = list(decode(data, split(data), wanted(columns=("value",)), scratch))
        assert [row["value"] for batch in found for row in batch.to_pylist()] == records


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_a_batch_that_decompresses_to_more_than_is_allowed_is_named(codec: int) -> None:
    good = build_batch([Record(0, 5, b"k", b"v")])
    bomb = build_batch([Record(0, 5, b"k", bytes(DECOMPRESSED_BYTES_MAX))], base_offset=1, codec=codec)
    with pytest.raises(BatchBroken, match=f"more than {DECOMPRESSED_BYTES_MAX}") as broken:
        list(decode(good + bomb, split(good + bomb), wanted()))
    assert broken.value.header.base_offset == 1


def test_more_records_promised_than_there_are_bytes_are_refused_before_any_is_looked_for() -> None:
    good = bytearray(build_batch([Record(0, 5, b"k", b"v")]))
    good[23:27] = good[57:61] = (1 << 30).to_bytes(4, "big")
    data = bytes(
        patched(
            bytes(good),
            split(build_batch([Record(0, 5, b"k", b"v")]))[0],
            base_offset=0,
            leader_epoch=0,
            max_timestamp_ms=5,
        )
    )
    with pytest.raises(BatchBroken, match=f"{1 << 30} records in 9 bytes"):
        list(decode(data, split(data), wanted()))

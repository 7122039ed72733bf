"""Batches that are parted by what a header of their records says: each record is in one part, where and as it was."""

import gc
import struct
from collections.abc import Callable, Sequence
from itertools import chain
from time import process_time
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bmq.errors import BatchTooLarge, CorruptBatch, RequestError, UnsupportedCompression
from bmq.wire.batches import HEADER_SIZE_BYTES, Record, build_batch, check_crc, iterate_records, read_header, split
from bmq.wire.compression import COPIED_BYTES, Codec, compress
from bmq.wire.parting import REST, _Places, parted
from bmq.wire.records import bounds, section_of

WANTED = "x-lane"
BYTES_MAX = 1 << 20
NAMES = st.sampled_from(["x-lane", "X-Lane", "X-LANE", "x-lanes", "ax-lane", "other", "", "x-läne"])
CONTENTS = st.sampled_from([None, b"", b" ", b"dev", b" dev ", b"prod", b"x-lane", b"\xff"])
TEXTS = st.none() | st.binary(max_size=20) | st.sampled_from([b"x-lane", b"a X-Lane: dev", b"\x0cx-lane\x06dev"])
RECORDS = st.lists(
    st.builds(
        Record,
        offset=st.just(0),
        timestamp_ms=st.integers(0, 1 << 45),
        key=TEXTS,
        value=TEXTS,
        headers=st.lists(st.tuples(NAMES, CONTENTS), max_size=4).map(tuple),
    ),
    min_size=1,
    max_size=20,
)


def lane_of(_: int, said: Sequence[bytes]) -> str:
    """Where all that is said is one name."""
    names = {one.strip() for one in said} - {b""}
    return names.pop().decode(errors="replace") if len(names) == 1 else REST


def said_by(record: Record) -> list[bytes]:
    return [content or b"" for name, content in record.headers if name.lower() == WANTED]


def parts_of(batch: bytes, choose: Callable[[int, Sequence[bytes]], str] = lane_of) -> dict[str, bytes] | None:
    parts = parted(batch, read_header(batch), wanted=WANTED, choose=choose, decompressed_bytes_max=BYTES_MAX)
    return None if parts is None else dict(parts)


@given(records=RECORDS, codec=st.sampled_from(list(Codec)), base_offset=st.integers(0, 1 << 50))
def test_each_record_is_in_one_part_at_its_offset_and_as_it_was(
    records: list[Record], codec: Codec, base_offset: int
) -> None:
    producer = {"producer_id": 7, "producer_epoch": 3, "base_sequence": 2**31 - 1}
    batch = build_batch(records, base_offset=base_offset, codec=codec, leader_epoch=5, **producer)
    whole = read_header(batch)
    wanted: dict[str, list[Record]] = {REST: []}
    for record in iterate_records(batch, whole):
        wanted.setdefault(lane_of(0, said_by(record)), []).append(record)
    parts = parts_of(batch)
    if parts is None:
        assert set(wanted) == {REST}
        return
    headers = {name: split(part)[0] for name, part in parts.items()}
    assert {name: list(iterate_records(parts[name], header)) for name, header in headers.items()} == wanted
    sections = [section_of(parts[name], header, BYTES_MAX) for name, header in headers.items()]
    assert sum(map(len, sections)) == len(section_of(batch, whole, BYTES_MAX))
    for name, header in headers.items():
        check_crc(parts[name], header)
        assert header.size_bytes == len(parts[name])
        same = ("base_offset", "leader_epoch", "last_offset_delta", "base_timestamp_ms", *producer)
        assert [getattr(header, field) for field in same] == [getattr(whole, field) for field in same]
        assert (header.last_sequence, header.next_offset) == (whole.last_sequence, whole.next_offset)
        assert header.codec == (codec if wanted[name] else Codec.NONE)
        latest_ms = max((record.timestamp_ms for record in wanted[name]), default=-1)
        assert header.max_timestamp_ms == max(latest_ms, whole.base_timestamp_ms)


@given(records=RECORDS)
def test_each_record_that_has_the_header_is_asked_for_with_its_number_and_all_that_it_says(
    records: list[Record],
) -> None:
    asked: list[tuple[int, list[bytes]]] = []

    def choose(number: int, said: Sequence[bytes]) -> str:
        asked.append((number, list(said)))
        return REST

    assert parts_of(build_batch(records), choose) is None
    assert asked == [(number, said) for number, record in enumerate(records) if (said := said_by(record))]


@pytest.mark.parametrize(
    "record",
    [
        Record(0, 1, b"x-lane", b"\x01\x0cx-lane\x06dev"),
        Record(0, 1, None, b"x-lane", (("other", b"x-lane"),)),
        Record(0, 1, None, None, (("x-lanes", b"dev"), ("ax-lane", b"dev"))),
    ],
)
def test_a_headers_name_within_something_else_is_not_taken_for_one(record: Record) -> None:
    assert parts_of(build_batch([record])) is None


def test_a_name_with_other_letters_than_ascii_is_another_one_whatever_else_its_record_has() -> None:
    record = Record(0, 1, None, b"x-key", (("x-\N{KELVIN SIGN}ey", b"dev"),))
    batch = build_batch([record])
    assert "x-\N{KELVIN SIGN}ey".lower() == "x-key"
    assert parted(batch, read_header(batch), wanted="x-key", choose=lane_of, decompressed_bytes_max=BYTES_MAX) is None


def test_where_everything_is_for_one_lane_the_rest_is_a_batch_without_records() -> None:
    batch = build_batch([Record(0, 5, None, b"v", (("X-Lane", b"dev"),))] * 3, codec=Codec.ZSTD)
    parts = parts_of(batch)
    assert parts is not None
    assert set(parts) == {REST, "dev"}
    [rest] = split(parts[REST])
    assert (rest.record_count, rest.size_bytes, rest.last_offset_delta) == (0, HEADER_SIZE_BYTES, 2)


NAMED = Record(0, 1, None, b"value", ((WANTED, b"dev"),))


def with_section(section: bytes, count: int, codec: Codec = Codec.NONE) -> bytes:
    """A batch that says that these are so many records."""
    batch = bytearray(build_batch([NAMED] * count, codec=codec)[:HEADER_SIZE_BYTES] + compress(codec, section))
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    return bytes(batch)


GOOD = build_batch([NAMED] * 2)[HEADER_SIZE_BYTES:]


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize(
    "section",
    [
        GOOD[:-1],
        GOOD + b"\x00",
        GOOD[: len(GOOD) // 2],
        GOOD * 2,
        b"\x01" + GOOD[1:],
        b"\x04" + GOOD[1:],
        b"\xff" * 11 + GOOD,
        GOOD[:-11] + b"\x7e" + GOOD[-10:],
        GOOD[:5] + b"\x7e" + GOOD[6:],
    ],
)
def test_records_that_cannot_be_read_are_corrupt(section: bytes, codec: Codec) -> None:
    with pytest.raises(CorruptBatch):
        parts_of(with_section(section, 2, codec))


@given(records=RECORDS, codec=st.sampled_from(list(Codec)), data=st.data())
def test_whatever_is_damaged_parts_into_what_reads_as_well_as_before_or_raises_a_typed_error(
    records: list[Record], codec: Codec, data: st.DataObject
) -> None:
    section = bytearray(build_batch([*records, NAMED])[HEADER_SIZE_BYTES:])
    for _ in range(data.draw(st.integers(1, 4))):
        section[data.draw(st.integers(0, len(section) - 1))] = data.draw(st.integers(0, 255))
    batch = with_section(bytes(section), len(records) + 1, codec)
    try:
        parts = parts_of(batch)
    except RequestError:
        return
    if parts is None:
        return
    for part in parts.values():
        header = read_header(part)
        assert len(list(bounds(section_of(part, header, BYTES_MAX), header))) == header.record_count
    try:
        list(iterate_records(batch, read_header(batch)))
    except CorruptBatch:
        return  # what names no lane is looked at no closer, and goes on as it came
    found = chain.from_iterable(iterate_records(part, read_header(part)) for part in parts.values())
    assert sorted(record.offset for record in found) == list(range(len(records) + 1))


@pytest.mark.parametrize("offsets", [(1, 0), (0, 0), (1, 1)])
def test_records_that_say_other_offsets_than_their_own_are_refused(offsets: tuple[int, int]) -> None:
    batch = build_batch([NAMED._replace(offset=offset) for offset in offsets], first_offset=0, next_offset=2)
    with pytest.raises(CorruptBatch, match="says offset delta"):
        parts_of(batch)


@pytest.mark.parametrize("next_offset", [1, 3])
def test_a_batch_with_more_or_fewer_offsets_than_records_is_refused(next_offset: int) -> None:
    batch = build_batch([NAMED, NAMED], first_offset=0, next_offset=next_offset)
    with pytest.raises(CorruptBatch, match=f"2 records whose last offset delta is {next_offset - 1}"):
        parts_of(batch)


def test_what_decompresses_to_more_than_the_cap_is_too_large_and_a_codec_that_does_not_exist_is_refused() -> None:
    large = build_batch([NAMED._replace(value=bytes(BYTES_MAX))], codec=Codec.ZSTD)
    with pytest.raises(BatchTooLarge):
        parts_of(large)
    strange = bytearray(build_batch([NAMED]))
    strange[22] = 5
    with pytest.raises(UnsupportedCompression):
        parts_of(bytes(strange))


def test_a_batch_whose_records_have_more_headers_than_may_be_looked_at_is_too_large() -> None:
    records = [Record(0, 1_000, None, None, ((WANTED, b"dev"), *(("other", None),) * 9)) for _ in range(10)]
    batch = build_batch(records)
    header = read_header(batch)

    def look(headers_max: int) -> object:
        return parted(
            batch,
            header,
            wanted=WANTED,
            choose=lane_of,
            decompressed_bytes_max=BYTES_MAX,
            headers_max=headers_max,
        )

    assert look(100)
    with pytest.raises(BatchTooLarge):
        look(99)


def test_whoever_parts_many_records_may_let_others_go_on_at_each_of_them_and_makes_no_object_for_each() -> None:
    batch = build_batch([Record(0, 1, None, b"", (("x-lane", b"dev"),) if at % 2 else ()) for at in range(10_000)])
    steps = 0
    live: list[int] = []

    def step() -> None:
        nonlocal steps
        steps += 1
        if steps in {100, 9_000}:
            live.append(sum(isinstance(one, memoryview) for one in gc.get_objects()))

    parts = parted(
        batch, read_header(batch), wanted=WANTED, choose=lambda *_: "dev", decompressed_bytes_max=BYTES_MAX, step=step
    )
    assert parts is not None
    assert {name: read_header(part).record_count for name, part in parts.items()} == {REST: 5_000, "dev": 5_000}
    assert steps == 10_000 + 5_000, "each header of those that name one, too"
    assert live[1] < live[0] + 100


@given(st.data(), st.sampled_from(["a", "ab", "aab", "aa", "a.b"]))
def test_a_name_is_found_where_it_is_in_whatever_slices_it_is_looked_for(data: st.DataObject, name: str) -> None:
    section = data.draw(st.text(alphabet="aAbB.", max_size=60)).encode()
    starts = [at for at in range(len(section)) if section[at : at + len(name)].lower() == name.encode()]
    with patch("bmq.wire.parting.LOOKED_THROUGH_BYTES", data.draw(st.integers(1, 70))):
        places = _Places(data.draw(st.sampled_from([section, memoryview(section)])), name)
        for position in sorted(data.draw(st.lists(st.integers(0, len(section)), max_size=20))):
            assert places.at_or_behind(position) == next((at for at in starts if at >= position), len(section))


def test_a_name_that_is_over_where_a_record_ends_is_not_in_it() -> None:
    batch = build_batch([Record(0, 1, None, b"x-la"), Record(0, 1, None, b"ne"), NAMED])
    asked: list[int] = []
    parts_of(batch, lambda number, _: asked.append(number) or "dev")
    assert asked == [2]


@pytest.mark.parametrize("name", ["a" * 246 + "b" + "aa", "a" * 60 + "b" + "a" * 30, "a" * 20 + "b" + "aaa", "aaab"])
def test_a_name_that_is_nearly_there_everywhere_is_looked_for_as_fast_as_another(name: str) -> None:
    """Up to the tenfold of processor time is no matter; it was the hundredfold."""
    records = [Record(0, 1, None, b"a" * 2_470)] * 400

    def took_s(wanted: str) -> float:
        batch = build_batch([*records, Record(0, 1, None, None, ((wanted, b"dev"),))])
        header = read_header(batch)

        def once() -> float:
            began = process_time()
            parts = parted(batch, header, wanted=wanted, choose=lane_of, decompressed_bytes_max=BYTES_MAX << 1)
            assert parts is not None
            return process_time() - began

        return min(once() for _ in range(5))

    assert took_s(name) < 10 * took_s("z" * len(name))


def test_a_large_record_is_parted_as_it_was() -> None:
    value = bytes(range(256)) * (COPIED_BYTES // 100)
    batch = build_batch([Record(0, 1, None, b"x"), Record(0, 1, None, value, (("x-lane", b"dev"),))])
    parts = parted(
        batch, read_header(batch), wanted=WANTED, choose=lambda *_: "dev", decompressed_bytes_max=BYTES_MAX << 2
    )
    assert parts is not None
    [record] = iterate_records(parts["dev"], read_header(parts["dev"]))
    assert record.value == value

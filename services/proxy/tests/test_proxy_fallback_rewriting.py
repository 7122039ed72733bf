"""A lane's batches as they go on to the base."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bmq.errors import BatchTooLarge, CorruptBatch
from bmq.fairness.opening import ORDINARY_BYTES_MAX
from bmq.values import LANE_TURN_IDS
from bmq.wire.batches import (
    HEADER_SIZE_BYTES,
    BatchHeader,
    Record,
    RecordHeaders,
    build_batch,
    check_crc,
    iterate_records,
    patched,
    split,
)
from bmq.wire.compression import Codec, Section
from bmq.wire.labelling import batch_of, labelled
from bmq.wire.limits import DECOMPRESSED_BYTES_MAX, RECORD_HEADERS_MAX
from bmq.wire.records import bounds, read_signed_varint, record_of, section_of
from bmq_proxy.lanes.fallback import rewriting
from bmq_proxy.lanes.fallback.rewriting import pieces, rewritten
from bmq_proxy.proofs import ORDINARY_HEADERS_MAX

ID = LANE_TURN_IDS + 5
TEXTS = st.binary(max_size=20)
RECORDS = st.lists(
    st.builds(
        Record,
        offset=st.just(0),
        timestamp_ms=st.integers(0, 10_000),
        key=st.none() | TEXTS,
        value=st.none() | TEXTS,
        headers=st.lists(st.tuples(st.sampled_from(["a", "bmq-lane", "b"]), st.none() | TEXTS), max_size=3).map(tuple),
    ),
    min_size=1,
    max_size=12,
)


def in_log(records: list[Record], base_offset: int, codec: int = 0) -> bytes:
    batch = build_batch(records, codec=codec)
    [header] = split(batch)
    return bytes(patched(batch, header, base_offset=base_offset, leader_epoch=3))


def gone_on(batch: bytes, *, from_offset: int, begin: int) -> list[tuple[int, Record]]:
    """(offset in the lane, as the base's owner knows it; record) of all pieces."""
    [header] = split(batch)
    found = []
    for piece in pieces(batch, header, from_offset=from_offset, begin=begin, producer_id=ID, lane="dev"):
        [made] = split(piece.batch)
        check_crc(piece.batch, made)
        assert (made.producer_id, made.producer_epoch) == (ID, 0)
        assert made.record_count == made.last_offset_delta + 1
        assert not made.is_log_append_time
        first = begin + made.base_sequence
        assert piece.next_offset == first + made.record_count
        found += [(first + record.offset, record) for record in iterate_records(piece.batch, made)]
    return found


@given(
    records=RECORDS,
    base=st.integers(0, 1_000),
    skipped=st.integers(0, 11),
    codec=st.sampled_from(list(Codec)),
    most=st.integers(1, 5),
)
def test_each_message_goes_on_once_in_order_with_the_lanes_name_and_all_that_it_had(
    records: list[Record], base: int, skipped: int, codec: Codec, most: int
) -> None:
    before, rewriting.PIECE_RECORDS = rewriting.PIECE_RECORDS, most  # type: ignore[misc]
    try:
        from_offset = base + min(skipped, len(records) - 1)
        found = gone_on(in_log(records, base, codec), from_offset=from_offset, begin=min(base, from_offset))
    finally:
        rewriting.PIECE_RECORDS = before  # type: ignore[misc]
    assert [offset for offset, _ in found] == list(range(from_offset, base + len(records)))
    for (_, got), sent in zip(found, records[from_offset - base :], strict=True):
        assert (got.key, got.value, got.timestamp_ms) == (sent.key, sent.value, sent.timestamp_ms)
        others = [header for header in sent.headers if header[0] != "bmq-lane"]
        assert list(got.headers) == [*others, ("bmq-lane", b"dev")]


@given(records=RECORDS, deltas=st.lists(st.integers(0, 11), min_size=12, max_size=12), skipped=st.integers(0, 11))
def test_messages_that_name_other_offsets_than_their_own_go_on_in_their_places(
    records: list[Record], deltas: list[int], skipped: int
) -> None:
    """As some clients write them; the base takes them by their number, and would wait for one that never comes."""
    batch = bytearray(in_log(records, 20))
    [header] = split(batch)
    position = HEADER_SIZE_BYTES
    for delta in deltas[: len(records)]:
        length, start = read_signed_varint(batch, position)
        _, at = read_signed_varint(batch, start + 1)
        batch[at] = 2 * min(delta, len(records) - 1)
        position = start + length
    odd = bytes(patched(batch, header, base_offset=20, leader_epoch=3, max_timestamp_ms=header.max_timestamp_ms))
    from_offset = 20 + min(skipped, len(records) - 1)
    found = gone_on(odd, from_offset=from_offset, begin=20)
    assert [offset for offset, _ in found] == list(range(from_offset, 20 + len(records)))
    assert [got.value for _, got in found] == [sent.value for sent in records[from_offset - 20 :]]


def with_gaps(base: int, count: int, *numbers: int, codec: int = 0) -> bytes:
    """What is left of a batch of so many messages: those of these numbers, which say at which offset they are."""
    records = [Record(base + number, number, None, b"%d" % (base + number)) for number in numbers]
    return build_batch(
        records, base_offset=base, leader_epoch=3, codec=codec, first_offset=base, next_offset=base + count
    )


def dense(batch: bytes, *, from_offset: int, begin: int) -> list[tuple[int, bytes | None]]:
    """(offset in the lane, as the base's owner knows it; value) of all pieces, between which nothing is missing."""
    [header] = split(batch)
    found: list[tuple[int, bytes | None]] = []
    for piece in pieces(batch, header, from_offset=from_offset, begin=begin, producer_id=ID, lane="dev"):
        [made] = split(piece.batch)
        check_crc(piece.batch, made)
        assert (made.producer_id, made.base_sequence) == (ID, (from_offset - begin) % (1 << 31))
        assert made.last_offset_delta == piece.next_offset - from_offset - 1
        assert made.codec == (header.codec if made.record_count else Codec.NONE)
        for record in iterate_records(piece.batch, made):
            assert record.headers == (("bmq-lane", b"dev"),)
            found.append((from_offset + record.offset, record.value))
        from_offset = piece.next_offset
    assert from_offset == header.next_offset
    return found


@given(
    numbers=st.sets(st.integers(0, 11)),
    base=st.integers(0, 1_000),
    skipped=st.integers(0, 11),
    codec=st.sampled_from(list(Codec)),
    most=st.integers(1, 5),
)
def test_over_gaps_wherever_they_are_numbers_go_on_and_each_message_keeps_its_place(
    numbers: set[int], base: int, skipped: int, codec: Codec, most: int
) -> None:
    before, rewriting.PIECE_RECORDS = rewriting.PIECE_RECORDS, most  # type: ignore[misc]
    try:
        batch = with_gaps(base, 12, *sorted(numbers), codec=codec)
        found = dense(batch, from_offset=base + skipped, begin=min(base, 10))
    finally:
        rewriting.PIECE_RECORDS = before  # type: ignore[misc]
    assert found == [(base + number, b"%d" % (base + number)) for number in sorted(numbers) if number >= skipped]


@pytest.mark.parametrize(
    ("from_offset", "sizes"), [(20, [5, 5]), (21, [4, 5]), (22, [3, 5]), (23, [7]), (25, [5]), (28, [2]), (29, [1])]
)
def test_a_piece_ends_behind_its_last_message_and_the_last_one_where_its_batch_does(
    from_offset: int, sizes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rewriting, "PIECE_RECORDS", 2)
    batch = with_gaps(20, 10, 2, 4, 7)
    [header] = split(batch)
    made = pieces(batch, header, from_offset=from_offset, begin=0, producer_id=ID, lane="dev")
    assert [split(piece.batch)[0].last_offset_delta + 1 for piece in made] == sizes


def test_numbers_begin_again_within_a_gap() -> None:
    end = 1 << 31
    batch = with_gaps(end - 5, 10, 1, 8)
    assert [offset for offset, _ in dense(batch, from_offset=end - 2, begin=0)] == [end + 3]
    assert [offset for offset, _ in dense(batch, from_offset=end + 4, begin=0)] == []


def broken(base: int, count: int, records: int | None = None) -> bytes:
    """A batch with a right CRC whose records cannot be read."""
    whole = in_log([Record(0, 5, None, b"value")] * count, base)
    batch = bytearray(whole if records is None else with_gaps(base, count, *range(records)))
    [header] = split(bytes(batch))
    batch[61:] = b"\xff" * (len(batch) - 61)
    return bytes(patched(bytes(batch), header, base_offset=base, leader_epoch=3, max_timestamp_ms=5))


def test_a_batch_that_nobody_can_open_goes_on_as_it_is() -> None:
    batch = broken(20, 3)
    [header] = split(batch)
    [piece] = pieces(batch, header, from_offset=20, begin=10, producer_id=ID, lane="dev")
    [made] = split(piece.batch)
    check_crc(piece.batch, made)
    assert bytes(piece.batch)[61:] == batch[61:]
    assert (made.producer_id, made.base_sequence, made.record_count, piece.next_offset) == (ID, 10, 3, 23)


def test_a_batch_with_gaps_that_nobody_can_open_goes_on_with_as_many_numbers_as_offsets() -> None:
    batch = broken(20, 6, records=2)
    [header] = split(batch)
    [piece] = pieces(batch, header, from_offset=20, begin=10, producer_id=ID, lane="dev")
    [made] = split(piece.batch)
    assert (made.base_sequence, made.record_count, made.last_offset_delta, piece.next_offset) == (10, 2, 5, 26)
    assert [offset for offset, _ in dense(batch, from_offset=23, begin=10)] == [23, 24, 25]


def test_a_part_of_a_batch_that_nobody_can_open_goes_on_as_messages_without_anything() -> None:
    found = gone_on(broken(20, 4), from_offset=22, begin=10)
    assert [(offset, record.key, record.value) for offset, record in found] == [(22, None, None), (23, None, None)]


@pytest.mark.parametrize("distance", [(1 << 31) - 2, (1 << 31) + 7])
def test_sequences_begin_again_as_those_of_all_producers_do(distance: int) -> None:
    batch = in_log([Record(0, 5, None, b"v")] * 2, distance)
    [header] = split(batch)
    [piece] = pieces(batch, header, from_offset=distance, begin=0, producer_id=ID, lane="dev")
    assert split(piece.batch)[0].base_sequence == distance % (1 << 31)


def test_what_came_from_a_nested_lane_keeps_its_name_and_nothing_else_does() -> None:
    records = [
        Record(0, 1, None, b"nested", (("bmq-lane", b"inner"),)),
        Record(0, 1, None, b"stranger", (("bmq-lane", b"elsewhere"), ("a", b"b"))),
        Record(0, 1, None, b"none", (("bmq-lane", None),)),
        Record(0, 1, None, b"two", (("bmq-lane", b"inner"), ("bmq-lane", b"elsewhere"))),
    ]

    def names(batch: bytes | bytearray) -> list[bytes | None]:
        [header] = split(batch)
        [piece] = pieces(
            batch, header, from_offset=0, begin=0, producer_id=ID, lane="dev", nested=frozenset({b"inner"})
        )
        [made] = split(piece.batch)
        return [dict(record.headers)["bmq-lane"] for record in iterate_records(piece.batch, made)]

    gone_on_before = build_batch(records, producer_id=LANE_TURN_IDS, producer_epoch=0, base_sequence=0)
    assert names(gone_on_before) == [b"inner", b"dev", b"dev", b"inner"]
    for of_client in (-1, LANE_TURN_IDS - 1):
        written = build_batch(records, producer_id=of_client, producer_epoch=0, base_sequence=0)
        assert names(written) == [b"dev"] * 4, "a client may write what it likes"


def zeros(base: int, size: int) -> bytes:
    return in_log([Record(0, 1, None, bytes(size))], base, Codec.ZSTD)


def test_a_step_opens_no_more_than_it_may_and_the_next_one_goes_on_behind_it(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[int] = []
    real = rewriting.section_of

    def section_of(batch: bytes, header: BatchHeader, bytes_max: int) -> Section:
        section = real(batch, header, bytes_max)
        opened.append(len(section))
        return section

    monkeypatch.setattr(rewriting, "section_of", section_of)
    data = b"".join(zeros(at, 3 << 20) for at in range(4))
    position = next_offset = 0
    for _ in range(4):
        opened.clear()
        step = rewritten(
            memoryview(data)[position:],
            decompressed_bytes_max=ORDINARY_BYTES_MAX,
            from_offset=next_offset,
            begin=0,
            producer_id=ID,
            lane="dev",
        )
        assert sum(opened) <= ORDINARY_BYTES_MAX
        position, next_offset = position + step.position, step.next_offset
        assert [piece.next_offset for piece in step.pieces] == [next_offset]
    assert (position, next_offset) == (len(data), 4)


@pytest.mark.parametrize(
    "records",
    [
        [Record(0, 1, None, bytes(ORDINARY_BYTES_MAX))],
        [Record(0, 1, None, b"", (("a", b""),) * 9_000)] * (ORDINARY_HEADERS_MAX // 9_000 + 1),
    ],
    ids=["bytes", "headers"],
)
def test_what_is_too_large_for_an_ordinary_step_goes_on_in_a_large_one(records: list[Record]) -> None:
    data = in_log(records, 0, Codec.ZSTD) + zeros(len(records), DECOMPRESSED_BYTES_MAX - 1_000)

    def step(bytes_max: int) -> rewriting.Rewritten:
        return rewritten(data, decompressed_bytes_max=bytes_max, from_offset=0, begin=0, producer_id=ID, lane="dev")

    with pytest.raises(BatchTooLarge):
        step(ORDINARY_BYTES_MAX)
    made = step(DECOMPRESSED_BYTES_MAX)
    assert made.next_offset == len(records), "the other one decompresses to more than is left"
    [header, _] = split(data)
    assert made.position == header.end
    found = [record for piece in made.pieces for record in iterate_records(piece.batch, split(piece.batch)[0])]
    assert [(one.value, len(one.headers)) for one in found] == [(one.value, len(one.headers) + 1) for one in records]


@given(records=RECORDS, at=st.integers(0), byte=st.integers(0, 255))
def test_a_record_is_labelled_exactly_where_it_can_be_read(records: list[Record], at: int, byte: int) -> None:
    """Twins: `record_of` makes all of it, `labelled` looks at lengths."""
    batch = bytearray(in_log(records, 0))
    [header] = split(bytes(batch))
    batch[HEADER_SIZE_BYTES + at % (len(batch) - HEADER_SIZE_BYTES)] = byte
    section = section_of(bytes(batch), header, DECOMPRESSED_BYTES_MAX)

    def outcome(read: Callable[[int, int], RecordHeaders]) -> list[RecordHeaders] | str:
        try:
            return [read(start, end) for start, end in bounds(section, header)]
        except CorruptBatch:
            return "corrupt"

    def plain(start: int, end: int) -> RecordHeaders:
        record = record_of(section, start, end, header)
        return [one for one in record.headers if one[0] != "bmq-lane"]

    def short(start: int, end: int) -> RecordHeaders:
        made = labelled(
            section, start, end, header, name=b"bmq-lane", label=lambda _: b"dev", headers_max=DECOMPRESSED_BYTES_MAX
        )
        alone = batch_of([made], codec=0, producer=(1, 0, 0), first_offset=made.offset, next_offset=made.offset + 1)
        [record] = iterate_records(alone, split(alone)[0])
        assert record.headers[-1] == ("bmq-lane", b"dev")
        return list(record.headers[:-1])

    assert outcome(short) == outcome(plain)


def test_a_record_that_has_as_many_headers_as_it_may_gives_the_last_one_up() -> None:
    full = Record(0, 1, b"k", b"v", tuple((f"h{number}", b"") for number in range(RECORD_HEADERS_MAX)))
    [(_, found)] = gone_on(in_log([full], 0), from_offset=0, begin=0)
    assert list(found.headers) == [*full.headers[:-1], ("bmq-lane", b"dev")]


@pytest.mark.parametrize("codec", list(Codec))
def test_a_large_value_goes_on_as_it_was(codec: Codec) -> None:
    value = bytes(range(256)) * (12 << 10)
    [(_, found)] = gone_on(in_log([Record(0, 1, b"k", value)], 0, codec), from_offset=0, begin=0)
    assert (found.key, found.value) == (b"k", value)

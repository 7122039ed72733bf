"""Segments: what is written is read back, and nothing else is ever read; look-ups agree with walking over all
batches.
"""

import struct
from collections.abc import Sequence
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bmq.errors import Corrupt, FormatError, FormatTooNew
from bmq.storage import keys, segment, segment_index
from bmq.storage.segment_index import AbortedTxn, SegmentBatch
from bmq.values import BrokerEpoch, LeaderEpoch, NodeId, Nonce, Offset, TopicId, TopicPartition

NONCE = Nonce(bytes(range(16)))
TP = TopicPartition(TopicId(UUID(int=7)), 3)
TPS = st.builds(TopicPartition, st.uuids().map(TopicId), st.integers(0, 2**31 - 1))
SIZES = st.one_of(st.integers(1, 300), st.integers(1, 40_000))


@st.composite
def batch_lists(draw: st.DrawFn, sizes: st.SearchStrategy[int] = SIZES, max_size: int = 40) -> list[SegmentBatch]:
    """Batches with gaps between them and timestamps in any order, a few blocks of them."""
    offset = draw(st.integers(0, 2**40))
    batches = []
    for size in draw(st.lists(sizes, min_size=1, max_size=max_size)):
        base = offset + draw(st.sampled_from([0, 0, 0, 1, 2**33]))
        count = draw(st.integers(1, 1000))
        base_timestamp = draw(st.integers(-1, 50))
        batches.append(
            SegmentBatch(
                data=bytes([draw(st.integers(0, 255))]) * size,
                base_offset=Offset(base),
                last_offset=Offset(base + count - 1),
                record_count=count,
                base_timestamp_ms=base_timestamp,
                max_timestamp_ms=base_timestamp + draw(st.integers(0, 20)),
            )
        )
        offset = base + count
    return batches


@st.composite
def aborted_lists(draw: st.DrawFn) -> list[AbortedTxn]:
    found = []
    for _ in range(draw(st.integers(0, 5))):
        first = draw(st.integers(0, 2**40))
        last = first + draw(st.integers(0, 1000))
        found.append(
            AbortedTxn(draw(st.integers(0, 2**62)), Offset(first), Offset(last), Offset(last + draw(st.integers(0, 9))))
        )
    return found


def runs(sizes: st.SearchStrategy[int] = SIZES, max_size: int = 40) -> st.SearchStrategy[segment.SegmentRun]:
    return st.builds(
        segment.SegmentRun,
        tp=TPS,
        leader_epoch=st.integers(0, 2**31 - 1).map(LeaderEpoch),
        batches=batch_lists(sizes, max_size),
        aborted=aborted_lists(),
        producer_snapshot=st.binary(max_size=100),
    )


SMALL_RUNS = runs(sizes=st.integers(1, 60), max_size=3)


def joined(parts: Sequence[object]) -> bytes:
    return b"".join(bytes(part) for part in parts)


def data_of(run: segment.SegmentRun) -> bytes:
    return joined([batch.data for batch in run.batches])


@settings(max_examples=80, deadline=None)
@given(st.lists(runs(), max_size=4), st.text("abc-é", max_size=20))
def test_a_segment_reads_back_as_it_was_written(written: list[segment.SegmentRun], cluster_id: str) -> None:
    encoded = segment.encode_segment(NONCE, cluster_id, written, key_id=4)
    whole = joined(encoded.parts)
    assert len(whole) == encoded.size_bytes
    found = segment.decode_segment(whole)
    assert (found.nonce, found.cluster_id, found.key_id) == (NONCE, cluster_id, 4)
    assert len(found.runs) == len(written)
    for decoded, run, entry in zip(found.runs, written, encoded.entries, strict=True):
        assert decoded.entry.tp == decoded.index.tp == run.tp
        assert bytes(decoded.batches) == data_of(run)
        assert decoded.producer_snapshot == run.producer_snapshot
        assert list(decoded.index.aborted) == run.aborted
        assert decoded.index.record_count == entry.record_count == sum(batch.record_count for batch in run.batches)
        assert entry.aborted_first_offset == min((txn.first_offset for txn in run.aborted), default=-1)
        assert (entry.base_offset, entry.last_offset) == (run.batches[0].base_offset, run.batches[-1].last_offset)
        assert entry.max_timestamp_ms == decoded.index.max_timestamp()[0]


@settings(max_examples=60, deadline=None)
@given(st.lists(runs(), min_size=1, max_size=3))
def test_an_entry_tells_the_ranges_of_its_run(written: list[segment.SegmentRun]) -> None:
    encoded = segment.encode_segment(NONCE, "c", written)
    whole = joined(encoded.parts)
    for entry, run in zip(encoded.entries_at("somewhere"), written, strict=True):
        assert entry.key == "somewhere"
        index = segment_index.decode_index(whole[entry.index_position : entry.index_position + entry.index_length])
        index.check_batches(whole[entry.position : entry.position + entry.length])
        assert index.tp == run.tp
        stored = whole[entry.snapshot_position : entry.snapshot_position + entry.snapshot_length]
        assert segment.decode_producer_snapshot(stored) == run.producer_snapshot
    footer = segment.decode_footer(whole[-segment.SEGMENT_FOOTER_SIZE_BYTES :])
    directory = whole[footer.directory_position : footer.directory_position + footer.directory_length]
    assert [entry.tp for entry in segment.decode_directory(footer, directory)] == [run.tp for run in written]


@settings(max_examples=150, deadline=None)
@given(st.lists(SMALL_RUNS, max_size=2), st.data())
def test_a_segment_that_is_truncated_longer_or_changed_is_refused(
    written: list[segment.SegmentRun], data: st.DataObject
) -> None:
    whole = joined(segment.encode_segment(NONCE, "c", written).parts)
    with pytest.raises(FormatError):
        segment.decode_segment(whole[: data.draw(st.integers(0, len(whole) - 1))])
    with pytest.raises(FormatError):
        segment.decode_segment(whole + data.draw(st.binary(min_size=1, max_size=9)))
    with pytest.raises(FormatError):
        segment.decode_segment(_changed(whole, data))


@settings(max_examples=150, deadline=None)
@given(SMALL_RUNS, st.data())
def test_a_range_that_is_truncated_longer_or_changed_is_refused(run: segment.SegmentRun, data: st.DataObject) -> None:
    encoded = segment.encode_segment(NONCE, "c", [run])
    whole = joined(encoded.parts)
    (entry,) = encoded.entries
    index = whole[entry.index_position : entry.index_position + entry.index_length]
    footer = whole[-segment.SEGMENT_FOOTER_SIZE_BYTES :]
    snapshot = whole[entry.snapshot_position : entry.snapshot_position + entry.snapshot_length]
    decoded = segment.decode_footer(footer)
    directory = whole[decoded.directory_position : decoded.directory_position + decoded.directory_length]
    check_batches = segment_index.decode_index(index).check_batches
    for decode, stored in (
        (segment_index.decode_index, index),
        (segment.decode_footer, footer),
        (segment.decode_producer_snapshot, snapshot),
        (lambda stored: segment.decode_directory(decoded, stored), directory),
        (check_batches, data_of(run)),
    ):
        decode(stored)
        with pytest.raises(FormatError):
            decode(stored[: data.draw(st.integers(0, len(stored) - 1))])
        with pytest.raises(FormatError):
            decode(_changed(stored, data))


def test_newer_versions_and_unknown_flags_are_refused_by_name() -> None:
    batch = SegmentBatch(b"batch", Offset(0), Offset(0), 1, 5, 5)
    encoded = segment.encode_segment(NONCE, "c", [segment.SegmentRun(TP, LeaderEpoch(1), [batch])])
    whole = joined(encoded.parts)
    (entry,) = encoded.entries
    index = whole[entry.index_position : entry.index_position + entry.index_length]
    footer = whole[-segment.SEGMENT_FOOTER_SIZE_BYTES :]
    for decode, stored, name in (
        (segment.decode_segment, whole, "segment"),
        (segment_index.decode_index, index, "segment index"),
        (segment.decode_footer, footer, "segment footer"),
    ):
        with pytest.raises(FormatTooNew, match=f"^{name}: format version 2 .* up to version 1"):
            decode(stored[:4] + struct.pack(">H", 2) + stored[6:])
        with pytest.raises(FormatTooNew, match=name):
            decode(stored[:6] + struct.pack(">H", 1) + stored[8:])


def index_of(batches: list[SegmentBatch], aborted: Sequence[AbortedTxn] = ()) -> segment_index.SegmentIndex:
    return segment_index.decode_index(segment_index.encode_index(NONCE, TP, LeaderEpoch(1), batches, aborted))


def positions_of(batches: list[SegmentBatch]) -> dict[int, SegmentBatch]:
    """The slow twin: where each batch is."""
    found = {}
    position = 0
    for batch in batches:
        found[position] = batch
        position += len(bytes(batch.data))
    return found


@settings(max_examples=150, deadline=None)
@given(batch_lists(), st.data())
def test_the_offset_index_leads_to_the_batch_with_at_most_a_block_to_walk(
    batches: list[SegmentBatch], data: st.DataObject
) -> None:
    index, at = index_of(batches), positions_of(batches)
    offset = data.draw(st.integers(max(0, batches[0].base_offset - 3), batches[-1].last_offset))
    wanted = next(position for position, batch in at.items() if batch.last_offset >= offset)
    position, base_offset = index.position_for_offset(offset)
    end = index.block_end(position)
    assert at[position].base_offset == base_offset
    assert position <= wanted
    assert wanted < end or at[wanted].base_offset > offset, (
        "the batch is in the block, or the offset lies in a gap before the next"
    )
    assert end in at or end == index.length
    before_last = max(start for start in at if start < end)
    assert before_last - position < segment_index.BLOCK_SIZE_BYTES, (
        "a block ends with the first batch that reaches its size"
    )


@settings(max_examples=150, deadline=None)
@given(batch_lists(), st.integers(-2, 80), st.data())
def test_the_time_index_leads_to_the_first_batch_with_that_timestamp_or_a_later_one(
    batches: list[SegmentBatch], timestamp_ms: int, data: st.DataObject
) -> None:
    index, at = index_of(batches), positions_of(batches)
    log_start = data.draw(st.integers(batches[0].base_offset, batches[-1].last_offset))
    wanted = next(
        (
            position
            for position, batch in at.items()
            if batch.last_offset >= log_start and batch.max_timestamp_ms >= timestamp_ms
        ),
        None,
    )
    found = index.position_for_time(timestamp_ms, from_position=index.position_for_offset(log_start)[0])
    visited = 0
    while found is not None:
        visited += 1
        assert visited <= len(batches)
        position, base_offset = found
        assert at[position].base_offset == base_offset
        end = index.block_end(position)
        walked = [start for start in at if position <= start < end and at[start].last_offset >= log_start]
        hit = next((start for start in walked if at[start].max_timestamp_ms >= timestamp_ms), None)
        if hit is not None:
            assert hit == wanted
            assert visited <= 2, "only the block that the log start cuts can disappoint"
            return
        found = index.position_for_time(timestamp_ms, from_position=end) if end < index.length else None
    assert wanted is None


@settings(max_examples=100, deadline=None)
@given(batch_lists())
def test_the_largest_timestamp_is_in_the_block_that_the_index_names(batches: list[SegmentBatch]) -> None:
    index, at = index_of(batches), positions_of(batches)
    largest = max(batch.max_timestamp_ms for batch in batches)
    timestamp_ms, position, base_offset = index.max_timestamp()
    assert timestamp_ms == largest
    assert at[position].base_offset == base_offset
    first = next(start for start, batch in at.items() if batch.max_timestamp_ms == largest)
    assert position <= first < index.block_end(position)


@settings(max_examples=100, deadline=None)
@given(aborted_lists(), st.integers(0, 2**40), st.integers(0, 2**40))
def test_aborted_transactions_are_those_that_overlap_the_range(aborted: list[AbortedTxn], one: int, other: int) -> None:
    batch = SegmentBatch(b"batch", Offset(0), Offset(0), 1, 5, 5)
    low, below = sorted((one, other))
    found = index_of([batch], aborted).aborted_between(low, below)
    assert list(found) == [txn for txn in aborted if not (txn.last_offset < low or txn.first_offset >= below)]


def test_a_segment_key_tells_who_wrote_it_and_lists_by_epoch_and_offset() -> None:
    key = keys.segment_key(TP, LeaderEpoch(12), Offset(345), NONCE)
    assert key == f"topics/{TP.topic_id}/0000000003/segment/0000000012/00000000000000000345-00010203"
    assert keys.parse_numbered_key(keys.segment_prefix(TP), key) == (12, 345, "00010203")
    assert keys.parse_numbered_key(keys.segment_prefix(TP), key + "x") is None
    assert keys.parse_numbered_key(keys.coordinator_snapshot_prefix(TP), key) is None
    assert (
        key
        < keys.segment_key(TP, LeaderEpoch(12), Offset(1000), NONCE)
        < keys.segment_key(TP, LeaderEpoch(100), Offset(0), NONCE)
    )
    shared = keys.shared_segment_key(NodeId(1), BrokerEpoch(2), NONCE)
    assert shared == f"shared/0000000001/00000000000000000002/{NONCE.hex()}"


def test_a_directory_that_does_not_tile_the_object_is_refused() -> None:
    batch = SegmentBatch(b"batch", Offset(0), Offset(0), 1, 5, 5)
    whole = joined(segment.encode_segment(NONCE, "c", [segment.SegmentRun(TP, LeaderEpoch(1), [batch])]).parts)
    footer = segment.decode_footer(whole)
    directory = whole[footer.directory_position : footer.directory_position + footer.directory_length]
    with pytest.raises(Corrupt, match="covers"):
        segment.decode_directory(footer._replace(directory_position=footer.directory_position + 1), directory)


def _changed(whole: bytes, data: st.DataObject) -> bytes:
    changed = bytearray(whole)
    changed[data.draw(st.integers(0, len(whole) - 1))] ^= data.draw(st.integers(1, 255))
    return bytes(changed)

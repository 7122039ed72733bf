"""The state table, and what a batch has to fulfil."""

import itertools
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bmq.errors import BatchTooLarge, InvalidBatch, InvalidTimestamp, UnsupportedCompression
from bmq.storage.segment import SegmentEntry
from bmq.wire.batches import BatchHeader, Record, build_batch, read_header
from bmq_broker.partitions.states import ImpossibleTransition, PartitionEvent, PartitionState, next_state
from bmq_broker.partitions.validation import Limits, validate
from bmq_broker.segments.merging import plan_merge

NOW_MS = 1_700_000_000_000
LIMITS = Limits(
    max_message_bytes=1000, log_append_time=False, timestamp_before_max_ms=2**63 - 1, timestamp_after_max_ms=3_600_000
)


def header(**changes: int) -> BatchHeader:
    records = [Record(offset=0, timestamp_ms=NOW_MS, key=None, value=b"v", headers=())] * 3
    return read_header(build_batch(records))._replace(**changes)


def test_every_transition_of_the_design_and_no_other() -> None:
    possible = {
        (state, event): next_state(state, event)
        for state, event in itertools.product(PartitionState, PartitionEvent)
        if not _impossible(state, event)
    }
    unopened = {"ASSIGNED", "UNREAD", "READ", "STOPPED", "RESTORING"}
    assert {(state.name, event.name, to.name) for (state, event), to in possible.items()} == {
        *((state, "RANGES_NAMED", "UNREAD") for state in ("ASSIGNED", "UNREAD", "READ")),
        *((state, "RANGES_NAMED", state) for state in ("STOPPED", "RESTORING")),
        *((state, "RANGES_READ", "READ") for state in ("UNREAD", "STOPPED")),
        ("RESTORING", "RANGES_READ", "RESTORING"),
        *((state, "DAMAGED", "STOPPED") for state in unopened),
        ("STOPPED", "LOOKED_AT_AGAIN", "RESTORING"),
        *((state, "START", "RECOVERING") for state in unopened - {"STOPPED"}),
        ("RECOVERING", "RECOVERED", "APPENDING"),
        *((state, "MOVED_AWAY", "CLOSED") for state in unopened),
        ("APPENDING", "MOVED_AWAY", "CLOSING"),
        ("CLOSING", "BUFFER_DURABLE", "CLOSED"),
        *((state, "LET_GO", "OVER") for state in unopened | {"CLOSING", "CLOSED"}),
    }


def _impossible(state: PartitionState, event: PartitionEvent) -> bool:
    try:
        next_state(state, event)
    except ImpossibleTransition:
        return True
    return False


def test_a_good_batch_passes() -> None:
    validate(header(), LIMITS, now_ms=NOW_MS, produce_version=9)


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"size_bytes": 1001}, BatchTooLarge),
        ({"record_count": 0}, InvalidBatch),
        ({"record_count": 2}, InvalidBatch),
        ({"record_count": 500_000_000, "last_offset_delta": 499_999_999}, InvalidBatch),
        ({"record_count": 500_000_000, "last_offset_delta": 499_999_999, "attributes": 4}, InvalidBatch),
        ({"attributes": 0x20}, InvalidBatch),
        ({"attributes": 0x10}, InvalidBatch),
        *[({"attributes": 1 << bit}, InvalidBatch) for bit in range(6, 15)],
        ({"attributes": -0x8000}, InvalidBatch),
        ({"attributes": 0x08}, InvalidTimestamp),
        ({"attributes": 5}, UnsupportedCompression),
        ({"attributes": 7}, UnsupportedCompression),
        ({"producer_id": 1, "producer_epoch": -1}, InvalidBatch),
        ({"producer_id": 1, "producer_epoch": 0, "base_sequence": -1}, InvalidBatch),
        ({"record_count": 250_001, "last_offset_delta": 250_000, "attributes": 4}, InvalidBatch),
        ({"max_timestamp_ms": NOW_MS + 3_600_001}, InvalidTimestamp),
        ({"base_timestamp_ms": NOW_MS + 3_600_001}, InvalidTimestamp),
        ({"max_timestamp_ms": NOW_MS - 1}, InvalidTimestamp),
        ({"base_timestamp_ms": -2}, InvalidTimestamp),
        ({"base_timestamp_ms": -(1 << 63), "max_timestamp_ms": -2}, InvalidTimestamp),
    ],
)
def test_a_bad_batch_is_refused(changes: dict[str, int], error: type[Exception]) -> None:
    with pytest.raises(error):
        validate(header(**changes), LIMITS, now_ms=NOW_MS, produce_version=9)


@pytest.mark.parametrize("changes", [{"record_count": 0}, {"record_count": 2}, {"last_offset_delta": 249_999}])
def test_a_part_of_a_batch_may_have_fewer_records_than_offsets(changes: dict[str, int]) -> None:
    validate(header(**changes), LIMITS, now_ms=NOW_MS, produce_version=9, may_have_gaps=True)
    with pytest.raises(InvalidBatch, match="records whose last offset delta is"):
        validate(header(**changes), LIMITS, now_ms=NOW_MS, produce_version=9)


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"record_count": 4}, InvalidBatch),
        ({"last_offset_delta": 1}, InvalidBatch),
        ({"last_offset_delta": 250_000}, InvalidBatch),
        ({"size_bytes": 1001}, BatchTooLarge),
        ({"record_count": 0, "attributes": 0x20}, InvalidBatch),
        ({"record_count": 0, "max_timestamp_ms": NOW_MS + 3_600_001}, InvalidTimestamp),
        ({"record_count": 0, "producer_id": 1, "producer_epoch": 0, "base_sequence": -1}, InvalidBatch),
    ],
)
def test_what_else_a_batch_has_to_fulfil_a_part_has_too(changes: dict[str, int], error: type[Exception]) -> None:
    with pytest.raises(error):
        validate(header(**changes), LIMITS, now_ms=NOW_MS, produce_version=9, may_have_gaps=True)


def test_records_without_a_time_pass() -> None:
    validate(header(base_timestamp_ms=-1, max_timestamp_ms=-1), LIMITS, now_ms=NOW_MS, produce_version=9)
    validate(header(base_timestamp_ms=-1), LIMITS, now_ms=NOW_MS, produce_version=9)


def test_times_of_the_client_do_not_matter_where_the_log_gives_its_own() -> None:
    limits = replace(LIMITS, log_append_time=True)
    validate(header(attributes=0x08, max_timestamp_ms=-7), limits, now_ms=NOW_MS, produce_version=9)


def test_zstd_needs_produce_version_7() -> None:
    validate(header(attributes=4), LIMITS, now_ms=NOW_MS, produce_version=7)
    with pytest.raises(UnsupportedCompression):
        validate(header(attributes=4), LIMITS, now_ms=NOW_MS, produce_version=6)


def entry(base_offset: int, size_bytes: int) -> SegmentEntry:
    return SegmentEntry(
        key=f"segment-{base_offset}",
        position=0,
        length=size_bytes,
        leader_epoch=1,
        base_offset=base_offset,
        last_offset=base_offset,
        record_count=1,
        min_timestamp_ms=0,
        max_timestamp_ms=0,
        index_position=0,
        index_length=0,
        snapshot_position=0,
        snapshot_length=0,
    )


@given(st.lists(st.integers(1, 100), max_size=30))
def test_a_merge_takes_small_neighbours_and_none_that_outweighs_the_others(sizes: list[int]) -> None:
    entries = [entry(number, size_bytes) for number, size_bytes in enumerate(sizes)]
    chosen = plan_merge(entries, merge_below_bytes=50, merge_count=4, target_bytes=200)
    if not chosen:
        return
    first = chosen[0].base_offset
    assert list(chosen) == entries[first : first + len(chosen)]
    assert len(chosen) >= 4
    assert all(part.length < 50 for part in chosen)
    assert 2 * max(part.length for part in chosen) <= sum(part.length for part in chosen)


def test_merging_quiet_segments_again_and_again_writes_each_byte_a_few_times() -> None:
    entries: list[SegmentEntry] = []
    written = 0
    for number in range(2000):
        entries.append(entry(number, 1))
        while chosen := plan_merge(entries, merge_below_bytes=500, merge_count=8, target_bytes=1000):
            size_bytes = sum(part.length for part in chosen)
            written += size_bytes
            at = entries.index(chosen[0])
            entries[at : at + len(chosen)] = [entry(chosen[0].base_offset, size_bytes)]
    assert written <= 6 * 2000
    assert len(entries) < 60

"""How far a trigger of a stream goes, when it has caught up, and how logs are cut into tasks."""

from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bmq.storage.segment import SegmentEntry
from bmq.values import TopicId
from bmq.wire.special_timestamps import EARLIEST, LATEST
from bmq_spark.errors import BmqError, ConfigurationError
from bmq_spark.source.options import parse_offsets, parse_options
from bmq_spark.source.positions import Backlog, check_ids, limited, offset_in, positions_of, reached
from bmq_spark.source.slices import TASK_BYTES_MIN, Slice, SourceTopic, cut, slice_of

TOPIC = SourceTopic(name="orders", lane="", topic_id=TopicId(UUID(int=7)), partition_count=2)


def entry(base_offset: int, count: int, length: int) -> SegmentEntry:
    return SegmentEntry(
        key=f"s{base_offset}", position=97, length=length, leader_epoch=0, base_offset=base_offset, last_offset=base_offset + count - 1,
        record_count=count, min_timestamp_ms=base_offset, max_timestamp_ms=base_offset + count, index_position=0, index_length=1,
        snapshot_position=0, snapshot_length=4,
    )  # fmt: skip


def log_of(sizes: list[tuple[int, int]]) -> list[SegmentEntry]:
    entries, at = [], 0
    for count, length in sizes:
        entries.append(entry(at, count, length))
        at += count
    return entries


SIZES = st.lists(st.tuples(st.integers(1, 50), st.integers(1, 20 << 20)), min_size=1, max_size=8)


@given(SIZES, st.integers(1, 30 << 20), st.integers(1, 9), st.integers(0, 100), st.integers(1, 200))
def test_tasks_hold_every_offset_once_and_are_not_too_large(
    sizes: list[tuple[int, int]], target: int, tasks_min: int, start: int, length: int
) -> None:
    entries = log_of(sizes)
    end = min(entries[-1].last_offset + 1, start + length)
    whole = slice_of(TOPIC, 0, entries, from_offset=start, below_offset=end)
    tasks = cut([whole] if whole.segments else [], target_bytes=target, tasks_min=tasks_min)
    pieces = [piece for task in tasks for piece in task]
    covered = [offset for piece in pieces for offset in range(piece.from_offset, piece.below_offset)]
    assert covered == list(range(start, end))
    for piece in pieces:
        held = range(piece.segments[0].base_offset, piece.segments[-1].last_offset + 1)
        assert piece.from_offset in held
        assert piece.below_offset - 1 in held
    largest_record = max(length // count + 1 for count, length in sizes)
    assert all(
        sum(piece.size_bytes for piece in task) <= target + target // 4 + largest_record + len(task) for task in tasks
    )


def test_small_slices_share_a_task() -> None:
    slices = [
        slice_of(replace(TOPIC, name=f"t{n}"), 0, [entry(0, 10, 1000)], from_offset=0, below_offset=10)
        for n in range(100)
    ]
    assert [len(task) for task in cut(slices, target_bytes=TASK_BYTES_MIN, tasks_min=2)] == [100]


def test_a_log_is_cut_for_all_cores_even_where_it_is_small() -> None:
    whole: Slice = slice_of(TOPIC, 0, [entry(0, 1000, 10 * TASK_BYTES_MIN)], from_offset=0, below_offset=1000)
    assert len(cut([whole], target_bytes=1 << 30, tasks_min=2)) == 2
    assert len(cut([whole], target_bytes=1 << 30, tasks_min=100)) == 10


@given(st.lists(SIZES, min_size=1, max_size=4), st.integers(1, 60 << 20), st.integers(1, 200))
def test_a_trigger_stays_within_its_limits_and_always_gets_on(
    logs: list[list[tuple[int, int]]], bytes_max: int, records_max: int
) -> None:
    backlogs = []
    for number, sizes in enumerate(logs):
        entries = log_of(sizes)
        backlogs.append(
            Backlog(topic="orders", partition=number, from_offset=0, end=entries[-1].last_offset + 1, segments=entries)
        )
    by_records = limited(backlogs, bytes_max=None, records_max=records_max)
    assert 1 <= sum(by_records.values()) <= records_max + len(backlogs)
    by_bytes = limited(backlogs, bytes_max=bytes_max, records_max=None)
    assert sum(by_bytes.values()) >= 1
    read = least = 0
    for backlog in backlogs:
        least += backlog.segments[0].length // backlog.segments[0].record_count + 1
        for each in backlog.segments:
            inside = max(0, min(by_bytes["orders", backlog.partition], each.last_offset + 1) - each.base_offset)
            read += each.length * inside // each.record_count
    assert read <= bytes_max + least
    assert all(min(ends.values()) >= 1 for ends in (by_records, by_bytes)), (
        "one that has little would wait for as long as another has much"
    )
    assert limited(backlogs, bytes_max=1 << 40, records_max=1 << 40) == {
        ("orders", b.partition): b.end for b in backlogs
    }


def test_a_stream_has_caught_up_when_every_partition_has() -> None:
    end = positions_of([TOPIC], {("orders", 0): 5, ("orders", 1): 0})
    assert reached(positions_of([TOPIC], {("orders", 0): 5, ("orders", 1): 3}), end)
    assert not reached(positions_of([TOPIC], {("orders", 0): 4, ("orders", 1): 9}), end)
    assert reached({"orders": {"id": str(TOPIC.topic_id), "partitions": {"0": 5}}}, end)
    assert offset_in(end, "orders", 2) is None


def test_positions_of_another_topic_are_refused() -> None:
    kept = positions_of([TOPIC], {("orders", 0): 5, ("orders", 1): 0})
    check_ids(kept, [TOPIC])
    with pytest.raises(BmqError, match="topic orders: it was deleted and made again"):
        check_ids(kept, [replace(TOPIC, topic_id=TopicId(UUID(int=8)))])
    with pytest.raises(BmqError, match="the checkpoint has it and the option topic does not"):
        check_ids(kept, [])


def test_offsets_are_written_as_for_sparks_kafka_source() -> None:
    assert parse_offsets("earliest", name="x") == EARLIEST
    assert parse_offsets("Latest", name="x") == LATEST
    assert parse_offsets('{"orders":{"0":23,"1":-2}}', name="x") == {"orders": {0: 23, 1: -2}}
    assert parse_offsets('{"orders":{"id":"…","partitions":{"0":23}}}', name="x") == {"orders": {0: 23}}


@pytest.mark.parametrize(
    "text",
    [
        '{"orders":{"partitions":5}}', '{"orders":{"id":"…","partitions":{"0":true}}}', '{"orders":{"0":1.9}}', '{"orders":{"0":true}}',
        '{"orders":{"0":"7"}}', '{"orders":{"0":null}}', '{"orders":{"0":-3}}', '{"orders":{"0":9223372036854775808}}', '{"orders":{"-1":0}}',
        '{"orders":{"00":0}}', '{"orders":{"²":0}}', '{"orders":{"0":1,"0":2}}', '{"orders":{},"orders":{"0":1}}', '{"orders":5}', '["orders"]',
        "5", "null", "", "{", '{"orders":{"0":' + "1" * 5000 + "}}", "[" * 100_000,
    ],
)  # fmt: skip
def test_offsets_that_are_written_otherwise_are_refused(text: str) -> None:
    with pytest.raises(
        ConfigurationError,
        match=r'option startingOffsets=.*: write earliest, latest or \{"topic": \{"0": 23, "1": -2\}\}',
    ):
        parse_offsets(text, name="startingOffsets")


@pytest.mark.parametrize(
    ("given_", "said"),
    [
        ({}, "option store: missing"),
        ({"store": "file:///x"}, "option topic: missing"),
        (
            {"store": "file:///x", "topic": "t", "startingOffset": "earliest"},
            "option startingoffset: there is no such option",
        ),
        (
            {"store": "file:///x", "topic": "t", "startingOffsets": "first"},
            "option startingoffsets=first: write earliest, latest or",
        ),
        (
            {"store": "file:///x", "topic": "t", "startingOffsets": "latest", "startingTimestamp": "1"},
            "give one of them",
        ),
        ({"store": "file:///x", "topic": "t", "tail": "protocol"}, "needs kafka.bootstrap.servers"),
        ({"store": "file:///x", "topic": "t", "tail": "yes"}, "option tail=yes: write none or protocol"),
        (
            {"store": "file:///x", "topic": "t", "maxBytesPerTrigger": "1 parsec"},
            "option maxbytespertrigger=1 parsec: write a number of bytes",
        ),
        ({"store": "file:///x", "topic": "t", "columns": "value,price"}, "name some of key, value"),
        ({"store": "file:///x", "topic": "t", "failOnDataLoss": "no"}, "write true or false"),
        ({"store": "file:///x", "topic": "t", "minPartitions": "0"}, "a whole number of at least 1"),
    ],
)
def test_options_that_cannot_be_used_are_named(given_: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        parse_options(given_)


def test_two_segments_of_about_the_same_size_are_two_tasks_of_a_segment_each() -> None:
    whole = slice_of(
        TOPIC, 0, [entry(0, 1000, 5_000_000), entry(1000, 1000, 5_300_000)], from_offset=0, below_offset=2000
    )
    assert [[len(piece.segments) for piece in task] for task in cut([whole], target_bytes=1 << 30, tasks_min=2)] == [
        [1],
        [1],
    ]


def test_every_core_gets_as_many_tasks_of_about_the_same_size() -> None:
    whole = slice_of(TOPIC, 0, [entry(n * 1000, 1000, 65 << 20) for n in range(8)], from_offset=0, below_offset=8000)
    tasks = cut([whole], target_bytes=128 << 20, tasks_min=2)
    assert len(tasks) == 6
    assert all(65 <= sum(piece.size_bytes for piece in task) >> 20 <= 109 for task in tasks)

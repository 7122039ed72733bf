"""Positions resolved, resets planned, lag computed: all pure."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bmq_cli.groups.lag import Lag, lag_of
from bmq_cli.groups.resets import Reset, Selection, parse_selection, plan_shift, plan_to, select
from bmq_cli.kafka.positions import Bounds, Ends, PartitionKey, resolve
from bmq_cli.terminal.exit_codes import CommandFailed, ExitCode
from bmq_cli.terminal.times import AtOffset, AtTime, BeforeEnd, Beginning, End, Position

BOUNDS = {("t", 0): Bounds(start=10, end=20), ("t", 1): Bounds(start=0, end=0), ("t", 2): Bounds(start=0, end=100)}
A, B, C = BOUNDS

bounds_of_partitions = st.dictionaries(
    st.tuples(st.sampled_from("tu"), st.integers(0, 5)),
    st.tuples(st.integers(0, 1000), st.integers(0, 1000)).map(lambda pair: Bounds(start=min(pair), end=max(pair))),
    max_size=8,
)
positions = st.one_of(
    st.just(Beginning()),
    st.just(End()),
    st.integers(0, 2000).map(AtOffset),
    st.integers(0, 2000).map(BeforeEnd),
    st.integers(0, 2000).map(AtTime),
)


def nothing_at(timestamp_ms: int) -> dict[PartitionKey, int]:
    return dict.fromkeys(BOUNDS, -1)


@pytest.mark.parametrize(
    ("position", "offsets"),
    [
        (Beginning(), {A: 10, B: 0, C: 0}),
        (End(), {A: 20, B: 0, C: 100}),
        (AtOffset(15), {A: 15, B: 0, C: 15}),
        (AtOffset(5), {A: 10, B: 0, C: 5}),
        (BeforeEnd(3), {A: 17, B: 0, C: 97}),
        (BeforeEnd(50), {A: 10, B: 0, C: 50}),
        (AtTime(1), {A: 20, B: 0, C: 100}),
    ],
)
def test_a_position_is_an_offset_within_each_partition(position: Position, offsets: dict[PartitionKey, int]) -> None:
    assert resolve(position, BOUNDS, nothing_at) == offsets


def test_a_time_is_looked_up_and_the_end_stands_for_nothing_so_late() -> None:
    asked = []

    def at_time(timestamp_ms: int) -> dict[PartitionKey, int]:
        asked.append(timestamp_ms)
        return {A: 12, B: -1, C: -1}

    assert resolve(AtTime(77), BOUNDS, at_time) == {A: 12, B: 0, C: 100}
    assert asked == [77]


@given(positions, bounds_of_partitions)
def test_a_position_never_leaves_the_bounds(position: Position, bounds: dict[PartitionKey, Bounds]) -> None:
    resolved = resolve(position, bounds, lambda timestamp_ms: dict.fromkeys(bounds, timestamp_ms - 1000))
    assert resolved.keys() == bounds.keys()
    assert all(bounds[key].start <= offset <= bounds[key].end for key, offset in resolved.items())


def test_a_reader_ends_when_every_assigned_partition_is_read() -> None:
    ends = Ends({key: bound.end for key, bound in BOUNDS.items()})
    assert not ends.reached
    ends.assigned([(A, 18), (B, 0), (C, 99)])
    assert not ends.reached
    assert ends.wanted("t", 0, 19)
    assert not ends.wanted("t", 0, 20)
    ends.read("t", 0, 18)
    ends.read("t", 2, 99)
    assert not ends.reached
    ends.at_end("t", 0)
    assert ends.reached


def test_a_reader_with_nothing_to_read_ends_at_once_and_one_without_partitions_waits() -> None:
    ends = Ends({A: 20})
    ends.assigned([(A, 20)])
    assert ends.reached
    ends.revoked([A])
    assert not ends.reached
    ends.assigned([])
    assert ends.reached


@pytest.mark.parametrize(
    ("text", "selection"),
    [
        ("t", Selection(topic="t")),
        ("t:0", Selection(topic="t", partitions=(0,))),
        ("a.b:3,1,3", Selection(topic="a.b", partitions=(1, 3))),
    ],
)
def test_a_selection_is_read(text: str, selection: Selection) -> None:
    assert parse_selection(text) == selection


@pytest.mark.parametrize("text", ["", ":1", "t:", "t:x", "t:1,", "t:-1", "t:1:2"])
def test_a_bad_selection_is_an_error_of_usage(text: str) -> None:
    with pytest.raises(CommandFailed) as caught:
        parse_selection(text)
    assert caught.value.code is ExitCode.USAGE


def test_selected_partitions_come_once_and_in_order_and_must_exist() -> None:
    existing = {"t": [0, 1, 2], "u": [0]}
    chosen = select(
        [Selection(topic="u"), Selection(topic="t", partitions=(2,)), Selection(topic="t", partitions=(0, 2))], existing
    )
    assert chosen == [("t", 0), ("t", 2), ("u", 0)]
    with pytest.raises(CommandFailed, match="partition 3 of topic t: there is none: it has 3") as caught:
        select([Selection(topic="t", partitions=(3,))], existing)
    assert caught.value.code is ExitCode.NOT_FOUND


def test_a_reset_says_before_and_after_and_whether_anything_changes() -> None:
    resets = plan_to({A: 10, C: 7}, {A: 10})
    assert resets == [
        Reset(topic="t", partition=0, before=10, after=10),
        Reset(topic="t", partition=2, before=None, after=7),
    ]
    assert [reset.changes for reset in resets] == [False, True]


def test_a_shift_stays_within_the_log() -> None:
    committed = {A: 15, B: 0, C: 50}
    assert [reset.after for reset in plan_shift(-100, BOUNDS, committed)] == [10, 0, 0]
    assert [reset.after for reset in plan_shift(7, BOUNDS, committed)] == [20, 0, 57]


def test_there_is_no_shift_of_what_was_never_committed() -> None:
    with pytest.raises(CommandFailed, match="t/1 has no committed offset"):
        plan_shift(1, BOUNDS, {A: 15, C: 50})


@given(st.integers(-3000, 3000), bounds_of_partitions, st.integers(0, 1000))
def test_a_shift_and_its_opposite_come_back_unless_the_bounds_stopped_one(
    shift: int, bounds: dict[PartitionKey, Bounds], committed: int
) -> None:
    there = plan_shift(shift, bounds, dict.fromkeys(bounds, committed))
    for reset in there:
        bound = bounds[reset.topic, reset.partition]
        assert bound.start <= reset.after <= bound.end
        if bound.start < reset.after < bound.end:
            assert reset.after == committed + shift


def test_lag_counts_what_can_still_be_read() -> None:
    bounds = Bounds(start=10, end=20)
    assert lag_of(committed=None, bounds=bounds, first_unread_ms=None, now_ms=9) == Lag(
        committed=None, end=20, records=None, seconds=None
    )
    assert lag_of(committed=20, bounds=bounds, first_unread_ms=None, now_ms=9) == Lag(
        committed=20, end=20, records=0, seconds=0.0
    )
    assert lag_of(committed=15, bounds=bounds, first_unread_ms=1000, now_ms=3500) == Lag(
        committed=15, end=20, records=5, seconds=2.5
    )
    assert lag_of(committed=3, bounds=bounds, first_unread_ms=1000, now_ms=3500).records == 10
    assert lag_of(committed=15, bounds=bounds, first_unread_ms=None, now_ms=3500).seconds is None


def test_a_record_from_the_future_is_no_negative_lag() -> None:
    assert lag_of(committed=0, bounds=Bounds(start=0, end=1), first_unread_ms=5000, now_ms=1000).seconds == 0

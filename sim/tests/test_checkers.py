"""Each invariant holds on a good history and is broken by one bad change to it."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from bmq.wire.special_timestamps import MAX_TIMESTAMP
from bmq_sim.checkers import CHECKERS, InvariantViolated, check, violations
from bmq_sim.history import (
    Attempt,
    CommitSeen,
    Committed,
    Deleted,
    EndOffset,
    EpochEnd,
    Expiry,
    FinalLog,
    FinalRecord,
    FoundByTime,
    History,
    OutOfRange,
    OwnerAppend,
    Place,
    SeenRecord,
    StartOffset,
    Told,
    Written,
)

PLACE = Place("orders", 0)


def final_record(offset: int, value: bytes, *, epoch: int = 1) -> FinalRecord:
    return FinalRecord(offset=offset, value=value, leader_epoch=epoch, timestamp_ms=1000 + offset, producer_id=-1)


def seen(offset: int, value: bytes, *, reader: str = "group/a", high_watermark: int = 6) -> SeenRecord:
    return SeenRecord(
        turn=10,
        reader=reader,
        place=PLACE,
        offset=offset,
        value=value,
        leader_epoch=1,
        timestamp_ms=1000 + offset,
        high_watermark=high_watermark,
    )


def attempt(
    base_offset: int | None, *values: bytes, idempotent: bool = True, producer: str = "i", turn: int = 1
) -> Attempt:
    return Attempt(
        producer=producer,
        place=PLACE,
        values=values,
        idempotent=idempotent,
        sent=turn,
        acknowledged=None if base_offset is None else turn + 1,
        base_offset=base_offset,
    )


def good() -> History:
    """Two idempotent batches, two plain ones (one of them lost without an acknowledgement), read, committed, listed."""
    history = History()
    history.attempts = [
        attempt(0, b"i0", b"i1"),
        attempt(2, b"p0", idempotent=False, producer="p"),
        attempt(3, b"i2", b"i3"),
        attempt(None, b"p1", idempotent=False, producer="p"),
        attempt(5, b"p2", idempotent=False, producer="p"),
    ]
    values = [b"i0", b"i1", b"p0", b"i2", b"i3", b"p2"]
    history.seen = [seen(offset, value) for offset, value in enumerate(values)]
    history.ends = [EndOffset(asked=20, told=21, place=PLACE, offset=6)]
    history.commits = [Committed(sent=22, acknowledged=23, group="group", place=PLACE, offset=6)]
    history.commits_seen = [CommitSeen(asked=24, told=25, group="group", place=PLACE, offset=6)]
    history.out_of_range = [OutOfRange(asked=26, place=PLACE, offset=7)]
    history.owner_appends = [
        OwnerAppend(place=PLACE, leader_epoch=1, owner="node-1#1"),
        OwnerAppend(place=PLACE, leader_epoch=2, owner="node-1#2"),
    ]
    history.final[PLACE] = FinalLog(
        start=0, end=6, records=tuple(final_record(offset, value) for offset, value in enumerate(values))
    )
    return history


def with_final(history: History, change: Callable[[list[FinalRecord]], None]) -> None:
    records = list(history.final[PLACE].records)
    change(records)
    history.final[PLACE] = replace(history.final[PLACE], records=tuple(records))


def lose_a_record(history: History) -> None:
    with_final(history, lambda records: records.pop(3))


def lose_a_duplicate(history: History) -> None:
    history.attempts.append(attempt(-1, b"i9"))


def give_an_offset_twice(history: History) -> None:
    history.attempts.append(attempt(5, b"p3", idempotent=False, producer="p"))


def leave_a_gap(history: History) -> None:
    with_final(history, lambda records: records.append(final_record(9, b"p2")))


def let_two_owners_write(history: History) -> None:
    history.owner_appends.append(OwnerAppend(place=PLACE, leader_epoch=2, owner="node-2#1"))


def turn_the_epoch_back(history: History) -> None:
    with_final(history, lambda records: records.insert(0, replace(records.pop(0), leader_epoch=2)))


def show_above_the_watermark(history: History) -> None:
    history.seen.append(seen(6, b"p3", reader="other", high_watermark=6))


def show_another_value(history: History) -> None:
    history.seen.append(seen(2, b"p1", reader="other"))


def show_what_vanishes(history: History) -> None:
    history.seen.append(seen(6, b"p1", reader="other", high_watermark=9))


def go_back(history: History) -> None:
    history.seen.append(seen(2, b"p0"))


def skip(history: History) -> None:
    history.seen.pop(2)


def tell_an_old_end(history: History) -> None:
    history.ends.append(EndOffset(asked=30, told=31, place=PLACE, offset=5))


def deny_an_offset(history: History) -> None:
    history.out_of_range.append(OutOfRange(asked=30, place=PLACE, offset=6))


def repeat_an_idempotent_record(history: History) -> None:
    with_final(history, lambda records: records.append(final_record(6, b"i1")))


def turn_idempotent_records_round(history: History) -> None:
    with_final(history, lambda records: records.reverse())


def leave_an_idempotent_batch_out(history: History) -> None:
    history.attempts.insert(1, attempt(None, b"i-between"))


def repeat_a_plain_record(history: History) -> None:
    with_final(history, lambda records: records.append(final_record(6, b"p0")))


def turn_plain_records_round(history: History) -> None:
    with_final(history, lambda records: records.insert(2, records.pop(5)))


def invent_a_record(history: History) -> None:
    with_final(history, lambda records: records.append(final_record(6, b"who?")))


def forget_a_commit(history: History) -> None:
    history.commits_seen.append(CommitSeen(asked=30, told=31, group="group", place=PLACE, offset=3))


def commit_the_unread(history: History) -> None:
    history.commits.append(Committed(sent=30, acknowledged=31, group="group", place=PLACE, offset=7))


def refuse_a_sequence(history: History) -> None:
    history.refused.append("orders-0: i was told that its sequence is out of order")


def pass_over_what_is_as_young(history: History) -> None:
    history.found_by_time.append(FoundByTime(asked=30, place=PLACE, wanted_ms=1002, offset=4, timestamp_ms=1004))


def find_nothing_as_young(history: History) -> None:
    history.found_by_time.append(FoundByTime(asked=30, place=PLACE, wanted_ms=1004, offset=-1, timestamp_ms=-1))


def find_what_is_older(history: History) -> None:
    history.found_by_time.append(FoundByTime(asked=30, place=PLACE, wanted_ms=1004, offset=2, timestamp_ms=1002))


def end_an_epoch_late(history: History) -> None:
    history.epoch_ends.append(EpochEnd(asked=30, place=PLACE, leader_epoch=0, end_offset=3))


def end_an_epoch_early(history: History) -> None:
    history.epoch_ends.append(EpochEnd(asked=30, place=PLACE, leader_epoch=9, end_offset=3))


def find_no_largest_time(history: History) -> None:
    history.found_by_time.append(
        FoundByTime(asked=30, place=PLACE, wanted_ms=MAX_TIMESTAMP, offset=-1, timestamp_ms=-1)
    )


def take_what_is_young(history: History) -> None:
    history.expires[PLACE] = Expiry(young_from_ms=500)
    history.attempts[0].timestamp_ms = 700
    history.final[PLACE] = replace(history.final[PLACE], start=2, records=history.final[PLACE].records[2:])


def take_too_many(history: History) -> None:
    history.expires[PLACE] = Expiry(kept_bytes=300)
    for one in history.attempts:
        one.size_bytes = 90
    history.final[PLACE] = replace(history.final[PLACE], start=2, records=history.final[PLACE].records[2:])


def bring_back_what_was_deleted(history: History) -> None:
    history.may_go(PLACE, 2)
    history.deleted.append(Deleted(sent=30, acknowledged=31, place=PLACE, offset=2))


def tell_a_lower_start(history: History) -> None:
    history.final[PLACE] = replace(history.final[PLACE], start=1, records=history.final[PLACE].records[1:])
    history.may_go(PLACE, 1)
    history.starts += [
        StartOffset(asked=turn, told=turn + 1, place=PLACE, offset=offset) for turn, offset in ((30, 1), (32, 0))
    ]


def tell_what_was_set_before(history: History) -> None:
    for turn, value in ((30, "1"), (32, "2")):
        history.written.append(Written(register="r", value=value, sent=turn, acknowledged=turn + 1))
    history.told.append(Told(register="r", value="1", asked=34, told=35))


@pytest.mark.parametrize(
    ("change", "broken"),
    [
        (lose_a_record, "acknowledged records are never lost or changed"),
        (take_what_is_young, "retention takes only what it may"),
        (take_too_many, "retention takes only what it may"),
        (bring_back_what_was_deleted, "deleted records stay deleted"),
        (tell_a_lower_start, "deleted records stay deleted"),
        (tell_what_was_set_before, "what was set is told"),
        (lose_a_duplicate, "duplicates were really there"),
        (give_an_offset_twice, "offsets are never given twice"),
        (leave_a_gap, "offsets are dense"),
        (let_two_owners_write, "one owner acknowledges per epoch"),
        (turn_the_epoch_back, "leader epochs of a log do not go back"),
        (show_above_the_watermark, "no reader sees above the high watermark"),
        (show_another_value, "reads of a partition agree"),
        (show_what_vanishes, "reads of a partition agree"),
        (go_back, "a reader never goes back"),
        (skip, "a reader skips nothing"),
        (tell_an_old_end, "latest covers what was acknowledged"),
        (deny_an_offset, "out of range is said of no offset that exists"),
        (repeat_an_idempotent_record, "idempotent records appear once and in order"),
        (turn_idempotent_records_round, "idempotent records appear once and in order"),
        (leave_an_idempotent_batch_out, "idempotent records appear once and in order"),
        (repeat_a_plain_record, "plain records appear at most once"),
        (turn_plain_records_round, "records of a connection are in order"),
        (invent_a_record, "nothing appears that nobody sent"),
        (forget_a_commit, "committed offsets do not go back"),
        (commit_the_unread, "a group commits only what it was given"),
        (pass_over_what_is_as_young, "a look up by time finds the first record that is as young"),
        (find_nothing_as_young, "a look up by time finds the first record that is as young"),
        (find_what_is_older, "a look up by time finds the first record that is as young"),
        (find_no_largest_time, "a look up by time finds the first record that is as young"),
        (end_an_epoch_late, "a leader epoch ends where the next one begins"),
        (end_an_epoch_early, "a leader epoch ends where the next one begins"),
        (refuse_a_sequence, "no answer is one that no correct server gives"),
    ],
)
def test_a_bad_history_breaks_its_invariant(change: Callable[[History], None], broken: str) -> None:
    history = good()
    assert violations(history) == []
    change(history)
    assert broken in {line.split(":", 1)[0] for line in violations(history)}
    with pytest.raises(InvariantViolated, match=broken):
        check(history)


def test_what_may_be_told_of_a_register_is_told_without_complaint() -> None:
    history = History(initial={"r": "0"})
    history.written = [
        Written(register="r", value="1", sent=10, acknowledged=11),
        Written(register="r", value="2", sent=12),
        Written(register="r", value="3", sent=14, acknowledged=20),
    ]
    history.told = [
        Told(register="r", value=value, asked=asked, told=asked + 1)
        for value, asked in (("0", 1), ("1", 13), ("2", 13), ("2", 30), ("3", 15), ("1", 15))
    ]
    assert violations(history) == []
    history.told.append(Told(register="r", value="1", asked=30, told=31))
    assert [line.split(":", 1)[0] for line in violations(history)] == ["what was set is told"]


def test_retention_may_take_what_is_old_or_more_than_is_to_be_kept() -> None:
    for expiry in (Expiry(young_from_ms=500), Expiry(kept_bytes=270), Expiry(young_from_ms=500, kept_bytes=10_000)):
        history = good()
        history.expires[PLACE] = expiry
        for one in history.attempts:
            one.size_bytes, one.timestamp_ms = 90, 400
        history.final[PLACE] = replace(history.final[PLACE], start=2, records=history.final[PLACE].records[2:])
        assert violations(history) == []


def test_every_invariant_has_a_history_that_breaks_it() -> None:
    marks = test_a_bad_history_breaks_its_invariant.pytestmark  # type: ignore[attr-defined]
    broken = {name for _, name in marks[0].args[1]}
    assert broken == {checker.__name__.replace("_", " ") for checker in CHECKERS}

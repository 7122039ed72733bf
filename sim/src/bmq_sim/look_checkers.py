"""What look-ups in a partition said, compared with its log in the end. As in bmq_sim.checkers: what they return is what
is wrong.
"""

from collections.abc import Iterable, Iterator

from bmq.wire.special_timestamps import MAX_TIMESTAMP
from bmq_sim.history import Attempt, History


def a_look_up_by_time_finds_the_first_record_that_is_as_young(history: History) -> Iterator[str]:
    """No record that is still there lies below it and is as young; and none is passed over that was acknowledged before
    the question. Where the largest timestamp was asked for, something was found if something was there.
    """
    acknowledged = history.acknowledged()
    for found in history.found_by_time:
        log = history.final.get(found.place)
        if log is None:
            continue
        known = _known(acknowledged[found.place], before=found.asked)
        if found.wanted_ms == MAX_TIMESTAMP:
            if found.offset < 0 and any(record.offset in known for record in log.records):
                yield f"{found.place}: no record was said to have the largest timestamp, {len(log.records)} are there"
            continue
        asked = f"{found.place}: the first record from {found.wanted_ms} on was said to be {found.offset}"
        if found.offset >= 0 and found.timestamp_ms < found.wanted_ms:
            yield f"{asked}, which is of {found.timestamp_ms}"
        for record in log.records:
            is_below = record.offset < found.offset or (found.offset < 0 and record.offset in known)
            if is_below and record.timestamp_ms >= found.wanted_ms:
                yield f"{asked}, {record.offset} is of {record.timestamp_ms}"
                break


def a_leader_epoch_ends_where_the_next_one_begins(history: History) -> Iterator[str]:
    """Below its end there is no record of a later one; and none of it, or of an earlier one, lies above that was
    acknowledged before the question. (It may have been the newest one when that was asked, and have grown.)
    """
    acknowledged = history.acknowledged()
    for told in history.epoch_ends:
        log = history.final.get(told.place)
        known = _known(acknowledged[told.place], before=told.asked)
        for record in log.records if log is not None else ():
            is_later = record.offset < told.end_offset and record.leader_epoch > told.leader_epoch
            is_left_out = (
                record.offset >= told.end_offset and record.leader_epoch <= told.leader_epoch and record.offset in known
            )
            if is_later or is_left_out:
                yield (
                    f"{told.place}: epoch {told.leader_epoch} was said to end at {told.end_offset}, "
                    f"{record.offset} is of {record.leader_epoch}"
                )
                break


def _known(acknowledged: Iterable[Attempt], *, before: int) -> frozenset[int]:
    """The offsets of what was acknowledged before a turn."""
    return frozenset(
        offset
        for attempt in acknowledged
        if (attempt.acknowledged or 0) < before and attempt.base_offset is not None
        for offset in range(attempt.base_offset, attempt.base_offset + len(attempt.values))
    )

"""What must hold of every history, each a small named function over a History. What it returns is what is wrong:
nothing, if all is well.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator

from bmq_sim.delivery import Following, Given, Reached, doubled, invented, missing_before, not_there, reordered, runs
from bmq_sim.history import FinalLog, History, Place, Written
from bmq_sim.look_checkers import (
    a_leader_epoch_ends_where_the_next_one_begins,
    a_look_up_by_time_finds_the_first_record_that_is_as_young,
)

Checker = Callable[[History], Iterator[str]]


class InvariantViolated(AssertionError):
    """Some of the invariants do not hold; the message names them."""


def acknowledged_records_are_never_lost_or_changed(history: History) -> Iterator[str]:
    """What was acknowledged at an offset is there in the end, byte for byte, unless DeleteRecords took it."""
    for place, attempts in history.acknowledged().items():
        log = history.final.get(place)
        if log is None:
            yield f"{place}: acknowledged records and no log"
            continue
        values = _values(log)
        kept_from = max(log.start, 0)
        if place not in history.expires and kept_from > history.deleted_below.get(place, 0):
            yield (
                f"{place}: the log starts at {kept_from} although nothing above "
                f"{history.deleted_below.get(place, 0)} was deleted"
            )
        for attempt in attempts:
            assert attempt.base_offset is not None
            kept = ((offset, value) for offset, value in enumerate(attempt.values, attempt.base_offset))
            for offset, value, found in not_there((one for one in kept if one[0] >= kept_from), values.get):
                yield f"{place}: {value!r} of {attempt.producer} was acknowledged at {offset}, there is {found!r}"


def retention_takes_only_what_it_may(history: History) -> Iterator[str]:
    """What was young goes only where as many bytes followed it as are to be kept; where size alone decides, as many are
    there in the end.
    """
    acknowledged = history.acknowledged()
    for place, expiry in history.expires.items():
        log, asked_for = history.final.get(place), history.deleted_below.get(place, 0)
        if log is None or log.start <= asked_for:
            continue
        attempts = sorted(acknowledged[place], key=lambda attempt: attempt.base_offset or 0)
        taken = [attempt for attempt in attempts if (attempt.base_offset or 0) + len(attempt.values) <= log.start]
        there = set(_values(log).values())
        left_bytes = sum(
            attempt.size_bytes
            for attempt in history.attempts
            if attempt.place == place and not there.isdisjoint(attempt.values)
        )
        unsure_bytes = sum(
            attempt.size_bytes for attempt in history.attempts if attempt.place == place and attempt.base_offset is None
        )
        following_bytes = sum(attempt.size_bytes for attempt in attempts) + unsure_bytes
        for attempt in taken:
            following_bytes -= attempt.size_bytes
            is_young = expiry.young_from_ms is None or attempt.timestamp_ms >= expiry.young_from_ms
            kept = expiry.kept_bytes is not None and following_bytes >= expiry.kept_bytes
            if is_young and not kept:
                yield (
                    f"{place}: retention took {attempt.values[0]!r}, which {following_bytes} bytes followed; the "
                    f"log starts at {log.start}"
                )
        if expiry.young_from_ms is None and expiry.kept_bytes is not None and taken and left_bytes < expiry.kept_bytes:
            yield f"{place}: retention left {left_bytes} bytes; the log starts at {log.start}"


def deleted_records_stay_deleted(history: History) -> Iterator[str]:
    """Where DeleteRecords was acknowledged, and where a log was said to start, it never starts lower again."""
    reached: dict[Place, list[tuple[int, int]]] = defaultdict(list)
    for deleted in history.deleted:
        reached[deleted.place].append((deleted.acknowledged, deleted.offset))
    for start in history.starts:
        reached[start.place].append((start.told, start.offset))
    known = {place: Reached(told) for place, told in reached.items()}
    for start in history.starts:
        must = known[start.place].before(start.asked)
        if start.offset < must:
            yield f"{start.place}: it was said to start at {start.offset}, below {must}"
    for place, log in history.final.items():
        must = known[place].in_the_end() if place in known else 0
        if log.start < must:
            yield f"{place}: it starts at {log.start} in the end, below {must}"


def what_was_set_is_told(history: History) -> Iterator[str]:
    """A register of one writer is what was acknowledged last before the question, or a try that no answer came to, or
    what is being set.
    """
    writes: dict[str, list[Written]] = defaultdict(list)
    for written in history.written:
        writes[written.register].append(written)
    for told in history.told:
        possible = {history.initial.get(told.register, "")}
        for written in writes[told.register]:
            if written.sent > told.told:
                break
            if written.acknowledged is None:
                continue
            if written.acknowledged < told.asked:
                possible = {written.value}
            else:
                possible.add(written.value)
        possible |= {
            written.value
            for written in writes[told.register]
            if written.acknowledged is None and written.sent < told.told
        }
        if told.value not in possible:
            yield f"{told.register} was said to be {told.value!r}, it can only be one of {sorted(possible)}"


def duplicates_were_really_there(history: History) -> Iterator[str]:
    """What was acknowledged as a duplicate without an offset is in the log."""
    for attempt in history.attempts:
        if attempt.base_offset == -1:
            log = history.final.get(attempt.place)
            have = set(_values(log).values()) if log is not None else set()
            deleted = log is not None and log.start > 0
            if not deleted and not have.issuperset(attempt.values):
                yield f"{attempt.place}: {attempt.values!r} was acknowledged as a duplicate and is not there"


def offsets_are_never_given_twice(history: History) -> Iterator[str]:
    """No two acknowledgements name one offset, unless they are of the same record."""
    given: dict[tuple[Place, int], bytes] = {}
    for place, attempts in history.acknowledged().items():
        for attempt in attempts:
            assert attempt.base_offset is not None
            for offset, value in enumerate(attempt.values, attempt.base_offset):
                other = given.setdefault((place, offset), value)
                if other != value:
                    yield f"{place}: offset {offset} was given to {other!r} and to {value!r}"


def offsets_are_dense(history: History) -> Iterator[str]:
    """From the log's start to its end every offset is there once, in order."""
    for place, log in history.final.items():
        offsets = [record.offset for record in log.records]
        if offsets != list(range(log.start, log.end)):
            yield f"{place}: from {log.start} to {log.end} there are the offsets {runs(offsets)}"


def one_owner_acknowledges_per_epoch(history: History) -> Iterator[str]:
    """Within a leader epoch of a partition one broker incarnation acknowledges."""
    owners: dict[tuple[Place, int], str] = {}
    for append in history.owner_appends:
        other = owners.setdefault((append.place, append.leader_epoch), append.owner)
        if other != append.owner:
            yield f"{append.place}: in epoch {append.leader_epoch} both {other} and {append.owner} acknowledged"


def leader_epochs_of_a_log_do_not_go_back(history: History) -> Iterator[str]:
    """Along a log the leader epochs of its batches only grow."""
    for place, log in history.final.items():
        for before, after in zip(log.records, log.records[1:], strict=False):
            if after.leader_epoch < before.leader_epoch:
                yield (
                    f"{place}: epoch {before.leader_epoch} at {before.offset}, then {after.leader_epoch} at "
                    f"{after.offset}"
                )


def no_reader_sees_above_the_high_watermark(history: History) -> Iterator[str]:
    """A Fetch returns only what is below the high watermark that it names."""
    for record in history.seen:
        if record.offset >= record.high_watermark:
            yield (
                f"{record.place}: {record.reader} saw offset {record.offset} with the high watermark at "
                f"{record.high_watermark}"
            )


def reads_of_a_partition_agree(history: History) -> Iterator[str]:
    """Every read of an offset, then and in the end, gives the same record."""
    first: dict[tuple[Place, int], tuple[bytes, int, int]] = {}
    for record in history.seen:
        now = (record.value, record.leader_epoch, record.timestamp_ms)
        before = first.setdefault((record.place, record.offset), now)
        if before != now:
            yield f"{record.place}: at {record.offset} there was {before!r}, {record.reader} saw {now!r}"
    for place, log in history.final.items():
        for final in log.records:
            seen = first.pop((place, final.offset), None)
            now = (final.value, final.leader_epoch, final.timestamp_ms)
            if seen is not None and seen != now:
                yield f"{place}: at {final.offset} {seen!r} was read, in the end there is {now!r}"
    for (place, offset), seen in first.items():
        whole = history.final.get(place)
        if whole is None or offset >= whole.start:
            yield f"{place}: {seen[0]!r} was read at {offset} and is not there in the end"


def a_reader_never_goes_back(history: History) -> Iterator[str]:
    """The offsets that one reader gets of a partition only grow (a reader that starts anew has a new name)."""
    following = Following()
    for record in history.seen:
        due = following.breaks((record.reader, record.place), record.offset)
        if due is not None and record.offset < due:
            yield f"{record.place}: {record.reader} got {record.offset} after {due - 1}"


def a_reader_skips_nothing(history: History) -> Iterator[str]:
    """The offsets that one reader gets of a partition follow each other without gaps, but for what was deleted."""
    following = Following()
    for record in history.seen:
        due = following.breaks((record.reader, record.place), record.offset)
        if due is not None and record.offset > max(due, history.gone_below(record.place)):
            yield f"{record.place}: {record.reader} got {record.offset} after {due - 1}"


def latest_covers_what_was_acknowledged(history: History) -> Iterator[str]:
    """ "Latest" is at or above everything that was acknowledged before it was asked for, and what was seen of it before
    does not go back.
    """
    acknowledged = history.acknowledged()
    newest: dict[Place, list[tuple[int, int]]] = defaultdict(list)
    for place, attempts in acknowledged.items():
        newest[place] += [
            (attempt.acknowledged or 0, (attempt.base_offset or 0) + len(attempt.values)) for attempt in attempts
        ]
    for end in history.ends:
        newest[end.place].append((end.told, end.offset))
    known = {place: Reached(told) for place, told in newest.items()}
    for end in history.ends:
        must = known[end.place].before(end.asked)
        if end.offset < must:
            yield f"{end.place}: latest was {end.offset} although {must} had been reached before it was asked for"


def out_of_range_is_said_of_no_offset_that_exists(history: History) -> Iterator[str]:
    """An offset at or below what was acknowledged before the question, and not deleted, is in range."""
    known = {
        place: Reached(
            (attempt.acknowledged or 0, (attempt.base_offset or 0) + len(attempt.values)) for attempt in attempts
        )
        for place, attempts in history.acknowledged().items()
    }
    for answer in history.out_of_range:
        reached = known[answer.place].before(answer.asked) if answer.place in known else 0
        if history.gone_below(answer.place) <= answer.offset <= reached:
            yield f"{answer.place}: offset {answer.offset} is out of range although {reached} had been reached"


def idempotent_records_appear_once_and_in_order(history: History) -> Iterator[str]:
    """Every value of an idempotent producer is in the log at most once, in the order in which it was sent, without
    holes between batches.
    """
    sent: dict[tuple[str, Place], list[bytes]] = defaultdict(list)
    for attempt in history.attempts:
        if attempt.idempotent:
            sent[attempt.producer, attempt.place] += attempt.values
    for (producer, place), values in sent.items():
        log = history.final.get(place)
        order = {value: index for index, value in enumerate(values)}
        found = [record.value for record in log.records if record.value in order] if log is not None else []
        if twice := sorted(doubled(found)):
            yield f"{place}: of {producer} there is more than once {twice!r}"
        places = [order[value] for value in found]
        if any(reordered(places)):
            yield f"{place}: the records of {producer} are not in the order in which they were sent"
        if log is not None and log.start == 0 and missing_before(places):
            yield f"{place}: of {producer} records are missing before {found[-1]!r}"


def plain_records_appear_at_most_once(history: History) -> Iterator[str]:
    """A plain producer that sends a batch once finds it once, or not at all where no acknowledgement came."""
    plain = {value for attempt in history.attempts if not attempt.idempotent for value in attempt.values}
    for place, log in history.final.items():
        found = [record.value for record in log.records if record.value in plain]
        if twice := sorted(doubled(found)):
            yield f"{place}: more than once {twice!r}"


def records_of_a_connection_are_in_order(history: History) -> Iterator[str]:
    """What a plain producer sends on one connection stands in the log in that order, acknowledged or not."""
    sent: dict[tuple[str, Place, int], dict[bytes, int]] = defaultdict(dict)
    for attempt in history.attempts:
        if not attempt.idempotent:
            of_connection = sent[attempt.producer, attempt.place, attempt.connection]
            for value in attempt.values:
                of_connection[value] = len(of_connection)
    for (producer, place, _), order in sent.items():
        log = history.final.get(place)
        values = list(order)
        for later, number in reordered(
            order[record.value] for record in (log.records if log is not None else ()) if record.value in order
        ):
            yield (
                f"{place}: {producer} sent {values[number]!r} before {values[later]!r} on one connection, and it "
                "stands behind it"
            )


def nothing_appears_that_nobody_sent(history: History) -> Iterator[str]:
    """Every record in a log was sent to that partition."""
    sent: dict[Place, set[bytes]] = defaultdict(set)
    for attempt in history.attempts:
        sent[attempt.place].update(attempt.values)
    for place, log in history.final.items():
        for offset, value in invented(((record.offset, record.value) for record in log.records), sent[place]):
            yield f"{place}: nobody sent {value!r} at {offset}"


def committed_offsets_do_not_go_back(history: History) -> Iterator[str]:
    """OffsetFetch gives at least what was acknowledged, or told, before it was asked."""
    known: dict[tuple[str, Place], list[tuple[int, int]]] = defaultdict(list)
    for commit in history.commits:
        known[commit.group, commit.place].append((commit.acknowledged, commit.offset))
    for seen in history.commits_seen:
        known[seen.group, seen.place].append((seen.told, seen.offset))
    reached = {of: Reached(told) for of, told in known.items()}
    for seen in history.commits_seen:
        must = reached[seen.group, seen.place].before(seen.asked, default=-1)
        if seen.offset < must:
            yield f"{seen.place}: group {seen.group} was told {seen.offset}, {must} had been committed"


def a_group_commits_only_what_it_was_given(history: History) -> Iterator[str]:
    """Below a committed offset every record went to some member of the group."""
    given: dict[tuple[str, Place], Given] = defaultdict(Given)
    for record in history.seen:
        given[record.reader.split("/", 1)[0], record.place].add(record.offset)
    newest: dict[tuple[str, Place], int] = {}
    for commit in history.commits:
        newest[commit.group, commit.place] = max(newest.get((commit.group, commit.place), 0), commit.offset)
    for (group, place), offset in newest.items():
        if passed_over := given[group, place].passed_over(history.gone_below(place), offset):
            yield f"{place}: group {group} committed {offset} and nobody in it got {runs(passed_over)}"


def no_answer_is_one_that_no_correct_server_gives(history: History) -> Iterator[str]:
    """Such as an idempotent producer that is told that its sequence is wrong."""
    yield from history.refused


CHECKERS: tuple[Checker, ...] = (
    acknowledged_records_are_never_lost_or_changed,
    retention_takes_only_what_it_may,
    deleted_records_stay_deleted,
    what_was_set_is_told,
    duplicates_were_really_there,
    offsets_are_never_given_twice,
    offsets_are_dense,
    one_owner_acknowledges_per_epoch,
    leader_epochs_of_a_log_do_not_go_back,
    no_reader_sees_above_the_high_watermark,
    reads_of_a_partition_agree,
    a_reader_never_goes_back,
    a_reader_skips_nothing,
    latest_covers_what_was_acknowledged,
    out_of_range_is_said_of_no_offset_that_exists,
    idempotent_records_appear_once_and_in_order,
    plain_records_appear_at_most_once,
    records_of_a_connection_are_in_order,
    nothing_appears_that_nobody_sent,
    committed_offsets_do_not_go_back,
    a_group_commits_only_what_it_was_given,
    a_look_up_by_time_finds_the_first_record_that_is_as_young,
    a_leader_epoch_ends_where_the_next_one_begins,
    no_answer_is_one_that_no_correct_server_gives,
)

SHOWN_MAX = 5


def violations(history: History) -> list[str]:
    """One line for each thing that is wrong, at most SHOWN_MAX of each invariant, with the invariant's name in
    front.
    """
    found = []
    for checker in CHECKERS:
        name = checker.__name__.replace("_", " ")
        for index, line in enumerate(checker(history)):
            if index == SHOWN_MAX:
                break
            found.append(f"{name}: {line}")
    return found


def check(history: History) -> None:
    """Raises InvariantViolated."""
    if found := violations(history):
        raise InvariantViolated("\n".join(found))


def _values(log: FinalLog) -> dict[int, bytes]:
    return {record.offset: record.value for record in log.records}

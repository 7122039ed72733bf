"""The model of upserts leaves what folding record by record does, whatever came together in a batch."""

from collections.abc import Callable

import pytest
from hypothesis import find, given, settings
from hypothesis import strategies as st
from hypothesis.errors import NoSuchExample
from upsert_model import KEYS, ByOwnTime, Told, Upserted, left, logs

RECORD = st.tuples(st.sampled_from(KEYS), st.integers(0, 4), st.booleans())
LOGS = st.lists(st.lists(RECORD, max_size=6), min_size=1, max_size=3).map(logs)
STEPS = st.lists(
    st.tuples(st.lists(st.integers(0, 3), min_size=3, max_size=3), st.sampled_from(["adds", "dies", "rolled back"])),
    max_size=12,
)
"""How many records of each partition a batch has, and what becomes of it."""
Steps = list[tuple[list[int], str]]


def batches(
    given_logs: list[list[Told]], table: Upserted, steps: Steps, *, check: Callable[[list[Told]], None]
) -> None:
    """Adds all, in these batches and then one of what is left; `check` is called with the records that the table has
    after each.
    """
    begin = [0] * len(given_logs)
    former = (begin, table.rows)
    for counts, what in [*steps, ([len(log) for log in given_logs], "adds")]:
        if what == "rolled back":
            begin, table.rows = former
            continue
        ends = [min(len(log), first + count) for log, first, count in zip(given_logs, begin, counts, strict=False)]
        # By partition: what else is between records of several partitions orders nothing.
        batch = [record for log, first, end in zip(given_logs, begin, ends, strict=True) for record in log[first:end]]
        if what == "adds":
            former = (begin, table.rows)
        table.add(batch, dies=what == "dies")
        if what == "adds":
            begin = ends
            check([record for log, end in zip(given_logs, ends, strict=True) for record in log[:end]])


@given(LOGS, STEPS)
@settings(max_examples=400)
def test_after_each_batch_the_table_has_what_folding_record_by_record_leaves(
    given_logs: list[list[Told]], steps: Steps
) -> None:
    table = Upserted()

    def check(told: list[Told]) -> None:
        assert table.left() == left(told)

    batches(given_logs, table, [(counts, "adds") for counts, _ in steps], check=check)


@given(LOGS, STEPS)
@settings(max_examples=400)
def test_jobs_that_die_and_tables_that_are_rolled_back_end_with_what_folding_leaves(
    given_logs: list[list[Told]], steps: Steps
) -> None:
    table = Upserted()
    batches(given_logs, table, steps, check=lambda told: None)
    assert table.left() == left(record for log in given_logs for record in log)


def test_the_fold_is_the_same_in_any_interleaving_of_partitions() -> None:
    first, second = logs([[("a", 4, False), ("a", 1, False)], [("a", 3, False), ("a", 2, True)]])
    assert (
        left([*first, *second])
        == left([*second, *first])
        == left([first[0], second[0], second[1], first[1]])
        == {"a": ("0-1", 0, 4)}
    )


def differs(case: tuple[list[list[Told]], Steps], table: Upserted) -> bool:
    given_logs, steps = case
    batches(given_logs, table, [(counts, "adds") for counts, _ in steps], check=lambda told: None)
    return {key: row[:2] for key, row in table.left().items()} != {
        key: row[:2] for key, row in left(record for log in given_logs for record in log).items()
    }


def test_comparing_partitions_by_the_own_time_of_a_record_is_found_out() -> None:
    find(st.tuples(LOGS, STEPS), lambda case: differs(case, ByOwnTime()))
    with pytest.raises(NoSuchExample):
        find(st.tuples(LOGS, STEPS), lambda case: differs(case, Upserted()), settings=settings(max_examples=500))

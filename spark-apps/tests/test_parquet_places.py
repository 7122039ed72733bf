import pytest
from hypothesis import given
from hypothesis import strategies as st

from bmq.config.topic_config import READING_LANES_FIRST_OFFSET
from bmq_spark.batches.places import Range, ends_of, from_json, merged, to_add, to_json
from bmq_spark.errors import BmqError, JobStopped
from bmq_spark.jobs.checkpoint import Planned, agrees
from bmq_spark.jobs.loss import check_ends, gone, overtaken, unseen

START, END = {"orders": {0: 100, 1: 50}}, {"orders": {0: 130, 1: 50}}


def part(start: int, end: int, partition: int = 0) -> Range:
    return Range(topic="orders", partition=partition, start=start, end=end)


def test_a_batch_adds_what_the_table_does_not_have() -> None:
    assert to_add(start=START, end=END, table={"orders": {0: 100, 1: 50}}) == ([part(100, 130)], [])
    assert to_add(start=START, end=END, table={}) == ([part(100, 130)], [])


def test_a_batch_that_the_table_has_adds_nothing() -> None:
    assert to_add(start=START, end=END, table={"orders": {0: 130, 1: 50}}) == ([], [])
    assert to_add(start=START, end=END, table={"orders": {0: 999, 1: 999}}) == ([], [])


def test_a_batch_that_the_table_has_a_part_of_is_cut() -> None:
    assert to_add(start=START, end=END, table={"orders": {0: 117}}) == ([part(117, 130)], [])


def test_a_batch_that_begins_above_the_tables_place_leaves_a_hole() -> None:
    assert to_add(start=START, end=END, table={"orders": {0: 90}}) == ([part(100, 130)], [part(90, 100)])


def test_a_partition_that_is_new_begins_at_its_first_offset() -> None:
    assert to_add(start=START, end={"orders": {2: 7}}, table={"orders": {0: 100}}) == ([part(0, 7, 2)], [])


def test_what_went_before_an_added_partition_was_seen_is_told() -> None:
    lane = READING_LANES_FIRST_OFFSET
    begins = {"orders": {0: 120, 1: 0, 2: 7, 3: lane, 4: lane + 5}, "new": {0: 9}}
    assert unseen({"orders": {0: 100}}, begins) == [part(0, 7, 2), part(lane, lane + 5, 4)]


@given(st.integers(0, 20), st.integers(0, 20), st.integers(0, 20))
def test_table_and_added_and_hole_cover_everything_once(begin: int, length: int, have: int) -> None:
    end = begin + length
    adds, holes = to_add(start={"t": {0: begin}}, end={"t": {0: end}}, table={"t": {0: have}})
    covered = [*range(have), *(offset for found in (*holes, *adds) for offset in range(found.start, found.end))]
    assert sorted(covered) == list(range(max(have, end if adds else begin)))


def test_places_survive_json() -> None:
    assert from_json(to_json(START)) == START
    with pytest.raises(BmqError, match="not what a job wrote"):
        from_json("[1]")


def test_places_of_the_bucket_source_have_the_topics_id_beside() -> None:
    assert from_json('{"orders": {"id": "abc", "partitions": {"0": 7}}}') == {"orders": {0: 7}}


def test_merged_places_are_of_both() -> None:
    assert merged(START, {"orders": {1: 60}, "payments": {0: 1}}) == {"orders": {0: 100, 1: 60}, "payments": {0: 1}}
    assert ends_of([part(1, 5), part(2, 9, 1)]) == {"orders": {0: 5, 1: 9}}


def test_a_checkpoint_agrees_with_a_table_where_its_newest_batch_ended() -> None:
    finished = Planned(batch_id=3, end=END, finished=True)
    assert agrees(finished, {}, END)
    assert not agrees(finished, {}, START), "Spark would not run the batch again, and its records would be missing"
    assert not agrees(finished, {}, {"orders": {0: 400, 1: 90}})


def test_a_checkpoint_whose_newest_batch_is_not_finished_does_not_agree() -> None:
    planned = Planned(batch_id=3, end=END, finished=False)
    assert not agrees(planned, START, START)
    assert not agrees(planned, START, END)


def test_a_query_without_a_batch_agrees_with_a_table_where_it_begins() -> None:
    assert agrees(None, START, START)
    assert agrees(None, START, {})
    assert not agrees(None, START, END)


def test_a_query_that_has_not_seen_a_partition_of_the_table_does_not_agree() -> None:
    """Of a checkpoint that was restored: Spark would give its next batch the number of one that the table has."""
    table = {"orders": {0: 130, 1: 50, 2: 10}}
    assert not agrees(Planned(batch_id=3, end=END, finished=True), START, table)
    assert not agrees(None, END, table)
    assert agrees(Planned(batch_id=3, end=END, finished=True), {"orders": {2: 10}}, END)
    assert not agrees(None, {}, {"orders": {0: 0}})


def test_what_retention_took_is_named() -> None:
    holes = gone({"orders": {0: 100, 1: 50}}, {"orders": {0: 150, 1: 20}})
    assert holes == [part(100, 150)]
    message = str(overtaken(holes, what="the table /t"))
    assert "orders/0 100–149: 50 offsets are gone" in message
    assert "--accept-loss" in message


def test_a_log_that_ends_below_the_tables_place_stops_the_job() -> None:
    check_ends({"orders": {0: 100}}, {"orders": {0: 100}}, what="the table")
    with pytest.raises(JobStopped, match="ends at offset 40, but the table has it up to 100"):
        check_ends({"orders": {0: 100}}, {"orders": {0: 40}}, what="the table")

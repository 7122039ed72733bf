import pyarrow as pa
import pytest

from bmq_spark.batches.buried import Buried
from bmq_spark.errors import JobStopped

BURIED = Buried(places={"t": {0: 5}}, offsets={("t", 0): frozenset({2, 4})})


def records(*offsets: int, partition: int = 0) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {"topic": ["t"] * len(offsets), "partition": [partition] * len(offsets), "offset": list(offsets)}
    )


def reasons(*given: str | None) -> pa.Array:
    return pa.array(given, type=pa.string())


def masks(buried: Buried, batch: pa.RecordBatch, why: pa.Array) -> tuple[list[bool], list[bool]]:
    rows, letters = buried.split(batch, why)
    return rows.to_pylist(), letters.to_pylist()


def test_where_nothing_is_buried_the_reasons_alone_decide() -> None:
    assert masks(Buried(), records(0, 1), reasons(None, "not JSON")) == ([True, False], [False, True])


def test_what_is_buried_is_neither_a_row_nor_a_dead_letter_again() -> None:
    batch = records(1, 2, 3, 4, 5, 6)
    assert masks(BURIED, batch, reasons(None, "not JSON", None, None, "not JSON", None)) == (
        [True, False, True, False, False, True],
        [False, False, False, False, True, False],
    )


def test_another_partition_has_nothing_buried() -> None:
    assert masks(BURIED, records(2, partition=1), reasons("not JSON")) == ([False], [True])


def test_a_row_that_fits_no_more_is_named_and_lost_nowhere() -> None:
    with pytest.raises(
        JobStopped,
        match=r"topic t partition 0, offset 3: it does not fit any more \(not an int\).*schema that it had then",
    ):
        BURIED.split(records(3), reasons("not an int"))


def test_while_columns_are_still_to_be_found_a_row_that_does_not_fit_yet_stops_nothing() -> None:
    rows, letters = BURIED.split(records(2, 3), reasons("not JSON", "no such field"), settled=False)
    assert (rows.to_pylist(), letters.to_pylist()) == ([False, False], [False, True])


def test_where_the_table_was_rolled_back_what_does_not_fit_is_a_dead_letter_again_up_to_where_it_was() -> None:
    buried = Buried(places={"t": {0: 9}}, offsets={("t", 0): frozenset({2})}, undone={"t": {0: 5}}, remedy="; or else")
    batch = records(1, 2, 3, 4)
    assert masks(buried, batch, reasons(None, "not JSON", "not JSON", None)) == (
        [True, False, False, True],
        [False, False, True, False],
    )
    with pytest.raises(JobStopped, match=r"offset 5: it does not fit any more.*schema that it had then; or else"):
        buried.split(records(5), reasons("not an int"))

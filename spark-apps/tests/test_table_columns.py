"""A commit of a batch's columns alone: who may make it, and what readers and the table's upkeep make of it."""

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from table_records import HOUR_MS, START_MS, add_batch, covered_by, records, rows_of

from bmq_spark.errors import CommitRefused
from bmq_spark.locations import Location
from bmq_spark.table import Table, arrow, files, log, record_schema
from bmq_spark.table.checking import check
from bmq_spark.table.compaction import compact
from bmq_spark.table.delta import publish
from bmq_spark.table.vacuum import expire, vacuum

WIDER = record_schema().append(pa.field("more", pa.float64()))


@pytest.fixture
def table(tmp_path: Path) -> Table:
    made = Table.create(Location.parse(str(tmp_path / "table")), {"id": "x", "partition-by": "hour"})
    made.begin("q")
    return made


def test_columns_of_a_table_without_rows_are_read_by_everybody(table: Table, tmp_path: Path) -> None:
    next_batch = [records("orders", 0, 0, 3)]
    made = table.commit_columns(("q", 0), offsets=covered_by(next_batch), schema=WIDER)
    assert made.schema == WIDER and not made.offsets and not made.last_batch, "nothing but columns"
    assert files(table.location.uri) == [] and arrow(table.location.uri).schema == WIDER
    publish(table)
    delta = DeltaTable(str(tmp_path / "table"))
    assert [field.name for field in delta.schema().fields] == [*WIDER.names, "date", "hour"]
    assert delta.to_pyarrow_table().num_rows == 0
    assert check(table.location).findings == []
    version = table.commit_columns(("q", 0), offsets=covered_by(next_batch), schema=WIDER).version
    assert version == made.version, "the table has them"


def test_a_table_with_columns_of_which_no_row_came_is_kept_up(table: Table, tmp_path: Path) -> None:
    for number in range(4):
        add_batch(table, "q", number, [records("orders", 0, number * 3, 3)])
    publish(table)
    due = [records("orders", 0, 12, 3)]
    table.commit_columns(("q", 4), offsets=covered_by(due), schema=WIDER)
    again = Table.open(table.location)  # the job was killed, and has fewer records when it begins anew
    again.begin("q")
    publish(again)
    assert DeltaTable(str(tmp_path / "table")).to_pyarrow_table(columns=["more"]).column(0).null_count == 12
    assert compact(again, before_ms=1 << 42).files_before == 4
    again.commit_batch(("q", 4), added=[], offsets=covered_by([due[0].slice(0, 1)]), schema=WIDER)
    assert rows_of(again.location.uri, '"offset", more') == [(offset, None) for offset in range(12)]
    publish(again)
    vacuum(again, before_ms=log.now_ms() + HOUR_MS)
    assert len(DeltaTable(str(tmp_path / "table")).file_uris()) == 1 and check(again.location).findings == []
    expire(again, before_ms=START_MS + 9 * HOUR_MS)
    assert again.snapshot().schema == WIDER == again.replayed(again.snapshot().version).schema


def test_whose_rows_would_be_refused_changes_no_columns(table: Table) -> None:
    due = [records("orders", 0, 0, 3)]
    other = Table.open(table.location)
    other.begin("q")
    with pytest.raises(CommitRefused, match="another run of this query has begun"):
        table.commit_columns(("q", 0), offsets=covered_by(due), schema=WIDER)
    add_batch(other, "q", 0, due)
    asleep = Table.open(table.location)
    asleep.begin("r")
    with pytest.raises(CommitRefused, match="the table has everything below 3 already"):
        asleep.commit_columns(("r", 0), offsets=covered_by(due), schema=WIDER)
    beyond = covered_by([records("orders", 0, 3, 3)])
    with pytest.raises(CommitRefused, match="column value is binary and cannot become string"):
        other.commit_columns(
            ("q", 1), offsets=beyond, schema=WIDER.set(WIDER.get_field_index("value"), pa.field("value", pa.string()))
        )
    assert other.snapshot().schema == record_schema()
    assert other.commit_columns(("q", 0), offsets=covered_by(due), schema=WIDER).schema == record_schema(), (
        "the batch is in the table: its commit's outcome was not known"
    )

"""Commits on a folder and on MinIO."""

import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from conftest import Buckets
from table_records import add_batch, covered_by, expected, offsets_of, records, rows_of, write

from bmq_spark.errors import CommitRace, CommitRefused, ConfigurationError, TableBroken
from bmq_spark.locations import Location
from bmq_spark.table import Covered, Gap, Table, files, record_schema


@pytest.fixture(params=["folder", "minio"])
def location(request: pytest.FixtureRequest, tmp_path: Path) -> Location:
    if request.param == "folder":
        return Location.parse(str(tmp_path / "table"))
    minio: Buckets = request.getfixturevalue("minio")
    return minio.location()


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table.create(Location.parse(str(tmp_path / "table")), {"topics": "orders"})


def test_batches_that_are_committed_are_read_back(location: Location) -> None:
    table = Table.create(location, {"topics": "orders"})
    batches = [records("orders", 0, 0, 500), records("orders", 1, 100, 50, step_ms=60_000)]
    add_batch(table, "q", 0, batches)
    later = [records("orders", 0, 500, 20)]
    snapshot = add_batch(table, "q", 1, later)
    assert offsets_of(snapshot) == {"orders": {0: 520, 1: 150}}
    assert snapshot.last_batch == {"q": 1} and snapshot.properties == {"topics": "orders"}
    again = Table.open(location).snapshot()
    assert again.files == snapshot.files and again.schema == record_schema() and again.version == 3
    assert rows_of(location.uri) == expected(batches + later)
    assert len(files(location.uri)) == len(snapshot.files)
    assert files(location.uri, version=1) == []


def test_a_table_is_created_once_and_then_opened(table: Table) -> None:
    other = Table.create(table.location, {"topics": "others"})
    assert other.snapshot().properties == {"topics": "orders"} and other.snapshot().version == 1


def test_where_there_is_no_table_one_is_told_what_to_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="there is none"):
        Table.open(Location.parse(str(tmp_path)))
    assert not Table.exists(Location.parse(str(tmp_path)))


def test_the_slower_of_two_writers_is_told_and_a_batch_that_is_there_changes_nothing(table: Table) -> None:
    one, other = Table.open(table.location), Table.open(table.location)
    batch = [records("orders", 0, 0, 10)]
    added, before = write(one, "q", 0, batch), other.snapshot()
    done = one.commit(one.snapshot(), added=added, batch=("q", 0), offsets=covered_by(batch))
    assert other.commit(before, added=added, batch=("q", 0), offsets=covered_by(batch)).version == done.version
    with pytest.raises(CommitRace, match="another writer"):
        other.commit(before, properties={"a": "b"})
    assert table.snapshot().version == 2 and table.snapshot().files == done.files


def test_a_batch_of_other_offsets_is_not_taken_for_one_of_its_number(table: Table) -> None:
    """As of a checkpoint that was restored: Spark gives a number again, and the batch has other records."""
    first = [records("orders", 0, 0, 10)]
    add_batch(table, "q", 0, first)
    other = [records("orders", 1, 0, 10)]
    added = write(table, "q", 0, other)
    version = table.snapshot().version
    refused = "batch 0 of query q: the table has one of that number, and not offsets 0 to 10 of orders-1"
    with pytest.raises(CommitRefused, match=refused):
        table.commit_batch(("q", 0), added=added, offsets=covered_by(other))
    wider = record_schema().append(pa.field("more", pa.string()))
    with pytest.raises(CommitRefused, match=refused):
        table.commit_columns(("q", 0), offsets=covered_by(other), schema=wider)
    longer = [records("orders", 0, 0, 15)]
    with pytest.raises(CommitRefused, match="and not offsets 0 to 15 of orders-0"):
        table.commit_batch(("q", 0), added=[], offsets=covered_by(longer))
    assert table.commit_batch(("q", 0), added=[], offsets=covered_by(first)).version == version
    assert table.snapshot().version == version and rows_of(table.location.uri) == expected(first)


def test_a_batch_that_loses_a_race_to_another_of_its_number_is_refused(table: Table) -> None:
    """Whoever is faster; what comes again of the same offsets is passed over."""
    slow, before = Table.open(table.location), table.snapshot()
    add_batch(table, "q", 0, [records("orders", 0, 0, 10)])
    other = [records("orders", 1, 0, 10)]
    with pytest.raises(CommitRefused, match="the table has one of that number"):
        slow.commit(before, added=write(slow, "q", 0, other), batch=("q", 0), offsets=covered_by(other))


def test_a_new_run_refuses_what_an_older_one_still_holds_and_removes_its_files(table: Table) -> None:
    killed = Table.open(table.location)
    killed.begin("q")
    add = [records("orders", 0, 0, 10)]
    held = write(killed, "q", 0, add)
    inside = Table.create(table.location.child("_dead_letters"))
    add_batch(inside, "q", 0, add)
    current = Table.open(table.location)
    current.begin("q")
    assert rows_of(inside.location.uri) == expected(add), "a table inside is none of this one's business"
    assert not (table.location.folder / held[0].key).exists()
    with pytest.raises(CommitRefused, match="another run of this query has begun"):
        killed.commit_batch(("q", 0), added=held, offsets=covered_by(add))
    add_batch(current, "q", 0, add)
    assert rows_of(table.location.uri) == expected(add)


def test_a_batch_that_is_written_again_has_the_same_files(table: Table) -> None:
    batch = [records("orders", 0, 0, 5000, step_ms=10_000)]
    assert write(table, "q", 3, batch) == write(table, "q", 3, batch)


def test_offsets_that_do_not_continue_are_refused_unless_the_gap_is_named(table: Table) -> None:
    add_batch(table, "q", 0, [records("orders", 0, 0, 10)])
    ahead = [records("orders", 0, 15, 5)]
    added = write(table, "q", 1, ahead)
    with pytest.raises(CommitRefused, match="the table ends at 10"):
        table.commit_batch(("q", 1), added=added, offsets=covered_by(ahead))
    gap = Gap(topic="orders", partition=0, first=10, next=15, reason="retention")
    snapshot = table.commit_batch(("q", 1), added=added, offsets=covered_by(ahead), gaps=[gap])
    assert snapshot.offsets["orders"][0] == 20
    assert table.read_commit(snapshot.version).gaps == (gap,)


def test_records_that_are_there_already_are_refused_from_another_query(table: Table) -> None:
    batch = [records("orders", 0, 0, 10)]
    add_batch(table, "q", 0, batch)
    with pytest.raises(CommitRefused, match="everything below 10 already"):
        add_batch(table, "another query", 0, batch)


def test_a_batch_without_records_moves_offsets_alone(table: Table) -> None:
    snapshot = table.commit_batch(("q", 0), added=[], offsets=[Covered(topic="orders", partition=0, first=0, next=7)])
    assert offsets_of(snapshot) == {"orders": {0: 7}} and not snapshot.files


@pytest.mark.parametrize("made_anew", [False, True])
def test_a_job_does_not_write_on_where_its_table_was_deleted(table: Table, made_anew: bool) -> None:
    """A version in an empty log, or of another table's, would break what is made there next."""
    add_batch(table, "q", 0, [records("orders", 0, 0, 10)])
    shutil.rmtree(table.location.folder)
    if made_anew:
        other = Table.create(table.location, {"topics": "others"}, clock_ms=lambda: 1)
        add_batch(other, "other", 0, [records("others", 0, 0, 5)])
    batch = [records("orders", 0, 10, 10)]
    with pytest.raises(TableBroken, match="its log is another's, or gone: was the table deleted while the job ran"):
        add_batch(table, "q", 1, batch)
    if made_anew:
        assert add_batch(other, "other", 1, [records("others", 0, 5, 5)]).version == 3
    assert Table.create(table.location).snapshot().version == (3 if made_anew else 1)

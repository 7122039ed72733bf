"""Merging, vacuum and retention, on a folder and on MinIO, without Spark."""

from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from conftest import Buckets
from table_records import HOUR_MS, START_MS, add_batch, expected, globbed_rows, records, rows_of, write

from bmq.runtime.system import SystemClock
from bmq_spark.errors import CommitRace, CommitRefused
from bmq_spark.locations import Location
from bmq_spark.table import Commit, Snapshot, Table
from bmq_spark.table.compaction import compact
from bmq_spark.table.layout import MIB
from bmq_spark.table.vacuum import expire, vacuum

LATER_MS = START_MS + 1000 * HOUR_MS


class Clock:
    """Moved by hand."""

    def __init__(self) -> None:
        self.now_ms = START_MS

    def __call__(self) -> int:
        return self.now_ms


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(params=["folder", "minio"])
def table(request: pytest.FixtureRequest, tmp_path: Path, clock: Clock) -> Table:
    if request.param == "folder":
        return Table.create(Location.parse(str(tmp_path / "table")), clock_ms=clock)
    minio: Buckets = request.getfixturevalue("minio")
    return Table.create(minio.location(), clock_ms=clock)


@pytest.fixture
def folder_table(tmp_path: Path, clock: Clock) -> Table:
    return Table.create(Location.parse(str(tmp_path / "table")), clock_ms=clock)


def fill(table: Table, batches: int, *, per_batch: int = 300) -> list[tuple[object, ...]]:
    """Two partitions and, now and then, late records; a batch a minute. Returns all rows."""
    everything = []
    for number in range(batches):
        start_ms = START_MS + number * 60_000
        taken = [
            records("orders", p, number * per_batch, per_batch, start_ms=start_ms - (p * 3 * HOUR_MS), step_ms=100)
            for p in (0, 1)
        ]
        add_batch(table, "q", number, taken)
        everything += taken
    return expected(everything)


def test_small_files_become_one_a_folder_with_every_record_once(table: Table) -> None:
    rows = fill(table, 12)
    before = table.snapshot()
    done = compact(table, before_ms=LATER_MS)
    after = table.snapshot()
    assert (done.files_before, done.files_after, done.folders) == (len(before.files), 2, 2)
    assert len(after.files) == 2 and done.rows == len(rows)
    assert rows_of(table.location.uri) == rows
    assert after.offsets == before.offsets and after.last_batch == before.last_batch
    assert compact(table, before_ms=LATER_MS).files_before == 0, "there is nothing left to merge"


def test_merged_records_are_sorted_by_partition_and_offset(folder_table: Table) -> None:
    rows = [records("orders", p, 0, 1000, step_ms=1) for p in (1, 0)]
    add_batch(folder_table, "q", 0, rows[:1], task=1)
    add_batch(folder_table, "q", 1, rows[1:], task=0)
    add_batch(folder_table, "q", 2, [records("a", 0, 0, 10)])
    compact(folder_table, before_ms=LATER_MS, min_files=2)
    (file,) = folder_table.snapshot().files
    assert folder_table.location.folder is not None
    read = pq.read_table(folder_table.location.folder / file.key, columns=["topic", "partition", "offset"]).to_pydict()
    places = list(zip(*read.values(), strict=True))
    assert places == sorted(places) and len(places) == 2010


def test_merged_files_have_about_the_target_size(folder_table: Table) -> None:
    for number in range(8):
        add_batch(folder_table, "q", number, [records("orders", 0, number * 2000, 2000, step_ms=1, value_bytes=300)])
    before = folder_table.snapshot()
    target = sum(file.bytes for file in before.files) // 3
    compact(folder_table, before_ms=LATER_MS, target_bytes=target, min_files=2)
    sizes = [file.bytes for file in folder_table.snapshot().files]
    assert len(sizes) < len(before.files)
    assert all(size < target * 2 for size in sizes)
    assert len(rows_of(folder_table.location.uri)) == 16_000


def test_hours_that_are_not_over_and_folders_with_few_files_are_left_alone(folder_table: Table) -> None:
    fill(folder_table, 5)
    over = START_MS + HOUR_MS
    assert compact(folder_table, before_ms=over - 1).folders == 1, "the hour of the late records alone"
    assert compact(folder_table, before_ms=over, min_files=6).files_before == 0
    assert compact(folder_table, before_ms=over).folders == 1


def test_a_compaction_of_files_that_another_has_merged_gives_up(
    folder_table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = fill(folder_table, 6)
    other = Table.open(folder_table.location)
    commit_on_newest = folder_table.commit_on_newest

    def after_another(decide: Callable[[Snapshot], Commit | None]) -> Snapshot:
        compact(other, before_ms=LATER_MS)
        return commit_on_newest(decide)

    monkeypatch.setattr(folder_table, "commit_on_newest", after_another)
    done = compact(folder_table, before_ms=LATER_MS)
    assert done.given_up == 2 and done.files_after == 0
    assert rows_of(folder_table.location.uri) == rows
    assert folder_table.location.folder is not None
    assert globbed_rows(folder_table.location.folder) == 2 * len(rows), (
        "what was merged in vain is gone; the replaced files wait for vacuum"
    )


def test_a_batch_that_is_committed_during_a_compaction_stays(
    folder_table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = fill(folder_table, 6)
    late = [records("orders", 0, 1800, 50)]
    job = Table.open(folder_table.location)
    create, raced = folder_table.location.create, []

    def slower(self: Location, key: str, content: bytes) -> bool:
        if not raced and b'"compact"' in content:
            raced.append(True)
            add_batch(job, "q", 6, late)
        return create.__func__(self, key, content)  # type: ignore[attr-defined,no-any-return]

    monkeypatch.setattr(Location, "create", slower)
    assert compact(folder_table, before_ms=LATER_MS).files_after == 2
    assert raced and rows_of(folder_table.location.uri) == sorted(rows + expected(late))


def test_vacuum_removes_replaced_files_after_their_time_and_nothing_else(table: Table, clock: Clock) -> None:
    rows = fill(table, 5)
    clock.now_ms = LATER_MS
    compact(table, before_ms=LATER_MS)
    merged_at = table.snapshot().version
    clock.now_ms += HOUR_MS
    assert vacuum(table, before_ms=LATER_MS - 1).files == 0, "a reader may be at the version before"
    gone = vacuum(table, before_ms=LATER_MS + 1)
    assert gone.files == 0, "objects are as young as the store says: younger than that time"
    far = 1 << 42
    gone = vacuum(table, before_ms=far)
    assert gone.files == 10 and gone.bytes > 0 and gone.unknown == 0
    assert rows_of(table.location.uri) == rows
    assert table.snapshot().version == merged_at, "what is replaced by a commit needs no horizon"


def test_a_commit_by_a_clock_far_ahead_holds_up_vacuum_no_longer_than_any_other(table: Table, clock: Clock) -> None:
    now_ms = clock.now_ms = SystemClock().now_ms()
    rows = fill(table, 5)
    clock.now_ms += 10 * 365 * 24 * HOUR_MS
    compact(table, before_ms=now_ms + 1000 * HOUR_MS)
    clock.now_ms = now_ms
    add_batch(table, "q", 5, late := [records("orders", 0, 1500, 10, start_ms=START_MS)])
    compact(table, before_ms=now_ms + 1000 * HOUR_MS, min_files=2)
    replaced = 12
    assert vacuum(table, before_ms=now_ms - HOUR_MS, now_ms=now_ms).files == 0, "a reader may be at a version before"
    assert vacuum(table, before_ms=now_ms + HOUR_MS, now_ms=now_ms + 2 * HOUR_MS).files == replaced
    assert rows_of(table.location.uri) == sorted(rows + expected(late))


def test_vacuum_leaves_the_files_of_a_batch_that_is_not_committed_and_of_strangers(folder_table: Table) -> None:
    fill(folder_table, 2)
    uncommitted = [records("orders", 0, 600, 50)]
    held = write(folder_table, "q", 2, uncommitted)
    folder_table.location.create("notes.txt", b"mine")
    done = vacuum(folder_table, before_ms=1 << 42)
    assert (done.files, done.unfinished, done.unknown) == (0, len(held), 1)
    add_batch(folder_table, "q", 2, uncommitted)
    assert len(rows_of(folder_table.location.uri)) == 1250


def test_a_merge_that_slept_over_a_vacuum_is_refused(folder_table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = fill(folder_table, 6)
    sleeper = Table.open(folder_table.location)
    commit_on_newest = sleeper.commit_on_newest

    def vacuumed_meanwhile(decide: Callable[[Snapshot], Commit | None]) -> Snapshot:
        add_batch(folder_table, "q", 6, [records("orders", 0, 1800, 50)])
        vacuum(folder_table, before_ms=1 << 42)
        return commit_on_newest(decide)

    monkeypatch.setattr(sleeper, "commit_on_newest", vacuumed_meanwhile)
    with pytest.raises((CommitRefused, CommitRace), match="do it again"):
        compact(sleeper, before_ms=LATER_MS)
    assert len(rows_of(folder_table.location.uri)) == len(rows) + 50


def test_retention_takes_whole_folders_out_by_one_commit(table: Table) -> None:
    fill(table, 3)
    before = table.snapshot()
    assert expire(table, before_ms=START_MS - 3 * HOUR_MS).files == 0
    gone = expire(table, before_ms=START_MS)
    after = table.snapshot()
    assert gone.files == 3 and gone.rows == 900 and after.version == before.version + 1
    assert {file.folder for file in after.files} == {"date=2026-01-01/hour=00"}
    assert after.offsets == before.offsets, "the job goes on where it was"


def test_a_table_without_folders_loses_files_whose_records_are_all_older(folder_table: Table) -> None:
    add_batch(folder_table, "q", 0, [records("orders", 0, 0, 10)], partition_by="none")
    add_batch(folder_table, "q", 1, [records("orders", 0, 10, 10, start_ms=START_MS + HOUR_MS)], partition_by="none")
    assert expire(folder_table, before_ms=START_MS + HOUR_MS).files == 1
    assert [row[2] for row in rows_of(folder_table.location.uri)] == list(range(10, 20))


def test_half_written_files_of_killed_processes_go_with_vacuum(folder_table: Table) -> None:
    fill(folder_table, 1)
    assert folder_table.location.folder is not None
    left = folder_table.location.folder / "date=2026-01-01" / f".x.parquet.{'0' * 16}.tmp"
    left.write_bytes(b"x" * MIB)
    vacuum(folder_table, before_ms=1 << 42)
    assert not left.exists()

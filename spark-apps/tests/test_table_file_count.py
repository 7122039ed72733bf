"""How many files a table has after hours of triggers, and how long a reader takes for a large one."""

from pathlib import Path

from table_day import PARTITIONS, TASKS, day, read_snapshot_s, stored_snapshot

from bmq_spark.locations import Location
from bmq_spark.table.checking import check
from bmq_spark.table.log import SNAPSHOTS_KEPT

HOURS = 2
RECORDS = 5


def test_hourly_compaction_bounds_the_files_of_minute_by_minute_triggers(tmp_path: Path) -> None:
    """Of an hour that is over: one file, and what came late since the last run."""
    location = Location.parse(str(tmp_path / "table"))
    left = day(location, minutes=HOURS * 60, compacted=True, records_each=RECORDS)
    late_a_minute = 1 / 10
    assert left.folders == HOURS + 2
    assert left.files <= left.folders * (1 + 4), "a file each, and fewer than --min-files small ones"
    assert left.rows == HOURS * 60 * PARTITIONS * RECORDS
    assert left.globbed <= left.files + HOURS * 60 * (TASKS + late_a_minute), "what is replaced waits for vacuum"
    assert left.snapshots <= SNAPSHOTS_KEPT
    assert left.commit_bytes / left.commits < 4000
    done = check(location)
    assert done.findings == [] and done.rows == left.rows and done.without_record == 0


def test_a_snapshot_of_a_hundred_thousand_files_is_read_in_seconds() -> None:
    content = stored_snapshot(100_000)
    assert len(content) < 10 << 20
    assert min(read_snapshot_s(content) for _ in range(3)) < 5, "of the processor: about 1 s"

"""How many files a table has after hours of triggers, and how long a reader takes for a large one."""

from faulty_location import Faults, FaultyLocation
from table_day import PARTITIONS, day, read_snapshot_s, stored_snapshot

from bmq_spark.table.log import SNAPSHOTS_KEPT

HOURS = 2
RECORDS = 5


def test_hourly_compaction_bounds_the_files_of_minute_by_minute_triggers() -> None:
    """Of each hour that is over: one file, and fewer than --min-files that came late since."""
    left = day(FaultyLocation("s3://memory/table", Faults()), minutes=HOURS * 60, compacted=True, records_each=RECORDS)
    assert left.rows == HOURS * 60 * PARTITIONS * RECORDS
    assert left.folders == HOURS + 2, "and two of late records"
    assert left.files <= left.folders * (1 + 3)
    assert left.globbed <= left.files + 2 * 60 * 3, "what is replaced waits an hour for vacuum"
    assert left.snapshots <= SNAPSHOTS_KEPT
    assert left.commit_bytes / left.commits < 4000


def test_a_snapshot_of_a_hundred_thousand_files_is_read_in_seconds() -> None:
    content = stored_snapshot(100_000)
    assert len(content) < 10 << 20
    assert min(read_snapshot_s(content) for _ in range(3)) < 5, "of the processor: about 1 s"

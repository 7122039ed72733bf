"""The folder for records whose own folder a batch has none of: which they are, when it is merged, and when retention
takes it. Without Spark.
"""

from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from table_records import HOUR_MS, START_MS, add_batch, records, rows_of

from bmq_spark.jobs.folders import FolderCount, TooManyFolders
from bmq_spark.locations import Location
from bmq_spark.table import PartitionBy, Table
from bmq_spark.table.compaction import compact
from bmq_spark.table.layout import TIMESTAMP, folder_numbers
from bmq_spark.table.vacuum import expire

APART = "date=__HIVE_DEFAULT_PARTITION__/hour=__HIVE_DEFAULT_PARTITION__"


def test_what_lies_apart_leaves_when_all_of_its_file_is_old_and_merges_with_its_own_alone(tmp_path: Path) -> None:
    table = Table.create(Location.parse(str(tmp_path / "t")))
    chosen = frozenset([START_MS // HOUR_MS])
    batches = [records("orders", 0, number * 4, 4, start_ms=START_MS, step_ms=HOUR_MS) for number in range(2)]
    for number, batch in enumerate(batches):
        after = add_batch(table, "query", number, [batch], only=chosen)
    assert sorted(file.folder for file in after.files) == ["date=2026-01-01/hour=00"] * 2 + [APART] * 2
    compact(table, min_files=2, before_ms=START_MS + 9 * HOUR_MS)
    assert sorted(file.folder for file in table.snapshot().files) == ["date=2026-01-01/hour=00", APART]
    assert len(rows_of(table.location.uri)) == 8
    newest_ms = START_MS + 3 * HOUR_MS
    assert expire(table, before_ms=newest_ms).rows == 2, "the hour that has a folder"
    assert expire(table, before_ms=newest_ms + 1).rows == 6


@given(
    st.lists(st.integers(-(10**6), 10**6), min_size=1, max_size=60),
    st.integers(1, 8),
    st.sampled_from(["hour", "date"]),
)
def test_a_task_counts_its_folders_up_to_the_most_that_there_may_be(hours: list[int], most: int, by: str) -> None:
    partition_by = PartitionBy(by)
    timestamps = pa.array([hour * 3_600_000_000 + 59 for hour in hours], pa.int64()).cast(TIMESTAMP)
    there, count = set(folder_numbers(timestamps, partition_by).tolist()), FolderCount(partition_by, most)
    pieces = [timestamps.slice(start, 7) for start in range(0, len(hours), 7)]
    if len(there) <= most:
        for piece in pieces:
            count.add(piece)
        return
    with pytest.raises(TooManyFolders):
        for piece in pieces:
            count.add(piece)

"""compact.py as it is started, over a folder and MinIO, in one process and by Spark's tasks."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import Buckets
from pyspark.sql import SparkSession
from table_records import HOUR_MS, START_MS, add_batch, expected, records, rows_of

from bmq_spark.errors import ConfigurationError
from bmq_spark.jobs.compact import parse, run
from bmq_spark.locations import Location
from bmq_spark.table import Table, read
from bmq_spark.table.log import now_ms

COMPACT = Path(__file__).parents[1] / "compact.py"


def fill(location: Location, batches: int = 6) -> list[tuple[object, ...]]:
    """A batch a minute of two partitions, hours ago. Returns all rows."""
    table, everything = Table.create(location), []
    for number in range(batches):
        taken = [
            records("orders", p, number * 50, 50, start_ms=START_MS + number * 60_000 - p * HOUR_MS) for p in (0, 1)
        ]
        add_batch(table, "q", number, taken)
        everything += taken
    return expected(everything)


def compact_py(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(COMPACT), *arguments],
        capture_output=True,
        text=True,
        timeout=240,
        env=dict(os.environ),
        check=False,
    )


def test_it_merges_a_table_and_its_dead_letters_and_says_so(tmp_path: Path) -> None:
    location = Location.parse(str(tmp_path / "orders"))
    rows, letters = fill(location), fill(location.child("_dead_letters"), batches=4)
    done = compact_py("--output", str(tmp_path / "orders"), "--once")
    assert done.returncode == 0, done.stderr
    lines = done.stderr.splitlines()
    assert "merged 2 of 2 parts" in lines[0]
    assert (
        "merged 12 files of" in lines[-2]
        and "into 2 of" in lines[-2]
        and "600 rows in 2 folders; deleted 0 unnamed files" in lines[-2]
    )
    assert "merged 8 files of" in lines[-1]
    assert rows_of(location.uri) == rows and rows_of(location.child("_dead_letters").uri) == letters
    assert len(Table.open(location).snapshot().files) == 2


def test_it_merges_in_a_bucket_and_takes_out_what_is_older_than_the_retention(minio: Buckets) -> None:
    location = minio.location("compact")
    fill(location)
    hours = (now_ms() - START_MS) // HOUR_MS
    (line,) = run(parse(["--output", location.uri, "--retention", f"{hours}h"]))
    assert "merged 6 files" in line and "retention took out 6 files with 300 rows" in line
    assert {row[1] for row in rows_of(location.uri)} == {0}


def test_sparks_tasks_merge_the_same(spark: SparkSession, tmp_path: Path, minio: Buckets) -> None:
    for location in (Location.parse(str(tmp_path / "table")), minio.location("spark-compact")):
        rows = fill(location)
        (line,) = run(parse(["--output", location.uri]), spark)
        assert "merged 12 files" in line and "into 2 of" in line
        assert rows_of(location.uri) == rows
        frame = read(spark, location.uri)
        assert sorted(tuple(row) for row in frame.select("topic", "partition", "offset").collect()) == rows


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--min-files", "1"], "--min-files 1"),
        (["--older-than", "soon"], "--older-than 'soon'"),
        (["--target-file-size", "0"], "--target-file-size '0'"),
    ],
)
def test_what_makes_no_sense_is_refused(arguments: list[str], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        parse(["--output", "x", *arguments])


def test_where_there_is_no_table_it_ends_with_a_line_and_exit_code_2(tmp_path: Path) -> None:
    done = compact_py("--output", str(tmp_path))
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and "there is none" in done.stderr

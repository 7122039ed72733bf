"""Tables in folders that people choose: within another table's, and of names that Spark takes for patterns."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from table_records import HOUR_MS, START_MS, add_batch, expected, records, rows_of, write

from bmq_spark.locations import Location
from bmq_spark.table import Table, files, read
from bmq_spark.table.compaction import compact
from bmq_spark.table.vacuum import vacuum


@pytest.mark.parametrize("folder", ["eu", "eu/date=2026-01-01"])
def test_merges_and_vacuums_of_a_table_leave_alone_another_that_lies_within_its_folder(
    tmp_path: Path, folder: str
) -> None:
    at = [START_MS]
    outer = Table.create(Location.parse(str(tmp_path / "t")), clock_ms=lambda: at[0])
    inner = Table.create(Location.parse(str(tmp_path / "t" / folder)), clock_ms=lambda: at[0])
    batches = [records("orders", 0, number * 10, 10) for number in range(6)]
    for number, batch in enumerate(batches):
        add_batch(outer, "outer", number, [batch])
        if number < 5:
            add_batch(inner, "inner", number, [batch])
    assert compact(inner, min_files=2, before_ms=START_MS + HOUR_MS).files_after == 1
    assert compact(outer, min_files=2, before_ms=START_MS + HOUR_MS).files_after == 1
    write(inner, "inner", 5, batches[5:])
    at[0] = int(max(file.stat().st_mtime for file in tmp_path.rglob("*.parquet")) * 1000) + 10 * HOUR_MS
    assert vacuum(outer, before_ms=at[0] - HOUR_MS).files == 6
    outer.begin("inner")
    assert rows_of(outer.location.uri) == expected(batches)
    assert rows_of(inner.location.uri) == expected(batches[:5])
    assert len(list((tmp_path / "t" / folder).rglob("*.parquet"))) == 7


def test_a_vacuum_takes_half_written_files_out_of_the_tables_own_folders_alone(tmp_path: Path) -> None:
    table = Table.create(Location.parse(str(tmp_path)))
    add_batch(table, "query", 0, [records("orders", 0, 0, 10)])
    own, others = (
        (".", "_bmq/log", "_delta_log", "date=2026-01-01", "date=2026-01-01/hour=00"),
        ("eu", "eu/date=2026-01-01", "eu/_bmq/log", "_dead_letters"),
    )
    for folder in (*own, *others):
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
        (tmp_path / folder / f".x.{'0' * 16}.tmp").write_bytes(b"half")
    vacuum(table, before_ms=1 << 50)
    assert sorted(path.parent.relative_to(tmp_path).as_posix() for path in tmp_path.rglob(".*.tmp")) == sorted(others)


@pytest.mark.parametrize("folder", ["[eu]", "a[1-3]", "{eu,us}", "eu*", "eu\\us", "}]{[^!a,b"])
def test_spark_reads_each_record_once_of_a_table_whose_folder_looks_like_a_pattern(
    spark: SparkSession, tmp_path: Path, folder: str
) -> None:
    at = str(tmp_path / folder / "t")
    table = Table.create(Location.parse(at))
    for other in ("e", "a1", "a2", "eu", "us", "eua", "euus"):  # what the patterns fit
        add_batch(Table.create(Location.parse(str(tmp_path / other / "t"))), "query", 0, [records("orders", 0, 90, 10)])
    for number in range(3):
        add_batch(table, "query", number, [records("orders", 0, number * 10, 10)])
        assert len(files(at)) == number + 1
        assert sorted(row.offset for row in read(spark, at).collect()) == list(range(10 * (number + 1)))

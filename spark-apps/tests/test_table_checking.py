"""`python -m bmq_spark.table`, on good tables and on broken ones."""

import datetime
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import duckdb
import pyarrow.parquet as pq
import pytest
from conftest import Buckets
from table_records import START_MS, add_batch, records, write

from bmq_spark.locations import Location
from bmq_spark.table import Covered, Table
from bmq_spark.table.__main__ import main
from bmq_spark.table.checking import check
from bmq_spark.table.log import commit_key


@pytest.fixture
def table(tmp_path: Path) -> Table:
    made = Table.create(Location.parse(str(tmp_path / "table")), {"topics": "orders"})
    for number in range(3):
        add_batch(made, "q", number, [records("orders", p, number * 100, 100, step_ms=60_000) for p in (0, 1)])
    return made


def folder_of(table: Table) -> Path:
    assert table.location.folder is not None
    return table.location.folder


def test_a_good_table_has_no_findings(table: Table, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(folder_of(table))]) == 0
    assert "600 rows" in (said := capsys.readouterr().out) and "nothing wrong" in said
    assert main(["describe", str(folder_of(table))]) == 0
    said = capsys.readouterr().out
    assert "orders: 0: 300, 1: 300" in said and "rows        600" in said and "offset int64" in said


def test_duckdb_reads_the_files_that_are_printed(table: Table, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["files", str(folder_of(table)), "--version", "2"]) == 0
    paths = capsys.readouterr().out.split()
    rows = (
        duckdb.connect()
        .execute('SELECT count(*), count(DISTINCT "offset"), min(date), max(hour::INT) FROM read_parquet($1)', [paths])
        .fetchall()
    )
    assert rows == [(200, 100, datetime.date(2026, 1, 1), 1)]


def test_a_bucket_is_checked_too(minio: Buckets) -> None:
    table = Table.create(minio.location())
    add_batch(table, "q", 0, [records("orders", 0, 0, 100)])
    done = check(table.location)
    assert (done.rows, done.findings) == (100, [])


def test_a_file_that_is_gone_is_found(table: Table, capsys: pytest.CaptureFixture[str]) -> None:
    (folder_of(table) / table.snapshot().files[1].key).unlink()
    assert main(["check", "--quick", str(folder_of(table))]) == 1
    assert "not there" in capsys.readouterr().out


def test_a_file_with_other_records_than_the_log_says_is_found(table: Table) -> None:
    file = table.snapshot().files[0]
    path = folder_of(table) / file.key
    whole = pq.read_table(path, partitioning=None)
    pq.write_table(whole.slice(1), path)
    path.write_bytes(path.read_bytes().ljust(file.bytes, b"\0")[: file.bytes])
    assert check(table.location).findings
    path.write_bytes(b"\0" * file.bytes)
    assert any("cannot be read" in finding for finding in check(table.location).findings)


def test_a_version_that_is_gone_is_found(table: Table) -> None:
    (folder_of(table) / commit_key(3)).unlink()
    findings = check(table.location).findings
    assert any("is missing" in finding for finding in findings) and any(
        "up to 2 only" in finding for finding in findings
    )


def test_records_that_are_there_twice_are_found(table: Table) -> None:
    """By a commit that lies of its file: no writer of this program makes one."""
    (file,) = write(table, "q", 3, [records("orders", 0, 250, 50, start_ms=START_MS)])
    lie = replace(file, topic_partitions={("orders", 0): (300, 349)})
    table.commit_batch(("q", 3), added=[lie], offsets=[Covered(topic="orders", partition=0, first=300, next=350)])
    findings = check(table.location).findings
    assert any("50 records are there twice, the first with offset 250" in finding for finding in findings)
    assert any("other offsets" in finding for finding in findings)


def test_what_is_no_table_ends_with_a_line_and_exit_code_2(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bmq_spark.table", "check", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and "there is none" in done.stderr

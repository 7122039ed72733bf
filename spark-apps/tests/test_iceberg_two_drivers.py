import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from iceberg_batches import Record, batch, settings, typing
from iceberg_catalogs import Opened, opened_in
from pyspark.sql import SparkSession
from tests.waiting import until

from bmq_spark.errors import JobStopped
from bmq_spark.iceberg.catalogs import Catalog, TableName
from bmq_spark.jobs.iceberg_sink import IcebergSink

WAIT_S = 120


def test_a_driver_in_another_process_that_slept_before_its_commit_doubles_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    opened = opened_in(
        spark, Catalog(name="drivers", kind="hadoop", warehouse=str(tmp_path / "warehouse"), uri=None), {}
    )
    name = opened.table("orders")
    sink = IcebergSink(spark, name, typing(), settings())
    command = [
        sys.executable,
        Path(__file__).with_name("iceberg_driver.py"),
        tmp_path / "warehouse",
        str(name),
        tmp_path,
    ]
    other = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )
    try:
        slept = (tmp_path / "slept").exists
        until(slept, "the other to have written all", WAIT_S, unless=lambda: other.poll() is not None)
        assert (
            sink.add(batch(spark, 0, [Record(offset=offset, value=b"of the first driver") for offset in range(4)])).rows
            == 4
        )
        (tmp_path / "go on").touch()
        said, _ = other.communicate(timeout=WAIT_S)
    finally:
        other.kill()
        other.wait()
    assert "does another job write to it? Let one of them go on alone" in said
    rows = opened.load(name).scan().to_arrow().sort_by("offset").to_pylist()
    assert [(row["offset"], row["value"]) for row in rows] == [(offset, "of the first driver") for offset in range(4)]
    assert sink.places() == {"orders": {0: 4}}


def test_two_drivers_that_began_before_the_first_dead_letter_do_not_double_it(
    spark: SparkSession, sql: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table of dead letters is made by one of them while the other has counted the same ones."""
    name = sql.table("both_early")
    records = [Record(offset=0, value=b"v"), Record(offset=1, value=b"\xff"), Record(offset=2, value=b"v")]
    first, second = (IcebergSink(spark, name, typing(), settings()) for _ in range(2))
    counted = second._unfit

    def unfit(*given: Any) -> int:
        found = counted(*given)
        first.add(batch(spark, 0, records))
        return found

    monkeypatch.setattr(second, "_unfit", unfit)
    with pytest.raises(JobStopped, match=r"both_early_dead_letters: .*does another job write to it"):
        second.add(batch(spark, 0, records))
    assert _offsets(spark, name) == [0, 2]
    assert _offsets(spark, name.dead_letters) == [1]


def test_a_run_that_did_not_see_its_dead_letters_does_not_add_them_again(spark: SparkSession, sql: Opened) -> None:
    """A run was killed between its two commits, and something before the catalog told the next one of no such table."""
    name = sql.table("unseen_letters")
    killed, blind = (IcebergSink(spark, name, typing(), settings()) for _ in range(2))
    records = [Record(offset=0, value=b"v"), Record(offset=1, value=b"\xff")]

    def dies(*_: Any) -> None:
        raise KeyboardInterrupt

    killed._write = dies  # type: ignore[method-assign,assignment]
    with pytest.raises(KeyboardInterrupt):
        killed.add(batch(spark, 0, records))
    with pytest.raises(JobStopped, match="does another job write to it"):
        blind.add(batch(spark, 0, records))
    assert (_offsets(spark, name), _offsets(spark, name.dead_letters)) == ([], [1])
    IcebergSink(spark, name, typing(), settings()).add(batch(spark, 0, records))
    assert (_offsets(spark, name), _offsets(spark, name.dead_letters)) == ([0], [1])


def _offsets(spark: SparkSession, name: TableName) -> list[int]:
    return sorted(row["offset"] for row in spark.table(name.sql).select("offset").collect())

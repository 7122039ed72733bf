import os
import subprocess
import sys
from pathlib import Path

from iceberg_batches import Record, batch, settings, typing
from iceberg_catalogs import opened_in
from pyspark.sql import SparkSession
from tests.waiting import until

from bmq_spark.iceberg.catalogs import Catalog
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

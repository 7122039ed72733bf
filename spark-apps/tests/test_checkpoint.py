"""Spark's notes on a stream, as a full disk or a kill leaves them: half a file where one was begun."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from bmq_spark.errors import JobStopped
from bmq_spark.jobs.checkpoint import Checkpoint, Reads
from bmq_spark.jobs.hadoop_files import HadoopFolder

READS = Reads(source="kafka", lane="", topics={"orders": "id"})


def cut_off(folder: Path, name: str, size_bytes: int) -> None:
    """A file that was not written to its end; its checksums neither."""
    (folder / name).write_bytes((folder / name).read_bytes()[:size_bytes])
    (folder / f".{name}.crc").unlink()


def test_a_checkpoint_whose_first_run_could_not_say_whose_it_is_is_claimed_by_the_next(spark: SparkSession, tmp_path: Path) -> None:
    folder = HadoopFolder(spark, str(tmp_path))
    Checkpoint(folder, table_id="one", table="t").claim()
    cut_off(tmp_path, "bmq.json", 0)
    Checkpoint(folder, table_id="one", table="t").claim()
    with pytest.raises(JobStopped, match="it is of the table t, not of other"):
        Checkpoint(folder, table_id="another", table="other").claim()


@pytest.mark.parametrize("size_bytes", [0, 1, 30])
def test_a_query_whose_notes_were_cut_off_is_followed_by_another(spark: SparkSession, tmp_path: Path, size_bytes: int) -> None:
    checkpoint = Checkpoint(HadoopFolder(spark, str(tmp_path)), table_id="one", table="t")
    checkpoint.begin(READS, {"orders": {0: 5}})
    cut_off(tmp_path, "0001.json", size_bytes)
    found = checkpoint.newest()
    assert found is not None and found.reads() != READS and found.initial == {}
    checkpoint.begin(READS, {"orders": {0: 7}})
    found = checkpoint.newest()
    assert found is not None and found.reads() == READS and found.initial == {"orders": {0: 7}}

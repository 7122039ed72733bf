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


def test_a_checkpoint_whose_first_run_could_not_say_whose_it_is_is_claimed_by_the_next(
    spark: SparkSession, tmp_path: Path
) -> None:
    folder = HadoopFolder(spark, str(tmp_path))
    Checkpoint(folder, table_id="one", table="t").claim()
    cut_off(tmp_path, "bmq.json", 0)
    Checkpoint(folder, table_id="one", table="t").claim()
    with pytest.raises(JobStopped, match="it is of the table t, not of other"):
        Checkpoint(folder, table_id="another", table="other").claim()


@pytest.mark.parametrize("size_bytes", [0, 1, 30])
def test_a_query_whose_notes_were_cut_off_is_followed_by_another(
    spark: SparkSession, tmp_path: Path, size_bytes: int
) -> None:
    checkpoint = Checkpoint(HadoopFolder(spark, str(tmp_path)), table_id="one", table="t")
    checkpoint.begin(READS, {"orders": {0: 5}}, job_began={"orders": {0: 2}})
    cut_off(tmp_path, "0001.json", size_bytes)
    found = checkpoint.newest()
    assert found is not None and found.reads() != READS and found.initial == {} and found.job_began is None
    checkpoint.begin(READS, {"orders": {0: 7}}, job_began={"orders": {0: 2}})
    found = checkpoint.newest()
    assert found is not None and found.reads() == READS and found.initial == {"orders": {0: 7}}
    assert found.job_began == {"orders": {0: 2}}


@pytest.mark.parametrize("owner", ["nobody", "a run that was killed while it wrote"])
def test_a_folder_that_others_have_files_in_is_not_taken_for_a_checkpoint(
    spark: SparkSession, tmp_path: Path, owner: str
) -> None:
    """Files of days are called as the notes of queries are, and of these all but the newest are deleted."""
    for name in ("20260101/part", "20260101.json", "20260102.json"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("{}")
    if owner != "nobody":
        (tmp_path / "bmq.json").write_text("")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(
        JobStopped,
        match=r"--checkpoint .*: holds 20260101\.json of another program: give this job a --checkpoint of its own",
    ):
        Checkpoint(HadoopFolder(spark, str(tmp_path)), table_id="one", table="t").claim()
    assert sorted(tmp_path.rglob("*")) == before

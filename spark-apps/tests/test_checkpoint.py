"""Spark's notes on a stream, as a full disk or a kill leaves them: half a file where one was begun."""

import os
from collections.abc import Mapping
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from bmq_spark.batches.places import Places
from bmq_spark.errors import JobStopped
from bmq_spark.jobs.checkpoint import Checkpoint, Query, Reads, agrees
from bmq_spark.jobs.hadoop_files import HadoopFolder

READS = Reads(source="kafka", lane="", topics={"orders": "id"})


WRITTEN = {
    "metadata": '{"id":"spark\'s"}',
    "offsets/0": 'v1\n{"batchWatermarkMs":0}\n{"orders":{"0":6}}',
    "commits/0": 'v1\n{"nextBatchWatermarkMs":0}',
    "offsets/1": 'v1\n{"batchWatermarkMs":0}\n{"orders":{"0":7}}',
    "commits/1": 'v1\n{"nextBatchWatermarkMs":0}',
}
"""As Spark 4.1 has it after two batches."""


def cut_off(folder: Path, name: str, size_bytes: int, *, has_checksum: bool = False) -> None:
    """A file that was not written to its end; its checksums neither, unless said so."""
    (folder / name).write_bytes((folder / name).read_bytes()[:size_bytes])
    if not has_checksum:
        (folder / name).with_name(f".{Path(name).name}.crc").unlink()


def query_with(spark: SparkSession, folder: Path, written: Mapping[str, str]) -> Query:
    there = HadoopFolder(spark, str(folder))
    query = Checkpoint(there, table_id="one", table="t").begin(READS, {"orders": {0: 5}}, job_began={"orders": {0: 5}})
    for name, content in written.items():
        there.write(f"0001/{name}", content)
    return query


def goes_on(query: Query, table: Places) -> bool:
    return agrees(query.planned(), query.initial, table) and query.is_whole()


def test_a_checkpoint_whose_first_run_could_not_say_whose_it_is_is_claimed_by_the_next(
    spark: SparkSession, tmp_path: Path
) -> None:
    folder = HadoopFolder(spark, str(tmp_path))
    Checkpoint(folder, table_id="one", table="t").claim()
    cut_off(tmp_path, "bmq.json", 0)
    Checkpoint(folder, table_id="one", table="t").claim()
    with pytest.raises(JobStopped, match="it is of the table t, not of other"):
        Checkpoint(folder, table_id="another", table="other").claim()


def test_whose_a_checkpoint_is_is_on_the_disk_before_there_is_a_query(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Queries beside an empty file of that name would be taken for another program's."""
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda fd: synced.append(os.fstat(fd).st_ino))
    Checkpoint(HadoopFolder(spark, str(tmp_path)), table_id="one", table="t").claim()
    for path in (tmp_path / "bmq.json", tmp_path / ".bmq.json.crc", tmp_path):
        assert path.stat().st_ino in synced


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


@pytest.mark.parametrize("has_checksum", [False, True])
@pytest.mark.parametrize("part", [0, 0.5, 0.9])
@pytest.mark.parametrize("name", ["metadata", "offsets/0", "offsets/1", "commits/1"])
def test_a_query_with_a_file_that_a_power_cut_left_empty_or_cut_is_followed_by_another(
    spark: SparkSession, tmp_path: Path, name: str, part: float, has_checksum: bool
) -> None:
    query, table = query_with(spark, tmp_path, WRITTEN), {"orders": {0: 7}}
    assert goes_on(query, table) and query.id() == "spark's"
    cut_off(tmp_path / "0001", name, int(len(WRITTEN[name]) * part), has_checksum=has_checksum)
    assert not goes_on(query, table)
    assert query.id() == ("0001" if name == "metadata" else "spark's")


@pytest.mark.parametrize("size_bytes", [0, 3, 9])
def test_a_query_without_a_batch_whose_begin_was_cut_off_is_followed_by_another(
    spark: SparkSession, tmp_path: Path, size_bytes: int
) -> None:
    written = {"metadata": WRITTEN["metadata"], "sources/0/0": '\x00v1\n{"orders":{"0":5}}'}
    query = query_with(spark, tmp_path, written)
    assert goes_on(query, {"orders": {0: 5}})
    cut_off(tmp_path / "0001", "sources/0/0", size_bytes)
    assert not goes_on(query, {"orders": {0: 5}})


def test_a_query_begins_in_no_folder_that_another_one_left(spark: SparkSession, tmp_path: Path) -> None:
    """Whose notes were lost: Spark would go on by what lies there."""
    query_with(spark, tmp_path, {})
    (tmp_path / "0002" / "offsets").mkdir(parents=True)
    begun = Checkpoint(HadoopFolder(spark, str(tmp_path)), table_id="one", table="t").begin(READS, {}, job_began={})
    assert begun.uri.endswith("/0003") and begun.planned() is None


def test_a_query_that_spark_has_written_nothing_of_goes_on(spark: SparkSession, tmp_path: Path) -> None:
    assert goes_on(query_with(spark, tmp_path, {}), {"orders": {0: 5}})


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

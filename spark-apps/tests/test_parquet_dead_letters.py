"""The table of a job's dead letters, without Spark: how it is committed, and what Delta's readers find."""

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from table_records import HOUR_MS, START_MS, records

from bmq_spark.batches.places import Range
from bmq_spark.batches.records import DEAD_LETTERS
from bmq_spark.errors import ConfigurationError
from bmq_spark.jobs import compact
from bmq_spark.jobs.parquet import parse
from bmq_spark.jobs.parquet_sink import ParquetSink
from bmq_spark.jobs.sinks import Batch
from bmq_spark.locations import Location
from bmq_spark.table import FileName, Layout, PartitionBy, Table, data_files, delta, write_batches
from bmq_spark.table.delta import publish
from bmq_spark.table.vacuum import expire


def sink_of(folder: Path, table_id: str = "x") -> ParquetSink:
    nothing: Any = None
    table = Table.create(Location.parse(str(folder)), {"id": table_id, "partition-by": "hour"})
    return ParquetSink(
        nothing, table, nothing, infers=False, partition_by=PartitionBy.HOUR, target_bytes=1 << 20, retention_ms=None
    )


def bury(folder: Path, offset: int, start_ms: int) -> DeltaTable:
    """One letter, by a job of its own."""
    nothing: Any = None
    plain = records("orders", 0, offset, 1, start_ms=start_ms)
    columns = [pa.array(["why"]) if field.name == "reason" else plain.column(field.name) for field in DEAD_LETTERS]
    batch = pa.RecordBatch.from_arrays(columns, schema=DEAD_LETTERS)
    layout = Layout(
        location=Location.parse(str(folder / "_dead_letters")), schema=DEAD_LETTERS, partition_by=PartitionBy.HOUR
    )
    rows = list(write_batches([batch], layout, FileName(query_id="q", batch_id=offset, task=0)))
    ranges = [Range(topic="orders", partition=0, start=offset, end=offset + 1)]
    sink = sink_of(folder)
    sink._commit_letters(
        Batch(records=nothing, ranges=ranges, ends={}, query_id="q", batch_id=offset, verify=nothing),
        data_files(pa.Table.from_batches(rows)),
    )
    sink._publish()
    return DeltaTable(str(folder / "_dead_letters"))


@pytest.mark.parametrize("interval", [2, 3, 50])
@pytest.mark.parametrize("before", [False, True], ids=["new", "of before"])
def test_dead_letters_have_their_folders_columns_after_retention_took_all_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: bool, interval: int
) -> None:
    monkeypatch.setattr(delta, "CHECKPOINT_INTERVAL", interval)
    location = Location.parse(str(tmp_path / "_dead_letters"))
    if before:  # which did not say how it lies
        Table.create(location, {"id": "y", "of": "x"}, schema=DEAD_LETTERS)
        publish(Table.open(location))
        assert DeltaTable(str(tmp_path / "_dead_letters")).metadata().partition_columns == []
    for offset in range(3):
        assert bury(tmp_path, offset, START_MS).metadata().partition_columns == ["date", "hour"]
    dead = Table.open(location)
    expire(dead, before_ms=START_MS + 9 * HOUR_MS)
    publish(dead)
    for offset in range(3, 6):
        letters = bury(tmp_path, offset, START_MS + 9 * HOUR_MS)
        assert letters.metadata().partition_columns == ["date", "hour"]
        rows = (
            letters.to_pyarrow_table(columns=["offset", "hour", "reason"], filters=[("hour", "=", 9)])
            .sort_by("offset")
            .to_pylist()
        )
        assert rows == [{"offset": each, "hour": 9, "reason": "why"} for each in range(3, offset + 1)]


def test_dead_letters_are_no_table_of_a_topic_nor_is_such_a_table_taken_for_dead_letters(tmp_path: Path) -> None:
    nothing: Any = None
    bury(tmp_path, 0, START_MS)
    dead = tmp_path / "_dead_letters"
    options = parse(["--topic", "other", "--output", str(dead)])
    with pytest.raises(ConfigurationError, match="it has the dead letters of another table: name another folder"):
        ParquetSink.open(
            nothing,
            Location.parse(str(dead)),
            options,
            partition_by=PartitionBy.HOUR,
            target_bytes=1 << 20,
            retention_ms=None,
        )
    Table.create(Location.parse(str(tmp_path / "own" / "_dead_letters")), {"id": "y", "format": "bytes"})
    with pytest.raises(ConfigurationError, match=r"own/_dead_letters.*, which is a table of its own: move that one"):
        sink_of(tmp_path / "own")
    assert len(compact.run(compact.parse(["--output", str(tmp_path / "own")]))) == 1
    assert len(compact.run(compact.parse(["--output", str(tmp_path)]))) == 2


def test_dead_letters_that_are_left_of_a_former_table_are_not_taken_for_this_ones(tmp_path: Path) -> None:
    bury(tmp_path, 0, START_MS)
    assert sink_of(tmp_path, "y")._dead is not None, "the table is there, and is still called x"
    shutil.rmtree(tmp_path / "_bmq")
    with pytest.raises(ConfigurationError) as refused:
        sink_of(tmp_path, "y")
    assert str(refused.value) == (
        f"--output: {tmp_path}/_dead_letters has the dead letters of another table, which was there before: move or "
        "delete that folder, or name another --output"
    )
    (tmp_path / "_dead_letters").rename(tmp_path / "former")
    assert sink_of(tmp_path)._dead is None

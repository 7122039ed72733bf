"""The table of tombstones while others commit to it."""

import datetime
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
from iceberg_batches import MIDNIGHT, Record, batch, settings, typing
from iceberg_catalogs import Opened, opened_in
from pyspark.sql import DataFrame, SparkSession
from tests.waiting import until

from bmq_spark.iceberg.catalogs import TableName
from bmq_spark.iceberg.tables import IcebergTable
from bmq_spark.iceberg.writing import remember
from bmq_spark.jobs.iceberg_sink import IcebergSink

WAIT_S = 120


def deletions(spark: SparkSession, like: DataFrame, folder: Path, offset: int) -> DataFrame:
    """A tombstone of k0 and of k1 for the table. Whoever makes them waits in the midst, until the folder has `done`."""

    def waits(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        (folder / "begun").touch()
        until((folder / "done").exists, "somebody else's commit", WAIT_S)
        yield from batches

    at = MIDNIGHT + datetime.timedelta(minutes=offset)
    rows = [(key, "orders", 0, offset, at, at) for key in ("k0", "k1")]
    return spark.createDataFrame(rows, like.schema).coalesce(1).mapInArrow(waits, like.schema)


def compacts(spark: SparkSession, name: TableName, folder: Path) -> None:
    """As anybody would, once the folder has `begun`."""
    until((folder / "begun").exists, "the merge to have begun", WAIT_S)
    call = f"rewrite_data_files(table => '{name.in_catalog}', options => map('rewrite-all', 'true'))"
    try:
        spark.sql(f"CALL `{name.catalog}`.system.{call}").collect()
    finally:
        (folder / "done").touch()


def test_tombstones_are_remembered_although_somebody_compacts_their_table_meanwhile(
    spark: SparkSession, sql: Opened, tmp_path: Path
) -> None:
    name = sql.table("tombstones_compacted")
    sink = IcebergSink(spark, name, typing(), settings(partition_by="none", upsert_key="key"))
    written = [Record(offset=each, key=b"k%d" % (each % 2), value=b"v") for each in range(2)]
    deleted = [Record(offset=each, key=b"k%d" % (each % 2), value=None) for each in range(2, 4)]
    sink.add(batch(spark, 0, written))
    for number, record in enumerate(deleted):
        sink.add(batch(spark, number + 1, [record]))
    table = IcebergTable(spark, name.tombstones)
    opened_in(another := spark.newSession(), sql.catalog, {})
    other = threading.Thread(target=compacts, args=(another, name.tombstones, tmp_path))
    other.start()
    remember(deletions(spark, spark.table(name.tombstones.sql), tmp_path, 7), table)
    other.join()
    found = [(row["key"], row["offset"]) for row in spark.table(name.tombstones.sql).orderBy("key").collect()]
    assert found == [("k0", 7), ("k1", 7)]
    operations = [row["operation"] for row in spark.table(f"{name.tombstones.sql}.snapshots").collect()]
    assert "replace" in operations, "it was compacted"

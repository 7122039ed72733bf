"""A table with places and without a current snapshot, as an expiry over a REST catalog can leave it, is not begun
anew.
"""

from typing import Any

import pytest
from iceberg_batches import Record, batch, settings, typing
from iceberg_catalogs import Opened
from pyspark.sql import SparkSession

from bmq_spark.errors import TableBroken
from bmq_spark.iceberg.catalogs import TableName
from bmq_spark.iceberg.tables import IcebergTable
from bmq_spark.jobs.iceberg_sink import IcebergSink


def records(first: int, end: int) -> list[Record]:
    return [Record(offset=offset, value=b"v%d" % offset) for offset in range(first, end)]


def take_main(spark: SparkSession, table: IcebergTable, *, with_snapshots: bool) -> None:
    """As the updates of an expiry, or of who drops the branch, leave the metadata."""
    jvm: Any = spark._jvm
    operations = table._table.operations()
    base = operations.refresh()
    made = jvm.org.apache.iceberg.TableMetadata.buildFrom(base).removeRef("main")
    if with_snapshots:
        gone = jvm.java.util.ArrayList()
        gone.addAll(base.snapshots())
        made = made.removeSnapshots(gone)
    operations.commit(base, made.build())


def offsets(spark: SparkSession, name: TableName) -> list[int]:
    return sorted(row["offset"] for row in spark.table(name.sql).select("offset").collect())


def refused(spark: SparkSession, sink: IcebergSink, name: TableName, said: str) -> None:
    """By the job that runs and by the next one, which changes nothing."""
    for _ in range(2):
        with pytest.raises(TableBroken, match=said):
            IcebergSink(spark, name, typing(), settings())
        with pytest.raises(TableBroken, match=said):
            sink.add(batch(spark, 1, records(2, 3)))
    assert sink.table.newest_id() is None


def test_a_table_whose_branch_was_removed_names_the_snapshot_to_set_back(spark: SparkSession, sql: Opened) -> None:
    name = sql.table("no_main")
    sink = IcebergSink(spark, name, typing(), settings())
    sink.add(batch(spark, 0, records(0, 2)))
    then = sink.table.newest_id()
    take_main(spark, sink.table, with_snapshots=False)
    call = rf"CALL `sql`.system.set_current_snapshot\(table => '{name.in_catalog}', snapshot_id => {then}\)"
    refused(spark, sink, name, call)
    spark.sql(call.replace("\\", "")).collect()
    again = IcebergSink(spark, name, typing(), settings())
    assert again.places() == {"orders": {0: 2}}
    again.add(batch(spark, 1, records(2, 3)))
    assert offsets(spark, name) == [0, 1, 2]


def test_a_table_whose_snapshots_were_removed_goes_on_only_where_somebody_says_how(
    spark: SparkSession, sql: Opened
) -> None:
    name = sql.table("no_snapshot")
    sink = IcebergSink(spark, name, typing(), settings())
    sink.add(batch(spark, 0, records(0, 2)))
    take_main(spark, sink.table, with_snapshots=True)
    refused(spark, sink, name, r"no current snapshot.*was removed.*TBLPROPERTIES \('bmq.places-snapshot' = 'any'\)")
    spark.sql(f"ALTER TABLE {name.sql} SET TBLPROPERTIES ('bmq.places-snapshot' = 'any')")
    again = IcebergSink(spark, name, typing(), settings())
    assert again.places() == {"orders": {0: 2}}
    again.add(batch(spark, 1, records(2, 3)))
    assert offsets(spark, name) == [2] and again.places() == {"orders": {0: 3}}


def test_a_table_that_was_made_and_not_yet_written_is_begun(spark: SparkSession, sql: Opened) -> None:
    name = sql.table("not_begun")
    table = IcebergSink(spark, name, typing(), settings()).table
    take_main(spark, table, with_snapshots=True)  # as a job leaves it that is killed behind CREATE TABLE
    sink = IcebergSink(spark, name, typing(), settings())
    assert sink.places() == {}
    sink.add(batch(spark, 0, records(0, 2)))
    assert offsets(spark, name) == [0, 1]

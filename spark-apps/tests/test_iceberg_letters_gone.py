"""A table that is rolled back while its dead letters go on: what was deleted among these meanwhile becomes a dead letter
again.
"""

import pytest
from iceberg_batches import Record, batch, settings, typing
from iceberg_catalogs import Opened
from pyspark.sql import SparkSession

from bmq_spark.iceberg.catalogs import TableName
from bmq_spark.iceberg.maintenance import Maintenance
from bmq_spark.jobs.iceberg_sink import IcebergSink

DAY_MS = 24 * 3_600_000
FIRST = [Record(offset=0, value=b"a"), Record(offset=1, value=b"\xff")]
SECOND = [Record(offset=2, value=b"b"), Record(offset=3, value=b"\xff"), Record(offset=4, value=b"c")]
THIRD = [Record(offset=5, value=b"\xff"), Record(offset=6, value=b"d")]


def offsets(spark: SparkSession, name: TableName) -> list[int]:
    return sorted(row["offset"] for row in spark.table(name.sql).select("offset").collect())


@pytest.mark.parametrize("how", ["retention", "by hand", "by hand, one of two", "nothing"])
def test_a_table_that_was_rolled_back_gets_what_is_missing_whatever_became_of_its_dead_letters(
    spark: SparkSession, sql: Opened, how: str
) -> None:
    name = sql.table(f"letters_{how.replace(' ', '_').replace(',', '')}")
    by_age = settings(maintenance=Maintenance(target_file_size_bytes=1 << 20, tidies=False, retention_ms=DAY_MS))
    sink = IcebergSink(spark, name, typing(), by_age)
    sink.add(batch(spark, 0, FIRST))
    then = sink.table.newest_id()
    sink.add(batch(spark, 1, SECOND))
    sink.add(batch(spark, 2, THIRD))
    there = {"retention": [], "by hand": [], "by hand, one of two": [1, 3], "nothing": [1, 3, 5]}[how]
    if how == "retention":
        sink.maintain()
    elif how != "nothing":
        spark.sql(f"DELETE FROM {name.dead_letters.sql} WHERE `offset` >= {5 if there else 0}")
    assert offsets(spark, name.dead_letters) == there
    spark.sql(f"CALL `sql`.system.rollback_to_snapshot('{name.in_catalog}', {then})").collect()
    # In batches of other sizes than then: the first one moves the places that were undone to a property of their own.
    for number, some in enumerate([SECOND[:1], [*SECOND[1:], *THIRD[:1]], THIRD[1:]], 3):
        IcebergSink(spark, name, typing(), settings()).add(batch(spark, number, some))
    assert offsets(spark, name) == [0, 2, 4, 6]
    assert offsets(spark, name.dead_letters) == sorted({*there, 3, 5})
    again = IcebergSink(spark, name, typing(), settings())
    assert again.places() == {"orders": {0: 7}} and again.table.state().undone == {}


def test_of_a_partition_that_is_not_read_what_was_undone_is_kept(spark: SparkSession, sql: Opened) -> None:
    name = sql.table("letters_apart")
    sink = IcebergSink(spark, name, typing(), settings())
    other = [Record(offset=offset, partition=1, value=value) for offset, value in enumerate([b"\xff", b"x"])]
    sink.add(batch(spark, 0, FIRST))
    then = sink.table.newest_id()
    sink.add(batch(spark, 1, [*SECOND, *other]))
    spark.sql(f"DELETE FROM {name.dead_letters.sql} WHERE true")
    spark.sql(f"CALL `sql`.system.rollback_to_snapshot('{name.in_catalog}', {then})").collect()
    sink.add(batch(spark, 2, SECOND))
    sink.add(batch(spark, 3, THIRD))
    assert sink.table.state().undone == {"orders": {1: 2}}
    sink.add(batch(spark, 4, other))
    assert offsets(spark, name) == [0, 1, 2, 4, 6] and offsets(spark, name.dead_letters) == [0, 3, 5]

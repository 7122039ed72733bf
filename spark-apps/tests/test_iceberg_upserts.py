"""Upserts of real tables leave what the model's definition does, however records of several partitions come together in
batches.
"""

import datetime
import random
from collections.abc import Mapping, Sequence

import pytest
from iceberg_batches import MIDNIGHT, Record, batch, settings, typing
from iceberg_catalogs import Opened
from pyspark.sql import SparkSession
from upsert_model import Told, left

from bmq_spark.errors import ConfigurationError, JobStopped
from bmq_spark.iceberg.catalogs import TableName
from bmq_spark.jobs.cluster import Topic
from bmq_spark.jobs.iceberg_sink import IcebergSink

UPSERTS = settings(partition_by="none", upsert_key="key")


def records(told: Sequence[Told]) -> list[Record]:
    return [
        Record(
            key=each.key.encode(),
            value=None if each.value is None else each.value.encode(),
            partition=each.partition,
            offset=each.offset,
            minute=each.time,
        )
        for each in told
    ]


def rows(opened: Opened, name: TableName) -> Mapping[str, tuple[str, int, int]]:
    """As `left` has them: value, partition and E."""
    found = opened.load(name).scan().to_arrow().to_pylist()
    minute = datetime.timedelta(minutes=1)
    kept = {row["key"]: (row["value"], row["partition"], (row["key_timestamp"] - MIDNIGHT) // minute) for row in found}
    assert len(kept) == len(found), "each key has one row"
    return kept


def random_logs(chance: random.Random, *, partitions: int, length: int, keys: int) -> list[list[Told]]:
    """Times that rise and fall, keys that meet in all partitions, and one in four deletes."""
    return [
        [
            Told(
                key=f"k{chance.randrange(keys)}",
                partition=partition,
                offset=offset,
                time=chance.randrange(12),
                value=None if chance.random() < 0.25 else f"{partition}-{offset}",
            )
            for offset in range(length)
        ]
        for partition in range(partitions)
    ]


@pytest.mark.timeout(900)
def test_after_each_batch_of_several_partitions_the_table_has_what_folding_record_by_record_leaves(
    spark: SparkSession, sql: Opened
) -> None:
    name = sql.table("folded")
    chance = random.Random(1)
    logs = random_logs(chance, partitions=3, length=150, keys=70)
    begin = [0, 0, 0]
    for number, counts in enumerate([(30, 50, 0), (0, 30, 60), (1, 0, 40), (70, 70, 50), (49, 0, 0)]):
        ends = [first + count for first, count in zip(begin, counts, strict=True)]
        told = [each for log, first, end in zip(logs, begin, ends, strict=True) for each in log[first:end]]
        # A new run each time: nothing is known but by the tables.
        IcebergSink(spark, name, typing(), UPSERTS).add(batch(spark, number, records(told)))
        begin = ends
        assert rows(sql, name) == left([each for log, end in zip(logs, ends, strict=True) for each in log[:end]]), (
            f"batch {number}"
        )
    assert begin == [150, 150, 150]


def test_rows_found_by_a_field_are_ordered_in_the_same_way(spark: SparkSession, sql: Opened) -> None:
    name = sql.table("folded_by_field")
    sink = IcebergSink(
        spark, name, typing("json", "id int, state string"), settings(partition_by="none", upsert_key="id")
    )

    def told(partition: int, offset: int, minute: int) -> Record:
        return Record(
            partition=partition,
            offset=offset,
            minute=minute,
            value=b'{"id": 1, "state": "%d-%d"}' % (partition, offset),
        )

    sink.add(batch(spark, 0, [told(0, 0, 9)]))
    # Its own partition goes on with older times, while the other's are between the two: its greatest time still counts.
    sink.add(batch(spark, 1, [told(0, 1, 2), told(1, 0, 5)]))
    sink.add(batch(spark, 2, [told(1, 1, 8)]))
    assert [row["value"]["state"] for row in sql.load(name).scan().to_arrow().to_pylist()] == ["0-1"]
    sink.add(batch(spark, 3, [told(1, 2, 10), told(1, 3, 1)]))
    assert [(row["value"]["state"], row["key_timestamp"]) for row in sql.load(name).scan().to_arrow().to_pylist()] == [
        ("1-3", MIDNIGHT + datetime.timedelta(minutes=10))
    ]


def test_tables_of_before_get_the_column_and_their_rows_and_tombstones_count_with_their_own_time(
    spark: SparkSession, sql: Opened
) -> None:
    name = sql.table("of_before")
    sink = IcebergSink(spark, name, typing(), UPSERTS)
    first = [
        Told(key=key, partition=0, offset=n, time=5, value=None if key == "gone" else "0")
        for n, key in enumerate(["a", "b", "gone"])
    ]
    sink.add(batch(spark, 0, records(first)))
    for table in (name, name.tombstones):
        spark.sql(f"ALTER TABLE {table.sql} DROP COLUMN key_timestamp")
    spark.sql(f"ALTER TABLE {name.sql} UNSET TBLPROPERTIES ('bmq.upsert-order')")
    again = IcebergSink(spark, name, typing(), UPSERTS)
    second = [
        Told(key=key, partition=1, offset=n, time=time, value="1")
        for n, (key, time) in enumerate([("a", 4), ("b", 6), ("gone", 4)])
    ]
    again.add(batch(spark, 1, records(second)))
    found = {
        row["key"]: (row["partition"], row["key_timestamp"] and row["key_timestamp"].minute)
        for row in sql.load(name).scan().to_arrow().to_pylist()
    }
    assert found == {"a": (0, None), "b": (1, 6)}
    again.add(
        batch(
            spark,
            2,
            records(
                [
                    Told(key="a", partition=0, offset=3, time=1, value="0-3"),
                    Told(key="gone", partition=1, offset=3, time=7, value="1"),
                ]
            ),
        )
    )
    assert rows(sql, name) == {"a": ("0-3", 0, 5), "b": ("1", 1, 6), "gone": ("1", 1, 7)}


def test_a_table_that_lost_the_column_by_which_partitions_are_compared_is_not_written_to(
    spark: SparkSession, sql: Opened
) -> None:
    name = sql.table("lost_order")
    sink = IcebergSink(spark, name, typing(), UPSERTS)
    sink.add(batch(spark, 0, [Record(offset=0, key=b"k", value=b"v")]))
    spark.sql(f"ALTER TABLE {name.sql} RENAME COLUMN key_timestamp TO other")
    with pytest.raises(JobStopped, match="column key_timestamp is not there, by which rows are found"):
        sink.add(batch(spark, 1, [Record(offset=1, key=b"k", value=b"w")]))


def test_columns_that_somebody_added_to_an_upsert_table_keep_their_values(spark: SparkSession, sql: Opened) -> None:
    name = sql.table("reviewed")
    sink = IcebergSink(spark, name, typing(), UPSERTS)
    sink.add(batch(spark, 0, [Record(offset=0, key=b"a", value=b"0"), Record(offset=1, key=b"b", value=b"0")]))
    spark.sql(f"ALTER TABLE {name.sql} ADD COLUMN reviewed string")
    spark.sql(f"UPDATE {name.sql} SET reviewed = 'by hand'")
    # Compared by MERGE alone, and with all that is known of the keys; then by a run that finds the column there.
    sink.add(batch(spark, 1, [Record(offset=2, key=b"a", value=b"1"), Record(offset=3, key=b"c", value=b"0")]))
    several = [
        Record(offset=4, key=b"b", value=b"1", minute=9),
        Record(offset=0, partition=1, key=b"b", value=b"late"),
        Record(offset=5, key=b"c", value=None),
    ]
    sink.add(batch(spark, 2, several))
    IcebergSink(spark, name, typing(), UPSERTS).add(batch(spark, 3, [Record(offset=6, key=b"a", value=b"2")]))
    found = {row["key"]: (row["value"], row["reviewed"]) for row in sql.load(name).scan().to_arrow().to_pylist()}
    assert found == {"a": ("2", "by hand"), "b": ("1", "by hand")}
    spark.sql(f"ALTER TABLE {name.tombstones.sql} ADD COLUMN reviewed string")
    sink.add(batch(spark, 4, [Record(offset=7, key=b"b", value=None)]))
    assert [row["key"] for row in sql.load(name).scan().to_arrow().to_pylist()] == ["a"]


def test_one_job_with_all_of_its_topics_writes_a_table_with_one_row_for_each_key(
    spark: SparkSession, sql: Opened
) -> None:
    """Of two, the one would bring back what the other deletes between its look at the tombstones and its commit."""
    name = sql.table("alone")
    a, b, c = (Topic(id=f"id-{letter}", partitions=(0,)) for letter in "abc")
    first, second = (
        IcebergSink(spark, name, typing(), settings(partition_by="none", upsert_key="key")) for _ in range(2)
    )
    first.check({"a": a, "b": b})
    for others in ({"c": c}, {"a": a}, {"a": a, "c": c}):
        with pytest.raises(
            ConfigurationError, match=r"--topic: .* of other topics, too: .*name all of them in one job"
        ):
            second.check(others)
    assert not any(key.endswith("topic-id.c") for key in first.table.properties())
    first.check({"a": a, "b": b, "c": c})
    with pytest.raises(
        ConfigurationError, match=r"of other topics, too: c: .*UNSET TBLPROPERTIES \('bmq.topic-id.c'\)"
    ):
        second.check({"a": a, "b": b})
    spark.sql(f"ALTER TABLE {name.sql} UNSET TBLPROPERTIES ('bmq.topic-id.c')")
    second.check({"a": a, "b": b})


def test_two_jobs_with_other_topics_may_add_rows_to_one_table(spark: SparkSession, sql: Opened) -> None:
    name = sql.table("apart_rows")
    for topic in "ab":
        IcebergSink(spark, name, typing(), settings()).check({topic: Topic(id=topic, partitions=(0,))})

"""Tables beside a job's own: in folders within its folder, and of the names that its dead letters and tombstones have. None of them is touched."""

import os
import time
from pathlib import Path

import pytest
from iceberg_batches import Record, batch, settings, typing
from iceberg_catalogs import Opened, opened_in
from pyspark.sql import SparkSession

from bmq_spark.errors import ConfigurationError
from bmq_spark.iceberg.catalogs import Catalog, TableName
from bmq_spark.iceberg.maintenance import Upkeep, maintain
from bmq_spark.jobs.cluster import Topic
from bmq_spark.jobs.iceberg_sink import IcebergSink

DAY_S = 86_400


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("it's")


@pytest.fixture(scope="module")
def opened(spark: SparkSession, folder: Path) -> Opened:
    return opened_in(spark, Catalog(name="near", kind="hadoop", warehouse=str(folder), uri=None), {})


def table_of(spark: SparkSession, name: TableName, topic: str, *, value_format: str = "string", upsert_key: str = "") -> IcebergSink:
    """A table with a record of that topic, as a job leaves it."""
    made = settings(partition_by="none" if upsert_key else "hour", upsert_key=upsert_key)
    sink = IcebergSink(spark, name, typing(value_format, "a int" if value_format == "json" else None), made)
    sink.check({topic: Topic(id=f"id of {topic}", partitions=(0,))})
    value = b'{"a": 1}' if value_format == "json" else b"v"
    sink.add(batch(spark, 0, [Record(offset=0, key=b"k", value=value, topic=topic)]))
    return sink


@pytest.mark.parametrize("inner", ["db.orders.eu", "db.orders.data", "db.orders.metadata"])
def test_orphans_are_looked_for_among_a_tables_own_files_alone(spark: SparkSession, folder: Path, inner: str) -> None:
    """A namespace of a table's name lies in the table's folder, with all its tables."""
    name = inner.replace(".", "_")
    catalog = Catalog(name=name, kind="sql", warehouse=str(folder / inner), uri=f"jdbc:sqlite:{folder / inner}.db")
    opened_in(spark, catalog, {})
    outer = table_of(spark, TableName.parse(f"{name}.db.orders"), "orders")
    within = TableName.parse(f"{name}.{inner}")
    table_of(spark, within, "eu")
    orphan = Path(outer.table.location, "data", "orphan.parquet")
    orphan.write_bytes(b"left by a killed job")
    of_others = [path for path in (folder / inner).rglob("*") if path.is_file() and path != orphan]
    long_ago = time.time() - 10 * DAY_S
    for path in (folder / inner).rglob("*"):
        os.utime(path, (long_ago, long_ago))
    maintain(spark, outer.table, Upkeep(target_file_size_bytes=1 << 20))
    assert not [path for path in of_others if not path.exists()]
    assert spark.table(within.sql).count() == 1
    assert orphan.exists() == (inner == "db.orders.data"), "where both lie in one folder nothing goes"


def test_a_table_of_a_topic_is_not_taken_for_another_ones_dead_letters(spark: SparkSession, opened: Opened) -> None:
    table_of(spark, opened.table("parts_dead_letters"), "parts_dead_letters")
    with pytest.raises(ConfigurationError, match=r"near\.db\.parts_dead_letters, which is a table of the topic parts_dead_letters: rename that"):
        table_of(spark, opened.table("parts"), "parts", value_format="json")
    table_of(spark, opened.table("sold_tombstones"), "sold_tombstones")
    with pytest.raises(ConfigurationError, match=r"near\.db\.sold_tombstones, which is a table of the topic sold_tombstones: rename that"):
        table_of(spark, opened.table("sold"), "sold", upsert_key="key")
    assert spark.table(opened.table("parts_dead_letters").sql).columns == spark.table(opened.table("sold_tombstones").sql).columns


def test_dead_letters_and_tombstones_are_not_taken_for_a_table_of_a_topic(spark: SparkSession, opened: Opened) -> None:
    sink = table_of(spark, opened.table("bought"), "bought", value_format="json")
    sink.add(batch(spark, 1, [Record(offset=1, key=b"k", value=b"no", topic="bought")]))
    sink = table_of(spark, opened.table("owned"), "owned", upsert_key="key")
    sink.add(batch(spark, 1, [Record(offset=1, key=b"k", value=None, topic="owned")]))
    for name in (opened.table("bought_dead_letters"), opened.table("owned_tombstones")):
        for made_by in ("this version", "one before"):
            if made_by == "one before":
                spark.sql(f"ALTER TABLE {name.sql} UNSET TBLPROPERTIES ('bmq.beside')")
            with pytest.raises(ConfigurationError, match=f"--table near.db.{name.name}: it has the .* of another table: choose another name"):
                table_of(spark, name, "other")
    assert table_of(spark, opened.table("bought"), "bought", value_format="json").table.places() == {"bought": {0: 2}}

"""Tables beside a job's own: in folders within its folder, and of the names that its dead letters and tombstones have.
None of them is touched.
"""

import os
import time
from pathlib import Path

import pytest
from iceberg_batches import Record, batch, settings, typing
from iceberg_catalogs import Opened, opened_in
from pyspark.sql import SparkSession

from bmq_spark.errors import ConfigurationError
from bmq_spark.iceberg.catalogs import Catalog, TableName
from bmq_spark.iceberg.maintenance import Maintenance, maintain
from bmq_spark.jobs.cluster import Topic
from bmq_spark.jobs.iceberg_sink import IcebergSink

DAY_S = 86_400


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("it's")


@pytest.fixture(scope="module")
def opened(spark: SparkSession, folder: Path) -> Opened:
    return opened_in(spark, Catalog(name="near", kind="hadoop", warehouse=str(folder), uri=None), {})


def table_of(
    spark: SparkSession, name: TableName, topic: str, *, value_format: str = "string", upsert_key: str = ""
) -> IcebergSink:
    """A table with a record of that topic, as a job leaves it."""
    made = settings(partition_by="none" if upsert_key else "hour", upsert_key=upsert_key)
    sink = IcebergSink(spark, name, typing(value_format, "a int" if value_format == "json" else None), made)
    sink.check({topic: Topic(id=f"id of {topic}", partitions=(0,))})
    value = b'{"a": 1}' if value_format == "json" else b"v"
    sink.add(batch(spark, 0, [Record(offset=0, key=b"k", value=value, topic=topic)]))
    return sink


@pytest.mark.parametrize(
    "inner",
    [
        "db.orders.eu",
        "db.orders.data",
        "db.orders.metadata",
        "db.orders.data.eu",
        "db.orders.data.eu.north",
        "db.orders.metadata.data",
    ],
)
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
    maintain(spark, outer.table, Maintenance(target_file_size_bytes=1 << 20))
    assert not [path for path in of_others if not path.exists()]
    assert spark.table(within.sql).count() == 1
    assert orphan.exists() == inner.startswith("db.orders.data"), "where both lie in one folder nothing goes"


@pytest.mark.parametrize("how", ["renamed", "dropped", "in another catalog"])
def test_nothing_goes_where_another_table_lies_in_the_same_folder(
    spark: SparkSession, folder: Path, capsys: pytest.CaptureFixture[str], how: str
) -> None:
    """A catalog gives the name's folder to whoever makes a table of that name, also where another's files are."""
    catalog = how.replace(" ", "_")
    for name in (catalog, "other"):
        opened_in(
            spark,
            Catalog(
                name=name, kind="sql", warehouse=str(folder / catalog), uri=f"jdbc:sqlite:{folder / catalog}-{name}.db"
            ),
            {},
        )
    before = table_of(spark, TableName.parse(f"{catalog}.db.orders"), "orders")
    match how:
        case "renamed":
            spark.sql(f"ALTER TABLE {catalog}.db.orders RENAME TO db.kept")
        case "dropped":
            spark.sql(f"DROP TABLE {catalog}.db.orders")
    now = table_of(spark, TableName.parse(f"{'other' if how == 'in another catalog' else catalog}.db.orders"), "sold")
    assert now.table.location == before.table.location
    orphan = Path(now.table.location, "data", "orphan.parquet")
    orphan.write_bytes(b"left by a killed job")
    long_ago = time.time() - 10 * DAY_S
    there = [path for path in (folder / catalog).rglob("*") if path.is_file() and "clock" not in path.name]
    for path in there:
        os.utime(path, (long_ago, long_ago))
    capsys.readouterr()
    assert maintain(spark, now.table, Maintenance(target_file_size_bytes=1 << 20)).orphans_removed == 0
    assert not [path for path in there if not path.exists()]
    said = capsys.readouterr().err
    assert "metadata.json is another table's in the same folder" in said and before.table.id in said
    if how != "dropped":
        left = TableName.parse(f"{catalog}.db.{'kept' if how == 'renamed' else 'orders'}")
        assert [row["topic"] for row in spark.table(left.sql).collect()] == ["orders"]
        return
    for path in Path(now.table.location, "metadata").glob("*.metadata.json"):
        if before.table.id in path.read_text():
            path.unlink()
    assert maintain(spark, now.table, Maintenance(target_file_size_bytes=1 << 20)).orphans_removed > 1
    assert not orphan.exists() and spark.table(now.table.name.sql).count() == 1


def test_what_commits_that_failed_left_is_not_taken_for_another_tables(
    spark: SparkSession, folder: Path, opened: Opened
) -> None:
    catalog = Catalog(
        name="failed", kind="sql", warehouse=str(folder / "failed"), uri=f"jdbc:sqlite:{folder / 'failed.db'}"
    )
    opened_in(spark, catalog, {})
    for sink in (
        table_of(spark, TableName.parse("failed.db.orders"), "orders"),
        table_of(spark, opened.table("failed"), "orders"),
    ):
        metadata = Path(sink.table.location, "metadata")
        newest = max(metadata.glob("*.metadata.json"), key=lambda path: path.stat().st_mtime_ns)
        left = metadata / "00077-left.metadata.json"
        left.write_bytes(newest.read_bytes())
        long_ago = time.time() - 10 * DAY_S
        os.utime(left, (long_ago, long_ago))
        assert maintain(spark, sink.table, Maintenance(target_file_size_bytes=1 << 20)).orphans_removed == 1
        assert not left.exists()


@pytest.mark.parametrize("length", [0, 100])
def test_metadata_that_a_killed_job_left_cut_off_keeps_no_orphan(
    spark: SparkSession, folder: Path, opened: Opened, capsys: pytest.CaptureFixture[str], length: int
) -> None:
    opened_in(
        spark,
        Catalog(name="cut", kind="sql", warehouse=str(folder / "cut"), uri=f"jdbc:sqlite:{folder / 'cut.db'}"),
        {},
    )
    for sink in (
        table_of(spark, TableName.parse(f"cut.db.orders{length}"), "orders"),
        table_of(spark, opened.table(f"cut{length}"), "orders"),
    ):
        metadata = Path(sink.table.location, "metadata")
        own = sorted(metadata.glob("*.metadata.json"))
        left, orphan = metadata / "00077-left.metadata.json", Path(sink.table.location, "data", "orphan.parquet")
        left.write_bytes(own[0].read_bytes()[:length])
        orphan.write_bytes(b"left by a killed job")
        long_ago = time.time() - 10 * DAY_S
        os.utime(orphan, (long_ago, long_ago))
        capsys.readouterr()
        assert maintain(spark, sink.table, Maintenance(target_file_size_bytes=1 << 20)).orphans_removed == 1
        said = capsys.readouterr().err
        assert f"{left.name} is cut off" in said and "delete" not in said
        assert left.exists() and not orphan.exists()
        os.utime(left, (long_ago, long_ago))
        assert maintain(spark, sink.table, Maintenance(target_file_size_bytes=1 << 20)).orphans_removed == 1
        capsys.readouterr()
        assert maintain(spark, sink.table, Maintenance(target_file_size_bytes=1 << 20)).orphans_removed == 0
        assert "warning" not in capsys.readouterr().err
        assert not left.exists() and all(path.exists() for path in own) and sink.table.read(spark).count() == 1


def test_metadata_that_the_store_does_not_give_may_be_another_tables(
    spark: SparkSession, opened: Opened, capsys: pytest.CaptureFixture[str]
) -> None:
    sink = table_of(spark, opened.table("unread"), "orders")
    left = Path(sink.table.location, "metadata", "00077-left.metadata.json")
    left.mkdir()  # whoever reads it is refused
    assert maintain(spark, sink.table, Maintenance(target_file_size_bytes=1 << 20)).orphans_removed == 0
    assert f"{left.name} cannot be read, so that it may be another table's" in capsys.readouterr().err


def test_a_table_of_a_topic_is_not_taken_for_another_ones_dead_letters(spark: SparkSession, opened: Opened) -> None:
    table_of(spark, opened.table("parts_dead_letters"), "parts_dead_letters")
    with pytest.raises(
        ConfigurationError,
        match=r"near\.db\.parts_dead_letters, which is a table of the topic parts_dead_letters: rename that",
    ):
        table_of(spark, opened.table("parts"), "parts", value_format="json")
    table_of(spark, opened.table("sold_tombstones"), "sold_tombstones")
    with pytest.raises(
        ConfigurationError,
        match=r"near\.db\.sold_tombstones, which is a table of the topic sold_tombstones: rename that",
    ):
        table_of(spark, opened.table("sold"), "sold", upsert_key="key")
    assert (
        spark.table(opened.table("parts_dead_letters").sql).columns
        == spark.table(opened.table("sold_tombstones").sql).columns
    )


def test_dead_letters_and_tombstones_are_not_taken_for_a_table_of_a_topic(spark: SparkSession, opened: Opened) -> None:
    sink = table_of(spark, opened.table("bought"), "bought", value_format="json")
    sink.add(batch(spark, 1, [Record(offset=1, key=b"k", value=b"no", topic="bought")]))
    sink = table_of(spark, opened.table("owned"), "owned", upsert_key="key")
    sink.add(batch(spark, 1, [Record(offset=1, key=b"k", value=None, topic="owned")]))
    for name in (opened.table("bought_dead_letters"), opened.table("owned_tombstones")):
        for made_by in ("this version", "one before"):
            if made_by == "one before":
                spark.sql(f"ALTER TABLE {name.sql} UNSET TBLPROPERTIES ('bmq.beside')")
            with pytest.raises(
                ConfigurationError,
                match=f"--table near.db.{name.name}: it has the .* of another table: choose another name",
            ):
                table_of(spark, name, "other")
    assert table_of(spark, opened.table("bought"), "bought", value_format="json").table.places() == {"bought": {0: 2}}


@pytest.mark.parametrize("made_by", ["this version", "one before"])
@pytest.mark.parametrize(("beside", "upsert_key"), [("dead_letters", ""), ("tombstones", "key")])
def test_what_is_left_of_a_table_that_was_dropped_does_not_count_for_the_one_that_is_made_anew(
    spark: SparkSession, opened: Opened, beside: str, upsert_key: str, made_by: str
) -> None:
    name = opened.table(f"anew_{beside}_{made_by.partition(' ')[0]}")
    left = opened.table(f"{name.name}_{beside}")

    def begin() -> IcebergSink:
        made = settings(partition_by="none" if upsert_key else "hour", upsert_key=upsert_key)
        return IcebergSink(spark, name, typing("json", "a int"), made)

    odd = Record(offset=0, key=b"k", value=None if upsert_key else b'{"a": "x"}')
    begin().add(batch(spark, 0, [odd]))
    if made_by == "one before":
        spark.sql(f"ALTER TABLE {left.sql} UNSET TBLPROPERTIES ('bmq.beside-of')")
        begin()  # makes it this table's
        assert begin().table.id in str(spark.sql(f"SHOW TBLPROPERTIES {left.sql}").collect())
    spark.sql(f"DROP TABLE {name.sql}")
    for there in (False, True):
        if there:  # by somebody else meanwhile, or by hand
            spark.sql(f"CREATE TABLE {name.sql} (a int) USING iceberg")
        with pytest.raises(ConfigurationError) as refused:
            begin()
        assert str(refused.value) == (
            f"--table: its {beside.replace('_', ' ')} would go to {left}, which is left of another table, as of one "
            "that was dropped: rename or drop that one, or choose another --table"
        )
        assert spark.catalog.tableExists(name.sql) is there
    spark.sql(f"DROP TABLE {name.sql}")
    spark.sql(f"DROP TABLE {left.sql}")
    assert begin().table.places() == {}

"""What leaves an Iceberg table, or never comes into it: loss that was accepted, and retention of rows and dead letters
alike.
"""

import datetime
from pathlib import Path

import pytest
from iceberg_batches import MIDNIGHT, Record, batch, settings, typing
from iceberg_catalogs import Opened, opened_in
from pyspark.sql import SparkSession

from bmq_spark.batches.places import Range
from bmq_spark.errors import ConfigurationError, JobStopped
from bmq_spark.iceberg.catalogs import Catalog
from bmq_spark.iceberg.clocks import now_ms
from bmq_spark.iceberg.maintenance import Maintenance, maintain
from bmq_spark.jobs.cluster import Topic
from bmq_spark.jobs.iceberg import Target, parse, run_maintenance
from bmq_spark.jobs.iceberg_sink import IcebergSink

DAY_MS = 24 * 3_600_000


@pytest.fixture(scope="module")
def hadoop(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Opened:
    catalog = Catalog(name="loss", kind="hadoop", warehouse=str(tmp_path_factory.mktemp("loss")), uri=None)
    for key, value in catalog.settings({}).items():
        spark.conf.set(key, value)
    return Opened(catalog=catalog, s3={})


def test_loss_that_was_accepted_is_committed_and_the_next_batch_begins_after_it(
    spark: SparkSession, hadoop: Opened
) -> None:
    name = hadoop.table("overtaken")
    sink = IcebergSink(spark, name, typing(), settings())
    sink.add(batch(spark, 0, [Record(offset=0, value=b"before")]))
    sink.pass_over([Range(topic="orders", partition=0, start=1, end=5)])
    assert IcebergSink(spark, name, typing(), settings()).places() == {"orders": {0: 5}}
    sink.add(batch(spark, 0, [Record(offset=5, value=b"after")]))
    table = hadoop.load(name)
    assert sorted(table.scan().to_arrow().column("value").to_pylist()) == ["after", "before"]
    told = [found.summary["bmq.lost"] for found in table.snapshots() if found.summary]
    assert [lost for lost in told if lost] == ["orders/0 1–4"]


def test_where_a_job_begins_is_committed_before_there_is_anything(spark: SparkSession, hadoop: Opened) -> None:
    name = hadoop.table("begun")
    sink = IcebergSink(spark, name, typing(), settings())
    sink.begin_at({"orders": {0: 7, 1: 0}})
    again = IcebergSink(spark, name, typing(), settings())
    assert again.places() == {"orders": {0: 7, 1: 0}}
    again.add(batch(spark, 0, [Record(offset=7, value=b"first"), Record(offset=0, partition=1, value=b"\xff")]))
    assert again.places() == {"orders": {0: 8, 1: 1}}
    assert hadoop.load(name).scan().to_arrow().column("value").to_pylist() == ["first"]


def test_retention_takes_old_rows_and_old_dead_letters(spark: SparkSession, hadoop: Opened) -> None:
    name = hadoop.table("kept")
    sink = IcebergSink(
        spark,
        name,
        typing(),
        settings(maintenance=Maintenance(target_file_size_bytes=128 << 20, tidies=False, retention_ms=2 * DAY_MS)),
    )
    now = (datetime.datetime.now(datetime.UTC) - MIDNIGHT) // datetime.timedelta(minutes=1)
    old = now - 4 * 24 * 60
    records = [Record(offset=0, value=b"old", minute=old), Record(offset=1, value=b"\xff old", minute=old)]
    sink.add(
        batch(
            spark,
            0,
            [*records, Record(offset=2, value=b"new", minute=now), Record(offset=3, value=b"\xff new", minute=now)],
        )
    )
    sink.maintain()
    for table, left in ((name, "new"), (name.dead_letters, b"\xff new")):
        assert hadoop.load(table).scan().to_arrow().column("value").to_pylist() == [left]


def test_maintenance_alone_takes_a_jobs_own_rows_and_none_that_are_the_newest_of_their_key(
    spark: SparkSession, tmp_path: Path
) -> None:
    """It is told the table's name alone: what else has a column of that name, or is remembered beside a table,
    stays.
    """
    uri = f"jdbc:sqlite:{tmp_path / 'own.db'}"
    own = opened_in(spark, Catalog(name="own", kind="sql", warehouse=str(tmp_path), uri=uri), {})
    table = own.table("users")
    sink = IcebergSink(spark, table, typing(), settings(partition_by="none", upsert_key="key"))
    sink.check({"orders": Topic(id="of users", partitions=(0,))})
    sink.add(batch(spark, 0, [Record(offset=0, key=b"a", value=b"newest")]))
    sink.add(batch(spark, 1, [Record(offset=1, key=b"b", value=None), Record(offset=2, key=b"c", value=b"\xff")]))
    spark.sql("CREATE TABLE own.db.theirs USING iceberg AS SELECT TIMESTAMP '2020-01-01 00:00:00' AS `timestamp`")
    for name, said in (
        (
            "users",
            r"--retention: the table own\.db\.users has no partitions by time, and only whole ones leave a table",
        ),
        ("users_dead_letters", r"it has the dead letters of another table"),
        ("users_tombstones", r"it has the tombstones of another table"),
        ("theirs", r"--table own\.db\.theirs: not made by this job, which maintains its own alone: name another"),
    ):
        given = [
            "--catalog-type",
            "sql",
            "--warehouse",
            str(tmp_path),
            "--catalog-uri",
            uri,
            "--maintain",
            "--retention",
            "1d",
        ]
        target = parse(["--table", f"own.db.{name}", *given])
        assert isinstance(target, Target)
        with pytest.raises(ConfigurationError, match=said):
            run_maintenance(target, spark)
        assert spark.table(f"own.db.{name}").count() == 1
    with pytest.raises(ConfigurationError, match="has no partitions by time"):
        IcebergSink(
            spark,
            table,
            typing(),
            settings(upsert_key="key", maintenance=Maintenance(target_file_size_bytes=1, retention_ms=DAY_MS)),
        )


@pytest.mark.parametrize("ahead_ms", [365 * DAY_MS, -365 * DAY_MS])
def test_maintenance_by_a_clock_that_is_not_the_stores_takes_nothing(
    spark: SparkSession, hadoop: Opened, capsys: pytest.CaptureFixture[str], ahead_ms: int
) -> None:
    name = hadoop.table(f"clock_{'ahead' if ahead_ms > 0 else 'behind'}")
    sink = IcebergSink(spark, name, typing(), settings())
    now = (datetime.datetime.now(datetime.UTC) - MIDNIGHT) // datetime.timedelta(minutes=1)
    for offset in range(2):
        sink.add(batch(spark, offset, [Record(offset=offset, value=b"%d" % offset, minute=now)]))
    maintenance = Maintenance(target_file_size_bytes=128 << 20, keep_snapshots_ms=1, retention_ms=2 * DAY_MS)
    at = sink.table.newest_id()
    if ahead_ms > 0:
        with pytest.raises(JobStopped, match=r"nothing is committed.*set the clock"):
            maintain(spark, sink.table, maintenance, clock_ms=lambda: now_ms() + ahead_ms)
        assert sink.table.newest_id() == at
    else:
        done = maintain(spark, sink.table, maintenance, clock_ms=lambda: now_ms() + ahead_ms)
        assert (done.snapshots_expired, done.orphans_removed) == (0, 0)
        assert "set the clock" in capsys.readouterr().err
    assert sorted(hadoop.load(name).scan().to_arrow().column("value").to_pylist()) == ["0", "1"]
    assert maintain(spark, sink.table, maintenance).snapshots_expired >= 2

"""Clocks that disagree: Iceberg takes no commit that is more than a minute before the newest one."""

import json
import os
from typing import Any

import pyarrow as pa
import pytest
from iceberg_batches import Record, batch, settings, typing
from iceberg_catalogs import Opened, opened_in
from pyspark.sql import SparkSession

from bmq_spark.errors import JobStopped
from bmq_spark.iceberg.catalogs import Catalog, TableName
from bmq_spark.iceberg.clocks import COMPARED_EVERY_S, Watched, now_ms, too_old
from bmq_spark.iceberg.maintenance import Maintenance, maintain
from bmq_spark.iceberg.tables import IcebergTable
from bmq_spark.jobs.iceberg_sink import IcebergSink

HOUR_MS = 3_600_000
REFUSED = r"its newest commit says .* UTC, and this machine's clock says .* UTC: .*nobody can commit until .* UTC"


def commit_of_the_future(spark: SparkSession, sink: IcebergSink) -> None:
    """As a driver leaves the table whose clock is two hours ahead."""
    jvm: Any = spark._jvm
    operations = sink.table._table.operations()
    base = operations.refresh()
    parser = jvm.org.apache.iceberg.TableMetadataParser
    said = json.loads(parser.toJson(base))
    at_ms = said["last-updated-ms"] + 2 * HOUR_MS
    said["last-updated-ms"] = said["snapshot-log"][-1]["timestamp-ms"] = said["snapshots"][-1]["timestamp-ms"] = at_ms
    made = parser.fromJson(base.metadataFileLocation() + "x", json.dumps(said))
    operations.commit(base, jvm.org.apache.iceberg.TableMetadata.buildFrom(made).discardChanges().build())


def opened_rest(request: pytest.FixtureRequest, spark: SparkSession) -> Opened:
    s3 = {
        "s3.endpoint": f"http://127.0.0.1:{request.getfixturevalue('minio').port}",
        "s3.access-key-id": os.environ["AWS_ACCESS_KEY_ID"],
        "s3.secret-access-key": os.environ["AWS_SECRET_ACCESS_KEY"],
        "s3.region": "us-east-1",
    }
    uri = request.getfixturevalue("rest").uri
    return opened_in(spark, Catalog(name="restclocks", kind="rest", warehouse=None, uri=uri), s3)


def test_what_iceberg_says_of_a_time_names_until_when_it_lasts_and_what_to_do() -> None:
    said = (
        "java.lang.IllegalArgumentException: Invalid update timestamp 1796059683593: before last snapshot log entry at "
        "1796066880849"
    )
    stopped = str(too_old("lake.db.orders", said))
    assert stopped == (
        "table lake.db.orders: its newest commit says 2026-11-30 19:28:00 UTC, and this machine's clock says 2026-11-30 "
        "17:28:03 UTC: Iceberg takes no commit that is more than a minute older than the newest. Either this clock is "
        "behind, or that of whoever committed then was ahead: set the one that is wrong. If it is not this one, nobody "
        "can commit until 2026-11-30 19:27:00 UTC: run the job again then, or register the table's metadata of before "
        "that commit (docs/tables.md, Clocks); the place is kept"
    )
    assert too_old("t", "CommitFailedException: others were quicker") is None
    assert too_old("t", said.replace("last snapshot log entry at", "the latest metadata log entry timestamp"))
    assert "999999999999999 ms" in str(too_old("t", said.replace("1796066880849", "999999999999999")))


def test_after_a_commit_by_a_clock_that_was_ahead_a_batch_says_what_to_do(spark: SparkSession, sql: Opened) -> None:
    name = sql.table("future")
    sink = IcebergSink(spark, name, typing(), settings())
    sink.add(batch(spark, 0, [Record(offset=0, value=b"a")]))
    commit_of_the_future(spark, sink)
    again = IcebergSink(spark, name, typing(), settings())
    for what in (
        lambda: again.add(batch(spark, 1, [Record(offset=1, value=b"b")])),
        lambda: again.begin_at({"others": {0: 5}}),
        lambda: again.table.set_property("any", "thing"),
        lambda: again.table.evolve(again.table.columns().append(pa.field("more", pa.int32()))),
    ):
        with pytest.raises(JobStopped, match=REFUSED):
            what()


@pytest.mark.parametrize("kind", ["sql", "rest"])
def test_a_machine_whose_clock_is_ahead_commits_nothing(
    request: pytest.FixtureRequest, spark: SparkSession, kind: str
) -> None:
    """Of a REST catalog by Iceberg's own access to the bucket, else by Hadoop's."""
    opened = request.getfixturevalue("sql") if kind == "sql" else opened_rest(request, spark)
    name = opened.table("ahead")
    ahead_ms, elapsed_s = [0], [0.0]
    clock = Watched(lambda: now_ms() + ahead_ms[0], elapsed_s=lambda: elapsed_s[0])
    sink = IcebergSink(spark, name, typing(), settings(), clock=clock)
    sink.add(batch(spark, 0, [Record(offset=0, value=b"a")]))
    ahead_ms[0] = 2 * HOUR_MS
    sink.add(batch(spark, 1, [Record(offset=1, value=b"b")]))  # an hour has not passed
    elapsed_s[0] = COMPARED_EVERY_S
    at = sink.table.newest_id()
    for what in (
        lambda: sink.add(batch(spark, 2, [Record(offset=2, value=b"c")])),
        lambda: IcebergSink(spark, name, typing(), settings(), clock=Watched(lambda: now_ms() + 2 * HOUR_MS)),
        lambda: maintain(
            spark, sink.table, Maintenance(target_file_size_bytes=1 << 20), clock_ms=lambda: now_ms() + 2 * HOUR_MS
        ),
    ):
        with pytest.raises(
            JobStopped, match=r"clock is 7[12]\d\d s ahead of the store's: nothing is committed.*set the"
        ):
            what()
    assert sink.table.newest_id() == at
    ahead_ms[0] = -2 * HOUR_MS  # one that is behind keeps nobody from the table
    sink.add(batch(spark, 2, [Record(offset=2, value=b"c")]))
    assert sink.places() == {"orders": {0: 3}}
    assert _clock_files(spark, name) == []


def _clock_files(spark: SparkSession, name: TableName) -> list[str]:
    table = IcebergTable(spark, name)
    jvm: Any = spark._jvm
    path = jvm.org.apache.hadoop.fs.Path(f"{table.location}/_bmq")
    files = path.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf())
    return [found.getPath().getName() for found in files.listStatus(path)] if files.exists(path) else []

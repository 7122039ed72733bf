"""Commits whose answers are cut off on the way: the table has their rows once, whether they were written or not."""

import os
from collections.abc import Iterator

import cutting_proxy
import pytest
from conftest import Buckets
from cutting_proxy import CuttingProxy
from iceberg_batches import Record, batch, settings, typing
from iceberg_catalogs import Opened, RestServer, opened_in
from iceberg_front import DoublingFront
from pyspark.sql import SparkSession
from table_records import add_batch, records, rows_of
from test_iceberg_races import MAINTENANCE, compact_as_anybody_would, expire_as_anybody_would, offsets

from bmq.errors import StoreError
from bmq_spark.errors import JobStopped
from bmq_spark.iceberg.catalogs import Catalog
from bmq_spark.iceberg.maintenance import maintain
from bmq_spark.iceberg.notes import Notes
from bmq_spark.iceberg.publishing import commit
from bmq_spark.iceberg.tables import IcebergTable
from bmq_spark.jobs.iceberg_sink import IcebergSink
from bmq_spark.locations import Location
from bmq_spark.table import Table
from bmq_spark.table.delta import publish


@pytest.fixture(scope="module")
def before_catalog(rest: RestServer) -> Iterator[CuttingProxy]:
    with cutting_proxy.before(rest.uri) as proxy:
        yield proxy


@pytest.fixture(scope="module")
def s3(minio: Buckets) -> dict[str, str]:
    return {
        "s3.endpoint": f"http://127.0.0.1:{minio.port}",
        "s3.access-key-id": os.environ["AWS_ACCESS_KEY_ID"],
        "s3.secret-access-key": os.environ["AWS_SECRET_ACCESS_KEY"],
        "s3.region": "us-east-1",
    }


@pytest.fixture(scope="module")
def cut_off(s3: dict[str, str], before_catalog: CuttingProxy, spark: SparkSession) -> Opened:
    return opened_in(
        spark, Catalog(name="cutoff", kind="rest", warehouse=None, uri=f"http://127.0.0.1:{before_catalog.port}"), s3
    )


def test_a_catalog_that_never_answers_is_one_line_and_the_batch_comes_with_the_next_run(
    spark: SparkSession, before_catalog: CuttingProxy, cut_off: Opened
) -> None:
    name = cut_off.table("silent")
    sink = IcebergSink(spark, name, typing(), settings())
    before_catalog.cut, before_catalog.times = 0, 100
    before_catalog.chosen = lambda asked: asked.startswith(b"POST ")
    before_catalog.passes = False
    with pytest.raises(JobStopped) as stopped:
        sink.add(batch(spark, 0, [Record(offset=0, value=b"v")]))
    before_catalog.chosen, before_catalog.passes = lambda _: False, True
    assert "\n" not in str(stopped.value) and str(stopped.value).startswith("table cutoff.db.silent: ")
    sink.add(batch(spark, 0, [Record(offset=0, value=b"v")]))
    assert offsets(cut_off, name) == [0]


def test_a_catalog_that_is_gone_once_a_table_was_made_is_one_line_and_the_next_run_goes_on(
    spark: SparkSession, before_catalog: CuttingProxy, cut_off: Opened
) -> None:
    name = cut_off.table("unsorted")
    before_catalog.cut, before_catalog.times = 0, 100
    before_catalog.chosen = lambda asked: b"add-sort-order" in asked
    before_catalog.passes = False
    with pytest.raises(JobStopped, match=r"table cutoff\.db\.unsorted: .*: see that the catalog runs") as stopped:
        IcebergSink(spark, name, typing(), settings())
    before_catalog.chosen, before_catalog.passes = lambda _: False, True
    assert "\n" not in str(stopped.value)
    IcebergSink(spark, name, typing(), settings()).add(batch(spark, 0, [Record(offset=0, value=b"v")]))
    assert offsets(cut_off, name) == [0] and len(cut_off.load(name).sort_order().fields) == 3


@pytest.mark.parametrize("times", [1, 20])
@pytest.mark.parametrize("what", [b'"action":"add-snapshot"', b'"bmq.places-snapshot"'], ids=["staging", "the step"])
def test_an_iceberg_batch_whose_commits_answer_is_cut_off_comes_once(
    spark: SparkSession, before_catalog: CuttingProxy, cut_off: Opened, what: bytes, times: int
) -> None:
    name = cut_off.table(f"{'staging' if b'add' in what else 'step'}_{times}")
    sink = IcebergSink(spark, name, typing(), settings())
    sink.add(batch(spark, 0, [Record(offset=0, value=b"before"), Record(offset=1, value=b"\xff")]))
    before_catalog.cut, before_catalog.times = 0, times
    before_catalog.chosen = lambda asked: asked.startswith(b"POST ") and what in asked
    some = [Record(offset=offset, value=b"\xff" if offset == 3 else b"v") for offset in range(2, 5)]
    assert sink.add(batch(spark, 1, some)).rows == 2
    before_catalog.chosen = lambda _: False
    assert before_catalog.cut >= 1
    assert offsets(cut_off, name) == [0, 2, 4] and offsets(cut_off, name.dead_letters) == [1, 3]
    # What may have been staged without its files is nobody's trouble later.
    maintain(spark, IcebergTable(spark, name), MAINTENANCE)
    compact_as_anybody_would(spark, name)
    expire_as_anybody_would(spark, name)
    assert IcebergSink(spark, name, typing(), settings()).places() == {"orders": {0: 5}}
    assert offsets(cut_off, name) == [0, 2, 4]


def test_a_staging_that_is_delivered_twice_ends_no_run(
    spark: SparkSession, rest: RestServer, s3: dict[str, str]
) -> None:
    """The catalog has it by the first delivery and refuses the second: Iceberg deletes the files of what is there."""
    front = DoublingFront(rest.uri)
    opened = opened_in(spark, Catalog(name="doubled", kind="rest", warehouse=None, uri=front.uri), s3)
    name = opened.table("twice")
    sink = IcebergSink(spark, name, typing(), settings())
    sink.add(batch(spark, 0, [Record(offset=0, value=b"before"), Record(offset=1, value=b"\xff")]))
    front.chosen = lambda body: b'"action":"add-snapshot"' in body and b"set-snapshot-ref" not in body
    front.times = 1
    assert sink.add(batch(spark, 1, [Record(offset=offset, value=b"v") for offset in range(2, 5)])).rows == 3
    assert front.doubled == [400] and offsets(opened, name) == [0, 2, 3, 4]
    front.times = 1
    commit(spark, IcebergTable(spark, name), Notes(places={"orders": {0: 7}}), have=sink.places())
    assert front.doubled == [400, 400] and sink.places() == {"orders": {0: 7}}
    # Nothing is left of what has no files.
    assert maintain(spark, IcebergTable(spark, name), MAINTENANCE).snapshots_expired > 0
    assert offsets(opened, name) == [0, 2, 3, 4] and offsets(opened, name.dead_letters) == [1]
    front.stop()


@pytest.mark.parametrize("passes", [True, False], ids=["answers", "requests"])
@pytest.mark.parametrize("times", [1, 20])
@pytest.mark.parametrize("what", ["_bmq/log/", "_delta_log/", ".parquet"])
def test_a_parquet_batch_whose_commit_is_cut_off_comes_once(
    minio: Buckets, what: str, times: int, passes: bool
) -> None:
    direct = minio.location("cut")
    proxy = CuttingProxy(minio.port, times=times)
    location = Location(direct.uri.replace(f":{minio.port}", f":{proxy.port}"))
    table = Table.create(location, {"id": "x", "partition-by": "hour"})
    taken = [records("orders", 0, number * 10, 10) for number in range(3)]
    add_batch(table, "q", 0, taken[:1])
    proxy.passes = passes
    proxy.chosen = lambda asked: asked.startswith(b"PUT ") and what.encode() in asked.partition(b" HTTP/")[0]
    ended = False
    for _ in range(3):
        try:
            add_batch(table, "q", 1, taken[1:])
            publish(table)
            ended = True
            break
        except StoreError:
            table = Table.open(direct)
            proxy.times = 0
    proxy.stop()
    assert ended and proxy.cut >= 1
    assert [row[2] for row in rows_of(direct.uri)] == list(range(30))

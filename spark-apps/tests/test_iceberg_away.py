"""A REST catalog that is away for a while: looks wait for it, and a batch goes on."""

from collections.abc import Iterator
from dataclasses import replace
from threading import Timer
from typing import Any

import cutting_proxy
import pytest
from cutting_proxy import CuttingProxy
from hurried import TRIES, Moved, hurried
from iceberg_batches import Record, batch, settings, typing
from iceberg_catalogs import Opened, RestServer, opened_in
from iceberg_front import Front
from pyspark.sql import SparkSession

from bmq_spark.errors import JobStopped
from bmq_spark.iceberg.catalogs import Catalog, TableName
from bmq_spark.iceberg.tables import IcebergTable
from bmq_spark.jobs.iceberg_sink import IcebergSink
from bmq_spark.patience import Patience

AWAY_S = 2.0


@pytest.fixture(scope="module")
def proxy(rest: RestServer) -> Iterator[CuttingProxy]:
    with cutting_proxy.before(rest.uri) as proxy:
        yield proxy


@pytest.fixture(scope="module")
def before(proxy: CuttingProxy, spark: SparkSession) -> Opened:
    """The catalog that may go."""
    catalog = Catalog(name="leaving", kind="rest", warehouse=None, uri=f"http://127.0.0.1:{proxy.port}")
    return opened_in(spark, catalog, {})


class PageFront(Front):
    """Knows everybody, and answers the next `times` requests that have `what` by a page for people; what `arrives` the
    catalog has done by then.
    """

    times = 0
    what = b""
    arrives = False

    def _knows(self, kind: str, token: str) -> bool:
        return True

    def _forward(self, asked: Any, body: bytes) -> tuple[int, bytes]:
        if self.times == 0 or self.what not in body:
            return super()._forward(asked, body)
        self.times -= 1
        if self.arrives:
            super()._forward(asked, body)
        return 200, b"<html>a gateway's</html>"


@pytest.fixture(scope="module")
def pages(rest: RestServer) -> Iterator[PageFront]:
    front = PageFront(rest.uri)
    yield front
    front.stop()


def coming(proxy: CuttingProxy, pauses: int = 3) -> Patience:
    """The proxy comes in the midst of the third pause."""
    clock, left = Moved(), [pauses]

    def sleep(pause_s: float) -> None:
        clock.sleep(pause_s)
        left[0] -= 1
        if left[0] == 0:
            proxy.come()

    return replace(hurried(clock), sleep=sleep)


def made(spark: SparkSession, catalog: Opened, name: str) -> IcebergTable:
    return IcebergSink(spark, catalog.table(name), typing(), settings()).table


def test_whoever_looks_waits_for_a_catalog_that_is_started_anew(
    spark: SparkSession, proxy: CuttingProxy, before: Opened
) -> None:
    name = made(spark, before, "looked_at").name
    proxy.go()
    table = IcebergTable.open(spark, name, patience=coming(proxy))
    assert table is not None
    for look in ("refresh", "state", "schema", "places", "columns", "newest_id", "properties"):
        proxy.go()
        table = IcebergTable(spark, name, patience=coming(proxy))
        proxy.go()
        table._patience = coming(proxy)
        getattr(table, look)()


def test_a_catalog_that_stays_away_is_one_line(spark: SparkSession, proxy: CuttingProxy, before: Opened) -> None:
    table = made(spark, before, "gone")
    proxy.go()
    table._patience = hurried(clock := Moved())
    with pytest.raises(
        JobStopped, match=r"table leaving\.db\.gone: .*Connection refused.*: see that the catalog"
    ) as stopped:
        table.state()
    assert "\n" not in str(stopped.value) and clock.now_s > Moved().now_s + 28
    proxy.come()


def test_a_page_of_a_gateway_is_no_answer(spark: SparkSession, pages: PageFront) -> None:
    catalog = opened_in(spark, Catalog(name="paged", kind="rest", warehouse=None, uri=pages.uri), {})
    table = made(spark, catalog, "orders")
    table._patience = hurried()
    for look in ("refresh", "state", "schema"):
        pages.times = TRIES - 1
        getattr(table, look)()
        assert pages.times == 0
    pages.times = 100
    with pytest.raises(JobStopped, match="JsonParseException"):
        table.refresh()
    pages.times = 0


@pytest.mark.parametrize("what", [b'"action":"add-snapshot"', b'"bmq.places-snapshot"'], ids=["staging", "the step"])
def test_a_batch_whose_commit_a_gateway_answers_by_a_page_comes_once(
    spark: SparkSession, pages: PageFront, what: bytes
) -> None:
    catalog = opened_in(spark, Catalog(name="paged", kind="rest", warehouse=None, uri=pages.uri), {})
    name = catalog.table("page_" + ("staging" if b"add" in what else "step"))
    sink = IcebergSink(spark, name, typing(), settings())
    pages.what, pages.times = what, 1
    sink.add(batch(spark, 0, [Record(offset=0, value=b"v")]))
    assert (pages.times, offsets(spark, name)) == (0, [0])
    pages.what = b""


@pytest.mark.parametrize("arrives", [False, True])
def test_a_table_whose_making_a_gateway_answers_by_a_page_is_made_once(
    spark: SparkSession, pages: PageFront, arrives: bool
) -> None:
    catalog = opened_in(spark, Catalog(name="paged", kind="rest", warehouse=None, uri=pages.uri), {})
    name = catalog.table(f"making_{arrives}")
    pages.what, pages.arrives, pages.times = b'"stage-create"', arrives, 1
    sink = IcebergSink(spark, name, typing(), settings())
    assert pages.times == 0
    pages.what, pages.arrives = b"", False
    sink.add(batch(spark, 0, [Record(offset=0, value=b"v")]))
    assert offsets(spark, name) == [0]


def offsets(spark: SparkSession, name: TableName) -> list[int]:
    return sorted(row["offset"] for row in spark.table(name.sql).select("offset").collect())


@pytest.mark.parametrize("value", [b"v", b"\xff"], ids=["a row", "a dead letter"])
def test_a_batch_in_whose_midst_the_catalog_is_started_anew_comes_once(
    spark: SparkSession, proxy: CuttingProxy, before: Opened, value: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the batch, and before what stages it."""
    name = before.table("batch_" + value.hex())
    sink = IcebergSink(spark, name, typing(), settings())
    sink.add(batch(spark, 0, [Record(offset=0, value=b"v"), Record(offset=1, value=b"\xff")]))
    gone = 0

    def goes() -> None:
        nonlocal gone
        gone += 1
        proxy.go()
        Timer(AWAY_S, proxy.come).start()

    goes()
    some = batch(spark, 1, [Record(offset=2, value=value)])
    stages = IcebergTable.stages

    def goes_once_it_stages(table: IcebergTable) -> None:
        stages(table)
        if gone == 1:
            table.newest_id()
            goes()

    monkeypatch.setattr(IcebergTable, "stages", goes_once_it_stages)
    sink.add(some)
    assert gone == 2
    assert (offsets(spark, name), offsets(spark, name.dead_letters)) == (
        ([0, 2], [1]) if value == b"v" else ([0], [1, 2])
    )

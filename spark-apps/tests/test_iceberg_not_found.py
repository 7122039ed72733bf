"""A REST catalog behind a gateway that says 404 while its route to the catalog is away: no table is taken for gone."""

from collections.abc import Iterator
from typing import Any

import pytest
from hurried import Moved, hurried
from iceberg_batches import Record, batch, settings, typing
from iceberg_catalogs import Opened, RestServer, opened_in
from iceberg_front import Front
from pyspark.sql import SparkSession

from bmq_spark.errors import JobStopped
from bmq_spark.iceberg.catalogs import Catalog, TableName
from bmq_spark.iceberg.tables import IcebergTable
from bmq_spark.jobs.iceberg_sink import IcebergSink

PAGES = {"text": b"404 page not found\n", "JSON": b'{"message":"no Route matched with those values"}'}


class AwayFront(Front):
    """Knows everybody, and answers by 404 what has `word` in its path: the next `times`, or every other one."""

    times = 0
    word = ""
    page = PAGES["text"]
    by_turns = False
    answered = 0

    def _knows(self, kind: str, token: str) -> bool:
        return True

    def _forward(self, asked: Any, body: bytes) -> tuple[int, bytes]:
        if "/config" in asked.path or self.word not in asked.path:
            return super()._forward(asked, body)
        self.answered += 1
        if self.times == 0 and not (self.by_turns and self.answered % 2):
            return super()._forward(asked, body)
        self.times -= self.times > 0
        return 404, self.page

    def goes(self, times: int, word: str = "", page: bytes = PAGES["text"]) -> None:
        self.times, self.word, self.page = times, word, page


@pytest.fixture(scope="module")
def server(rest: RestServer) -> Iterator[AwayFront]:
    front = AwayFront(rest.uri)
    yield front
    front.stop()


@pytest.fixture
def front(server: AwayFront) -> Iterator[AwayFront]:
    yield server
    server.by_turns, server.times = False, 0


@pytest.fixture
def catalog(spark: SparkSession, front: AwayFront) -> Opened:
    return opened_in(spark, Catalog(name="notfound", kind="rest", warehouse=None, uri=front.uri), {})


def offsets(spark: SparkSession, name: TableName) -> list[int]:
    return sorted(row["offset"] for row in spark.table(name.sql).select("offset").collect())


@pytest.mark.parametrize("page", PAGES)
def test_a_404_is_asked_past_by_all_that_looks(
    spark: SparkSession, front: AwayFront, catalog: Opened, page: str
) -> None:
    name = catalog.table(f"looked_at_{page.lower()}")
    table = IcebergSink(spark, name, typing(), settings()).table
    table._patience = hurried()
    for look in ("refresh", "state", "schema", "places"):
        front.goes(5, page=PAGES[page])
        getattr(table, look)()
        assert front.times == 0
    for times, word in ((5, ""), (1, f"tables/{name.name}")):
        front.goes(times, word, PAGES[page])
        assert IcebergTable.open(spark, name, patience=hurried()) is not None
        assert front.times == 0


def test_a_404_that_comes_by_turns_with_the_catalog_s_answers_hides_no_table(
    spark: SparkSession, front: AwayFront, catalog: Opened
) -> None:
    name = catalog.table("by_turns")
    IcebergSink(spark, name, typing(), settings())
    for first in (0, 1):
        front.goes(0)
        front.by_turns, front.answered = True, first
        assert IcebergTable.open(spark, name, patience=hurried()) is not None
        front.by_turns = False


def test_a_table_that_is_not_there_is_known_at_once(spark: SparkSession, catalog: Opened) -> None:
    there = IcebergSink(spark, catalog.table("there"), typing(), settings()).table
    clock = Moved()
    assert IcebergTable.open(spark, catalog.table("not_there"), patience=hurried(clock)) is None
    nowhere = TableName(catalog=there.name.catalog, namespace=("nowhere",), name="orders")
    assert IcebergTable.open(spark, nowhere, patience=hurried(clock)) is None
    assert clock.now_s == Moved().now_s


def test_a_gateway_that_stays_without_a_route_is_one_line(
    spark: SparkSession, front: AwayFront, catalog: Opened
) -> None:
    table = IcebergSink(spark, catalog.table("stays"), typing(), settings()).table
    table._patience = hurried(clock := Moved())
    front.goes(10_000)
    for look in (table.state, lambda: IcebergTable.open(spark, table.name, patience=hurried(clock))):
        with pytest.raises(
            JobStopped, match=r"table notfound\.db\.stays: .*404 page not found.*: see that the"
        ) as said:
            look()
        assert "\n" not in str(said.value)
    assert clock.now_s > Moved().now_s + 56


def test_dead_letters_that_a_404_hid_are_not_added_again(
    spark: SparkSession, front: AwayFront, catalog: Opened
) -> None:
    """A run was killed between its two commits."""
    name = catalog.table("hidden")
    killed = IcebergSink(spark, name, typing(), settings())

    def dies(*_: Any) -> None:
        raise KeyboardInterrupt

    killed._write = dies  # type: ignore[method-assign,assignment]
    records = [Record(offset=0, value=b"v"), Record(offset=1, value=b"\xff")]
    with pytest.raises(KeyboardInterrupt):
        killed.add(batch(spark, 0, records))
    front.goes(1, name.dead_letters.name)
    again = IcebergSink(spark, name, typing(), settings())
    assert front.times == 0
    again.add(batch(spark, 0, records))
    assert (offsets(spark, name), offsets(spark, name.dead_letters)) == ([0], [1])


def test_a_batch_in_whose_midst_a_404_comes_is_added_once(
    spark: SparkSession, front: AwayFront, catalog: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = catalog.table("midst")
    sink = IcebergSink(spark, name, typing(), settings())
    stages = IcebergTable.stages

    def then_goes(table: IcebergTable) -> None:
        stages(table)
        table.newest_id()
        if front.answered >= 0:
            front.goes(1, f"tables/{name.name}")
            front.answered = -1_000_000

    monkeypatch.setattr(IcebergTable, "stages", then_goes)
    sink.add(batch(spark, 0, [Record(offset=0, value=b"v"), Record(offset=1, value=b"\xff")]))
    assert front.times == 0
    assert (offsets(spark, name), offsets(spark, name.dead_letters)) == ([0], [1])

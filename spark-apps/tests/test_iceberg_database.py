"""A SQL catalog whose database is started anew, or locked by somebody else, for a while: looks wait for it, and a batch
comes once.
"""

import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import cutting_proxy
import pytest
from hurried import Moved, hurried
from iceberg_batches import Record, batch, settings, typing
from iceberg_catalogs import Opened, Postgres
from pyspark.sql import SparkSession
from tests.waiting import let_pass

from bmq_spark.iceberg.catalogs import Catalog
from bmq_spark.iceberg.tables import IcebergTable
from bmq_spark.jobs.iceberg_sink import IcebergSink

HELD_S = 5.0
"""Longer than SQLite's driver waits by itself."""


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    server = Postgres()
    yield server
    server.stop()


@pytest.fixture(params=[None, "40001"], ids=["asked again by Iceberg", "not by Iceberg"])
def opened(
    spark: SparkSession, postgres: Postgres, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Opened:
    states = request.param
    config = {} if states is None else {"retryable_status_codes": states}
    return known(spark, postgres, postgres.uri, f"restarted{states or ''}", tmp_path_factory, **config)


def known(
    spark: SparkSession, server: Postgres, uri: str, name: str, folders: pytest.TempPathFactory, **config: str
) -> Opened:
    catalog = Catalog(name=name, kind="sql", warehouse=str(folders.getbasetemp() / name), uri=uri, config=config)
    given = {"ICEBERG_SQL_USER": server.user, "ICEBERG_SQL_PASSWORD": server.password}
    for key, value in catalog.settings(given).items():
        spark.conf.set(key, value)
    return Opened(catalog=catalog, s3={}, login=f"{server.user}:{server.password.replace(' ', '%20')}")


def offsets(spark: SparkSession, table: IcebergTable) -> list[int]:
    return sorted(row["offset"] for row in table.read(spark).select("offset").collect())


def restarts(server: Postgres) -> None:
    server.go()
    server.come()


def test_whoever_looks_waits_for_a_database_that_is_started_anew(
    spark: SparkSession, postgres: Postgres, opened: Opened
) -> None:
    name = IcebergSink(spark, opened.table("looked_at"), typing(), settings()).table.name
    for look in ("refresh", "state", "schema", "places", "columns", "newest_id", "properties"):
        table = IcebergTable(spark, name)
        restarts(postgres)
        getattr(table, look)()
    # A connection that was cut in the midst, to a server that stays away for some pauses.
    clock, left = Moved(), [3]

    def sleep(pause_s: float) -> None:
        clock.sleep(pause_s)
        left[0] -= 1
        if left[0] == 0:
            postgres.come()

    table._patience = replace(hurried(clock), sleep=sleep)
    postgres.go()
    table.state()
    assert left == [0]


@pytest.mark.parametrize("value", [b"v", b"\xff"], ids=["a row", "a dead letter"])
def test_a_batch_in_whose_midst_the_database_is_started_anew_comes_once(
    spark: SparkSession,
    postgres: Postgres,
    opened: Opened,
    value: bytes,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Before the batch, and before what stages it."""
    sink = IcebergSink(spark, opened.table(f"batch_{value.hex()}"), typing(), settings())
    sink.add(batch(spark, 0, [Record(offset=0, value=b"v"), Record(offset=1, value=b"\xff")]))
    restarts(postgres)
    stages, gone = IcebergTable.stages, []

    def goes_once_it_stages(table: IcebergTable) -> None:
        stages(table)
        if not gone:
            table.newest_id()
            restarts(postgres)
            gone.append(table)

    monkeypatch.setattr(IcebergTable, "stages", goes_once_it_stages)
    sink.add(batch(spark, 1, [Record(offset=2, value=value)]))
    assert gone and sink._dead is not None
    assert (offsets(spark, sink.table), offsets(spark, sink._dead)) == (
        ([0, 2], [1]) if value == b"v" else ([0], [1, 2])
    )


@pytest.mark.parametrize("times", [1, 4])
@pytest.mark.parametrize("commit", [1, 2], ids=["staging", "the step"])
def test_a_batch_whose_commits_answer_the_database_does_not_give_comes_once(
    spark: SparkSession, postgres: Postgres, commit: int, times: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with cutting_proxy.before(postgres.uri.removeprefix("jdbc:")) as proxy:
        uri = postgres.uri.replace(f":{postgres.port}/", f":{proxy.port}/")
        opened = known(spark, postgres, uri, f"cut{commit}{times}", tmp_path_factory)
        sink = IcebergSink(spark, opened.table("orders"), typing(), settings())
        sink.add(batch(spark, 0, [Record(offset=0, value=b"v")]))
        proxy.cut, proxy.times = 0, times
        proxy.chosen = from_the(commit)
        sink.add(batch(spark, 1, [Record(offset=1, value=b"v"), Record(offset=2, value=b"v")]))
        proxy.chosen = lambda _: False
        assert proxy.cut >= 1
        assert (sink.places(), offsets(spark, sink.table)) == ({"orders": {0: 3}}, [0, 1, 2])


def from_the(commit: int) -> Callable[[bytes], bool]:
    """Commits of a table from that one on. They alone name files to the database, which knows a statement that came
    often by a name.
    """
    seen = 0

    def chosen(asked: bytes) -> bool:
        nonlocal seen
        seen += b".metadata.json" in asked
        return seen >= commit and b".metadata.json" in asked

    return chosen


@contextmanager
def held(database: str, seconds: float) -> Iterator[None]:
    """Somebody else has SQLite's lock, for so long from the beginning on."""
    there = threading.Event()

    def hold() -> None:
        connection = sqlite3.connect(database, timeout=30, isolation_level=None)
        connection.execute("BEGIN EXCLUSIVE")
        there.set()
        let_pass(seconds, "the outage")
        connection.execute("ROLLBACK")
        connection.close()

    holding = threading.Thread(target=hold)
    holding.start()
    assert there.wait(30)
    yield
    holding.join()


@pytest.mark.parametrize("timeout_ms", [None, "1"], ids=["the driver waits", "it does not"])
def test_a_database_that_somebody_else_has_locked_is_waited_for(
    spark: SparkSession, timeout_ms: str | None, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("locked")
    database = str(folder / "catalog.db")
    catalog = Catalog(
        name="locked" + (timeout_ms or ""),
        kind="sql",
        warehouse=str(folder / "warehouse"),
        uri=f"jdbc:sqlite:{database}",
        config={} if timeout_ms is None else {"jdbc.busy_timeout": timeout_ms},
    )
    for key, value in catalog.settings({}).items():
        spark.conf.set(key, value)
    opened = Opened(catalog=catalog, s3={})
    sink = IcebergSink(spark, opened.table("orders"), typing(), settings())
    with held(database, HELD_S):
        sink.table.refresh()
    with held(database, HELD_S):
        sink.add(batch(spark, 0, [Record(offset=0, value=b"v")]))
    assert offsets(spark, sink.table) == [0]

"""The examples as their users run them: a real `bmq up`, and what is in the tables afterwards."""

import ast
import json
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import duckdb
import pytest
from compat_server import ROOT, Bmq
from parquet_jobs import produce, topic_of
from pyspark.sql import SparkSession

EXAMPLES = ROOT / "spark-apps" / "examples"
MINUTE_MS = 60_000
DAY_MS = 24 * 60 * MINUTE_MS
NOON_MS = int(time.time() * 1000) // DAY_MS * DAY_MS - 3 * DAY_MS + DAY_MS // 2
"""Three days ago: what is much older, retention deletes."""


@pytest.fixture(autouse=True)
def examples_can_be_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))


def _click(bmq: Bmq, topic: str, user: str, minute: int) -> None:
    produce(
        bmq.servers, topic, [json.dumps({"user": user}).encode()], timestamp=NOON_MS + minute * MINUTE_MS, partition=0
    )


def test_sessions_are_counted_once_when_they_are_over(bmq: Bmq, spark: SparkSession, tmp_path: Path) -> None:
    import session_counts

    topic = topic_of(bmq.servers, partitions=1)
    for user, minute in (("ann", 0), ("bob", 1), ("ann", 20), ("ann", 90), ("eve", 300)):
        _click(bmq, topic, user, minute)
    for key, value in session_counts.settings(str(tmp_path / "lake")).items():
        spark.conf.set(key, value)
    options = session_counts.parse(
        [
            "--bootstrap-servers",
            bmq.servers,
            "--topic",
            topic,
            "--warehouse",
            str(tmp_path / "lake"),
            "--checkpoint",
            str(tmp_path / "c"),
            "--once",
        ]
    )
    session_counts.run(spark, options)
    _click(bmq, topic, "late", 10)
    _click(bmq, topic, "zoe", 900)
    session_counts.run(spark, options)
    found = spark.sql(
        "SELECT user, minute(began), records, (unix_seconds(ended) - unix_seconds(began)) / 60 FROM "
        f"{session_counts.TABLE} ORDER BY began, user"
    )
    assert [tuple(row) for row in found.collect()] == [
        ("ann", 0, 2, 50.0),
        ("bob", 1, 1, 30.0),
        ("ann", 30, 1, 30.0),
        ("eve", 0, 1, 30.0),
    ]

    # The newest batch comes again, as after a failure between its snapshot and Spark's note of it.
    query, number = spark.sql(
        f"SELECT summary['query'], summary['batch'] FROM {session_counts.TABLE}.snapshots ORDER BY committed_at DESC"
    ).first()
    spark.sparkContext.setLocalProperty("sql.streaming.queryId", query)
    sessions = session_counts.Sessions(spark)
    sessions.add(spark.table(session_counts.TABLE), int(number))
    assert spark.table(session_counts.TABLE).count() == 4
    sessions.add(spark.table(session_counts.TABLE), int(number) + 1)
    assert spark.table(session_counts.TABLE).count() == 8


def test_orders_get_their_customers_and_later_ones_too(bmq: Bmq, spark: SparkSession, tmp_path: Path) -> None:
    import enriched_orders

    topic = topic_of(bmq.servers, partitions=1)
    customers, output = tmp_path / "customers", tmp_path / "enriched"
    customers.mkdir()
    duckdb.sql(f"COPY (SELECT 7::BIGINT AS customer_id, 'Ann' AS name, 'CH' AS country) TO '{customers}/one.parquet'")
    arguments = [
        "--bootstrap-servers",
        bmq.servers,
        "--topic",
        topic,
        "--customers",
        str(customers),
        "--output",
        str(output),
    ]
    options = enriched_orders.parse([*arguments, "--checkpoint", str(tmp_path / "c"), "--once"])
    orders = [
        b'{"order_id": 1, "customer_id": 7, "amount": 12.50}',
        b'{"order_id": 2, "customer_id": 8, "amount": 1}',
        b"no order",
    ]
    produce(bmq.servers, topic, orders, timestamp=NOON_MS)
    enriched_orders.run(spark, options)
    duckdb.sql(f"COPY (SELECT 8::BIGINT AS customer_id, 'Bob' AS name, 'FR' AS country) TO '{customers}/two.parquet'")
    produce(bmq.servers, topic, [b'{"order_id": 3, "customer_id": 8, "amount": 2.25}'], timestamp=NOON_MS + DAY_MS)
    enriched_orders.run(spark, options)
    found = duckdb.sql(
        f"SELECT order_id, name, country, amount::VARCHAR, day::VARCHAR FROM '{output}/**/*.parquet' ORDER BY order_id"
    ).fetchall()
    day, next_day = (str(datetime.fromtimestamp(at_ms / 1000, UTC).date()) for at_ms in (NOON_MS, NOON_MS + DAY_MS))
    assert found == [(1, "Ann", "CH", "12.50", day), (2, None, None, "1.00", day), (3, "Bob", "FR", "2.25", next_day)]


@pytest.mark.parametrize("name", ["session_counts", "enriched_orders"])
def test_an_applications_yaml_names_its_file_and_options_that_it_has(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (EXAMPLES / f"{name.replace('_', '-')}.yaml").read_text()
    assert f"mainApplicationFile: local:///mnt/examples/{name}.py" in text
    given = [line.strip().removeprefix("- ") for line in text.splitlines() if line.strip().startswith("- --")]
    module = __import__(name)
    assert module.parse(given).bootstrap_servers == "bmq-bootstrap:9092"


def test_examples_use_nothing_that_the_image_has_not() -> None:
    files = list(EXAMPLES.glob("*.py"))
    assert files
    for file in files:
        roots = {
            (node.module or "").partition(".")[0]
            if isinstance(node, ast.ImportFrom)
            else node.names[0].name.partition(".")[0]
            for node in ast.walk(ast.parse(file.read_text()))
            if isinstance(node, ast.Import | ast.ImportFrom)
        }
        assert roots <= {*sys.stdlib_module_names, "pyspark", "bmq_spark"}, file

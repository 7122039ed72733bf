"""The whole job over a table that somebody rolled back to before it had anything of a topic: what is missing then is
added again.
"""

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest
from compat_server import Bmq
from iceberg_catalogs import opened_in
from parquet_jobs import produce, topic_of
from pyspark.sql import SparkSession

from bmq_spark.errors import JobStopped
from bmq_spark.iceberg.catalogs import Catalog, TableName
from bmq_spark.jobs import iceberg
from bmq_spark.jobs.iceberg_sink import IcebergSink
from bmq_spark.jobs.sinks import Added, Batch

Run = Callable[..., None]


_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("warehouse")


@pytest.fixture
def name(spark: SparkSession, warehouse: Path) -> TableName:
    return opened_in(spark, Catalog(name="back", kind="hadoop", warehouse=str(warehouse), uri=None), {}).table(
        f"orders{next(_numbers)}"
    )


@pytest.fixture
def run(bmq: Bmq, spark: SparkSession, warehouse: Path, name: TableName) -> Run:
    def once(*topics: str, more: tuple[str, ...] = ()) -> None:
        given = [
            "--bootstrap-servers",
            bmq.servers,
            "--table",
            str(name),
            "--catalog-type",
            "hadoop",
            "--warehouse",
            str(warehouse),
        ]
        options = iceberg.parse([*given, *(part for topic in topics for part in ("--topic", topic)), "--once", *more])
        assert isinstance(options, iceberg.IcebergOptions)
        iceberg.run(options, spark)

    return once


def snapshots(spark: SparkSession, name: TableName) -> list[int]:
    """From the oldest on."""
    return [
        row["snapshot_id"]
        for row in spark.sql(f"SELECT snapshot_id FROM {name.sql}.snapshots ORDER BY committed_at").collect()
    ]


def roll_back(spark: SparkSession, name: TableName, snapshot: int) -> None:
    spark.sql(f"CALL `{name.catalog}`.system.rollback_to_snapshot('{name.in_catalog}', {snapshot})").collect()


def values(spark: SparkSession, name: TableName) -> list[str]:
    return sorted(bytes(row["value"]).decode() for row in spark.table(name.sql).select("value").collect())


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "case",
    [(to, start) for to in ("before the first batch", "before a topic was added") for start in ("earliest", "latest")],
)
def test_a_table_that_was_rolled_back_to_before_a_topic_gets_all_of_it(
    bmq: Bmq, spark: SparkSession, name: TableName, run: Run, case: tuple[str, str]
) -> None:
    """Runs with other topics begin other queries, each where the table was: that is not where the job began."""
    to, start = case
    first, second, third = (topic_of(bmq.servers, partitions=1) for _ in range(3))
    told = ("--starting-offsets", start)
    if start == "latest":
        for topic in (first, second, third):
            produce(bmq.servers, topic, [b"before"])
        run(first, more=told)
    produce(bmq.servers, first, [b"1", b"2"])
    run(first, more=told)
    then = snapshots(spark, name)[-1 if to == "before a topic was added" else (1 if start == "latest" else 0)]
    for topics in ((first, second), (first, second, third)):
        if start == "latest":
            run(*topics, more=told)
        produce(bmq.servers, topics[-1], [f"{len(topics)}{letter}".encode() for letter in "ab"])
        run(*topics, more=told)
    there = ["1", "2", "2a", "2b", "3a", "3b"]
    assert values(spark, name) == there
    roll_back(spark, name, then)
    run(first, second, third, more=told)
    assert values(spark, name) == there


@pytest.mark.timeout(600)
def test_a_table_that_is_rolled_back_to_nothing_between_two_batches_stops_the_job_and_the_next_run_adds_all(
    bmq: Bmq, spark: SparkSession, name: TableName, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = topic_of(bmq.servers, partitions=1)
    produce(bmq.servers, topic, [b"%d" % number for number in range(9)])
    add = IcebergSink.add

    def then_back(sink: IcebergSink, batch: Batch) -> Added:
        added = add(sink, batch)
        if batch.batch_id == 0:
            roll_back(spark, name, snapshots(spark, name)[0])
        return added

    with monkeypatch.context() as patched:
        patched.setattr(IcebergSink, "add", then_back)
        with pytest.raises(JobStopped, match=f"{topic}/0 0–2: the table .* has them no more.* Run the job again"):
            run(topic, more=("--max-records-per-batch", "3"))
    run(topic)
    assert values(spark, name) == [str(number) for number in range(9)]

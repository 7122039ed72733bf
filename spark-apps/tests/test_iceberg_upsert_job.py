"""The whole job with --upsert-key: `bmq up`, producers whose times do not rise, batches of a few records, and what is
left by definition.
"""

import datetime
import random
from pathlib import Path

import pytest
from compat_server import Bmq
from confluent_kafka import Producer
from iceberg_catalogs import Opened, opened_in
from parquet_jobs import topic_of
from pyspark.sql import SparkSession
from test_iceberg_upserts import random_logs
from upsert_model import left

from bmq_spark.iceberg.catalogs import Catalog
from bmq_spark.jobs import iceberg

FIRST_MS = int(datetime.datetime(2026, 3, 1, tzinfo=datetime.UTC).timestamp() * 1000)


@pytest.mark.timeout(900)
def test_a_job_that_takes_a_topic_in_several_batches_has_the_rows_that_folding_record_by_record_leaves(
    bmq: Bmq, spark: SparkSession, tmp_path: Path
) -> None:
    topic = topic_of(bmq.servers, partitions=2)
    opened: Opened = opened_in(
        spark, Catalog(name="upserted", kind="hadoop", warehouse=str(tmp_path / "warehouse"), uri=None), {}
    )
    name = opened.table("orders")
    logs = random_logs(random.Random(3), partitions=2, length=60, keys=25)
    given = [
        "--bootstrap-servers",
        bmq.servers,
        "--topic",
        topic,
        "--table",
        str(name),
        "--catalog-type",
        "hadoop",
        "--format",
        "string",
        "--once",
    ]
    given += [
        "--warehouse",
        str(tmp_path / "warehouse"),
        "--key-format",
        "string",
        "--upsert-key",
        "key",
        "--max-records-per-batch",
        "40",
    ]
    options = iceberg.parse(given)
    assert isinstance(options, iceberg.IcebergOptions)
    producer = Producer({"bootstrap.servers": bmq.servers})
    for told in (log[:30] for log in logs), (log[30:] for log in logs):
        for record in (record for log in told for record in log):
            value = None if record.value is None else record.value.encode()
            producer.produce(
                topic, value, record.key.encode(), record.partition, timestamp=FIRST_MS + record.time * 60_000
            )
        assert producer.flush(30) == 0
        iceberg.run(options, spark)
    found = {row["key"]: row for row in opened.load(name).scan().to_arrow().to_pylist()}
    kept = {
        key: (row["value"], row["partition"], (int(row["key_timestamp"].timestamp() * 1000) - FIRST_MS) // 60_000)
        for key, row in found.items()
    }
    assert kept == left(record for log in logs for record in log)

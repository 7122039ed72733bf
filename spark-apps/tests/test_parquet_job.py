from pathlib import Path

import duckdb
from compat_server import Bmq
from parquet_jobs import arguments, produce, rows, topic_of
from pyspark.sql import SparkSession

from bmq_spark.jobs.parquet import parse, run

HOUR_MS = 3_600_000


def test_a_topic_becomes_a_table_and_a_second_run_adds_what_is_new(bmq: Bmq, spark: SparkSession, tmp_path: Path) -> None:
    topic = topic_of(bmq.servers)
    produce(bmq.servers, topic, [b"%d" % number for number in range(1000)])
    options = parse(arguments(bmq.servers, tmp_path / "t", topic))
    assert run(options, spark).rows == 1000
    assert run(options, spark).rows == 0
    produce(bmq.servers, topic, [b"%d" % number for number in range(1000, 1100)])
    assert run(options, spark).rows == 100
    assert sorted(int(value) for (value,) in rows(tmp_path / "t")) == list(range(1100))
    plain = duckdb.connect().execute(f"SELECT count(*), count(DISTINCT (partition, \"offset\")) FROM '{tmp_path}/t/date=*/**/*.parquet'").fetchall()
    assert plain == [(1100, 1100)]


def test_every_part_of_a_record_arrives_and_late_ones_go_to_their_hour(bmq: Bmq, spark: SparkSession, tmp_path: Path) -> None:
    topic = topic_of(bmq.servers, partitions=1)
    noon = 1_772_366_400_000  # 2026-03-01T12:00Z
    produce(bmq.servers, topic, [b"now"], key=b"k", headers=[("h", b"1"), ("h", None)], timestamp=noon)
    produce(bmq.servers, topic, [None], key=b"gone", timestamp=noon + 1)
    produce(bmq.servers, topic, [b"late"], timestamp=noon - 26 * HOUR_MS)
    run(parse(arguments(bmq.servers, tmp_path / "t", topic)), spark)
    found = rows(tmp_path / "t", 'key, value, headers, topic, partition, "offset", epoch_ms(timestamp), lane')
    assert found == [
        (b"k", b"now", [{"key": "h", "value": b"1"}, {"key": "h", "value": None}], topic, 0, 0, noon, ""),
        (b"gone", None, [], topic, 0, 1, noon + 1, ""),
        (None, b"late", [], topic, 0, 2, noon - 26 * HOUR_MS, ""),
    ]
    folders = {str(file.parent.relative_to(tmp_path / "t")) for file in (tmp_path / "t").glob("date=*/**/*.parquet")}
    assert folders == {"date=2026-03-01/hour=12", "date=2026-02-28/hour=10"}

"""Records that Spark's Kafka connector passes over, behind a batch whose record says an offset beyond it: no table goes
on without them.
"""

from pathlib import Path

import pytest
from compat_server import Bmq
from iceberg_batches import Record as IcebergRecord
from iceberg_batches import batch, settings
from iceberg_catalogs import Opened
from parquet_jobs import arguments, produce, rows, topic_of
from pyspark.sql import SparkSession
from test_odd_records import changed, produce_raw
from test_parquet_overtaken import delete, gaps_in

from bmq.wire.batches import Record, build_batch
from bmq_spark.batches.buried import Buried
from bmq_spark.batches.places import Range
from bmq_spark.batches.records import Typing
from bmq_spark.errors import JobStopped
from bmq_spark.jobs.iceberg_sink import IcebergSink
from bmq_spark.jobs.loss import check_counts
from bmq_spark.jobs.parquet import parse, run
from bmq_spark.values import decoder

SAID = (
    r"/0 0–42 \({} of 43\): Spark's Kafka connector passed over so many records.*nothing was committed\. Read with "
    r"--source bmq, which stops at that batch .*DeleteRecords .* --accept-loss"
)


def part(topic: str, partition: int, start: int, end: int) -> Range:
    return Range(topic=topic, partition=partition, start=start, end=end)


def leaping() -> bytes:
    """Two records, of which the last says that it lies 50 behind the first (a zigzag varint); the header is right."""
    batch = build_batch([Record(0, 0, None, b"evil"), Record(1, 0, None, b"leaps")])
    return changed(batch, b"\x02\x01\x0aleaps", b"\x64\x01\x0aleaps")


@pytest.fixture(scope="module")
def topic(bmq: Bmq) -> str:
    """An honest record, the batch of two, and forty honest ones."""
    made = topic_of(bmq.servers, partitions=1)
    produce(bmq.servers, made, [b"first"])
    produce_raw(bmq.servers, made, leaping())
    produce(bmq.servers, made, [b"%d" % number for number in range(40)])
    return made


def test_each_offset_of_a_range_has_a_record_but_in_internal_topics() -> None:
    ranges = [part("a", 0, 5, 15), part("a", 1, 0, 3), part("b", 0, 7, 9), part("__consumer_offsets", 0, 0, 9)]
    check_counts(ranges, {("a", 0): 10, ("a", 1): 3, ("b", 0): 2})
    with pytest.raises(JobStopped, match=r"^a/0 5–14 \(4 of 10\), b/0 7–8 \(2 of 2\): Spark's Kafka connector passed"):
        check_counts(ranges, {("a", 0): 6, ("a", 1): 3})


def test_what_is_buried_has_come() -> None:
    buried = Buried(places={"t": {0: 9}}, offsets={("t", 0): frozenset({2, 4, 8})})
    ranges = [part("t", 0, 3, 8), part("t", 1, 0, 2)]
    assert buried.added_to({("t", 0): 4, ("t", 1): 2}, ranges) == {("t", 0): 5, ("t", 1): 2}


@pytest.mark.timeout(600)
def test_a_parquet_table_stops_in_front_of_records_that_did_not_come_and_goes_on_by_the_remedy(
    bmq: Bmq, topic: str, spark: SparkSession, tmp_path: Path
) -> None:
    given = arguments(bmq.servers, tmp_path / "t", topic)
    with pytest.raises(JobStopped, match=topic + SAID.format("[1-9][0-9]?")):
        run(parse(given), spark)
    assert not list((tmp_path / "t").glob("date=*/**/*.parquet"))
    with pytest.raises(JobStopped, match=rf"topic {topic}, partition 0, offset 1: "):
        run(parse([*given, "--source", "bmq", "--store", (bmq.log.parent / "data").as_uri()]), spark)
    delete(bmq.servers, topic, 3)
    run(parse([*given, "--accept-loss"]), spark)
    assert rows(tmp_path / "t") == [(b"%d" % number,) for number in range(40)]
    assert gaps_in(tmp_path / "t") == [(0, 3)]


@pytest.mark.parametrize("kind", ["bytes", "string"])
def test_an_iceberg_table_stops_in_front_of_records_that_did_not_come(
    spark: SparkSession, sql: Opened, kind: str
) -> None:
    """Bytes always fit, and are written without a look at them before. The other topic is one that has gaps."""
    plain = decoder(kind)
    sink = IcebergSink(
        spark, sql.table(f"missing_{kind}"), Typing(key=plain, value=plain, columns=plain.arrow_type), settings()
    )
    gaps = [IcebergRecord(offset=offset, value=b"x", topic="gaps") for offset in (0, 5)]
    records = [*gaps, *(IcebergRecord(offset=offset, value=b"x") for offset in (0, 1, 4))]
    with pytest.raises(JobStopped, match=r"^orders/0 0–4 \(2 of 5\): Spark's Kafka connector"):
        sink.add(batch(spark, 0, records, dense=["orders"]))
    assert sink.places() == {}
    whole = [IcebergRecord(offset=offset, value=b"\xff" if offset == 3 else b"x") for offset in range(5)]
    sink.add(batch(spark, 1, [*gaps, *whole], dense=["orders"]))
    assert sink.places() == {"orders": {0: 5}, "gaps": {0: 6}}

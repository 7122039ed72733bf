"""`format("bmq")` in Spark itself, on what a running bmq wrote: beside Spark's own Kafka source, as a stream, with the
tail, over MinIO.
"""

import itertools
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent
from typing import Any
from urllib.request import urlopen

import pytest
from compat_server import ROOT, Bmq
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from conftest import Buckets
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from tests.waiting import until

from bmq.runtime.bucket import ensure_bucket
from bmq.runtime.store_url import parse_store_url
from bmq_spark import source
from bmq_spark.errors import BmqError
from bmq_spark.source.batch import BatchReader
from bmq_spark.source.failures import TopicGone
from bmq_spark.source.options import parse_options

TIME_MS = 1_700_000_000_000
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
KAFKA_COLUMNS = ("key", "value", "headers", "topic", "partition", "offset", "timestamp", "timestampType")
_names = itertools.count(1)


@dataclass(slots=True)
class Place:
    """A running bmq, and the URL of its store."""

    server: Bmq
    store: str

    def topic(self, *, partitions: int = 1, **configs: str) -> str:
        """A topic that no other test has, whose records go to segments within moments."""
        name = f"source-{next(_names)}"
        admin = AdminClient({"bootstrap.servers": self.server.servers})
        settings = {"segment.ms": "1", "retention.ms": "-1"} | {
            key.replace("_", "."): value for key, value in configs.items()
        }
        admin.create_topics([NewTopic(name, partitions, config=settings)])[name].result()
        return name

    def produce(
        self, topic: str, numbers: range, *, codec: str = "none", partitions: int = 1, client_id: str = "test"
    ) -> None:
        settings = {
            "bootstrap.servers": self.server.servers,
            "compression.type": codec,
            "linger.ms": 5,
            "client.id": client_id,
        }
        producer = Producer(settings)
        for n in numbers:
            producer.produce(
                topic,
                key=None if n % 7 == 0 else b"k%d" % n,
                value=None if n % 11 == 0 else b"value %d " % n * 20,
                headers=[("first", b"%d" % n), ("null", None)] if n % 5 == 0 else None,
                partition=n % partitions,
                timestamp=TIME_MS + n,
            )
        assert producer.flush(30) == 0

    def options(self, topic: str, **more: str) -> dict[str, str]:
        return {"store": self.store, "topic": topic} | more

    def wait(self, topic: str, count: int, **more: str) -> None:
        """Until segments hold so many records."""
        until(
            lambda: _end(self.options(topic, **more), topic),
            f"segments to hold {count} records",
            120,
            holds=lambda ends: sum(ends.values()) >= count,
            every_s=0.2,
        )

    def metric(self, start: str) -> float:
        """The sum of all series that start so. Clients of earlier tests still ask for metadata now and then."""
        with urlopen(f"http://127.0.0.1:{self.server.admin_port}/metrics", timeout=10) as answer:
            lines = answer.read().decode().splitlines()
        return sum(float(line.split()[-1]) for line in lines if line.startswith(start))

    def reads(self) -> float:
        """How many requests for records, and for where they lie, were answered."""
        return sum(self.metric(f'bmq_proxy_requests_total{{api="{api}"') for api in ("Fetch", "ListOffsets"))


def _end(options: Mapping[str, str], topic: str) -> dict[str, int]:
    found: Any = source.end_of(options).get(topic, {"partitions": {}})
    return dict(found["partitions"])


@pytest.fixture(scope="module")
def folder(bmq: Bmq) -> Place:
    return Place(bmq, f"file://{bmq.log.parent / 'data'}")


@pytest.fixture(scope="module")
def bucket(minio: Buckets, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    url = minio.store_url("source")
    ensure_bucket(parse_store_url(url))
    server = Bmq(["--store", url], log=tmp_path_factory.mktemp("bmq-minio") / "bmq.log", environment=minio.environment)
    server.start()
    yield Place(server, url)
    assert server.stop() == 0, server.tail_of_log()


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> SparkSession:
    source.register(spark)
    return spark


def read(session: SparkSession, options: Mapping[str, str]) -> DataFrame:
    return session.read.format("bmq").options(**options).load()


def test_the_page_s_lines_for_a_stream_that_reads_all_and_ends_do_so(
    session: SparkSession, folder: Place, tmp_path: Path
) -> None:
    page = (ROOT / "docs" / "tables.md").read_text()
    begin = page.index("    end = source.end_of(options)")
    lines = dedent(page[begin : page.index("\n\n", begin)])
    assert "query.stop()" in lines
    topic, seen = folder.topic(), list[list[int]]()
    options = folder.options(topic, maxRecordsPerTrigger="40")

    def keep(batch: DataFrame, _: int) -> None:
        seen.append(sorted(row["offset"] for row in batch.select("offset").collect()))

    for count in (0, 100, 200):
        folder.produce(topic, range(count - 100, count) if count else ())
        folder.wait(topic, count)
        stream = session.readStream.format("bmq").options(**options).load().writeStream.foreachBatch(keep)
        stream = stream.option("checkpointLocation", str(tmp_path / "checkpoint"))
        exec(lines, {"source": source, "options": options, "json": json, "stream": stream})
        assert sorted(offset for batch in seen for offset in batch) == list(range(count))
    assert len([batch for batch in seen if batch]) >= 4


def test_records_are_those_of_sparks_kafka_source_and_brokers_are_left_alone(
    session: SparkSession, folder: Place
) -> None:
    topic = folder.topic(partitions=2)
    for at, codec in enumerate(CODECS):
        folder.produce(topic, range(at * 100, at * 100 + 100), codec=codec, partitions=2)
    folder.wait(topic, 500)
    before, reads = folder.metric("bmq_proxy_bytes_out_total"), folder.reads()
    ours = read(session, folder.options(topic)).select(*KAFKA_COLUMNS).collect()
    some = read(session, folder.options(topic)).where(
        (F.col("offset") >= 20) & (F.col("offset") < 30) & (F.col("partition") == 1)
    )
    late = some.where(F.col("timestamp") > F.timestamp_millis(F.lit(TIME_MS + 50)))
    assert [row.offset for row in late.select("offset").collect()] == list(range(25, 30))
    read_by_us = folder.reads() - reads
    kafka = session.read.format("kafka").options(
        **{
            "kafka.bootstrap.servers": folder.server.servers,
            "subscribe": topic,
            "includeHeaders": "true",
            "startingOffsets": "earliest",
        }
    )
    theirs = kafka.load().select(*KAFKA_COLUMNS).collect()
    assert len(ours) == 500
    assert Counter(map(repr, ours)) == Counter(map(repr, theirs))
    assert read_by_us == 0
    assert folder.reads() > reads
    assert folder.metric("bmq_proxy_bytes_out_total") - before > 10_000


def test_a_stream_goes_on_where_it_was_and_takes_partitions_that_were_added(
    session: SparkSession, folder: Place, tmp_path: Path
) -> None:
    topic = folder.topic()
    folder.produce(topic, range(100))
    folder.wait(topic, 100)
    seen: list[tuple[int, list[tuple[int, int]]]] = []

    def keep(batch: DataFrame, number: int) -> None:
        seen.append(
            (number, sorted((row.partition, row.offset) for row in batch.select("partition", "offset").collect()))
        )

    def run(**options: str) -> None:
        stream = session.readStream.format("bmq").options(**folder.options(topic, **options)).load()
        query = stream.writeStream.foreachBatch(keep).option("checkpointLocation", str(tmp_path / "checkpoint"))
        query.trigger(availableNow=True).start().awaitTermination()

    run(maxRecordsPerTrigger="60")
    assert seen == [(0, [(0, n) for n in range(100)])]
    admin = AdminClient({"bootstrap.servers": folder.server.servers})
    admin.create_partitions([NewPartitions(topic, 2)])[topic].result()
    folder.produce(topic, range(100, 110), partitions=2)
    folder.wait(topic, 110)
    run(maxRecordsPerTrigger="60")
    assert seen[1:] == [(1, [(0, n) for n in range(100, 105)] + [(1, n) for n in range(5)])]


def test_the_tail_is_fetched_from_the_brokers_where_asked(folder: Place) -> None:
    topic = folder.topic(segment_ms="604800000", segment_bytes="65536")
    folder.produce(topic, range(900))
    folder.wait(topic, 1)
    folder.produce(topic, range(900, 1000))  # too few for a segment
    stored = sum(_end(folder.options(topic), topic).values())
    assert 0 < stored < 1000
    reader = BatchReader(
        parse_options(folder.options(topic, tail="protocol", **{"kafka.bootstrap.servers": folder.server.servers}))
    )
    found = [row for task in reader.partitions() for batch in reader.read(task) for row in batch.to_pylist()]
    assert [row["offset"] for row in found] == list(range(1000))
    assert [row["value"] for row in found] == [None if n % 11 == 0 else b"value %d " % n * 20 for n in range(1000)]
    headers = [[(each["key"], each["value"]) for each in row["headers"] or ()] for row in found]
    assert headers == [[("first", b"%d" % n), ("null", None)] if n % 5 == 0 else [] for n in range(1000)]
    assert [row["timestamp"].timestamp() for row in found[-2:]] == [(TIME_MS + n) / 1000 for n in (998, 999)]


def test_a_topic_that_was_made_again_after_the_plan_gives_none_of_its_records_for_the_old_ones(folder: Place) -> None:
    topic = folder.topic(segment_ms="604800000")
    folder.produce(topic, range(100))
    reader = BatchReader(
        parse_options(folder.options(topic, tail="protocol", **{"kafka.bootstrap.servers": folder.server.servers}))
    )
    tasks = reader.partitions()
    admin = AdminClient({"bootstrap.servers": folder.server.servers})
    admin.delete_topics([topic])[topic].result()
    admin.create_topics([NewTopic(topic, 1)])[topic].result()
    folder.produce(topic, range(1_000, 1_200))
    found = []
    with pytest.raises(TopicGone, match=rf"topic {topic}, .*: the topic was deleted .*made again.*: start again"):
        found += [row for task in tasks for batch in reader.read(task) for row in batch.to_pylist()]
    assert found == []


def test_brokers_of_another_cluster_than_the_store_are_refused(folder: Place, bucket: Place) -> None:
    topic = folder.topic()
    reader = BatchReader(
        parse_options(folder.options(topic, tail="protocol", **{"kafka.bootstrap.servers": bucket.server.servers}))
    )
    with pytest.raises(
        BmqError, match=r"option kafka.bootstrap.servers=.*: that is the cluster .*: check store and servers"
    ):
        reader.partitions()


def test_records_are_read_from_a_bucket(session: SparkSession, bucket: Place) -> None:
    topic = bucket.topic(partitions=2)
    bucket.produce(topic, range(200), codec="zstd", partitions=2)
    bucket.wait(topic, 200)
    found = (
        read(session, bucket.options(topic, columns="partition,offset,value")).orderBy("offset", "partition").collect()
    )
    assert [(row.partition, row.offset) for row in found] == [(n % 2, n // 2) for n in range(200)]
    assert [row.value for row in found] == [None if n % 11 == 0 else b"value %d " % n * 20 for n in range(200)]

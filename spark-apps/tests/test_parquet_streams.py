import json
import threading
from pathlib import Path
from urllib.request import Request, urlopen

import pytest
from compat_server import Bmq
from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka.admin import AdminClient, NewPartitions
from parquet_jobs import arguments, produce, rows, topic_of
from pyspark.sql import SparkSession
from tests.waiting import until

from bmq_spark.ending import StopRequest
from bmq_spark.errors import JobStopped
from bmq_spark.jobs.parquet import parse, run

WAIT_S = 240


def committed(servers: str, group: str, client_id: str = "test") -> dict[tuple[str, int], int]:
    admin = AdminClient({"bootstrap.servers": servers, "client.id": client_id})
    found = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result(timeout=30)
    return {(one.topic, one.partition): one.offset for one in found.topic_partitions}


def test_a_stream_takes_several_topics_and_partitions_that_are_added_and_stops_when_told(
    bmq: Bmq, spark: SparkSession, tmp_path: Path
) -> None:
    one, other = topic_of(bmq.servers, partitions=1), topic_of(bmq.servers, partitions=1)
    options = parse(
        [*arguments(bmq.servers, tmp_path / "t", one, other, once=False), "--trigger", "200ms", "--group", f"{one}-lag"]
    )
    stop = StopRequest()
    running = threading.Thread(target=run, args=(options, spark), kwargs={"stop": stop})
    produce(bmq.servers, one, [b"1"])
    running.start()
    try:
        until(
            lambda: (tmp_path / "t").exists() and len(found(tmp_path / "t")) == 1,
            "a row in the table",
            WAIT_S,
            unless=lambda: not running.is_alive(),
        )
        admin = AdminClient({"bootstrap.servers": bmq.servers})
        admin.create_partitions([NewPartitions(one, 2)])[one].result(timeout=30)
        produce(bmq.servers, one, [b"2"], partition=1)
        produce(bmq.servers, other, [b"3"])
        until(
            lambda: found(tmp_path / "t"),
            "three rows in the table",
            WAIT_S,
            holds=lambda rows: len(rows) == 3,
            unless=lambda: not running.is_alive(),
        )
        until(
            lambda: committed(bmq.servers, f"{one}-lag"),
            "the group to be at the ends",
            WAIT_S,
            holds=lambda offsets: offsets == {(one, 0): 1, (one, 1): 1, (other, 0): 1},
            unless=lambda: not running.is_alive(),
        )
    finally:
        stop.came = True
        running.join(60)
    assert not running.is_alive()
    assert found(tmp_path / "t") == sorted([(one, 0, 0, b"1"), (one, 1, 0, b"2"), (other, 0, 0, b"3")])


def found(table: Path) -> list[tuple[object, ...]]:
    if not (table / "_bmq" / "log").exists():
        return []
    return rows(table, 'topic, partition, "offset", value')


def test_a_lane_has_its_own_records_and_its_own_group(bmq: Bmq, spark: SparkSession, tmp_path: Path) -> None:
    topic = topic_of(bmq.servers, partitions=1)
    make_lane(bmq, name="tables")
    produce(bmq.servers, topic, [b"of the base"])
    produce(bmq.servers, topic, [b"of the lane", b"and again"], settings={"client.id": "lane=tables"})
    run(parse([*arguments(bmq.servers, tmp_path / "t", topic), "--lane", "tables"]), spark)
    assert rows(tmp_path / "t", "value, topic, lane") == [
        (b"of the lane", topic, "tables"),
        (b"and again", topic, "tables"),
    ]
    assert committed(bmq.servers, f"parquet-{topic}", "lane=tables") == {(topic, 0): 2}
    assert committed(bmq.servers, f"parquet-{topic}") == {}


def test_what_a_lane_reads_of_the_base_is_the_same_table_by_brokers_and_bucket_until_the_lane_has_its_own(
    bmq: Bmq, spark: SparkSession, tmp_path: Path
) -> None:
    topic = topic_of(bmq.servers, partitions=1)
    make_lane(bmq, name="reader", reads_base={"enabled": True, "topics": [topic], "bytes_per_second": 1_000_000})
    produce(bmq.servers, topic, [b"of the base"])
    store = ["--source", "bmq", "--store", (bmq.log.parent / "data").as_uri()]
    runs = {
        name: [*arguments(bmq.servers, tmp_path / name, topic), "--lane", "reader", *more]
        for name, more in {"kafka": [], "bmq": store}.items()
    }
    for name, given in runs.items():
        run(parse(given), spark)
        assert rows(tmp_path / name, "value, topic, lane") == [(b"of the base", topic, "reader")]
    produce(bmq.servers, topic, [b"of the lane"], settings={"client.id": "lane=reader"})
    for name, given in runs.items():
        with pytest.raises(
            JobStopped, match=r"made again, is of another cluster, or is a lane's own since the lane has written"
        ):
            run(parse(given), spark)
        assert rows(tmp_path / name, "value, topic, lane") == [(b"of the base", topic, "reader")]


def make_lane(bmq: Bmq, **asked: object) -> None:
    url = f"http://127.0.0.1:{bmq.admin_port}/v1/lanes"
    with urlopen(Request(url, json.dumps(asked).encode(), {"Content-Type": "application/json"}), timeout=30) as answer:
        assert answer.status < 300

"""A stream under spark-submit, as in a driver's pod: retention overtakes it, and Java is told to end."""

from collections.abc import Iterable
from pathlib import Path

import pytest
from compat_server import Bmq
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient
from parquet_jobs import arguments, produce, rows, topic_of
from parquet_process import Job, batches, running
from pyspark.sql import SparkSession

from bmq_spark.jobs.parquet import parse, run
from bmq_spark.locations import Location
from bmq_spark.table import Table, files


def overtake(job: Job, servers: str, topic: str, numbers: Iterable[int], *, before: int) -> None:
    """These records come, and those before that offset go, between two steps of the job."""
    with job.frozen():
        produce(servers, topic, (b"%d" % number for number in numbers))
        delete(servers, topic, before)


def delete(servers: str, topic: str, before: int) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    for answer in admin.delete_records([TopicPartition(topic, 0, before)]).values():
        answer.result(timeout=60)


def offsets_in(table: Path) -> list[int]:
    return [offset for (offset,) in rows(table, '"offset"')]


def gaps_in(table: Path) -> list[tuple[int, int]]:
    return [(gap.first, gap.next) for commit in Table.open(Location.parse(str(table))).commits() for gap in commit.gaps]


def told(servers: str, topic: str) -> int:
    """The job's progress as its group has it."""
    group = f"parquet-{topic}"
    admin = AdminClient({"bootstrap.servers": servers})
    (where,) = (
        admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group]
        .result(timeout=30)
        .topic_partitions
    )
    return int(where.offset)


@pytest.mark.timeout(600)
def test_a_stream_that_retention_overtakes_stops_or_names_the_gap_and_ends_cleanly_when_java_is_told_to(
    bmq: Bmq, tmp_path: Path
) -> None:
    topic = topic_of(bmq.servers, partitions=1)
    table = tmp_path / "t"
    given = [*arguments(bmq.servers, table, topic, once=False), "--max-records-per-batch", "100"]
    with running(given, tmp_path / "stops.log", submit=True) as job:
        job.until((table / "_bmq/checkpoint/0001/sources/0/0").exists, "it to read, and there is nothing yet")
        overtake(job, bmq.servers, topic, range(30), before=10)
        assert job.process.wait(240) == 1, job.said()[-3000:]
        (line,) = job.errors()
    assert line.startswith(f"error: {topic}/0 0–9: 10 offsets are gone from the log before the table {table} had them")
    assert line.endswith("run once with --accept-loss to go on after them; the commit will name them")
    assert batches(table) == 0
    with running([*given, "--accept-loss"], tmp_path / "goes-on.log", submit=True) as job:
        job.until_batches(table, 1)
        assert offsets_in(table) == list(range(10, 30))
        overtake(job, bmq.servers, topic, range(30, 3000), before=50)
        job.until(lambda: batches(table) >= 3, "three batches")  # its batches have no pause now
        job.process.terminate()
        assert job.process.wait(240) == 0, job.said()[-3000:]
        assert not job.errors()
        assert " rows in " in job.said().splitlines()[-1]
    assert gaps_in(table) == [(0, 10), (30, 50)]
    end = max(offsets_in(table)) + 1
    assert end < 3000, "it took all before it was told to end"
    assert told(bmq.servers, topic) == end
    assert {str(file) for file in table.glob("date=*/**/*.parquet")} == set(files(str(table))), (
        "files of a batch that was cut off"
    )
    assert offsets_in(table) == [*range(10, 30), *range(50, end)]


def test_loss_that_was_accepted_is_accepted_also_where_nothing_came_after_it(
    bmq: Bmq, spark: SparkSession, tmp_path: Path
) -> None:
    topic = topic_of(bmq.servers, partitions=1)
    given = arguments(bmq.servers, tmp_path / "t", topic)
    produce(bmq.servers, topic, [b"0", b"1"])
    run(parse(given), spark)
    produce(bmq.servers, topic, [b"2", b"3"])
    delete(bmq.servers, topic, 4)
    assert run(parse([*given, "--accept-loss"]), spark).rows == 0
    assert gaps_in(tmp_path / "t") == [(2, 4)]
    produce(bmq.servers, topic, [b"4"])
    assert run(parse(given), spark).rows == 1
    assert offsets_in(tmp_path / "t") == [0, 1, 4]
    assert told(bmq.servers, topic) == 5

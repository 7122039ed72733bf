import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest
from compat_server import Bmq
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions
from deltalake import DeltaTable
from parquet_jobs import arguments, produce, rows, topic_of
from pyspark.sql import SparkSession

from bmq_spark.batches.places import Places
from bmq_spark.errors import BmqError, ConfigurationError, JobStopped
from bmq_spark.jobs import cluster
from bmq_spark.jobs.checkpoint import Checkpoint
from bmq_spark.jobs.cluster import Topic
from bmq_spark.jobs.hadoop_files import HadoopFolder
from bmq_spark.jobs.parquet import parse, run
from bmq_spark.jobs.parquet_sink import ParquetSink
from bmq_spark.jobs.sinks import Added, Batch
from bmq_spark.jobs.streaming import Stream
from bmq_spark.locations import Location
from bmq_spark.table import PartitionBy, Table

NUMBERS = [b"%d" % number for number in range(30)]


def numbers_in(table: Path) -> list[int]:
    return sorted(int(value) for (value,) in rows(table))


def refusal(options: list[str], spark: SparkSession, kind: type[BmqError] = JobStopped) -> str:
    """The line with which a run ends."""
    with pytest.raises(kind) as refused:
        run(parse(options), spark)
    assert "\n" not in str(refused.value)
    return str(refused.value)


def run_with(sink_class: type[ParquetSink], given: list[str], spark: SparkSession) -> None:
    """A run with another sink, which does something at a moment that a test wants."""
    options = parse(given)
    location = Location.parse(options.output)
    sink = sink_class.open(
        spark, location, options, partition_by=PartitionBy.HOUR, target_bytes=1 << 20, retention_ms=None
    )
    folder = HadoopFolder(spark, options.checkpoint or location.child("_bmq/checkpoint").uri)
    Stream(spark, options, sink, Checkpoint(folder, table_id=sink.id, table=location.hadoop())).run()


def test_brokers_that_do_not_answer_are_named(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "WAIT_S", 2)
    line = refusal(arguments("127.0.0.1:1", tmp_path / "t", "orders"), spark)
    assert line == "brokers 127.0.0.1:1: no answer within 2 s: start them, or name others by --bootstrap-servers"


def test_a_topic_that_is_not_there_is_named(bmq: Bmq, spark: SparkSession, tmp_path: Path) -> None:
    assert refusal(arguments(bmq.servers, tmp_path / "t", "nowhere"), spark).startswith(
        "topic nowhere: the cluster at 127.0.0.1:"
    )


def test_a_table_keeps_its_format(bmq: Bmq, spark: SparkSession, tmp_path: Path) -> None:
    topic = topic_of(bmq.servers, partitions=1)
    options = arguments(bmq.servers, tmp_path / "t", topic)
    run(parse(options), spark)
    line = refusal([*options, "--format", "json"], spark, ConfigurationError)
    assert line.startswith(f"--format json: the table {tmp_path}/t")
    assert "was made with bytes: give the option that value, or another --output" in line


def test_a_checkpoint_of_another_table_is_refused(bmq: Bmq, spark: SparkSession, tmp_path: Path) -> None:
    one, other = topic_of(bmq.servers, partitions=1), topic_of(bmq.servers, partitions=1)
    checkpoint = ["--checkpoint", str(tmp_path / "c")]
    run(parse([*arguments(bmq.servers, tmp_path / "one", one), *checkpoint]), spark)
    line = refusal([*arguments(bmq.servers, tmp_path / "other", other), *checkpoint], spark)
    assert line.startswith(f"--checkpoint {tmp_path}/c: it is of the table {tmp_path}/one")
    assert line.endswith("give this job a --checkpoint of its own")


def test_a_topic_that_was_deleted_and_made_again_stops_the_job(bmq: Bmq, spark: SparkSession, tmp_path: Path) -> None:
    topic = topic_of(bmq.servers, partitions=1)
    produce(bmq.servers, topic, NUMBERS)
    options = arguments(bmq.servers, tmp_path / "t", topic)
    run(parse(options), spark)
    admin = AdminClient({"bootstrap.servers": bmq.servers})
    admin.delete_topics([topic])[topic].result(timeout=30)
    topic_of(bmq.servers, partitions=1, name=topic)
    produce(bmq.servers, topic, [b"another"])
    line = refusal(options, spark)
    assert line.startswith(f"topic {topic}: its id is ")
    assert "deleted and made again" in line
    assert numbers_in(tmp_path / "t") == list(range(30))


def test_what_retention_took_before_the_job_came_stops_it_until_somebody_accepts_that(
    bmq: Bmq, spark: SparkSession, tmp_path: Path
) -> None:
    topic = topic_of(bmq.servers, partitions=1)
    options = arguments(bmq.servers, tmp_path / "t", topic)
    produce(bmq.servers, topic, NUMBERS[:10])
    run(parse(options), spark)
    produce(bmq.servers, topic, NUMBERS[10:])
    admin = AdminClient({"bootstrap.servers": bmq.servers})
    for answer in admin.delete_records([TopicPartition(topic, 0, 20)]).values():
        answer.result(timeout=30)
    assert f"{topic}/0 10–19: 10 offsets are gone from the log" in refusal(options, spark)
    assert numbers_in(tmp_path / "t") == list(range(10))
    assert run(parse([*options, "--accept-loss"]), spark).rows == 10
    assert numbers_in(tmp_path / "t") == [*range(10), *range(20, 30)]
    gaps = [
        (gap.topic, gap.partition, gap.first, gap.next)
        for commit in Table.open(Location.parse(str(tmp_path / "t"))).commits()
        for gap in commit.gaps
    ]
    assert gaps == [(topic, 0, 10, 20)]


def test_what_retention_took_of_a_partition_that_had_nothing_stops_the_job_also_without_its_checkpoint(
    bmq: Bmq, spark: SparkSession, tmp_path: Path
) -> None:
    topic = topic_of(bmq.servers, partitions=2)
    options = arguments(bmq.servers, tmp_path / "t", topic)
    produce(bmq.servers, topic, NUMBERS[:10], partition=0)
    run(parse(options), spark)
    assert Table.open(Location.parse(str(tmp_path / "t"))).snapshot().offsets == {topic: {0: 10, 1: 0}}
    produce(bmq.servers, topic, NUMBERS[10:], partition=1)
    admin = AdminClient({"bootstrap.servers": bmq.servers})
    for answer in admin.delete_records([TopicPartition(topic, 1, 15)]).values():
        answer.result(timeout=30)
    shutil.rmtree(tmp_path / "t" / "_bmq" / "checkpoint")
    assert f"{topic}/1 0–14: 15 offsets are gone from the log" in refusal(options, spark)
    assert run(parse([*options, "--accept-loss"]), spark).rows == 5
    assert numbers_in(tmp_path / "t") == [*range(10), *range(25, 30)]


@pytest.mark.parametrize("start", ["latest", "earliest"])
def test_a_job_whose_topics_change_before_its_first_batch_goes_on_where_it_began(
    bmq: Bmq, spark: SparkSession, tmp_path: Path, start: str
) -> None:
    """The table says nothing yet: what came, or was deleted, since the first run is not the second's to pass over."""
    one, other = topic_of(bmq.servers, partitions=1), topic_of(bmq.servers, partitions=1)
    if start == "latest":
        produce(bmq.servers, one, [b"before"])
    first, second = (
        [*arguments(bmq.servers, tmp_path / "t", *topics), "--starting-offsets", start]
        for topics in ([one], [one, other])
    )
    assert run(parse(first), spark).rows == 0
    produce(bmq.servers, one, NUMBERS)
    if start == "earliest":
        admin = AdminClient({"bootstrap.servers": bmq.servers})
        for deleted in admin.delete_records([TopicPartition(one, 0, 10)]).values():
            deleted.result(timeout=30)
        assert refusal(second, spark).startswith(f"{one}/0 0–9: 10 offsets are gone from the log")
    else:
        assert run(parse(second), spark).rows == len(NUMBERS)


def test_latest_is_the_end_of_the_first_run_although_its_checkpoint_was_lost_before_the_first_batch(
    bmq: Bmq, spark: SparkSession, tmp_path: Path
) -> None:
    topic, other = topic_of(bmq.servers, partitions=2), topic_of(bmq.servers, partitions=1)
    produce(bmq.servers, topic, [b"before"], partition=0)
    options = [*arguments(bmq.servers, tmp_path / "t", topic), "--starting-offsets", "latest"]
    assert run(parse(options), spark).rows == 0
    produce(bmq.servers, topic, NUMBERS[:10], partition=0)
    produce(bmq.servers, topic, NUMBERS[10:], partition=1)
    shutil.rmtree(tmp_path / "t" / "_bmq" / "checkpoint")
    produce(bmq.servers, other, [b"before, too"])
    assert run(parse([*options, "--topic", other]), spark).rows == len(NUMBERS)
    assert numbers_in(tmp_path / "t") == list(range(30))
    assert Table.open(Location.parse(str(tmp_path / "t"))).snapshot().offsets == {topic: {0: 11, 1: 20}, other: {0: 1}}


@pytest.mark.parametrize("source", ["kafka", "bmq"])
def test_a_partition_that_was_added_and_whose_first_records_were_deleted_stops_nothing(
    bmq: Bmq, spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str], source: str
) -> None:
    topic = topic_of(bmq.servers, partitions=1)
    more = ["--source", "bmq", "--store", str(bmq.log.parent / "data")] if source == "bmq" else []
    options = [*arguments(bmq.servers, tmp_path / "t", topic), *more]
    produce(bmq.servers, topic, NUMBERS[:10])
    run(parse(options), spark)
    admin = AdminClient({"bootstrap.servers": bmq.servers})
    admin.create_partitions([NewPartitions(topic, 2)])[topic].result(timeout=30)
    produce(bmq.servers, topic, NUMBERS[10:], partition=1)
    for answer in admin.delete_records([TopicPartition(topic, 1, 15)]).values():
        answer.result(timeout=30)
    capsys.readouterr()
    assert run(parse(options), spark).rows == 5
    told = [line for line in capsys.readouterr().err.splitlines() if "warning: " in line]
    assert (
        len(told) == 1 and f"warning: {topic}/1 0–14: 15 offsets are gone from the log, and not in the table" in told[0]
    )
    assert run(parse(options), spark).rows == 0
    assert "warning: " not in capsys.readouterr().err
    assert numbers_in(tmp_path / "t") == [*range(10), *range(25, 30)]


def test_a_batch_that_was_committed_when_the_job_was_killed_is_not_added_again(
    bmq: Bmq, spark: SparkSession, tmp_path: Path
) -> None:
    topic = topic_of(bmq.servers, partitions=1)
    options = arguments(bmq.servers, tmp_path / "t", topic)
    produce(bmq.servers, topic, NUMBERS[:20])

    class Killed(ParquetSink):
        def add(self, batch: Batch) -> Added:
            super().add(batch)
            raise JobStopped("killed")

    with pytest.raises(JobStopped, match="killed"):
        run_with(Killed, options, spark)
    assert numbers_in(tmp_path / "t") == list(range(20))
    produce(bmq.servers, topic, NUMBERS[20:])
    assert run(parse(options), spark).rows == 10
    assert numbers_in(tmp_path / "t") == list(range(30))


class Unpublished(ParquetSink):
    """A job that comes to its commits, and never to the Delta log."""

    def _publish(self) -> None:
        pass


def test_what_a_killed_job_committed_is_in_the_delta_log_after_the_next_run_which_finds_nothing_new(
    bmq: Bmq, spark: SparkSession, tmp_path: Path
) -> None:
    topic = topic_of(bmq.servers, partitions=1)
    options = arguments(bmq.servers, tmp_path / "t", topic)
    produce(bmq.servers, topic, NUMBERS)
    run_with(Unpublished, options, spark)
    assert numbers_in(tmp_path / "t") == list(range(30)) and not (tmp_path / "t" / "_delta_log").exists()
    assert run(parse(options), spark).rows == 0
    assert DeltaTable(str(tmp_path / "t")).to_pyarrow_table().num_rows == 30


class Killed(ParquetSink):
    """A job that is killed between its two commits."""

    def _commit_letters(self, batch: Batch, letters: object) -> None:
        super()._commit_letters(batch, letters)  # type: ignore[arg-type]
        raise JobStopped("killed")


def test_dead_letters_are_not_doubled_when_the_job_is_killed_between_the_two_commits(
    bmq: Bmq, spark: SparkSession, tmp_path: Path
) -> None:
    topic = topic_of(bmq.servers, partitions=1)
    options = [*arguments(bmq.servers, tmp_path / "t", topic), "--format", "string"]
    produce(bmq.servers, topic, [b"good", b"\xff", b"fine"])
    with pytest.raises(JobStopped, match="killed"):
        run_with(Killed, options, spark)
    assert rows(tmp_path / "t") == []
    produce(bmq.servers, topic, [b"\xfe"])
    assert run(parse(options), spark).rows == 2
    assert rows(tmp_path / "t") == [("good",), ("fine",)]
    assert rows(tmp_path / "t" / "_dead_letters") == [(b"\xff",), (b"\xfe",)]


def test_a_schema_that_changes_between_the_two_commits_neither_loses_nor_doubles_a_record(
    bmq: Bmq, spark: SparkSession, tmp_path: Path
) -> None:
    topic = topic_of(bmq.servers, partitions=1)
    values = [b'{"a": 1}', b'{"a": "one"}', b'{"a": 300}']
    produce(bmq.servers, topic, values)

    def options(ddl: str) -> list[str]:
        schema = tmp_path / f"{ddl.split()[1]}.ddl"
        schema.write_text(ddl)
        return [*arguments(bmq.servers, tmp_path / "t", topic), "--format", "json", "--schema", str(schema)]

    with pytest.raises(JobStopped, match="killed"):
        run_with(Killed, options("a int"), spark)
    assert rows(tmp_path / "t" / "_dead_letters") == [(values[1],)]
    line = refusal(options("a tinyint"), spark)
    assert line.startswith(f"topic {topic} partition 0, offset 2: it does not fit any more")
    assert rows(tmp_path / "t") == []
    assert run(parse(options("a int")), spark).rows == 2
    assert rows(tmp_path / "t", "value.a") == [(1,), (300,)]
    assert rows(tmp_path / "t" / "_dead_letters") == [(values[1],)]


def test_a_checkpoint_that_was_restored_from_an_older_copy_doubles_nothing(
    bmq: Bmq, spark: SparkSession, tmp_path: Path
) -> None:
    topic = topic_of(bmq.servers, partitions=1)
    options = [*arguments(bmq.servers, tmp_path / "t", topic), "--checkpoint", str(tmp_path / "c")]
    produce(bmq.servers, topic, NUMBERS[:10])
    run(parse(options), spark)
    shutil.copytree(tmp_path / "c", tmp_path / "copy")
    produce(bmq.servers, topic, NUMBERS[10:20])
    run(parse(options), spark)
    shutil.rmtree(tmp_path / "c")
    shutil.copytree(tmp_path / "copy", tmp_path / "c")
    produce(bmq.servers, topic, NUMBERS[20:])
    assert run(parse(options), spark).rows == 10
    assert numbers_in(tmp_path / "t") == list(range(30))


def test_the_second_of_two_jobs_on_one_table_is_refused(bmq: Bmq, spark: SparkSession, tmp_path: Path) -> None:
    topic = topic_of(bmq.servers, partitions=1)
    options = arguments(bmq.servers, tmp_path / "t", topic)
    produce(bmq.servers, topic, NUMBERS)

    class Overtaken(ParquetSink):
        overtaken = False

        def check(self, topics: Mapping[str, Topic]) -> None:
            super().check(topics)
            if Overtaken.overtaken:
                run(parse([*options, "--checkpoint", str(tmp_path / "other")]), spark)
            Overtaken.overtaken = True

    with pytest.raises(JobStopped, match="does another job write to it"):
        run_with(Overtaken, [*options, "--checkpoint", str(tmp_path / "one")], spark)
    assert numbers_in(tmp_path / "t") == list(range(30))


@pytest.mark.timeout(120)
def test_a_run_of_a_bucket_ends_where_another_job_took_all_that_was_left(
    bmq: Bmq, spark: SparkSession, tmp_path: Path
) -> None:
    topic = topic_of(bmq.servers, partitions=1)
    store = ["--source", "bmq", "--store", (bmq.log.parent / "data").as_uri()]
    options = [*arguments(bmq.servers, tmp_path / "t", topic), *store, "--checkpoint"]
    produce(bmq.servers, topic, NUMBERS)

    class Overtaken(ParquetSink):
        looked = False

        def places(self) -> Places:
            found = super().places()
            if not Overtaken.looked:
                run(parse([*options, str(tmp_path / "other")]), spark)
            Overtaken.looked = True
            return found

    run_with(Overtaken, [*options, str(tmp_path / "one")], spark)
    assert numbers_in(tmp_path / "t") == list(range(30))

"""What others do to a topic, a checkpoint and a table between two batches of a run, or within one."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from compat_server import Bmq
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions
from killed_jobs import job_at
from parquet_jobs import arguments, produce, rows, topic_of
from pyspark.sql import SparkSession
from test_parquet_faults import run_with

from bmq_spark.errors import JobStopped
from bmq_spark.jobs.checkpoint import Query
from bmq_spark.jobs.parquet import parse, run
from bmq_spark.jobs.parquet_sink import ParquetSink
from bmq_spark.jobs.sinks import Added, Batch

GONE = (
    r"--checkpoint .*/c/0001: it is gone: was it deleted while the job ran\? Run the job again: it begins where "
    r"the table ends"
)
SOURCES = pytest.mark.parametrize("source", ["kafka", "bmq"])


def numbers(first: int, end: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, end)]


def offsets(table: Path) -> list[int]:
    return [offset for (offset,) in rows(table, '"offset"')]


def options_of(bmq: Bmq, table: Path, topic: str, source: str) -> list[str]:
    more = ["--source", "bmq", "--store", str(bmq.log.parent / "data")] if source == "bmq" else []
    return [*arguments(bmq.servers, table, topic), "--max-records-per-batch", "10", *more]


def sink_that_meets(meddle: Callable[[], None], *, after: bool) -> type[ParquetSink]:
    """Others act once: when the first batch is committed (`after`), or when its records are read and it is not."""

    class Meddled(ParquetSink):
        done = False

        def add(self, batch: Batch) -> Added:
            added = super().add(batch)
            self._meet(after)
            return added

        def _commit_letters(self, batch: Batch, letters: object) -> None:
            super()._commit_letters(batch, letters)  # type: ignore[arg-type]
            self._meet(not after)

        def _meet(self, now: bool) -> None:
            if now and not Meddled.done:
                Meddled.done = True
                meddle()

    return Meddled


def test_a_checkpoint_that_is_deleted_between_two_batches_loses_and_doubles_nothing(
    bmq: Bmq, spark: SparkSession, tmp_path: Path
) -> None:
    topic = topic_of(bmq.servers, partitions=1)
    produce(bmq.servers, topic, numbers(0, 35))
    options = [*options_of(bmq, tmp_path / "t", topic, "kafka"), "--checkpoint", str(tmp_path / "c")]
    with pytest.raises(JobStopped, match=GONE):
        run_with(sink_that_meets(lambda: shutil.rmtree(tmp_path / "c"), after=True), options, spark)
    taken = offsets(tmp_path / "t")
    assert taken == list(range(len(taken)))
    produce(bmq.servers, topic, numbers(35, 40))
    run(parse(options), spark)
    assert offsets(tmp_path / "t") == list(range(40))


def test_a_batch_whose_checkpoint_is_gone_before_it_began_is_not_passed_over_in_silence(
    bmq: Bmq, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = topic_of(bmq.servers, partitions=1)
    produce(bmq.servers, topic, numbers(0, 8))
    options = [*options_of(bmq, tmp_path / "t", topic, "kafka"), "--checkpoint", str(tmp_path / "c")]
    real = Query.end

    def deleted(query: Query, batch_id: int) -> object:
        if batch_id == 0 and (tmp_path / "c").exists():
            shutil.rmtree(tmp_path / "c")
        return real(query, batch_id)

    monkeypatch.setattr(Query, "end", deleted)
    with pytest.raises(JobStopped, match=GONE):
        run(parse(options), spark)
    monkeypatch.undo()
    assert run(parse(options), spark).rows == 8


@SOURCES
def test_a_topic_that_is_made_again_between_two_batches_stops_the_job(
    bmq: Bmq, spark: SparkSession, tmp_path: Path, source: str
) -> None:
    topic = topic_of(bmq.servers, partitions=1)
    produce(bmq.servers, topic, numbers(0, 25))
    options = options_of(bmq, tmp_path / "t", topic, source)

    def made_again() -> None:
        admin = AdminClient({"bootstrap.servers": bmq.servers})
        admin.delete_topics([topic])[topic].result(timeout=30)
        topic_of(bmq.servers, partitions=1, name=topic)
        produce(bmq.servers, topic, [b"another"] * 60)

    with pytest.raises(JobStopped, match="deleted and made again"):
        run_with(sink_that_meets(made_again, after=True), options, spark)
        run(parse(options), spark)
    taken = offsets(tmp_path / "t")
    assert taken == list(range(len(taken))) and len(taken) in (10, 25)
    assert b"another" not in [value for (value,) in rows(tmp_path / "t")]


@SOURCES
def test_partitions_that_are_added_within_a_batch_are_read_from_their_beginning(
    bmq: Bmq, spark: SparkSession, tmp_path: Path, source: str
) -> None:
    topic = topic_of(bmq.servers, partitions=1)
    produce(bmq.servers, topic, [b"\xff", *numbers(1, 25)])
    options = [*options_of(bmq, tmp_path / "t", topic, source), "--format", "string"]

    def added() -> None:
        admin = AdminClient({"bootstrap.servers": bmq.servers})
        admin.create_partitions([NewPartitions(topic, 3)])[topic].result(timeout=30)
        for partition in (1, 2):
            produce(bmq.servers, topic, numbers(100 * partition, 100 * partition + 15), partition=partition)

    run_with(sink_that_meets(added, after=False), options, spark)
    run(parse(options), spark)
    found = rows(tmp_path / "t", 'partition, "offset"')
    assert found == [(0, offset) for offset in range(1, 25)] + [
        (partition, offset) for partition in (1, 2) for offset in range(15)
    ]
    assert rows(tmp_path / "t" / "_dead_letters", '"offset"') == [(0,)]


@SOURCES
def test_what_retention_takes_between_two_batches_is_said_and_not_passed_over(
    bmq: Bmq, spark: SparkSession, tmp_path: Path, source: str
) -> None:
    topic = topic_of(bmq.servers, partitions=1)
    produce(bmq.servers, topic, numbers(0, 35))
    options = options_of(bmq, tmp_path / "t", topic, source)

    def overtaken() -> None:
        produce(bmq.servers, topic, numbers(35, 50))
        admin = AdminClient({"bootstrap.servers": bmq.servers})
        for answer in admin.delete_records([TopicPartition(topic, 0, 45)]).values():
            answer.result(timeout=30)

    with pytest.raises(JobStopped, match="offsets are gone from the log before"):
        run_with(sink_that_meets(overtaken, after=True), options, spark)
        run(parse(options), spark)
    taken = offsets(tmp_path / "t")
    assert taken == list(range(len(taken)))
    run(parse([*options, "--accept-loss"]), spark)
    assert offsets(tmp_path / "t") == [*taken, *range(45, 50)]


@pytest.mark.timeout(600)
def test_a_run_with_once_beside_a_stream_on_the_same_checkpoint_doubles_nothing(
    bmq: Bmq, spark: SparkSession, tmp_path: Path
) -> None:
    topic = topic_of(bmq.servers, partitions=1)
    produce(bmq.servers, topic, numbers(0, 25))
    options = options_of(bmq, tmp_path / "t", topic, "kafka")
    stream = [option for option in options if option != "--once"]
    with job_at("parquet: added", -1, [*stream, "--trigger", "200ms"], tmp_path / "job") as job:
        job.wait(lambda: None)
        produce(bmq.servers, topic, numbers(25, 40))
        assert run(parse(options), spark).rows == 30
        produce(bmq.servers, topic, numbers(40, 60))
        assert job.go_on() == 1, job.said()[-3000:]
    assert sum(line.startswith("error: ") for line in job.said().splitlines()) == 1, job.said()[-3000:]
    run(parse(options), spark)
    assert offsets(tmp_path / "t") == list(range(60))


@pytest.mark.parametrize("name", ["metadata", "offsets/0", "offsets/1", "commits/1", "sources/0/0"])
def test_a_file_of_the_checkpoint_that_a_power_cut_left_empty_stops_no_run(
    bmq: Bmq, spark: SparkSession, tmp_path: Path, name: str
) -> None:
    """Spark renames its files, and syncs none. `sources` is read as long as there is no batch."""
    topic = topic_of(bmq.servers, partitions=1)
    options = [*options_of(bmq, tmp_path / "t", topic, "kafka"), "--checkpoint", str(tmp_path / "c")]
    count = 0 if name.startswith("sources") else 20
    produce(bmq.servers, topic, numbers(0, count))
    run(parse(options), spark)
    query = tmp_path / "c" / "0001"
    for log in ("offsets", "commits") if count == 0 else ():
        shutil.rmtree(query / log)
    assert (query / name).stat().st_size > 0
    (query / name).write_bytes(b"")
    produce(bmq.servers, topic, numbers(count, 25))
    run(parse(options), spark)
    assert offsets(tmp_path / "t") == list(range(25))

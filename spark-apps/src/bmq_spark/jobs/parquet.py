"""The job that keeps topics as a Parquet table: its arguments, and from them the parts that do the work."""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pyspark.sql import SparkSession

from bmq_spark.ending import StopRequest, ended, say
from bmq_spark.errors import ConfigurationError
from bmq_spark.jobs.checkpoint import Checkpoint
from bmq_spark.jobs.cluster import Cluster
from bmq_spark.jobs.folders import FOLDERS_MAX
from bmq_spark.jobs.hadoop_files import HadoopFolder
from bmq_spark.jobs.parquet_sink import ParquetSink
from bmq_spark.jobs.sinks import Total
from bmq_spark.jobs.streaming import Stream
from bmq_spark.locations import Location
from bmq_spark.options import JobOptions, add_shared_arguments, shared, size_bytes, time_ms
from bmq_spark.session import kept_for, open_session
from bmq_spark.table import DEAD_LETTERS_FOLDER, PartitionBy

JOB: Final = "parquet"
PARTITIONINGS: Final = ("hour", "date", "none")


@dataclass(frozen=True, slots=True, kw_only=True)
class ParquetOptions(JobOptions):
    """What this job is told."""

    output: str
    partition_by: str
    target_file_size_bytes: int
    retention_ms: int | None
    """None: nothing leaves the table."""
    max_partitions_per_batch: int


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(
        prog="parquet.py",
        description="Topics as a Parquet table, exactly once. Credentials come from the environment "
        "(AWS_ACCESS_KEY_ID, …), as bmq's own do.",
    )
    table = made.add_argument_group("table")
    table.add_argument("--output", metavar="URI", required=True, help="the table: a folder, or s3a://BUCKET/PREFIX")
    table.add_argument(
        "--partition-by",
        choices=PARTITIONINGS,
        default="hour",
        help="folders by the records' time, in UTC; hour has date=/hour= (default: %(default)s)",
    )
    table.add_argument(
        "--target-file-size",
        metavar="SIZE",
        default="128MiB",
        help="a file is ended when it has this size (default: %(default)s)",
    )
    table.add_argument(
        "--retention",
        metavar="TIME",
        help="folders that ended so long ago leave the table, e.g. 30d (default: none do)",
    )
    table.add_argument(
        "--max-partitions-per-batch",
        metavar="N",
        type=int,
        default=FOLDERS_MAX,
        help="folders of one batch; records of others lie in one without a time (default: %(default)s)",
    )
    add_shared_arguments(made, job=JOB)
    return made


def parse(arguments: Sequence[str]) -> ParquetOptions:
    """Raises ConfigurationError; argparse ends the process with code 2 by itself."""
    found = parser().parse_args(arguments)
    if found.max_partitions_per_batch < 1:
        raise ConfigurationError(f"--max-partitions-per-batch {found.max_partitions_per_batch}: give 1 or more")
    return ParquetOptions(
        output=found.output,
        partition_by=found.partition_by,
        target_file_size_bytes=size_bytes("--target-file-size", found.target_file_size),
        retention_ms=time_ms("--retention", found.retention) if found.retention else None,
        max_partitions_per_batch=found.max_partitions_per_batch,
        **shared(found, job=JOB),
    )


def run(options: ParquetOptions, spark: SparkSession, *, stop: StopRequest | None = None) -> Total:
    """Until what is there is taken (`once`), or until it is told to stop. Raises BmqError."""
    location = Location.parse(options.output)
    # Before a table is made, whose format is for good: a run that reaches nobody makes none.
    Cluster(options).topics(options.topics)
    sink = ParquetSink.open(
        spark,
        location,
        options,
        partition_by=PartitionBy(options.partition_by),
        target_bytes=options.target_file_size_bytes,
        retention_ms=options.retention_ms,
        folders_max=options.max_partitions_per_batch,
    )
    sink.catch_up()
    folder = HadoopFolder(spark, options.checkpoint or location.child("_bmq/checkpoint").uri)
    checkpoint = Checkpoint(folder, table_id=sink.id, table=location.hadoop())
    total = Stream(spark, options, sink, checkpoint, stop=stop).run()
    say(total.summary(table=location.hadoop(), dead_letters=location.child(DEAD_LETTERS_FOLDER).hadoop()))
    return total


def main(arguments: Sequence[str]) -> int:
    """Returns the exit code."""

    def job(given: Sequence[str]) -> None:
        options = parse(given)
        stop = StopRequest().listen()
        spark = open_session(f"parquet {','.join(options.topics)}", event_log=options.event_log)
        with kept_for(f"the table {options.output}", spark):
            run(options, spark, stop=stop.listen_in_java(spark))

    return ended(job, arguments)

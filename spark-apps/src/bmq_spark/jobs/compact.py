"""Keeps a Parquet table small in files: retention, merging, vacuum, in that order, each atomic; for the table and for
its dead letters.

Under spark-submit the merges are Spark's tasks; elsewhere they are done in this process, one after the other, without a
JVM.
"""

import argparse
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from bmq.ports import Clock
from bmq_spark.batches.places import Places
from bmq_spark.ending import ended, say
from bmq_spark.errors import ConfigurationError
from bmq_spark.locations import Location
from bmq_spark.options import size_bytes, time_ms
from bmq_spark.table import DEAD_LETTERS_FOLDER, TARGET_BYTES, Table
from bmq_spark.table.clocks import why_not_by_age
from bmq_spark.table.compaction import MIN_FILES, Compacted, compact
from bmq_spark.table.delta import publish
from bmq_spark.table.log import is_of_rows, now_ms
from bmq_spark.table.proof import prove
from bmq_spark.table.vacuum import Vacuumed, expire, vacuum

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SAID_EVERY: Final = 20
_MIB: Final = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactOptions:
    """What compact.py is told."""

    output: str
    target_file_size_bytes: int
    min_files: int
    older_than_ms: int
    vacuum_older_than_ms: int
    retention_ms: int | None


def parse(arguments: Sequence[str]) -> CompactOptions:
    """Raises ConfigurationError; argparse ends the process with 2 for what it sees itself."""
    parser = argparse.ArgumentParser(
        prog="compact.py", description="Merge the small files of a Parquet table, and delete what no version names."
    )
    parser.add_argument(
        "--output", metavar="URI", required=True, help="the table: what the job that writes it was given as --output"
    )
    parser.add_argument(
        "--target-file-size",
        metavar="SIZE",
        default=f"{TARGET_BYTES // _MIB}MiB",
        help="of merged files (default: %(default)s)",
    )
    parser.add_argument(
        "--min-files",
        metavar="N",
        type=int,
        default=MIN_FILES,
        help="leave folders with fewer small files (default: %(default)s)",
    )
    parser.add_argument(
        "--older-than",
        metavar="TIME",
        default="1h",
        help="leave folders whose time ended later than so long ago (default: %(default)s)",
    )
    parser.add_argument(
        "--vacuum-older-than",
        metavar="TIME",
        default="1h",
        help="how long readers of replaced versions have before their files go (default: %(default)s)",
    )
    parser.add_argument(
        "--retention",
        metavar="TIME",
        help="folders that ended so long ago leave the table, e.g. 30d (default: none do)",
    )
    parser.add_argument("--once", action="store_true", help="as always: the job ends when it is done")
    found = parser.parse_args(arguments)
    if found.min_files < 2:
        raise ConfigurationError(f"--min-files {found.min_files}: give 2 or more")
    return CompactOptions(
        output=found.output,
        target_file_size_bytes=size_bytes("--target-file-size", found.target_file_size),
        min_files=found.min_files,
        older_than_ms=time_ms("--older-than", found.older_than),
        vacuum_older_than_ms=time_ms("--vacuum-older-than", found.vacuum_older_than),
        retention_ms=time_ms("--retention", found.retention) if found.retention else None,
    )


def run(
    options: CompactOptions,
    spark: "SparkSession | None" = None,
    *,
    at_ms: int | None = None,
    clock: Clock | None = None,
) -> list[str]:
    """The table, then its dead letters where there are some; `at_ms` stands for now. Returns the summary lines. Raises
    BmqError.

    Where this machine's `clock` is not the store's, files are merged, and none are deleted.
    """
    location = Location.parse(options.output)
    table = Table.open(location)
    prove(location)
    if (why := why_not_by_age(location, clock)) is not None:
        say(f"warning: {why}")
    at = now_ms() if at_ms is None else at_ms
    lines = [_maintain(table, options, spark, at, by_age=why is None)]
    dead = Table(location.child(DEAD_LETTERS_FOLDER))
    if Table.exists(dead.location) and not is_of_rows(dead):  # else it is somebody else's
        lines.append(_maintain(dead, options, spark, at, by_age=why is None, below=table.snapshot().offsets))
    for line in lines:
        say(line)
    return lines


def _maintain(
    table: Table,
    options: CompactOptions,
    spark: "SparkSession | None",
    at_ms: int,
    *,
    by_age: bool,
    below: Places | None = None,
) -> str:
    expired = (
        None
        if options.retention_ms is None or not by_age
        else expire(table, before_ms=at_ms - options.retention_ms, below=below)
    )
    done = compact(
        table,
        target_bytes=options.target_file_size_bytes,
        min_files=options.min_files,
        before_ms=at_ms - options.older_than_ms,
        spark=spark,
        progress=_progress,
    )
    # Who reads without the log has to be told of the merged files before the small ones go.
    publish(table)
    line = f"{table.location.hadoop()} version {table.snapshot().version}: {_merged(done)}"
    line += (
        f"; {_vacuumed(vacuum(table, before_ms=at_ms - options.vacuum_older_than_ms, now_ms=at_ms))}"
        if by_age
        else "; deleted nothing"
    )
    return line if expired is None else f"{line}; retention took out {expired.files} files with {expired.rows} rows"


def _merged(done: Compacted) -> str:
    line = (
        f"merged {done.files_before} files of {done.bytes_before / _MIB:.1f} MiB into {done.files_after} of "
        f"{done.bytes_after / _MIB:.1f} MiB"
    )
    line += f", {done.rows} rows in {done.folders} folders"
    return line if not done.given_up else f"{line} ({done.given_up} parts were left to another writer that was faster)"


def _vacuumed(gone: Vacuumed) -> str:
    line = f"deleted {gone.files} unnamed files of {gone.bytes / _MIB:.1f} MiB"
    if gone.unfinished:
        line += f", left {gone.unfinished} of unfinished batches to their job"
    return line if not gone.unknown else f"{line}, left {gone.unknown} objects that are not the table's"


def _progress(done: int, of: int, folder: str) -> None:
    if done % _SAID_EVERY == 0 or done == of:
        say(f"merged {done} of {of} parts, the last in {folder or 'the table'}")


def main(arguments: Sequence[str]) -> int:
    """Returns the exit code."""

    def job(given: Sequence[str]) -> None:
        options = parse(given)
        if "PYSPARK_GATEWAY_PORT" not in os.environ:
            run(options)
            return
        from bmq_spark.session import kept_for, open_session

        spark = open_session(f"compact {options.output}")
        with kept_for(f"the table {options.output}", spark):
            run(options, spark)

    return ended(job, arguments)

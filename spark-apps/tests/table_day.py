"""A day of a table, minute by minute, with the time injected: how many files, how large a log, how long a snapshot takes.

`python spark-apps/tests/table_day.py [MINUTES]` prints the figures of docs/performance.md.
"""

import hashlib
import sys
from dataclasses import dataclass, replace
from time import perf_counter, process_time

from faulty_location import Faults, FaultyLocation
from table_records import HOUR_MS, START_MS, covered_by, records, write

from bmq_spark.locations import Location
from bmq_spark.table import DataFile, FileName, PartitionBy, Table, log_format, record_schema
from bmq_spark.table.compaction import compact
from bmq_spark.table.layout import folder_name
from bmq_spark.table.log import LOG, SNAPSHOTS
from bmq_spark.table.state import NOTHING, snapshot_fields, snapshot_of
from bmq_spark.table.vacuum import vacuum

MINUTE_MS = 60_000
PARTITIONS = 10
TASKS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Day:
    """What a day leaves."""

    files: int
    folders: int
    rows: int
    globbed: int
    """Parquet objects that lie there, with those that wait for vacuum."""
    commits: int
    commit_bytes: int
    snapshots: int
    snapshot_bytes: int
    open_ms: float


def day(location: Location, *, minutes: int, compacted: bool, records_each: int = 20) -> Day:
    """A batch a minute of ten partitions by two tasks; every tenth minute one partition is two hours late. Compaction runs once an hour."""
    now_ms = START_MS
    table = Table.create(location, clock_ms=lambda: now_ms)
    table.begin("q")
    for minute in range(minutes):
        now_ms = START_MS + minute * MINUTE_MS
        if isinstance(location, FaultyLocation):
            location.faults.now_ms = now_ms
        batches = [
            records(
                "t",
                p,
                minute * records_each,
                records_each,
                start_ms=now_ms - (2 * HOUR_MS if minute % 10 == p else 0),
                step_ms=MINUTE_MS // records_each,
            )
            for p in range(PARTITIONS)
        ]
        added: list[DataFile] = []
        for task in range(TASKS):
            added += write(table, "q", minute, batches[task::TASKS], task=task)
        table.commit_batch(("q", minute), added=added, offsets=covered_by(batches), schema=record_schema())
        if compacted and minute % 60 == 59:
            compact(table, before_ms=now_ms + MINUTE_MS)
            vacuum(table, before_ms=now_ms - HOUR_MS)
    snapshot = table.snapshot()
    commits, snapshots = list(location.list(LOG)), list(location.list(SNAPSHOTS))
    began = perf_counter()
    Table.open(location)
    return Day(
        files=len(snapshot.files),
        folders=len({file.folder for file in snapshot.files}),
        rows=sum(file.rows for file in snapshot.files),
        globbed=sum(found.key.endswith(".parquet") for found in location.list()),
        commits=len(commits),
        commit_bytes=sum(found.size_bytes for found in commits),
        snapshots=len(snapshots),
        snapshot_bytes=max((found.size_bytes for found in snapshots), default=0),
        open_ms=(perf_counter() - began) * 1000,
    )


def digest_of(number: int) -> str:
    """As varied as a real one."""
    return hashlib.sha256(b"%d" % number).hexdigest()


def many_files(count: int) -> list[DataFile]:
    """Entries of files that do not lie anywhere."""
    return [
        DataFile(
            key=f"{folder_name(START_MS // HOUR_MS + n // 10, PartitionBy.HOUR)}/{FileName(query_id='q', batch_id=n, task=0).name(0, digest_of(n))}",
            rows=1000,
            bytes=100_000,
            topic_partitions={("orders", n % 10): (n * 1000, n * 1000 + 999)},
            min_timestamp_ms=START_MS,
            max_timestamp_ms=START_MS + n,
        )
        for n in range(count)
    ]


def stored_snapshot(count: int) -> bytes:
    """The stored snapshot of a table with so many files."""
    state = replace(NOTHING, version=1, schema=record_schema(), by_key={file.key: file for file in many_files(count)})
    return log_format.encode(log_format.Kind.SNAPSHOT, snapshot_fields(state))


def read_snapshot_s(content: bytes) -> float:
    """Processor time of a reader for a stored snapshot that it has fetched."""
    began = process_time()
    snapshot_of(log_format.decode(log_format.Kind.SNAPSHOT, content, name="x"), name="x")
    return process_time() - began


if __name__ == "__main__":
    length = int(sys.argv[1]) if len(sys.argv) > 1 else 1440
    for with_compaction in (True, False):
        place: Location = FaultyLocation("s3://memory/table", Faults())
        print("with" if with_compaction else "without", "compaction:", day(place, minutes=length, compacted=with_compaction), flush=True)
    stored = stored_snapshot(100_000)
    print(f"snapshot of 100,000 files: {len(stored):,} bytes, read in {min(read_snapshot_s(stored) for _ in range(3)):.2f} s")

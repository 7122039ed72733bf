"""A day of a table, minute by minute, with the time injected: how many files, how large a log, how long a snapshot
takes.

`python spark-apps/tests/table_day.py [MINUTES]` prints the figures of docs/performance.md.
"""

import hashlib
import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from statistics import median
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
    """What a day leaves. Milliseconds are of the processor, without a bucket's answers."""

    files: int
    files_max: int
    """Just before a compaction."""
    folders: int
    folder_files: int
    """Of the folder that has the most."""
    folder_globbed_max: int
    """Parquet objects that ever lay in one folder, with those that wait for vacuum."""
    rows: int
    globbed: int
    """Parquet objects that lie there, with those that wait for vacuum."""
    commits: int
    commit_bytes: int
    snapshots: int
    snapshot_bytes: int
    version: int
    """How many commits there ever were."""
    open_ms: float
    commit_ms: tuple[float, float]
    """The median of the first hour, and of the last."""
    compaction_ms: tuple[float, float]
    """The first one and the last one, with vacuum."""


def day(location: Location, *, minutes: int, compacted: bool, records_each: int = 20) -> Day:
    """A batch a minute of ten partitions by two tasks; every tenth minute one partition is two hours late. Compaction
    runs once an hour.
    """
    now_ms = START_MS
    table = Table.create(location, clock_ms=lambda: now_ms)
    table.begin("q")
    commits_ms: list[float] = []
    compactions_ms: list[float] = []
    files_max = folder_globbed_max = 0
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
        covered = covered_by(batches)
        began_s = process_time()
        table.commit_batch(("q", minute), added=added, offsets=covered, schema=record_schema())
        commits_ms.append((process_time() - began_s) * 1000)
        if minute % 60 != 59:
            continue
        files_max = max(files_max, len(table.snapshot().files))
        began_s = process_time()
        if compacted:
            compact(table, before_ms=now_ms + MINUTE_MS)
            folder_globbed_max = max(
                folder_globbed_max,
                most_in_a_folder(found.key for found in location.list() if found.key.endswith(".parquet")),
            )
            vacuum(table, before_ms=now_ms - HOUR_MS)
            compactions_ms.append((process_time() - began_s) * 1000)
    snapshot = table.snapshot()
    lying = [found.key for found in location.list() if found.key.endswith(".parquet")]
    commits, snapshots = list(location.list(LOG)), list(location.list(SNAPSHOTS))
    began = perf_counter()
    Table.open(location)
    return Day(
        files=len(snapshot.files),
        files_max=max(files_max, len(snapshot.files)),
        folder_files=most_in_a_folder(file.key for file in snapshot.files),
        folder_globbed_max=max(folder_globbed_max, most_in_a_folder(lying)),
        folders=len({file.folder for file in snapshot.files}),
        rows=sum(file.rows for file in snapshot.files),
        globbed=len(lying),
        commits=len(commits),
        commit_bytes=sum(found.size_bytes for found in commits),
        snapshots=len(snapshots),
        snapshot_bytes=max((found.size_bytes for found in snapshots), default=0),
        version=snapshot.version,
        open_ms=(perf_counter() - began) * 1000,
        commit_ms=(median(commits_ms[:60]), median(commits_ms[-60:])),
        compaction_ms=(compactions_ms[0], compactions_ms[-1]) if compactions_ms else (0.0, 0.0),
    )


def most_in_a_folder(keys: Iterable[str]) -> int:
    """How many files the folder has that has the most."""
    return max(Counter(key.rpartition("/")[0] for key in keys).values(), default=0)


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
        began_at = perf_counter()
        left = day(place, minutes=length, compacted=with_compaction)
        print(
            "with" if with_compaction else "without",
            "compaction:",
            left,
            f"in {perf_counter() - began_at:.0f} s",
            flush=True,
        )
    stored = stored_snapshot(100_000)
    print(
        f"snapshot of 100,000 files: {len(stored):,} bytes, read in "
        f"{min(read_snapshot_s(stored) for _ in range(3)):.2f} s"
    )

"""A long stream into an Iceberg table, with maintenance, a producer beside it and one kill: what it leaves and what it
needs meanwhile.

`PYTHONPATH=tests/compat:spark-apps/tests .cache/spark/bin/python -m benchmarks.spark_iceberg_stream [SECONDS]`
prints the figures of docs/performance.md.
"""

import sys
import tempfile
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Event, Thread
from time import monotonic, sleep

from compat_server import ROOT, Bmq
from confluent_kafka import Producer
from parquet_jobs import topic_of
from parquet_process import Job
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table
from sqlalchemy.exc import OperationalError

from benchmarks import processes

TRIGGER, KEEP, EVERY = "1s", "60s", "60s"
RECORDS_A_SECOND = 100
LOOK_S = 20
END_S = 600


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What there is at one moment."""

    at_s: float
    commits: int
    """Sequence number of the table: every commit there ever was."""
    snapshots: int
    metadata_files: int
    """*.metadata.json that lie there."""
    manifests: int
    """Manifests and lists of manifests that lie there."""
    data_files: int
    """Parquet files that lie there."""
    live_files: int
    """Of the newest snapshot."""
    rss_mib: int
    """The job's processes together."""


class Writer(Thread):
    """Numbers from 0 on, so many a second."""

    def __init__(self, servers: str, topic: str) -> None:
        super().__init__()
        self._producer = Producer({"bootstrap.servers": servers, "linger.ms": 20})
        self._topic = topic
        self.enough = Event()
        self.written = 0

    def run(self) -> None:
        began = monotonic()
        while not self.enough.wait(0.1):
            while self.written < (monotonic() - began) * RECORDS_A_SECOND:
                self._producer.produce(self._topic, b"%d" % self.written)
                self.written += 1
            self._producer.poll(0)
        assert self._producer.flush(60) == 0


def table_in(folder: Path) -> Table:
    return SqlCatalog("lake", uri=f"sqlite:///{folder}/catalog.db", init_catalog_tables="false").load_table("db.orders")


def _has_rows(folder: Path) -> bool:
    try:
        return len(table_in(folder).metadata.snapshots) > 1
    except (NoSuchTableError, OperationalError):
        return False


def _commits(folder: Path) -> int:
    return table_in(folder).metadata.last_sequence_number


def _has_gone_on(folder: Path, commits: int) -> bool:
    return _commits(folder) > commits


def look(folder: Path, job: Job, began_s: float) -> Look:
    """What there is now."""
    table = table_in(folder)
    snapshot = table.current_snapshot()
    assert snapshot is not None and snapshot.summary is not None
    lying = [
        file.name for file in Path(folder, "warehouse").rglob("*") if file.is_file() and not file.name.startswith(".")
    ]
    return Look(
        at_s=round(monotonic() - began_s),
        commits=table.metadata.last_sequence_number,
        snapshots=len(table.metadata.snapshots),
        metadata_files=sum(name.endswith(".metadata.json") for name in lying),
        manifests=sum(name.endswith(".avro") for name in lying),
        data_files=sum(name.endswith(".parquet") for name in lying),
        live_files=int(snapshot.summary["total-data-files"] or 0),
        rss_mib=processes.rss_bytes(job.process.pid) >> 20,
    )


def main(seconds: int) -> None:
    """Prints a line for each look, then the account."""
    with tempfile.TemporaryDirectory(prefix="iceberg-stream-") as name:
        folder = Path(name)
        server = Bmq(["--data", str(folder / "bmq")], log=folder / "bmq.log")
        server.start()
        topic = topic_of(server.servers, partitions=3)
        writer = Writer(server.servers, topic)
        arguments = [
            "--bootstrap-servers",
            server.servers,
            "--topic",
            topic,
            "--table",
            "lake.db.orders",
            "--format",
            "string",
        ]
        arguments += [
            "--catalog-type",
            "sql",
            "--catalog-uri",
            f"jdbc:sqlite:{folder}/catalog.db",
            "--warehouse",
            f"{folder}/warehouse",
        ]
        stream = [*arguments, "--trigger", TRIGGER, "--maintain", "--maintain-every", EVERY, "--keep-snapshots", KEEP]

        def started(given: list[str]) -> Job:
            return Job(
                given,
                folder / "job.log",
                script=ROOT / "spark-apps" / "iceberg.py",
                environment={"JDK_JAVA_OPTIONS": ""},
            )

        writer.start()
        job = started(stream)
        try:
            job.until(lambda: _has_rows(folder), "rows")
            began, killed = monotonic(), False
            while (at := monotonic() - began) < seconds:
                sleep(LOOK_S)
                print(look(folder, job, began), flush=True)
                if not killed and at > seconds / 2:
                    killed = True
                    job.kill()
                    print(f"killed at {at:.0f} s", flush=True)
                    commits = _commits(folder)
                    job = started(stream)
                    job.until(partial(_has_gone_on, folder, commits), "another commit")
            writer.enough.set()
            writer.join()
            job.process.terminate()
            assert job.process.wait(END_S) == 0, job.said()
            job = started([*arguments, "--once"])
            assert job.process.wait(END_S) == 0, job.said()
            with closing(table_in(folder).scan().to_duckdb("orders")) as connection:
                counts = 'count(*), count(DISTINCT value), max(value::BIGINT), count(DISTINCT (partition, "offset"))'
                found = connection.sql(f"SELECT {counts} FROM orders")
                print("written", writer.written, "rows, numbers, the highest, places:", found.fetchall())
        finally:
            writer.enough.set()
            print(job.said()[-6000:])
            job.kill()
            server.stop()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 540)

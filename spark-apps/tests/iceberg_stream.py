"""A long stream into an Iceberg table, with maintenance, a producer beside it and one kill: what it leaves and what it needs meanwhile.

`PYTHONPATH=.:tests/compat .cache/spark/bin/python spark-apps/tests/iceberg_stream.py [SECONDS]` prints the figures of docs/performance.md.
"""

import os
import signal
import subprocess
import sys
import tempfile
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread
from time import monotonic, sleep

from benchmarks import processes
from compat_server import ROOT, Bmq
from confluent_kafka import Producer
from parquet_jobs import topic_of
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table
from sqlalchemy.exc import OperationalError

TRIGGER, KEEP, EVERY = "1s", "60s", "60s"
RECORDS_A_SECOND = 100
LOOK_S = 20


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


class Job:
    """iceberg.py as a stream, in a process group of its own."""

    def __init__(self, servers: str, topic: str, folder: Path) -> None:
        self._folder = folder
        self.log = folder / "job.log"
        self._command = [sys.executable, str(ROOT / "spark-apps" / "iceberg.py"), "--bootstrap-servers", servers, "--topic", topic]
        self._command += ["--table", "lake.db.orders", "--catalog-type", "sql", "--catalog-uri", f"jdbc:sqlite:{folder}/catalog.db"]
        self._command += ["--warehouse", f"{folder}/warehouse", "--format", "string"]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, *more: str) -> None:
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [*self._command, *more], env=dict(os.environ) | {"SPARK_MASTER": "local[2]"}, stdout=log, stderr=log, start_new_session=True
            )

    def signal(self, number: signal.Signals) -> int:
        """Its exit code."""
        assert self._process is not None
        if number == signal.SIGKILL:
            os.killpg(self._process.pid, number)
        else:
            self._process.send_signal(number)
        return self.wait()

    def wait(self) -> int:
        assert self._process is not None
        return self._process.wait(600)

    def runs(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def rss_mib(self) -> int:
        """Resident memory of it and what it started."""
        assert self._process is not None
        return processes.rss_bytes(self._process.pid) >> 20


def table_in(folder: Path) -> Table:
    return SqlCatalog("lake", uri=f"sqlite:///{folder}/catalog.db", init_catalog_tables="false").load_table("db.orders")


def _has_rows(folder: Path) -> bool:
    try:
        return len(table_in(folder).metadata.snapshots) > 1
    except (NoSuchTableError, OperationalError):
        return False


def look(folder: Path, job: Job, began_s: float) -> Look:
    """What there is now."""
    table = table_in(folder)
    snapshot = table.current_snapshot()
    assert snapshot is not None and snapshot.summary is not None
    lying = [file.name for file in Path(folder, "warehouse").rglob("*") if file.is_file() and not file.name.startswith(".")]
    return Look(
        at_s=round(monotonic() - began_s),
        commits=table.metadata.last_sequence_number,
        snapshots=len(table.metadata.snapshots),
        metadata_files=sum(name.endswith(".metadata.json") for name in lying),
        manifests=sum(name.endswith(".avro") for name in lying),
        data_files=sum(name.endswith(".parquet") for name in lying),
        live_files=int(snapshot.summary["total-data-files"] or 0),
        rss_mib=job.rss_mib(),
    )


def main(seconds: int) -> None:
    """Prints a line for each look, then the account."""
    with tempfile.TemporaryDirectory(prefix="iceberg-stream-") as name:
        folder = Path(name)
        server = Bmq(["--data", str(folder / "bmq")], log=folder / "bmq.log")
        server.start()
        topic = topic_of(server.servers, partitions=3)
        job, writer = Job(server.servers, topic, folder), Writer(server.servers, topic)
        stream = ["--trigger", TRIGGER, "--maintain", "--maintain-every", EVERY, "--keep-snapshots", KEEP]
        writer.start()
        try:
            job.start(*stream)
            while not _has_rows(folder):
                assert job.runs(), job.log.read_text()
                sleep(1)
            began, killed = monotonic(), False
            while (at := monotonic() - began) < seconds:
                sleep(LOOK_S)
                print(look(folder, job, began), flush=True)
                if not killed and at > seconds / 2:
                    killed = True
                    job.signal(signal.SIGKILL)
                    print(f"killed at {at:.0f} s", flush=True)
                    job.start(*stream)
            writer.enough.set()
            writer.join()
            assert job.signal(signal.SIGTERM) == 0, job.log.read_text()
            job.start("--once")
            assert job.wait() == 0, job.log.read_text()
            with closing(table_in(folder).scan().to_duckdb("orders")) as connection:
                counts = 'count(*), count(DISTINCT value), max(value::BIGINT), count(DISTINCT (partition, "offset"))'
                found = connection.sql(f"SELECT {counts} FROM orders")
                print("written", writer.written, "rows, numbers, the highest, places:", found.fetchall())
        finally:
            writer.enough.set()
            print(job.log.read_text()[-6000:])
            if job.runs():
                job.signal(signal.SIGKILL)
            server.stop()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 540)

"""The job as a process, killed at seeded moments while records come. BMQ_SPARK_KILLS says how often (2), BMQ_SPARK_SEED where the moments lie."""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from compat_server import Bmq
from confluent_kafka import Producer
from parquet_jobs import arguments, rows, topic_of
from pyspark.sql import SparkSession

from bmq_spark.errors import ConfigurationError
from bmq_spark.jobs.parquet import parse, run
from bmq_spark.locations import Location
from bmq_spark.table import Table

KILLS = int(os.environ.get("BMQ_SPARK_KILLS", "2"))
SEED = int(os.environ.get("BMQ_SPARK_SEED", "1"))
SCRIPT = Path(__file__).parents[1] / "parquet.py"
BAD = 10
"""One record of so many is no UTF-8, and becomes a dead letter."""


class Producing(threading.Thread):
    """Numbered records on and on, until told to end."""

    def __init__(self, servers: str, topic: str) -> None:
        super().__init__()
        self._producer = Producer({"bootstrap.servers": servers, "linger.ms": 20, "enable.idempotence": True})
        self._topic = topic
        self._end = threading.Event()
        self.count = 0

    def run(self) -> None:
        while not self._end.wait(0.05):
            for _ in range(20):
                text = b"%d" % self.count
                self._producer.produce(self._topic, b"\xff" + text if self.count % BAD == 0 else text, key=text)
                self.count += 1
            self._producer.poll(0)

    def finish(self) -> int:
        """How many records there are."""
        self._end.set()
        self.join()
        assert self._producer.flush(60) == 0
        return self.count


class Job:
    """parquet.py as a stream, in a process group of its own."""

    def __init__(self, given: list[str], log: Path) -> None:
        self.log = log
        environment = os.environ | {"SPARK_MASTER": "local[2]", "JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, str(SCRIPT), *given, "--trigger", "500ms"], stdout=output, stderr=output, start_new_session=True, env=environment
            )

    def workers(self) -> list[int]:
        """The Python processes in which records are written: the group without its leader and without Java."""
        found = []
        for folder in Path("/proc").iterdir():
            try:
                state = (folder / "stat").read_text().rpartition(")")[2].split()
                command = (folder / "cmdline").read_bytes()
            except (OSError, NotADirectoryError):
                continue
            if int(state[2]) == self.process.pid and b"pyspark.daemon" in command:
                found.append(int(folder.name))
        return found

    def kill(self) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(30)


@contextmanager
def running(given: list[str], log: Path) -> Iterator[Job]:
    job = Job(given, log)
    try:
        yield job
    finally:
        job.kill()


def batches(table: Path) -> int:
    try:
        return sum(commit.batch is not None for commit in Table.open(Location.parse(str(table))).commits())
    except ConfigurationError:
        return 0


def wait_for_batches(table: Path, job: Job, count: int) -> None:
    start = batches(table)
    deadline = time.monotonic() + 240
    while batches(table) < start + count:
        assert job.process.poll() is None, job.log.read_text()[-3000:]
        assert time.monotonic() < deadline, job.log.read_text()[-3000:]
        time.sleep(0.1)


@pytest.mark.timeout(300 * (KILLS + 2))
def test_nothing_is_lost_or_doubled_by_a_job_that_is_killed_again_and_again(bmq: Bmq, spark: SparkSession, tmp_path: Path) -> None:
    topic = topic_of(bmq.servers)
    table, log = tmp_path / "t", tmp_path / "log"
    given = [*arguments(bmq.servers, table, topic, once=False), "--format", "string", "--max-records-per-batch", "500"]
    moments = random.Random(SEED)
    producing = Producing(bmq.servers, topic)
    producing.start()
    try:
        for turn in range(KILLS):
            with running(given, log) as job:
                wait_for_batches(table, job, 1)
                time.sleep(moments.uniform(0, 1))
                if turn % 2:
                    for worker in job.workers():
                        os.kill(worker, signal.SIGKILL)
                    time.sleep(moments.uniform(0, 1))
                job.kill()
        with running(given, log) as job:
            wait_for_batches(table, job, 1)
            job.process.terminate()
            assert job.process.wait(150) == 0, log.read_text()[-3000:]
    finally:
        count = producing.finish()
    run(parse([*given, "--once", "--max-records-per-batch", "100000"]), spark)
    good, bad = rows(table), rows(table / "_dead_letters")
    assert sorted(int(value) for (value,) in good) == [number for number in range(count) if number % BAD], f"BMQ_SPARK_SEED={SEED}"
    assert sorted(int(value[1:]) for (value,) in bad) == list(range(0, count, BAD)), f"BMQ_SPARK_SEED={SEED}"

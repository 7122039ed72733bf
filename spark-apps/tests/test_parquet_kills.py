"""The job as a process, killed at seeded moments while records come. BMQ_SPARK_KILLS says how often (2), BMQ_SPARK_SEED
where the moments lie.
"""

import os
import random
import signal
import threading
from pathlib import Path

import pytest
from compat_server import Bmq
from confluent_kafka import Producer
from parquet_jobs import arguments, rows, topic_of
from parquet_process import running
from pyspark.sql import SparkSession
from tests.waiting import let_pass

from bmq_spark.jobs.parquet import parse, run

KILLS = int(os.environ.get("BMQ_SPARK_KILLS", "2"))
SEED = int(os.environ.get("BMQ_SPARK_SEED", "1"))
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


@pytest.mark.timeout(300 * (KILLS + 2))
def test_nothing_is_lost_or_doubled_by_a_job_that_is_killed_again_and_again(
    bmq: Bmq, spark: SparkSession, tmp_path: Path
) -> None:
    topic = topic_of(bmq.servers)
    table, log = tmp_path / "t", tmp_path / "log"
    given = [*arguments(bmq.servers, table, topic, once=False), "--format", "string", "--max-records-per-batch", "500"]
    moments = random.Random(SEED)
    producing = Producing(bmq.servers, topic)
    producing.start()
    try:
        for turn in range(KILLS):
            with running(given, log) as job:
                job.until_batches(table, 1)
                let_pass(moments.uniform(0, 1), "it is killed at any moment")
                if turn % 2:
                    for worker in job.workers():
                        os.kill(worker, signal.SIGKILL)
                    let_pass(moments.uniform(0, 1), "it is killed at any moment")
                job.kill()
        with running(given, log) as job:
            job.until_batches(table, 1)
            job.process.terminate()
            assert job.process.wait(150) == 0, log.read_text()[-3000:]
    finally:
        count = producing.finish()
    run(parse([*given, "--once", "--max-records-per-batch", "100000"]), spark)
    good, bad = rows(table), rows(table / "_dead_letters")
    assert sorted(int(value) for (value,) in good) == [number for number in range(count) if number % BAD], (
        f"BMQ_SPARK_SEED={SEED}"
    )
    assert sorted(int(value[1:]) for (value,) in bad) == list(range(0, count, BAD)), f"BMQ_SPARK_SEED={SEED}"

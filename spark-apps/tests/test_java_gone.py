"""A job whose Java dies, as by the kernel where memory is short, says that in one line."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from compat_server import ROOT, Bmq
from parquet_jobs import produce, topic_of
from tests.waiting import until

WAIT_S = 240


def java_of(job: int) -> int | None:
    """The one in the job's process group."""
    for found in Path("/proc").iterdir():
        try:
            name = (found / "comm").read_text().strip() if found.name.isdigit() else ""
            if name == "java" and os.getpgid(int(found.name)) == job:
                return int(found.name)
        except OSError:
            continue
    return None


@pytest.mark.skipif(not Path("/proc/self/comm").exists(), reason="needs Linux's /proc to find a process's Java")
@pytest.mark.parametrize("kind", ["parquet", "iceberg"])
def test_a_job_whose_java_is_killed_ends_with_one_line(bmq: Bmq, tmp_path: Path, kind: str) -> None:
    topic = topic_of(bmq.servers, partitions=1)
    produce(bmq.servers, topic, [b"1"])
    given = ["--bootstrap-servers", bmq.servers, "--topic", topic, "--trigger", "300ms"]
    table = (
        ["--output", str(tmp_path / "t")]
        if kind == "parquet"
        else ["--table", "lake.db.orders", "--warehouse", str(tmp_path / "t"), "--catalog-type", "hadoop"]
    )
    log = tmp_path / "log"
    with log.open("wb") as out:
        job = subprocess.Popen(
            [sys.executable, str(ROOT / "spark-apps" / f"{kind}.py"), *given, *table],
            stdout=out,
            stderr=out,
            start_new_session=True,
            env=dict(os.environ) | {"SPARK_MASTER": "local[2]"},
        )
    try:
        until(
            lambda: "batch 0: 1 rows" in log.read_text(),
            "a batch",
            WAIT_S,
            unless=lambda: job.poll() is not None,
            shows=log.read_text,
        )
        java = java_of(job.pid)
        assert java is not None
        os.kill(java, signal.SIGKILL)
        until(lambda: job.poll() is not None, "the job to end", WAIT_S, shows=log.read_text)
        said = log.read_text()
        assert job.returncode == 1, said
        assert "Traceback" not in said, said
        errors = [line for line in said.splitlines() if line.startswith("error: ")]
        assert len(errors) == 1 and "Spark's JVM ended (by signal 9;" in errors[0], said
        assert said.splitlines()[-1] == errors[0], said
    finally:
        if job.poll() is None:
            os.killpg(job.pid, signal.SIGKILL)
        job.wait(30)

"""A machine that has much else to do starts a process of Python later than Spark waits for it: the job goes on."""

import sys
from pathlib import Path

from compat_server import Bmq
from parquet_jobs import arguments, produce, rows, topic_of
from parquet_process import running

LATE_S = 12
"""Spark waits for ten."""
PYTHON = """#!/bin/sh
# A process that reads a source is late, as long as there is a turn left for it.
case "$*" in *python_streaming_source_runner*)
  for turn in "{turns}"/*; do
    if rm "$turn" 2>/dev/null; then sleep {late_s}; break; fi
  done;;
esac
exec "{python}" "$@"
"""


def late_python(folder: Path, *, turns: int) -> Path:
    """A command that stands in for Python's and is late so many times."""
    (folder / "turns").mkdir()
    for turn in range(turns):
        (folder / "turns" / str(turn)).touch()
    script = folder / "python"
    script.write_text(PYTHON.format(turns=folder / "turns", late_s=LATE_S, python=sys.executable))
    script.chmod(0o755)
    return script


def test_a_job_goes_on_though_a_process_starts_too_late(bmq: Bmq, tmp_path: Path) -> None:
    topic = topic_of(bmq.servers, partitions=1)
    produce(bmq.servers, topic, [b"1", b"2"])
    python = late_python(tmp_path, turns=1)
    given = [*arguments(bmq.servers, tmp_path / "t", topic), "--source", "bmq"]
    given += ["--store", (bmq.log.parent / "data").as_uri()]
    with running(given, tmp_path / "log", environment={"PYSPARK_PYTHON": str(python)}) as job:
        assert job.process.wait(240) == 0, job.said()[-3000:]
    assert job.said().count("warning: a process of Python did not start within Spark's ten seconds") == 1
    assert rows(tmp_path / "t") == [(b"1",), (b"2",)]

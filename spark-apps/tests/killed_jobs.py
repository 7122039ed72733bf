"""Jobs that die, or wait, at a chosen point (job_at_points.py), and what others do to their table meanwhile."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.waiting import until

WAIT_S = 240
SCRIPT = Path(__file__).with_name("job_at_points.py")


class JobAtPoint:
    """A process group of its own."""

    def __init__(self, point: str, number: int, given: list[str], folder: Path) -> None:
        folder.mkdir()
        self.folder = folder
        environment = {
            **os.environ,
            "PYTHONPATH": str(SCRIPT.parents[2]),
            "SPARK_MASTER": "local[2]",
        }
        command = [sys.executable, str(SCRIPT), point, str(number), str(folder), *given]
        with (folder / "log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True, env=environment)

    def said(self) -> str:
        return (self.folder / "log").read_text(errors="replace")

    def die(self, meanwhile: Callable[[], None]) -> None:
        """By itself, at its point."""

        def died() -> bool:
            meanwhile()
            return self.process.poll() is not None

        until(died, "the job to die at its point", WAIT_S, shows=lambda: self.said()[-3000:])
        assert self.process.returncode == -signal.SIGKILL, self.said()[-3000:]

    def wait(self, meanwhile: Callable[[], None]) -> None:
        """Until it waits at its point."""

        def waits() -> bool:
            meanwhile()
            return (self.folder / "waits").exists()

        until(
            waits,
            "the job to wait at its point",
            WAIT_S,
            unless=lambda: self.process.poll() is not None,
            shows=lambda: self.said()[-3000:],
        )

    def go_on(self) -> int:
        """Its exit code."""
        (self.folder / "go on").touch()
        return self.process.wait(WAIT_S)


@contextmanager
def job_at(point: str, number: int, given: list[str], folder: Path) -> Iterator[JobAtPoint]:
    job = JobAtPoint(point, number, given, folder)
    try:
        yield job
    finally:
        if job.process.poll() is None:
            os.killpg(job.process.pid, signal.SIGKILL)
        job.process.wait(30)

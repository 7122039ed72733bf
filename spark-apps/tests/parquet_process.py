"""parquet.py (or another job) as a process of its own, by itself or under spark-submit, for those who kill it, stop it,
or take its rights.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from compat_server import tools_folder
from tests.waiting import until

from bmq_spark.errors import ConfigurationError
from bmq_spark.locations import Location
from bmq_spark.table import Table

SCRIPT = Path(__file__).parents[1] / "parquet.py"
SUBMIT = Path(sys.executable).with_name("spark-submit")


class Job:
    """A job in a process group of its own, a stream with a batch each half second unless `given` says otherwise."""

    def __init__(
        self,
        given: list[str],
        log: Path,
        *,
        script: Path = SCRIPT,
        submit: bool = False,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.log = log
        inherited = (
            os.environ | {"SPARK_MASTER": "local[2]", "PYSPARK_PYTHON": sys.executable} | dict(environment or {})
        )
        command = _submit() if submit else [sys.executable]
        trigger = [] if {"--once", "--trigger"} & set(given) else ["--trigger", "500ms"]
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                [*command, str(script), *given, *trigger],
                stdout=output,
                stderr=output,
                start_new_session=True,
                env=inherited,
            )

    def said(self) -> str:
        return self.log.read_text(errors="replace")

    def errors(self) -> list[str]:
        """What it said went wrong."""
        return [line for line in self.said().splitlines() if line.startswith("error: ")]

    def until(self, condition: Callable[[], bool], what: str) -> None:
        """While it runs."""
        until(
            condition,
            what,
            240,
            unless=lambda: self.process.poll() is not None,
            shows=lambda: self.said()[-3000:],
            every_s=0.1,
        )

    def until_batches(self, table: Path, count: int) -> None:
        """That many more."""
        start = batches(table)
        self.until(lambda: batches(table) >= start + count, f"{count} more batches")

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """All of its processes stand still meanwhile."""
        os.killpg(self.process.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.killpg(self.process.pid, signal.SIGCONT)

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
def running(
    given: list[str], log: Path, *, submit: bool = False, environment: Mapping[str, str] | None = None
) -> Iterator[Job]:
    job = Job(given, log, submit=submit, environment=environment)
    try:
        yield job
    finally:
        job.kill()


def batches(table: str | Path) -> int:
    """How many of them the table has."""
    try:
        return sum(commit.batch is not None for commit in Table.open(Location.parse(str(table))).commits())
    except ConfigurationError:
        return 0


def _submit() -> list[str]:
    """As in a driver's pod: Java is the process, and the job its child."""
    settings = {
        "spark.driver.extraClassPath": str(tools_folder() / "spark-jars" / "*"),
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
    }
    return [
        str(SUBMIT),
        "--master",
        "local[2]",
        *(part for key, value in settings.items() for part in ("--conf", f"{key}={value}")),
    ]

"""A job as a process of its own which dies, with its JVM and workers, at a point of a chosen batch, or waits there
until it is told to go on.

`python job_at_points.py POINT NUMBER FOLDER [ARGUMENT…]`: a negative NUMBER waits: `FOLDER/waits` says that it does,
`FOLDER/go on` is waited for.
"""

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.waiting import until

from bmq_spark.iceberg import publishing
from bmq_spark.iceberg.tables import IcebergTable
from bmq_spark.jobs import iceberg, parquet
from bmq_spark.jobs.iceberg_sink import IcebergSink
from bmq_spark.jobs.parquet_sink import ParquetSink

WAIT_S = 600
BEFORE, AFTER = True, False
POINTS: dict[str, tuple[Any, str, bool]] = {
    "parquet: written": (ParquetSink, "_write", AFTER),
    "parquet: letters": (ParquetSink, "_commit_letters", AFTER),
    "parquet: committed": (ParquetSink, "_publish", BEFORE),
    "parquet: added": (ParquetSink, "add", AFTER),
    "iceberg: staged": (publishing, "_published", BEFORE),
    "iceberg: stepped": (IcebergTable, "step", AFTER),
    "iceberg: letters": (IcebergSink, "_bury", AFTER),
    "iceberg: remembered": (IcebergSink, "_remembered", AFTER),
    "iceberg: added": (IcebergSink, "add", AFTER),
}


def stop_at(point: str, number: int, folder: Path) -> None:
    owner, name, before = POINTS[point]
    real: Callable[..., Any] = getattr(owner, name)
    times = 0

    def reached() -> None:
        nonlocal times
        times += 1
        if times != abs(number):
            return
        if number > 0:
            os.killpg(0, signal.SIGKILL)
        (folder / "waits").touch()
        until((folder / "go on").exists, "the word to go on", WAIT_S)

    def stopping(*given: Any, **named: Any) -> Any:
        if before:
            reached()
        result = real(*given, **named)
        if not before:
            reached()
        return result

    setattr(owner, name, stopping)


if __name__ == "__main__":
    point, number, folder, *arguments = sys.argv[1:]
    stop_at(point, int(number), Path(folder))
    sys.exit({"parquet": parquet, "iceberg": iceberg}[point.partition(":")[0]].main(arguments))

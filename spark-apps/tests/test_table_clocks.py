"""A machine whose clock is not the store's takes nothing out of a table because of its age."""

from pathlib import Path
from typing import cast

import pytest
from conftest import Buckets
from pyspark.sql import SparkSession
from table_records import add_batch, expected, records, rows_of

from bmq.runtime.system import SystemClock
from bmq_spark.jobs import compact, parquet
from bmq_spark.jobs.parquet_sink import ParquetSink
from bmq_spark.locations import Location
from bmq_spark.table import PartitionBy, Table
from bmq_spark.table.clocks import why_not_by_age

NEVER_ASKED = cast("SparkSession", None)
YEAR_MS = 365 * 86_400_000


class Wrong(SystemClock):
    """It goes on evenly, and is so far ahead."""

    def __init__(self, ahead_ms: int) -> None:
        self._ahead_ms = ahead_ms

    def now_ms(self) -> int:
        return super().now_ms() + self._ahead_ms


class Jumping(Wrong):
    """It is an hour further each time."""

    def now_ms(self) -> int:
        self._ahead_ms += 3_600_000
        return super().now_ms()


def recent(location: Location) -> list[tuple[object, ...]]:
    """A table of three hours up to now; what is in it."""
    table, now_ms = Table.create(location), SystemClock().now_ms()
    batches = [records("orders", 0, number * 10, 10, start_ms=now_ms - number * 3_600_000) for number in range(3)]
    for number, batch in enumerate(batches):
        add_batch(table, "query", number, [batch])
    return expected(batches)


@pytest.mark.parametrize(
    ("ahead_ms", "said"), [(YEAR_MS, "s ahead of the store's"), (-YEAR_MS, "s behind the store's")]
)
def test_a_compaction_by_a_wrong_clock_deletes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], ahead_ms: int, said: str
) -> None:
    location, clock = Location.parse(str(tmp_path / "t")), Wrong(ahead_ms)
    rows = recent(location)
    options = compact.parse(["--output", str(tmp_path / "t"), "--retention", "30d"])
    for hours in range(3):
        (line,) = compact.run(options, at_ms=clock.now_ms() + hours * 3_600_000, clock=clock)
        assert line.endswith("; deleted nothing")
    assert said in capsys.readouterr().err
    assert rows_of(location.uri) == rows
    (line,) = compact.run(options, clock=SystemClock())
    assert line.endswith("deleted 0 unnamed files of 0.0 MiB; retention took out 0 files with 0 rows")


def test_a_job_with_a_wrong_clock_takes_nothing_for_past_its_retention(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = parquet.parse(["--topic", "orders", "--output", str(tmp_path / "t")])
    location = Location.parse(options.output)
    rows = recent(location)

    def opened(clock: SystemClock) -> ParquetSink:
        # All of it is past such a retention by any clock: only the comparison keeps it.
        how = {"partition_by": PartitionBy.HOUR, "target_bytes": 1 << 20, "retention_ms": -YEAR_MS}
        return ParquetSink.open(NEVER_ASKED, location, options, clock=clock, **how)  # type: ignore[arg-type]

    opened(Wrong(YEAR_MS)).expire()
    assert "set the clock" in capsys.readouterr().err
    assert rows_of(location.uri) == rows
    opened(SystemClock()).expire()
    assert rows_of(location.uri) == []


def test_a_buckets_clock_is_compared_too(minio: Buckets) -> None:
    location = minio.location()
    assert why_not_by_age(location) is None
    assert "s behind the store's" in (why_not_by_age(location, Wrong(-YEAR_MS)) or "")
    assert "clock jumped" in (why_not_by_age(location, Jumping(0)) or "")
    assert list(location.list()) == []

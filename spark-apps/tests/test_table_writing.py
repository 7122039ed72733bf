"""Data files: what is in them, where they lie, and what writing them takes."""

import datetime
import errno
import fcntl
import math
import os
import subprocess
import sys
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from parquet_jobs import rows
from table_records import HOUR_MS, START_MS, add_batch, covered_by, records, rows_of, write

from bmq_spark.errors import CommitRefused, JobStopped
from bmq_spark.locations import Location
from bmq_spark.table import Covered, FileName, Layout, Table, arrow, files, record_schema
from bmq_spark.table.compaction import compact
from bmq_spark.table.writing import BatchWriter

ROOT = Path(__file__).parents[2]


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table.create(Location.parse(str(tmp_path / "table")))


def folder_of(table: Table) -> Path:
    assert table.location.folder is not None
    return table.location.folder


def test_records_lie_in_the_folders_of_their_own_hours(table: Table) -> None:
    late = records("orders", 0, 100, 3, start_ms=START_MS - 30 * HOUR_MS)
    add_batch(table, "q", 0, [records("orders", 0, 0, 100, step_ms=60_000), late])
    folders = [file.folder for file in table.snapshot().files]
    assert sorted(folders) == ["date=2025-12-30/hour=18", "date=2026-01-01/hour=00", "date=2026-01-01/hour=01"]
    assert {tuple(file.partition_values) for file in table.snapshot().files} == {("date", "hour")}
    by_day = Table.create(table.location.child("by-day"))
    add_batch(by_day, "q", 0, [late], partition_by="date")
    assert [file.folder for file in by_day.snapshot().files] == ["date=2025-12-30"]


@pytest.mark.parametrize(
    ("ms", "folder"),
    [(-1, "date=1969-12-31/hour=23"), (0, "date=1970-01-01/hour=00"), (253402300800000, "date=10000-01-01/hour=00")],
)
def test_odd_timestamps_have_a_folder_too(table: Table, ms: int, folder: str) -> None:
    (file,) = write(table, "q", 0, [records("orders", 0, 0, 1, start_ms=ms)])
    assert file.folder == folder and file.min_timestamp_ms == ms


def test_a_file_has_columns_statistics_codec_and_metadata(table: Table) -> None:
    (file,) = write(table, "q", 7, [records("orders", 3, 50, 200)])
    opened = pq.ParquetFile(folder_of(table) / file.key)
    assert opened.schema_arrow.names == ["key", "value", "headers", "topic", "partition", "offset", "timestamp", "lane"]
    columns = {
        opened.metadata.row_group(0).column(index).path_in_schema: opened.metadata.row_group(0).column(index)
        for index in range(10 - 1)
    }
    assert {column.compression for column in columns.values()} == {"ZSTD"}
    assert (columns["offset"].statistics.min, columns["offset"].statistics.max) == (50, 249)
    assert "DELTA_BINARY_PACKED" in columns["offset"].encodings and "RLE_DICTIONARY" in columns["topic"].encodings
    assert not columns["value"].is_stats_set, "nobody asks for the least of all payloads"
    metadata = opened.metadata.metadata
    assert metadata[b"bmq.query"] == b"q" and metadata[b"bmq.batch"] == b"7" and b"bmq.version" in metadata
    assert b'"first": 50' in metadata[b"bmq.offsets"]
    assert file.topic_partitions == {("orders", 3): (50, 249)} and file.rows == 200


def test_every_value_comes_back_as_it_was(table: Table) -> None:
    batch = records("orders", 0, 0, 100)
    add_batch(table, "q", 0, [batch])
    read = arrow(table.location.uri).sort_by("offset")
    for name in record_schema().names:
        assert read.column(name).to_pylist() == batch.column(name).to_pylist(), name


@given(
    st.lists(
        st.tuples(st.sampled_from("ab"), st.integers(0, 2), st.integers(-5, 5), st.integers(1, 30)),
        min_size=1,
        max_size=12,
    ),
    st.sampled_from([1, 5_000, 1 << 20]),
    st.sampled_from([1, 20_000, 1 << 27]),
)
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
def test_whatever_comes_in_whatever_order_is_written_once_and_sorted(
    tmp_path_factory: pytest.TempPathFactory,
    runs: list[tuple[str, int, int, int]],
    buffer_bytes: int,
    target_bytes: int,
) -> None:
    """Interleaved partitions and hours, with little memory and small targets."""
    table = Table.create(Location.parse(str(tmp_path_factory.mktemp("table"))))
    ends: dict[tuple[str, int], int] = {}
    batches = []
    for topic, partition, hour, count in runs:
        first = ends.get((topic, partition), 0)
        ends[topic, partition] = first + count
        batches.append(records(topic, partition, first, count, start_ms=START_MS + hour * HOUR_MS, step_ms=600_000))
    files = write(table, "q", 0, batches, buffer_bytes=buffer_bytes, target_bytes=target_bytes)
    covered = [Covered(topic=topic, partition=partition, first=0, next=end) for (topic, partition), end in ends.items()]
    table.commit_batch(("q", 0), added=files, offsets=covered, schema=record_schema())
    assert rows_of(table.location.uri) == sorted(
        (topic, partition, offset) for (topic, partition), end in ends.items() for offset in range(end)
    )
    for file in files:
        read = pq.read_table(folder_of(table) / file.key, partitioning=None)
        places = list(zip(*(read.column(name).to_pylist() for name in ("topic", "partition", "offset")), strict=True))
        assert places == sorted(places) and len(places) == file.rows
        hours = {np.datetime64(value, "h") for value in read.column("timestamp").to_numpy()}
        assert {f"date={hour.astype('datetime64[D]')}/hour={str(hour)[-2:]}" for hour in hours} == {file.folder}
        assert {where: min(o for t, p, o in places if (t, p) == where) for where in file.topic_partitions} == {
            where: first for where, (first, _) in file.topic_partitions.items()
        }


def test_files_are_rolled_at_about_the_target_size(table: Table) -> None:
    rng = np.random.default_rng(7)
    batches = []
    for number in range(40):
        batch = records("orders", 0, number * 1000, 1000, step_ms=1)
        values = pa.array([rng.bytes(2000) for _ in range(1000)], pa.binary())
        batches.append(batch.set_column(1, "value", values))
    files = write(table, "q", 0, batches, target_bytes=24 << 20)
    assert len(files) == 3 or len(files) == 4
    assert all(16 << 20 < file.bytes < 48 << 20 for file in files[:-1])


THOUSAND_HOURS = """
import resource, sys, tempfile
from pathlib import Path
import pyarrow as pa
from faulty_location import FaultyLocation, Faults
from table_records import HOUR_MS, START_MS, records, write
from bmq_spark.table import Table
table = Table.create(FaultyLocation("s3://memory/table", Faults()))
hours, batches = int(sys.argv[1]), int(sys.argv[2])
def stream():
    for number in range(batches):
        yield records("t", 0, number * 5000, 5000, step_ms=hours * HOUR_MS // 5000, value_bytes=1000)
write(table, "q", 0, [records("t", 0, 0, 10)])
def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
start = peak()
files = write(table, "q", 1, stream(), buffer_bytes=16 << 20)
print(len(files), sum(file.rows for file in files), peak() - start, len(list(Path(tempfile.gettempdir()).glob("bmq-table-*"))))
"""


def run(script: str, *arguments: str, temporary: Path, timeout_s: int = 240) -> subprocess.CompletedProcess[str]:
    temporary.mkdir(exist_ok=True)
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join((os.environ.get("PYTHONPATH", ""), str(Path(__file__).parent))),
        "TMPDIR": str(temporary),
    }
    environment.pop("SPARK_LOCAL_DIRS", None)
    return subprocess.run(
        [sys.executable, "-c", script, *arguments],
        capture_output=True,
        text=True,
        timeout=timeout_s,
        env=environment,
        check=False,
    )


def test_a_thousand_hours_of_late_data_take_bounded_memory(tmp_path: Path) -> None:
    """200 MB of records over 1,000 folders, with a buffer of 16 MiB."""
    done = run(THOUSAND_HOURS, "1000", "40", temporary=tmp_path / "temporary")
    assert done.returncode == 0, done.stderr
    files, rows, grown_mib, left = map(int, done.stdout.split())
    assert (files, rows, left) == (1000, 200_000, 0)
    assert grown_mib < 200


FULL_DISK = """
import resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
from bmq_spark.errors import BmqError
from table_records import records, write
from bmq_spark.locations import Location
from bmq_spark.table import Table
table = Table.create(Location.parse(sys.argv[1]))
try:
    write(table, "q", 0, (records("t", 0, n * 5000, 5000, value_bytes=1000, step_ms=n) for n in range(20)), buffer_bytes=int(sys.argv[2]))
except BmqError as error:
    print(error)
"""


@pytest.mark.parametrize("buffer_bytes", [1 << 20, 1 << 30])
def test_a_full_disk_is_said_in_one_line_and_nothing_is_committed(tmp_path: Path, buffer_bytes: int) -> None:
    script = (
        FULL_DISK.replace("value_bytes=1000", "value_bytes=1000")
        .replace("records(", "noisy(")
        .replace("from table_records import records, write", NOISY)
    )
    done = run(script, str(tmp_path / "table"), str(buffer_bytes), temporary=tmp_path / "temporary")
    assert done.returncode == 0, done.stderr
    assert "SPARK_LOCAL_DIRS or TMPDIR; nothing was committed" in done.stdout and done.stdout.count("\n") == 1
    assert list((tmp_path / "temporary").iterdir()) == []
    assert Table.open(Location.parse(str(tmp_path / "table"))).snapshot().version == 1


def test_a_disk_that_is_full_from_the_start_is_said_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(folder: Path, schema: pa.Schema) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder))

    (tmp_path / "temporary").mkdir()
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path / "temporary"))
    monkeypatch.setattr("bmq_spark.table.writing.Spill", full)
    layout = Layout(location=Location.parse(str(tmp_path / "table")), schema=record_schema())
    with (
        pytest.raises(JobStopped, match="free space there"),
        BatchWriter(layout, FileName(query_id="q", batch_id=0, task=0)),
    ):
        pass
    assert list((tmp_path / "temporary").iterdir()) == []


NOISY = """
import numpy, pyarrow
from table_records import records, write
def noisy(*arguments, **named):
    batch = records(*arguments, **named)
    rng = numpy.random.default_rng(1)
    return batch.set_column(1, "value", pyarrow.array([rng.bytes(1000) for _ in range(batch.num_rows)], pyarrow.binary()))
"""


def test_temporary_folders_of_killed_tasks_are_removed_by_the_next(
    table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{tmp_path / 'local'},/elsewhere")
    dead, alive = tmp_path / "local" / "bmq-table-dead", tmp_path / "local" / "bmq-table-alive"
    long_ago = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC).timestamp()
    for folder in (dead, alive):
        folder.mkdir(parents=True)
        (folder / "lock").touch()
        os.utime(folder, (long_ago, long_ago))
    with (alive / "lock").open("r+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        write(table, "q", 0, [records("orders", 0, 0, 10)])
        assert not dead.exists() and alive.exists()


def test_columns_are_added_and_widened_and_old_files_are_read_by_the_new_schema(table: Table) -> None:
    old, new = pa.struct([("id", pa.int32())]), pa.struct([("id", pa.int64()), ("name", pa.string())])
    plain = records("orders", 0, 0, 4).drop_columns(["value"])
    for number, kind in enumerate((old, new)):
        values = pa.array([{"id": i} for i in range(4)], kind)
        batch = plain.set_column(
            plain.schema.get_field_index("offset"), "offset", pa.array(range(4 * number, 4 * number + 4), pa.int64())
        )
        added = write(table, "q", number, [batch.append_column("value", values)], schema=record_schema(kind))
        covered = [Covered(topic="orders", partition=0, first=4 * number, next=4 * number + 4)]
        table.commit_batch(("q", number), added=added, offsets=covered, schema=record_schema(kind))
    read = arrow(table.location.uri).sort_by("offset")
    assert read.schema.field("value").type == new
    assert read.column("value").to_pylist() == [{"id": i, "name": None} for i in (0, 1, 2, 3, 0, 1, 2, 3)]
    with pytest.raises(CommitRefused, match=r"column value\.name is gone"):
        table.commit(table.snapshot(), schema=record_schema(pa.struct([("id", pa.int64())])))
    with pytest.raises(CommitRefused, match=r"column value is struct.* and cannot become string"):
        table.commit(table.snapshot(), schema=record_schema(pa.string()))


def test_a_table_in_folders_called_like_its_columns_has_the_values_of_its_rows(tmp_path: Path) -> None:
    table = Table.create(Location.parse(str(tmp_path / "topic=other/partition=7/lane=dev")), {"id": "t"})
    batch = records("orders", 0, 0, 3)
    added = write(table, "q", 0, [batch])
    table.commit_batch(("q", 0), added=added, offsets=covered_by([batch]), schema=batch.schema)
    expected = [("orders", 0, offset, "") for offset in range(3)]
    columns = 'topic, partition, "offset", lane'
    assert rows(table.location.uri, columns) == expected
    found = arrow(table.location.uri).sort_by("offset").select(["topic", "partition", "offset", "lane"])
    assert [tuple(each.values()) for each in found.to_pylist()] == expected


def test_rows_that_are_not_a_number_are_found_by_filters_before_and_after_a_merge(table: Table) -> None:
    kind = pa.struct(
        [
            ("d", pa.float64()),
            ("f", pa.float32()),
            ("in", pa.struct([("d", pa.float64())])),
            ("l", pa.list_(pa.float32())),
        ]
    )
    schema = record_schema(kind)
    for number, each in enumerate([math.nan, 1.0, 3.0]):
        plain = records("orders", 0, 2 * number, 2)
        values = pa.array([{"d": value, "f": value, "in": {"d": value}, "l": [value]} for value in (each, 2.0)], kind)
        batch = pa.RecordBatch.from_arrays(
            [values if field.name == "value" else plain.column(field.name) for field in schema], schema=schema
        )
        added = write(table, "q", number, [batch], schema=schema)
        table.commit_batch(("q", number), added=added, offsets=covered_by([batch]), schema=schema)
    for _ in range(2):
        for column in ("value.d", "value.f", 'value."in".d', "value.l[1]"):
            for condition, offsets in {"> 2": [0, 4], ">= 3": [0, 4], "= 'nan'": [0], "> 5": [0]}.items():
                found = duckdb.connect().execute(
                    f'SELECT "offset" FROM read_parquet($1, union_by_name=true) WHERE {column} {condition} ORDER '
                    "BY ALL",
                    [files(table.location.uri)],
                )
                assert [offset for (offset,) in found.fetchall()] == offsets, (column, condition)
            assert duckdb.connect().execute(
                "SELECT count(*) FROM read_parquet($1) WHERE isnan(value.d)", [files(table.location.uri)]
            ).fetchall() == [(1,)]
        compact(table, before_ms=START_MS + 50 * HOUR_MS, min_files=2)
    assert len(table.snapshot().files) == 1

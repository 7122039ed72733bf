"""Readers that know Delta and not a table's log see what is committed, at every moment: delta-rs' own, and DuckDB over
its plan.
"""

import json
import shutil
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from conftest import Buckets
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError, DeltaError
from table_records import HOUR_MS, START_MS, add_batch, records, write

from bmq_spark.errors import TableBroken
from bmq_spark.jobs import compact as job
from bmq_spark.locations import Location
from bmq_spark.table import Table, arrow, delta
from bmq_spark.table.compaction import compact
from bmq_spark.table.delta import publish
from bmq_spark.table.vacuum import expire


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table.create(Location.parse(str(tmp_path / "table")), {"id": "x", "partition-by": "hour"})


def opened(table: Table) -> DeltaTable:
    assert table.location.folder is not None
    return DeltaTable(str(table.location.folder))


def read(table: Table) -> list[tuple[str, int, int]]:
    """Topic, partition and offset of all rows, by delta-rs."""
    found = opened(table).to_pyarrow_table(columns=["topic", "partition", "offset"])
    return sorted((row["topic"], row["partition"], row["offset"]) for row in found.to_pylist())


def committed(table: Table) -> list[tuple[str, int, int]]:
    found = arrow(table.location.uri).select(["topic", "partition", "offset"])
    return sorted((row["topic"], row["partition"], row["offset"]) for row in found.to_pylist())


def test_what_is_committed_is_read_and_what_is_not_is_not(table: Table) -> None:
    assert publish(table) == 0, "no columns yet"
    add_batch(table, "q", 0, [records("orders", 0, 0, 100, step_ms=60_000), records("orders", 1, 0, 10)])
    assert publish(table) == table.snapshot().version
    before = committed(table)
    write(table, "q", 1, [records("orders", 0, 100, 50)])  # and the process is killed
    assert read(table) == before == committed(table) and len(before) == 110
    add_batch(table, "q", 1, [records("orders", 0, 100, 5)])
    assert read(table) == before, "a commit that was not published yet"
    publish(table)
    assert read(table) == committed(table) and len(read(table)) == 115
    assert publish(table) == table.snapshot().version and opened(table).version() == 1


def test_merged_files_take_the_place_of_small_ones_at_once_and_expired_ones_go(table: Table) -> None:
    for number in range(4):
        add_batch(table, "q", number, [records("orders", 0, number * 10, 10)])
        publish(table)
    add_batch(table, "q", 4, [records("orders", 0, 40, 10, start_ms=START_MS + 100 * HOUR_MS)])
    publish(table)
    compact(table, before_ms=START_MS + 50 * HOUR_MS, min_files=2)
    assert read(table) == committed(table), "merged, and not published yet: the small ones are still there"
    publish(table)
    assert read(table) == committed(table) and len(read(table)) == 50
    assert len(opened(table).file_uris()) == 2
    expire(table, before_ms=START_MS + 50 * HOUR_MS)
    publish(table)
    assert len(read(table)) == 10 == len(committed(table))


def test_a_vacuum_deletes_nothing_that_delta_readers_are_still_told_of(table: Table) -> None:
    for number in range(4):
        add_batch(table, "q", number, [records("orders", 0, number * 10, 10)])
    publish(table)
    at_ms = table.snapshot().time_ms + 100 * HOUR_MS
    assert table.location.folder is not None
    options = job.parse(["--output", str(table.location.folder), "--vacuum-older-than", "1ms", "--min-files", "2"])
    job.run(options, at_ms=at_ms)
    job.run(options, at_ms=at_ms)
    assert len(list(table.location.folder.glob("date=*/**/*.parquet"))) == 1
    assert read(table) == committed(table) and len(read(table)) == 40


def test_columns_and_folders_are_there_and_files_are_passed_over_by_folders(table: Table) -> None:
    add_batch(table, "q", 0, [records("orders", 0, 0, 100, step_ms=60_000)])
    publish(table)
    found = opened(table)
    assert found.metadata().partition_columns == ["date", "hour"]
    rows = found.to_pyarrow_dataset()
    assert rows.schema.names == [
        "key",
        "value",
        "headers",
        "topic",
        "partition",
        "offset",
        "timestamp",
        "lane",
        "date",
        "hour",
    ]
    late = (pc.field("date") == date(2026, 1, 1)) & (pc.field("hour") >= 1)
    assert [len(list(rows.get_fragments(filter=late))), rows.count_rows(filter=late)] == [1, 40]
    orders = duckdb.connect()
    orders.register("orders", rows)
    assert orders.sql('SELECT hour, count(*), min("offset") FROM orders GROUP BY hour ORDER BY hour').fetchall() == [
        (0, 60, 0),
        (1, 40, 60),
    ]


def test_a_long_log_has_checkpoints_and_loses_its_beginning(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delta, "CHECKPOINT_INTERVAL", 3)
    monkeypatch.setattr(delta, "VERSIONS_KEPT", 4)
    for number in range(12):
        add_batch(table, "q", number, [records("orders", 0, number * 2, 2)])
        publish(table)
        assert read(table) == committed(table)
    assert table.location.folder is not None
    log = sorted(path.name for path in (table.location.folder / "_delta_log").iterdir())
    assert log[0] == "00000000000000000007.json" and "00000000000000000011.checkpoint.parquet" in log
    assert opened(table).version() == 11


def test_a_table_that_is_older_than_its_delta_log_is_published_whole(table: Table) -> None:
    for number in range(5):
        add_batch(table, "q", number, [records("orders", 0, number * 2, 2)])
    publish(table)
    assert opened(table).version() == 0 and read(table) == committed(table)


def test_two_processes_that_publish_at_once_tell_of_everything_once(table: Table) -> None:
    other = Table.open(table.location)
    add_batch(table, "q", 0, [records("orders", 0, 0, 2)])
    publish(table)
    add_batch(table, "q", 1, [records("orders", 0, 2, 2)])
    real, raced = table.location.create, []

    class Late(Location):
        """Just before a version is created another process creates it."""

        def create(self, key: str, content: bytes) -> bool:
            if not raced:
                add_batch(other, "q", 2, [records("orders", 0, 4, 2)])
                raced.append(publish(other))
            return real(key, content)

    table.location = Late(table.location.uri)
    publish(table)
    assert read(other) == committed(other) and len(read(other)) == 6 and opened(other).version() == 1


@pytest.mark.parametrize("content", ['{"commitInfo":{}}\n', "", "no JSON", "5\n", '{"txn":{"appId":"bmq"}}\n'])
def test_nobody_else_writes_to_the_delta_log(table: Table, content: str) -> None:
    add_batch(table, "q", 0, [records("orders", 0, 0, 2)])
    publish(table)
    with pytest.raises((DeltaError, CommitFailedError)):
        opened(table).delete()
    assert opened(table).version() == 0
    assert table.location.folder is not None
    (table.location.folder / "_delta_log" / f"{1:020}.json").write_text(content)
    with pytest.raises(TableBroken, match=r"_delta_log/0+1.json: another program wrote it: delete the folder"):
        publish(table)


def test_a_table_in_a_bucket_is_read_by_its_delta_log(minio: Buckets) -> None:
    table = Table.create(minio.location("delta"), {"id": "x", "partition-by": "none"})
    add_batch(table, "q", 0, [records("orders", 0, 0, 20)], partition_by="none")
    publish(table)
    options = {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{minio.port}", "AWS_ALLOW_HTTP": "true"}
    found = DeltaTable(table.location.hadoop().replace("s3a://", "s3://"), storage_options=options)
    assert found.to_pyarrow_table(columns=["offset"]).column("offset").to_pylist() == list(range(20))


def test_times_at_both_ends_of_the_calendar_are_read_and_found(table: Table) -> None:
    first_ms, last_ms = -62_135_596_800_000, 253_402_300_799_000
    for number, at_ms in enumerate([first_ms, -1, last_ms]):
        add_batch(table, "q", number, [records("orders", 0, number, 1, start_ms=at_ms)])
        publish(table)
    assert read(table) == committed(table)
    rows = opened(table).to_pyarrow_dataset()
    for number, at_ms in enumerate([first_ms, -1, last_ms]):
        at = pc.field("timestamp") == pa.scalar(at_ms, pa.timestamp("ms", tz="UTC")).cast(pa.timestamp("us", tz="UTC"))
        assert rows.to_table(filter=at).column("offset").to_pylist() == [number]


def found_by_filters(table: Table) -> dict[str, set[int]]:
    """By the filter, what delta-rs, its dataset and DuckDB over it count. Every column that is not nested has one or
    more.
    """
    filters: dict[str, Any] = {
        "key": b"key-2", "value": b"value-orders-0-2....", "topic": "orders", "partition": 0, "offset": 2, "lane": "",
        "date": date(2026, 1, 1), "hour": 0, "timestamp": datetime(2026, 1, 1, 0, 0, 2, tzinfo=UTC),
    }  # fmt: skip
    opened_table, duck = opened(table), duckdb.connect()
    rows = opened_table.to_pyarrow_dataset()
    assert {field.name for field in rows.schema if not pa.types.is_nested(field.type)} == set(filters)
    duck.execute("SET timezone = 'UTC'")
    duck.register("orders", rows)
    counts: dict[str, set[int]] = {}
    for name, value in filters.items():
        for sign, matches in {
            "=": pc.field(name) == value,
            ">=": pc.field(name) >= value,
            "!=": pc.field(name) != value,
        }.items():
            in_duckdb = duck.execute(f'SELECT count(*) FROM orders WHERE "{name}" {sign} $1', [value]).fetchall()[0][0]
            in_pandas = len(opened_table.to_pandas(filters=[(name, sign, value)], columns=["offset"]))
            counts[f"{name} {sign}"] = {
                in_duckdb,
                in_pandas,
                rows.to_table(filter=matches).num_rows,
                rows.count_rows(filter=matches),
            }
        is_null = duck.execute(f'SELECT count(*) FROM orders WHERE "{name}" IS NULL').fetchall()[0][0]
        counts[f"{name} null"] = {is_null, rows.to_table(filter=pc.field(name).is_null()).num_rows}
    return counts


EVERY_ROW_IS_FOUND = {
    "key =": {1}, "key >=": {2}, "key !=": {2}, "key null": {1}, "value =": {1}, "value >=": {1}, "value !=": {2}, "value null": {1},
    "topic =": {4}, "topic >=": {4}, "topic !=": {0}, "topic null": {0}, "partition =": {4}, "partition >=": {4}, "partition !=": {0},
    "partition null": {0}, "offset =": {1}, "offset >=": {2}, "offset !=": {3}, "offset null": {0}, "lane =": {4}, "lane >=": {4}, "lane !=": {0},
    "lane null": {0}, "date =": {4}, "date >=": {4}, "date !=": {0}, "date null": {0}, "hour =": {4}, "hour >=": {4}, "hour !=": {0},
    "hour null": {0}, "timestamp =": {1}, "timestamp >=": {2}, "timestamp !=": {3}, "timestamp null": {0},
}  # fmt: skip


def test_a_filter_on_any_column_finds_its_rows(table: Table) -> None:
    add_batch(table, "q", 0, [records("orders", 0, 0, 4)])
    publish(table)
    assert found_by_filters(table) == EVERY_ROW_IS_FOUND


def publish_as_of_before(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """With bounds of `timestamp` alone and no FORMAT, as tables were published at first."""
    add = delta._add

    def with_bounds(*args: Any, **changes: Any) -> dict[str, Any]:
        bounds = {
            "minValues": {"timestamp": "2026-01-01T00:00:00.000Z"},
            "maxValues": {"timestamp": "2026-01-01T00:00:09.000Z"},
        }
        return add(*args, **changes) | {"stats": json.dumps({"numRecords": 2} | bounds)}

    with monkeypatch.context() as patched:
        patched.setattr(delta, "_add", with_bounds)
        patched.setattr(delta, "FORMAT", 1)
        publish(table)
    assert table.location.folder is not None
    for path in (table.location.folder / "_delta_log").glob("*.json"):
        path.write_text(path.read_text().replace(',"bmqFormat":1', ""))


@pytest.mark.parametrize(
    "interval", [1, 2, 50], ids=["after a checkpoint", "between checkpoints", "without a checkpoint"]
)
@pytest.mark.parametrize("changes", ["nothing", "a batch", "a merge"])
def test_a_log_with_bounds_for_some_columns_is_told_again(
    table: Table, monkeypatch: pytest.MonkeyPatch, interval: int, changes: str
) -> None:
    monkeypatch.setattr(delta, "CHECKPOINT_INTERVAL", interval)
    for number in range(2 if changes == "a batch" else 4):
        add_batch(table, "q", number, [records("orders", 0, number, 1, start_ms=START_MS + number * 1000)])
        publish_as_of_before(table, monkeypatch)
    assert found_by_filters(table) != EVERY_ROW_IS_FOUND
    if changes == "a batch":
        add_batch(table, "q", 2, [records("orders", 0, 2, 2, start_ms=START_MS + 2000)])
    elif changes == "a merge":
        compact(table, before_ms=START_MS + 50 * HOUR_MS, min_files=2)
    publish(table)
    again = opened(table).version()
    assert found_by_filters(table) == EVERY_ROW_IS_FOUND and read(table) == committed(table)
    assert table.location.folder is not None
    assert (table.location.folder / "_delta_log" / f"{again:020}.checkpoint.parquet").exists()
    publish(table)
    assert opened(table).version() == again, "once"


@pytest.mark.parametrize(("batches", "of_before"), [(1, False), (6, False), (9, False), (1, True)])
def test_a_log_that_is_left_of_a_former_table_is_refused_with_what_makes_it_anew(
    table: Table, batches: int, of_before: bool
) -> None:
    for number in range(6):
        add_batch(table, "q", number, [records("orders", 0, number * 2, 2)])
        publish(table)
    folder = table.location.folder
    assert folder is not None
    if of_before:
        for path in (folder / "_delta_log").glob("*.json"):
            path.write_text(path.read_text().replace(',"bmqTable":"x"', ""))
    for path in folder.iterdir():
        if path.name != "_delta_log":
            shutil.rmtree(path)
    anew = Table.create(table.location, {"id": "y", "partition-by": "hour"})
    for number in range(batches):
        add_batch(anew, "q", number, [records("orders", 0, number * 2, 2)])
    with pytest.raises(TableBroken, match="_delta_log: it tells of a table that was there before: delete the folder"):
        publish(anew)
    shutil.rmtree(folder / "_delta_log")
    publish(anew)
    assert read(anew) == committed(anew) and len(read(anew)) == 2 * batches


def test_a_log_of_before_that_says_no_table_goes_on(table: Table) -> None:
    add_batch(table, "q", 0, [records("orders", 0, 0, 2)])
    publish(table)
    assert table.location.folder is not None
    first = table.location.folder / "_delta_log" / f"{0:020}.json"
    assert '"bmqTable":"x"' in first.read_text()
    first.write_text(first.read_text().replace(',"bmqTable":"x"', ""))
    add_batch(table, "q", 1, [records("orders", 0, 2, 2)])
    publish(table)
    assert read(table) == committed(table) and len(read(table)) == 4

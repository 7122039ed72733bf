"""Batches into tables of real catalogs, read back by pyiceberg, and by DuckDB over what pyiceberg plans."""

import datetime
import json
import os
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

import pytest
from iceberg_batches import Record, batch, settings, typing
from iceberg_catalogs import Opened, Postgres, opened_in
from pyarrow.parquet import ParquetFile
from pyspark.sql import SparkSession

from bmq_spark.errors import JobStopped
from bmq_spark.iceberg.catalogs import Catalog
from bmq_spark.iceberg.maintenance import Maintenance, maintain
from bmq_spark.iceberg.tables import ROW_GROUPS, IcebergTable
from bmq_spark.jobs.iceberg_sink import IcebergSink

DAY_MS = 24 * 3_600_000


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    server = Postgres()
    yield server
    server.stop()


@pytest.fixture(
    params=["hadoop in a folder", "hadoop in a bucket", "rest over a bucket", "sql in SQLite", "sql in PostgreSQL"]
)
def opened(request: pytest.FixtureRequest, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Opened:
    if request.param == "sql in SQLite":
        return request.getfixturevalue("sql")  # type: ignore[no-any-return]
    if request.param == "sql in PostgreSQL":
        database: Postgres = request.getfixturevalue("postgres")
        catalog = Catalog(name="pg", kind="sql", warehouse=str(tmp_path_factory.mktemp("pg")), uri=database.uri)
        for key, value in catalog.settings(
            {"ICEBERG_SQL_USER": database.user, "ICEBERG_SQL_PASSWORD": database.password}
        ).items():
            spark.conf.set(key, value)
        return Opened(catalog=catalog, s3={}, login=f"{database.user}:{quote(database.password)}")
    if request.param == "hadoop in a folder":
        return opened_in(
            spark, Catalog(name="folder", kind="hadoop", warehouse=str(tmp_path_factory.mktemp("hadoop")), uri=None), {}
        )
    port = request.getfixturevalue("minio").port
    s3 = {
        "s3.endpoint": f"http://127.0.0.1:{port}",
        "s3.access-key-id": os.environ["AWS_ACCESS_KEY_ID"],
        "s3.secret-access-key": os.environ["AWS_SECRET_ACCESS_KEY"],
        "s3.region": "us-east-1",
    }
    if request.param == "hadoop in a bucket":
        return opened_in(spark, Catalog(name="bucket", kind="hadoop", warehouse="s3a://tables/hadoop", uri=None), s3)
    return opened_in(
        spark, Catalog(name="rest", kind="rest", warehouse=None, uri=request.getfixturevalue("rest").uri), s3
    )


def test_pyiceberg_and_duckdb_read_back_what_batches_added_in_every_catalog(
    spark: SparkSession, opened: Opened
) -> None:
    name = opened.table("orders")
    sink = IcebergSink(spark, name, typing(), settings())
    first = [
        Record(
            offset=n, partition=n % 2, key=b"k%d" % n, value=b"v%d" % n, minute=50 + n * 5, headers=(("h", b"\xff"),)
        )
        for n in range(6)
    ]
    late = [Record(offset=7, key=None, value=None, minute=3), Record(offset=8, key=b"", value=b"", minute=90)]
    added = sink.add(batch(spark, 0, first))
    assert (added.rows, added.files, added.dead_letters) == (6, 2, 0)
    sink.add(batch(spark, 1, late, start=5))
    assert sink.places() == {"orders": {0: 9, 1: 6}}

    table = opened.load(name)
    rows = table.scan().to_arrow().sort_by("offset").to_pylist()
    assert [(row["topic"], row["partition"], row["offset"], row["timestamp"]) for row in rows] == [
        (record.topic, record.partition, record.offset, record.timestamp) for record in first + late
    ]
    assert [(row["key"], row["value"]) for row in rows][-3:] == [("k5", "v5"), (None, None), ("", "")]
    assert rows[0]["headers"] == [{"key": "h", "value": b"\xff"}] and rows[-1]["headers"] == []
    assert sorted(row["partition"]["timestamp_hour"] for row in table.inspect.partitions().to_pylist()) == [
        492_312,
        492_313,
    ]
    connection = table.scan().to_duckdb("orders")
    by_hour = (
        "SELECT date_part('hour', \"timestamp\" AT TIME ZONE 'UTC') AS h, count(*), count(value) FROM orders "
        "GROUP BY h ORDER BY h"
    )
    assert connection.sql(by_hour).fetchall() == [(0, 3, 2), (1, 5, 5)]

    summary = table.current_snapshot().summary  # type: ignore[union-attr]
    assert json.loads(summary["bmq.places"]) == {"orders": {"0": 9}}  # type: ignore[index]
    assert (summary["bmq.query-id"], summary["bmq.batch-id"]) == ("query", "1")  # type: ignore[index]


def test_dead_letters_are_kept_once_however_often_a_batch_is_begun(spark: SparkSession, sql: Opened) -> None:
    name = sql.table("dead")
    sink = IcebergSink(spark, name, typing("json", "id int"), settings())
    records = [
        Record(offset=0, value=b'{"id": 1}'),
        Record(offset=1, value=b"not JSON", key=b"k"),
        Record(offset=2, value=b'{"id": "x"}'),
    ]

    asked: list[int] = []

    def killed() -> None:
        asked.append(1)
        if len(asked) == 2:
            raise JobStopped("between the dead letters and the rows")

    with pytest.raises(JobStopped):
        sink.add(batch(spark, 0, records, verify=killed))
    assert sink.places() == {}
    again = IcebergSink(spark, name, typing("json", "id int"), settings())
    again.add(batch(spark, 0, records))
    assert [row["value"] for row in sql.load(name).scan().to_arrow().to_pylist()] == [{"id": 1}]
    letters = sql.load(name.dead_letters).scan().to_arrow().sort_by("offset").to_pylist()
    assert [(row["offset"], row["key"], row["value"]) for row in letters] == [
        (1, b"k", b"not JSON"),
        (2, None, b'{"id": "x"}'),
    ]
    assert all("JSON" in row["reason"] for row in letters)


def test_a_batch_whose_topic_was_made_again_meanwhile_never_comes_into_the_table(
    spark: SparkSession, sql: Opened
) -> None:
    name = sql.table("again")
    sink = IcebergSink(spark, name, typing(), settings())
    sink.add(batch(spark, 0, [Record(offset=0, value=b"good")]))

    def made_again() -> None:
        raise JobStopped("made again")

    with pytest.raises(JobStopped, match="made again"):
        sink.add(batch(spark, 1, [Record(offset=1, value=b"of another topic")], verify=made_again))
    assert sink.places() == {"orders": {0: 1}}
    assert sql.load(name).scan().to_arrow().column("value").to_pylist() == ["good"]


def test_fields_are_added_and_numbers_widened_and_what_does_not_fit_stops(spark: SparkSession, sql: Opened) -> None:
    name = sql.table("evolving")
    old, new = "id int, tags array<struct<x int>>", "id bigint, price double, tags array<struct<x bigint, y string>>"
    IcebergSink(spark, name, typing("json", old), settings()).add(
        batch(spark, 0, [Record(offset=0, value=b'{"id": 1, "tags": [{"x": 2}]}')])
    )
    wide = b'{"id": 5000000000, "price": 1.5, "tags": [{"x": 3, "y": "z"}]}'
    IcebergSink(spark, name, typing("json", new), settings()).add(batch(spark, 1, [Record(offset=1, value=wide)]))
    # A job with the older schema goes on: what it does not know is null.
    IcebergSink(spark, name, typing("json", old), settings()).add(
        batch(spark, 2, [Record(offset=2, value=b'{"id": 3, "tags": []}')])
    )
    values = sql.load(name).scan().to_arrow().sort_by("offset").column("value").to_pylist()
    assert values == [
        {"id": 1, "tags": [{"x": 2, "y": None}], "price": None},
        {"id": 5_000_000_000, "tags": [{"x": 3, "y": "z"}], "price": 1.5},
        {"id": 3, "tags": [], "price": None},
    ]
    with pytest.raises(JobStopped, match=r"table sql\.db\.evolving: field value\.id: the table has .*another"):
        IcebergSink(spark, name, typing("json", "id string"), settings())


@pytest.mark.parametrize("made_by", ["this version", "one before"])
def test_row_groups_end_by_their_size_however_few_and_large_their_records_are(
    spark: SparkSession, sql: Opened, made_by: str
) -> None:
    """They are held in memory."""
    name = sql.table(f"large_{made_by.partition(' ')[0]}")
    table = IcebergSink(spark, name, typing("bytes"), settings()).table
    table.set_property("write.parquet.row-group-size-bytes", str(1 << 20))
    if made_by == "one before":
        named = ", ".join(f"'{key}'" for key in ROW_GROUPS)
        spark.sql(f"ALTER TABLE {name.sql} UNSET TBLPROPERTIES ({named})")
    sink = IcebergSink(spark, name, typing("bytes"), settings())
    # Small ones first, by which the size of others would be foretold.
    values = [b"v"] * 200 + [os.urandom(1 << 19) for _ in range(40)]
    sink.add(batch(spark, 0, [Record(offset=offset, value=value) for offset, value in enumerate(values)]))
    (file,) = [path for path in Path(sink.table.location).rglob("*.parquet") if path.stat().st_size]
    groups = ParquetFile(file).metadata
    sizes = [groups.row_group(number).total_byte_size for number in range(groups.num_row_groups)]
    assert max(sizes) < 8 << 20, sizes


def test_columns_of_json_are_inferred_and_grow(spark: SparkSession, sql: Opened) -> None:
    name = sql.table("inferred")
    sink = IcebergSink(spark, name, typing("json"), settings(), infers=True)
    sink.add(batch(spark, 0, [Record(offset=0, value=b'{"id": 1}'), Record(offset=1, value=b"no JSON")]))
    sink.add(
        batch(
            spark, 1, [Record(offset=2, value=b'{"id": 2, "at": {"x": 0.5}}'), Record(offset=3, value=b'{"id": 2.5}')]
        )
    )
    rows = sql.load(name).scan().to_arrow().sort_by("offset").to_pylist()
    assert [(row["offset"], row["value"]) for row in rows] == [
        (0, {"id": 1, "at": None}),
        (2, {"id": 2, "at": {"x": 0.5}}),
    ]
    assert sql.load(name.dead_letters).scan().to_arrow().sort_by("offset").column("offset").to_pylist() == [1, 3]


def test_no_column_is_made_of_records_of_a_topic_that_was_made_again(spark: SparkSession, sql: Opened) -> None:
    name = sql.table("made_again")
    sink = IcebergSink(spark, name, typing("json"), settings(), infers=True)
    sink.add(batch(spark, 0, [Record(offset=0, value=b'{"a": 1}')]))

    def refuse() -> None:
        raise JobStopped("topic orders: its id is another")

    with pytest.raises(JobStopped, match="its id is another"):
        sink.add(batch(spark, 1, [Record(offset=1, value=b'{"b": 1}')], verify=refuse))
    assert sink.table.schema()["value"].dataType.names == ["a"]
    sink.add(batch(spark, 1, [Record(offset=1, value=b'{"c": 1}')]))
    assert sink.table.schema()["value"].dataType.names == ["a", "c"]


def test_a_column_that_somebody_adds_while_columns_are_inferred_has_the_type_that_they_gave_it(
    spark: SparkSession, sql: Opened
) -> None:
    name = sql.table("added_by_hand")
    sink = IcebergSink(spark, name, typing("json"), settings(), infers=True)
    sink.add(batch(spark, 0, [Record(offset=0, value=b'{"id": 1}')]))
    for column in ("price string", "at timestamp", "`by` struct<x: double>"):
        spark.sql(f"ALTER TABLE {name.sql} ADD COLUMN value.{column}")
    whole = b'{"id": 2, "price": 1.5, "at": "2026-03-01T00:00:00Z", "by": {"x": 1, "y": 2}}'

    sink.add(batch(spark, 1, [Record(offset=1, value=whole), Record(offset=2, value=b"no JSON")]))
    spark.sql(f"ALTER TABLE {name.sql} ADD COLUMN value.late string")
    sink.add(batch(spark, 2, [Record(offset=3, value=b'{"late": 1}')]))
    # One that was dropped and made anew with another type is the new one.
    spark.sql(f"ALTER TABLE {name.sql} DROP COLUMN value.id")
    spark.sql(f"ALTER TABLE {name.sql} ADD COLUMN value.id string")
    sink.add(batch(spark, 3, [Record(offset=4, value=b'{"id": 5, "new": true}')]))
    rows = {row["offset"]: row["value"] for row in sql.load(name).scan().to_arrow().to_pylist()}
    said = {"price": "1.5", "at": datetime.datetime(2026, 3, 1, tzinfo=datetime.UTC), "by": {"x": 1.0, "y": 2}}
    assert {field: rows[1][field] for field in said} == said
    assert rows[3]["late"] == "1"
    assert (rows[4]["id"], rows[4]["new"]) == ("5", True)
    assert sql.load(name.dead_letters).scan().to_arrow().column("offset").to_pylist() == [2]


def test_a_table_whose_job_was_killed_as_it_made_it_is_sorted_all_the_same(spark: SparkSession, sql: Opened) -> None:
    name = sql.table("half_made")

    class Killed(IcebergTable):
        def _sort(self) -> None:
            raise JobStopped("killed")

    how = typing()
    given = {"partition_by": "hour", "upsert_key": "", "target_file_size_bytes": 1 << 20}
    with pytest.raises(JobStopped, match="killed"):
        Killed.create(spark, name, how.schema, **given)  # type: ignore[arg-type]
    IcebergSink(spark, name, how, settings()).add(batch(spark, 0, [Record(offset=0, value=b"v")]))
    table = sql.load(name)
    assert [table.schema().find_column_name(field.source_id) for field in table.sort_order().fields] == [
        "topic",
        "partition",
        "offset",
    ]
    assert len(table.metadata.snapshots) == 2


def test_upserts_leave_what_a_dictionary_would(spark: SparkSession, sql: Opened) -> None:
    name = sql.table("compacted")
    sink = IcebergSink(spark, name, typing(), settings(partition_by="none", upsert_key="key"))
    chance = random.Random(1)
    expected: dict[str, str] = {}
    offset = 0
    for number in range(3):
        records = []
        for _ in range(40):
            key, value = f"k{chance.randrange(12)}", None if chance.random() < 0.3 else f"v{offset}"
            # Time runs backwards: a partition's order is that of its offsets.
            records.append(
                Record(
                    offset=offset,
                    key=key.encode(),
                    value=None if value is None else value.encode(),
                    minute=600 - offset,
                )
            )
            if value is None:
                expected.pop(key, None)
            else:
                expected[key] = value
            offset += 1
        chance.shuffle(records)
        records.append(Record(offset=offset, value=b"without a key"))
        offset += 1
        sink.add(batch(spark, number, records))
        if number == 1:
            sink.add(batch(spark, number, records))
        rows = sql.load(name).scan().to_arrow().to_pylist()
        assert sorted((row["key"], row["value"]) for row in rows) == sorted(expected.items())
    letters = sql.load(name.dead_letters).scan().to_arrow()
    assert letters.column("reason").unique().to_pylist() == ["no key: rows are found by it"] and letters.num_rows == 3


def test_upserts_by_a_field_take_the_latest_of_several_partitions(spark: SparkSession, sql: Opened) -> None:
    name = sql.table("by_field")
    sink = IcebergSink(
        spark, name, typing("json", "id bigint, state string"), settings(partition_by="none", upsert_key="id")
    )
    sink.add(
        batch(
            spark,
            0,
            [
                Record(partition=0, offset=0, value=b'{"id": 1, "state": "new"}', minute=1),
                Record(partition=1, offset=0, value=b'{"id": 1, "state": "later"}', minute=2),
                Record(partition=1, offset=1, value=b'{"id": 2, "state": "new"}', minute=2),
                Record(partition=1, offset=2, value=None, key=b"1", minute=3),
                Record(partition=1, offset=3, value=b'{"state": "whose"}', minute=3),
            ],
        )
    )
    sink.add(batch(spark, 1, [Record(partition=0, offset=1, value=b'{"id": 1, "state": "stale"}', minute=1)]))
    values = sorted(sql.load(name).scan().to_arrow().column("value").to_pylist(), key=lambda value: value["id"])
    assert values == [{"id": 1, "state": "later"}, {"id": 2, "state": "new"}]
    reasons = sql.load(name.dead_letters).scan().to_arrow().sort_by("offset").column("reason").to_pylist()
    assert (
        reasons[0].startswith("a tombstone has no field id") and reasons[1] == "field id is null: rows are found by it"
    )


def test_maintenance_merges_files_and_expires_snapshots_but_not_places(spark: SparkSession, sql: Opened) -> None:
    name = sql.table("kept")
    maintenance = Maintenance(target_file_size_bytes=128 << 20, min_files=2)
    sink = IcebergSink(spark, name, typing(), settings(maintenance=maintenance))
    for number in range(3):
        sink.add(
            batch(
                spark, number, [Record(offset=number, value=b"v%d" % number, partition=number % 2)], start=number // 2
            )
        )
    places = sink.places()
    location = Path(sink.table.location)
    orphan, checkpoint = location / "data" / "orphan.parquet", location / "_bmq" / "checkpoint" / "0001.json"
    for file in (orphan, checkpoint):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"old")
        os.utime(file, (1_000_000_000, 1_000_000_000))

    done = maintain(spark, sink.table, maintenance)
    assert (done.files_merged, done.files_made, done.snapshots_expired, done.orphans_removed) == (3, 1, 0, 1)
    assert not orphan.exists() and checkpoint.exists()
    short = replace(maintenance, keep_snapshots_ms=1)
    assert maintain(spark, sink.table, short).snapshots_expired == 5
    assert len(list((location / "data").rglob("*.parquet"))) == 1
    assert IcebergTable(spark, name).places() == places == sink.places()
    assert maintain(spark, sink.table, short).snapshots_expired == 0
    assert sql.load(name).scan().to_arrow().num_rows == 3

    maintain(spark, sink.table, replace(maintenance, retention_ms=30 * DAY_MS))
    assert sql.load(name).scan().to_arrow().num_rows == 0
    assert sink.places() == places


def test_a_stream_that_maintains_its_table_leaves_few_files_and_snapshots_however_many_batches_it_adds(
    spark: SparkSession, sql: Opened
) -> None:
    name = sql.table("maintained")
    maintenance = Maintenance(target_file_size_bytes=128 << 20, min_files=2, keep_snapshots_ms=1)
    sink = IcebergSink(spark, name, typing(), replace(settings(maintenance=maintenance), maintenance_every_ms=0))
    left = []
    for number in range(4):
        sink.add(batch(spark, number, [Record(offset=number, value=b"v%d" % number)]))
        table = sql.load(name)
        left.append((len(list(Path(sink.table.location, "data").rglob("*.parquet"))), len(table.metadata.snapshots)))
    assert left[1:] == [(3, 2)] * 3, (
        "the file of all rows, and the two that it replaced, which go with the merge's snapshot in the next run"
    )
    assert sink.places() == {"orders": {0: 4}}
    assert sorted(sql.load(name).scan().to_arrow().column("value").to_pylist()) == ["v0", "v1", "v2", "v3"]

"""What others do to an Iceberg table while a job writes to it, or sleeps: no record comes twice, none is lost, and
nothing of theirs is undone.
"""

import datetime
import os
from dataclasses import replace

import pytest
from iceberg_batches import Record, batch, settings, typing
from iceberg_catalogs import Opened, opened_in
from pyspark.sql import DataFrame, SparkSession
from tests.waiting import let_pass

from bmq_spark.batches.places import Places
from bmq_spark.errors import JobStopped, TableBroken
from bmq_spark.iceberg.catalogs import Catalog, TableName
from bmq_spark.iceberg.maintenance import Maintenance, maintain
from bmq_spark.iceberg.tables import IcebergTable, Staged, State
from bmq_spark.jobs.iceberg_sink import IcebergSink
from bmq_spark.jobs.sinks import Batch

MAINTENANCE = Maintenance(target_file_size_bytes=128 << 20, min_files=2, keep_snapshots_ms=1)


@pytest.fixture(scope="module", params=["hadoop", "sql", "rest"])
def opened(request: pytest.FixtureRequest, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Opened:
    if request.param == "sql":
        return request.getfixturevalue("sql")  # type: ignore[no-any-return]
    if request.param == "hadoop":
        return opened_in(
            spark, Catalog(name="races", kind="hadoop", warehouse=str(tmp_path_factory.mktemp("races")), uri=None), {}
        )
    s3 = {
        "s3.endpoint": f"http://127.0.0.1:{request.getfixturevalue('minio').port}",
        "s3.access-key-id": os.environ["AWS_ACCESS_KEY_ID"],
        "s3.secret-access-key": os.environ["AWS_SECRET_ACCESS_KEY"],
        "s3.region": "us-east-1",
    }
    return opened_in(
        spark, Catalog(name="restraces", kind="rest", warehouse=None, uri=request.getfixturevalue("rest").uri), s3
    )


def records(first: int, end: int) -> list[Record]:
    return [Record(offset=offset, value=b"v%d" % offset) for offset in range(first, end)]


def offsets(opened: Opened, name: TableName) -> list[int]:
    return sorted(opened.load(name).scan().to_arrow().column("offset").to_pylist())


def expire_as_anybody_would(spark: SparkSession, name: TableName) -> None:
    """Iceberg's own procedure, of everything but the newest snapshot."""
    let_pass(1.1, "it takes a time in whole seconds")
    at = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M:%S")
    call = f"expire_snapshots(table => '{name.in_catalog}', older_than => TIMESTAMP '{at}', retain_last => 1)"
    spark.sql(f"CALL `{name.catalog}`.system.{call}").collect()


def expire_by_pyiceberg(opened: Opened, name: TableName) -> None:
    """As it does in a catalog of SQL: of everything but the newest snapshot, whose parent it takes out."""
    table = opened.load(name)
    newest = table.current_snapshot()
    assert newest is not None
    others = [one.snapshot_id for one in table.metadata.snapshots if one.snapshot_id != newest.snapshot_id]
    table.maintenance.expire_snapshots().by_ids(others).commit()
    [left] = opened.load(name).metadata.snapshots
    assert left.parent_snapshot_id is None


def compact_as_anybody_would(spark: SparkSession, name: TableName) -> None:
    call = f"rewrite_data_files(table => '{name.in_catalog}', options => map('min-input-files', '2'))"
    spark.sql(f"CALL `{name.catalog}`.system.{call}").collect()


def test_of_two_drivers_with_one_batch_the_one_that_slept_is_refused(spark: SparkSession, opened: Opened) -> None:
    name = opened.table("two")
    sleeper, other = (IcebergSink(spark, name, typing(), settings()) for _ in range(2))
    with pytest.raises(JobStopped, match="does another job write to it"):
        sleeper.add(batch(spark, 0, records(0, 3), verify=lambda: other.add(batch(spark, 0, records(0, 5))) and None))
    assert offsets(opened, name) == [0, 1, 2, 3, 4]
    assert sleeper.places() == other.places() == {"orders": {0: 5}}
    # What it had staged is gone, too: nobody can make it the newest later.
    assert len(opened.load(name).metadata.snapshots) == 2


def test_a_driver_that_slept_before_its_look_is_refused_what_another_has_added(
    spark: SparkSession, sql: Opened
) -> None:
    name = sql.table("late")
    sleeper, other = (IcebergSink(spark, name, typing(), settings()) for _ in range(2))
    other.add(batch(spark, 0, records(0, 2)))
    with pytest.raises(JobStopped, match="does another job write to it"):
        sleeper.add(batch(spark, 0, records(0, 3)))
    assert offsets(sql, name) == [0, 1]


def test_two_drivers_with_other_partitions_of_a_topic_keep_both_their_places(spark: SparkSession, sql: Opened) -> None:
    name = sql.table("apart")
    one, other = (IcebergSink(spark, name, typing(), settings()) for _ in range(2))
    second = [replace(record, partition=1) for record in records(0, 2)]
    slept: list[int] = []

    def sleep() -> None:
        if not slept:
            slept.append(1)
            other.add(batch(spark, 0, second))

    assert one.add(batch(spark, 0, records(0, 3), verify=sleep)).rows == 3
    assert one.places() == {"orders": {0: 3, 1: 2}} and offsets(sql, name) == [0, 0, 1, 1, 2]


def test_an_upsert_is_merged_anew_where_another_committed_meanwhile(spark: SparkSession, sql: Opened) -> None:
    name = sql.table("merged")
    sink = IcebergSink(spark, name, typing(), settings(partition_by="none", upsert_key="key"))
    sink.add(batch(spark, 0, [Record(offset=0, key=b"a", value=b"old"), Record(offset=1, key=b"b", value=b"old")]))
    done: list[int] = []

    def meanwhile() -> None:
        if not done:
            done.append(1)
            spark.sql(f"DELETE FROM {name.sql} WHERE `key` = 'b'")

    sink.add(batch(spark, 1, [Record(offset=2, key=b"a", value=b"new")], verify=meanwhile))
    assert [(row["key"], row["value"]) for row in sql.load(name).scan().to_arrow().to_pylist()] == [("a", "new")]
    assert sink.places() == {"orders": {0: 3}}


def test_maintenance_of_another_process_beside_a_stream_leaves_its_places(spark: SparkSession, opened: Opened) -> None:
    name = opened.table("beside")
    sink = IcebergSink(spark, name, typing(), settings())
    for number in range(3):
        sink.add(batch(spark, number, records(number, number + 1)))
    ran: list[int] = []

    def meanwhile() -> None:
        if not ran:
            ran.append(1)
            maintain(spark, IcebergTable(spark, name), MAINTENANCE)

    sink.add(batch(spark, 3, records(3, 6), verify=meanwhile))
    maintain(spark, IcebergTable(spark, name), MAINTENANCE)
    assert IcebergSink(spark, name, typing(), settings()).places() == {"orders": {0: 6}}
    assert offsets(opened, name) == [0, 1, 2, 3, 4, 5]


def test_a_commit_between_the_look_of_maintenance_and_its_expiry_keeps_its_places(
    spark: SparkSession, sql: Opened
) -> None:
    name = sql.table("rewound")
    sink = IcebergSink(spark, name, typing(), settings())
    sink.add(batch(spark, 0, records(0, 3)))

    class Slow(IcebergTable):
        """Between its look at the places and what it does next, the stream commits."""

        def expire(self, before_ms: int) -> None:
            sink.add(batch(spark, 1, records(3, 6)))
            super().expire(before_ms)

    maintain(spark, Slow(spark, name), MAINTENANCE)
    assert sink.places() == {"orders": {0: 6}} and offsets(sql, name) == [0, 1, 2, 3, 4, 5]


def test_places_survive_the_compaction_and_expiry_of_somebody_elses_maintenance(
    spark: SparkSession, opened: Opened
) -> None:
    name = opened.table("foreign")
    sink = IcebergSink(spark, name, typing("json", "id int"), settings())
    for number in range(3):
        letter = Record(offset=2 * number + 1, value=b"no JSON")
        sink.add(batch(spark, number, [Record(offset=2 * number, value=b'{"id": 1}'), letter]))
    for table in (name, name.dead_letters):
        compact_as_anybody_would(spark, table)
        expire_as_anybody_would(spark, table)
    assert len(opened.load(name).metadata.snapshots) == 1
    again = IcebergSink(spark, name, typing("json", "id int"), settings())
    assert again.places() == {"orders": {0: 6}}
    again.add(batch(spark, 0, [Record(offset=6, value=b'{"id": 1}'), Record(offset=7, value=b"no JSON")]))
    assert offsets(opened, name) == [0, 2, 4, 6] and offsets(opened, name.dead_letters) == [1, 3, 5, 7]


@pytest.mark.parametrize("change", ["compacted", "a row deleted", "all rows deleted"])
@pytest.mark.parametrize("former", [True, False])
def test_a_table_keeps_its_places_where_a_parent_is_taken_out_with_what_expires(
    spark: SparkSession, sql: Opened, change: str, former: bool
) -> None:
    """The newest snapshot, which is no batch, looks like the table's first then."""
    name = sql.table(f"taken_out_{change.replace(' ', '_')}_{former}")
    sink = IcebergSink(spark, name, typing(), settings())
    for number in range(3):
        sink.add(batch(spark, number, records(2 * number, 2 * number + 2)))
    if not former:
        spark.sql(f"ALTER TABLE {name.sql} SET TBLPROPERTIES ('write.metadata.previous-versions-max' = '1')")
    if change == "compacted":
        compact_as_anybody_would(spark, name)
    else:
        spark.sql(f"DELETE FROM {name.sql} WHERE offset {'= 3' if change == 'a row deleted' else '>= 0'}")
    expire_by_pyiceberg(sql, name)
    again = IcebergSink(spark, name, typing(), settings())
    assert again.places() == sink.places() == {"orders": {0: 6}}
    again.add(batch(spark, 3, records(6, 8)))
    assert again.places() == {"orders": {0: 8}} and offsets(sql, name)[-2:] == [6, 7]


def test_two_jobs_places_outlive_a_rollback_to_a_batch_whose_parent_was_taken_out(
    spark: SparkSession, sql: Opened
) -> None:
    name = sql.table("taken_out_rolled_back")
    sink = IcebergSink(spark, name, typing(), settings())
    sink.add(batch(spark, 0, [replace(record, partition=1) for record in records(0, 2)]))
    sink.add(batch(spark, 1, records(0, 2)))
    expire_by_pyiceberg(sql, name)
    then = sink.table.newest_id()
    sink.add(batch(spark, 2, records(2, 4)))
    spark.sql(f"CALL `{name.catalog}`.system.rollback_to_snapshot('{name.in_catalog}', {then})").collect()
    assert sink.places() == IcebergSink(spark, name, typing(), settings()).places() == {"orders": {0: 2, 1: 2}}


def test_a_table_that_was_rolled_back_has_the_places_of_then(spark: SparkSession, opened: Opened) -> None:
    name = opened.table("rolled")
    sink = IcebergSink(spark, name, typing(), settings())
    sink.add(batch(spark, 0, records(0, 2)))
    then = sink.table.newest_id()
    sink.add(batch(spark, 1, records(2, 4)))
    spark.sql(f"CALL `{name.catalog}`.system.rollback_to_snapshot('{name.in_catalog}', {then})").collect()
    assert sink.places() == {"orders": {0: 2}}
    sink.add(batch(spark, 2, records(2, 5)))
    assert offsets(opened, name) == [0, 1, 2, 3, 4] and sink.places() == {"orders": {0: 5}}


@pytest.mark.parametrize("expired", ["at once", "one by one"])
def test_a_table_that_was_rolled_back_has_the_places_of_then_whatever_expired_since(
    spark: SparkSession, opened: Opened, expired: str
) -> None:
    name = opened.table(f"rolled_{expired.replace(' ', '_')}")
    sink = IcebergSink(spark, name, typing(), settings())
    for number in range(3):
        sink.add(batch(spark, number, records(number, number + 1)))
    then = sink.table.newest_id()
    for number in range(3, 5):
        sink.add(batch(spark, number, records(number, number + 1)))
    spark.sql(f"CALL `{name.catalog}`.system.rollback_to_snapshot('{name.in_catalog}', {then})").collect()
    compact_as_anybody_would(spark, name)
    spark.sql(f"DELETE FROM {name.sql} WHERE `offset` = 99")
    if expired == "one by one":
        spark.sql(
            f"CALL `{name.catalog}`.system.expire_snapshots(table => '{name.in_catalog}', snapshot_ids => "
            f"array({then}))"
        ).collect()
    expire_as_anybody_would(spark, name)
    assert len(opened.load(name).metadata.snapshots) == 1
    assert sink.places() == IcebergSink(spark, name, typing(), settings()).places() == {"orders": {0: 3}}
    sink.add(batch(spark, 9, records(3, 6)))
    assert offsets(opened, name) == [0, 1, 2, 3, 4, 5] and sink.places() == {"orders": {0: 6}}


@pytest.mark.parametrize("former", [True, False])
def test_a_rollback_leaves_the_places_of_partitions_that_had_nothing_new_for_longer_than_snapshots_are_kept(
    spark: SparkSession, sql: Opened, former: bool
) -> None:
    """Where metadata of before are gone, too, nothing says any more where a partition stood whose next records were
    undone.
    """
    name = sql.table(f"quiet_{former}")
    sink = IcebergSink(spark, name, typing(), settings())
    sink.add(batch(spark, 0, [replace(record, partition=number) for number in range(3) for record in records(0, 2)]))
    sink.add(batch(spark, 1, records(2, 4)))
    expire_as_anybody_would(spark, name)
    then = sink.table.newest_id()
    sink.add(
        batch(
            spark, 2, [*records(4, 6), replace(records(2, 3)[0], partition=2), replace(records(0, 1)[0], partition=3)]
        )
    )
    assert sink.places() == {"orders": {0: 6, 1: 2, 2: 3, 3: 1}}
    if not former:
        spark.sql(f"ALTER TABLE {name.sql} SET TBLPROPERTIES ('write.metadata.previous-versions-max' = '1')")
    spark.sql(f"CALL `{name.catalog}`.system.rollback_to_snapshot('{name.in_catalog}', {then})").collect()
    there = {0: 4, 1: 2} | ({2: 2} if former else {})
    assert sink.places() == {"orders": there}
    sink.add(batch(spark, 3, [*records(4, 5), replace(records(2, 3)[0], partition=1)]))
    assert sink.places() == {"orders": there | {0: 5, 1: 3}}
    assert offsets(sql, name) == sorted([0, 1, 2, 3, 4, 0, 1, 2, 0, 1])


def test_places_stand_below_what_others_committed_on_top_and_expired_in_parts(spark: SparkSession, sql: Opened) -> None:
    name = sql.table("deep")
    sink = IcebergSink(spark, name, typing(), settings())
    sink.add(batch(spark, 0, records(0, 3)))
    last = sink.table.newest_id()
    for number in range(3):
        spark.sql(
            f"INSERT INTO {name.sql} SELECT 'k', 'v', array(), 'others', 0, {number}L, TIMESTAMP '2026-03-01 "
            "00:00:00', ''"
        )
        spark.conf.unset("spark.wap.id")
    spark.sql(
        f"CALL `{name.catalog}`.system.expire_snapshots(table => '{name.in_catalog}', snapshot_ids => array({last}))"
    ).collect()
    assert sink.places() == {"orders": {0: 3}}
    expire_as_anybody_would(spark, name)
    assert sink.places() == IcebergTable(spark, name).places() == {"orders": {0: 3}}
    spark.sql(f"DELETE FROM {name.sql} WHERE topic = 'others'")


def test_a_table_of_rows_without_places_is_refused_until_somebody_says_them(spark: SparkSession, sql: Opened) -> None:
    name = sql.table("nameless")
    sink = IcebergSink(spark, name, typing(), settings())
    sink.add(batch(spark, 0, records(0, 3)))
    sink.add(batch(spark, 1, records(3, 4)))
    compact_as_anybody_would(spark, name)
    expire_as_anybody_would(spark, name)
    spark.sql(f"ALTER TABLE {name.sql} UNSET TBLPROPERTIES ('bmq.places', 'bmq.places-snapshot')")
    with pytest.raises(TableBroken, match="it has rows, and nothing says up to where"):
        sink.places()
    said = "'bmq.places' = '{\"orders\": {\"0\": 4}}', 'bmq.places-snapshot' = 'any'"
    spark.sql(f"ALTER TABLE {name.sql} SET TBLPROPERTIES ({said})")
    assert sink.places() == {"orders": {0: 4}}
    sink.add(batch(spark, 2, records(4, 5)))
    assert offsets(sql, name) == [0, 1, 2, 3, 4] and sink.places() == {"orders": {0: 5}}


class Unknown(IcebergTable):
    """A catalog that does not say how the first commit went. It came through at once, or it comes just before the
    second.
    """

    late = False
    first: tuple[State, Staged, Places] | None = None

    def step(self, state: State, staged: Staged, places: Places) -> None:
        if self.first is None:
            self.first = (state, staged, places)
            if self.late:
                return
        elif self.late:
            super().step(*self.first)
        super().step(state, staged, places)


@pytest.mark.parametrize("late", [False, True])
def test_a_commit_of_unknown_outcome_comes_through_once(spark: SparkSession, opened: Opened, late: bool) -> None:
    name = opened.table(f"unknown_{late}")
    sink = IcebergSink(spark, name, typing(), settings())
    table = Unknown(spark, name)
    table.late = late
    sink._table = table
    assert sink.add(batch(spark, 0, records(0, 3))).rows == 3
    assert offsets(opened, name) == [0, 1, 2] and sink.places() == {"orders": {0: 3}}


def test_a_batch_that_cannot_be_verified_undoes_nothing_of_others(spark: SparkSession, sql: Opened) -> None:
    name = sql.table("undone")
    sink = IcebergSink(spark, name, typing(), settings())
    sink.add(batch(spark, 0, records(0, 2)))

    def brokers_do_not_answer() -> None:
        spark.sql(f"DELETE FROM {name.sql} WHERE `offset` = 0")
        raise JobStopped("brokers 127.0.0.1:9092: no answer within 30 s")

    with pytest.raises(JobStopped, match="no answer"):
        sink.add(batch(spark, 1, records(2, 3), verify=brokers_do_not_answer))
    assert offsets(sql, name) == [1] and sink.places() == {"orders": {0: 2}}


def test_a_table_of_an_older_version_of_the_job_goes_on_and_keeps_its_places(spark: SparkSession, sql: Opened) -> None:
    name = sql.table("older")
    sink = IcebergSink(spark, name, typing(), settings())
    spark.sql(f"ALTER TABLE {name.sql} UNSET TBLPROPERTIES ('write.wap.enabled')")
    # As it was: places are in the summaries alone, and a batch is committed by Spark.
    row = "SELECT 'k', 'v', array(), 'orders', 0, 0L, TIMESTAMP '2026-03-01 00:00:00', ''"
    spark.conf.set("spark.sql.iceberg.snapshot-property.bmq.places", '{"orders": {"0": 1}}')
    spark.sql(f"INSERT INTO {name.sql} {row}")
    spark.conf.unset("spark.sql.iceberg.snapshot-property.bmq.places")
    assert sink.places() == {"orders": {0: 1}}
    let_pass(0.01, "the next snapshot has another time")
    compact_as_anybody_would(spark, name)
    maintain(spark, IcebergTable(spark, name), MAINTENANCE)
    assert sink.places() == {"orders": {0: 1}}
    sink.add(batch(spark, 0, records(1, 3)))
    assert offsets(sql, name) == [0, 1, 2] and sink.places() == {"orders": {0: 3}}


def test_a_catalog_that_is_away_in_the_middle_of_a_commit_is_one_line(spark: SparkSession, sql: Opened) -> None:
    name = sql.table("away")
    sink = IcebergSink(spark, name, typing(), settings())

    class Away(IcebergTable):
        def step(self, state: State, staged: Staged, places: Places) -> None:
            raise JobStopped("table sql.db.away: no connection")

    there, sink._table = sink._table, Away(spark, name)
    with pytest.raises(JobStopped, match="no connection"):
        sink.add(batch(spark, 0, records(0, 2)))
    sink._table = there
    sink.add(batch(spark, 0, records(0, 2)))
    assert offsets(sql, name) == [0, 1]


def test_columns_that_were_lost_with_a_batch_killed_between_its_commits_are_found_again(
    spark: SparkSession, sql: Opened
) -> None:
    name = sql.table("between")
    asked: list[int] = []

    def killed() -> None:
        asked.append(1)
        if len(asked) == 2:
            raise JobStopped("killed")

    some = [
        Record(offset=0, value=b'{"id": 1}'),
        Record(offset=1, value=b"no JSON"),
        Record(offset=2, value=b'{"id": 2, "more": 1.5}'),
    ]
    with pytest.raises(JobStopped, match="killed"):
        IcebergSink(spark, name, typing("json"), settings(), infers=True).add(batch(spark, 0, some, verify=killed))
    # The columns are the table's already; a catalog that lost them has to have them found again.
    spark.sql(f"ALTER TABLE {name.sql} DROP COLUMN value")
    again = IcebergSink(spark, name, typing("json"), settings(), infers=True)
    again.add(batch(spark, 0, some))
    assert sorted((row["offset"], row["value"]["id"]) for row in sql.load(name).scan().to_arrow().to_pylist()) == [
        (0, 1),
        (2, 2),
    ]
    assert offsets(sql, name.dead_letters) == [1]


def test_dead_letters_past_retention_stay_until_their_batch_is_whole(spark: SparkSession, sql: Opened) -> None:
    name = sql.table("old_letters")
    maintenance = Maintenance(target_file_size_bytes=128 << 20, tidies=False, retention_ms=24 * 3_600_000)
    some = [Record(offset=0, value=b"\xff old"), Record(offset=1, value=b"old")]
    asked: list[int] = []

    def killed() -> None:
        asked.append(1)
        if len(asked) == 2:
            raise JobStopped("killed")

    sink = IcebergSink(spark, name, typing(), settings(maintenance=maintenance))
    with pytest.raises(JobStopped, match="killed"):
        sink.add(batch(spark, 0, some, verify=killed))
    sink.maintain()
    assert offsets(sql, name.dead_letters) == [0]
    sink.add(batch(spark, 0, some))
    assert offsets(sql, name) == [1] and offsets(sql, name.dead_letters) == [0]
    sink.maintain()
    assert offsets(sql, name) == offsets(sql, name.dead_letters) == []


def test_a_tombstone_is_remembered_for_older_records_of_other_partitions(spark: SparkSession, sql: Opened) -> None:
    name = sql.table("tombstones")
    maintenance = replace(MAINTENANCE, keep_snapshots_ms=24 * 3_600_000)
    upserts = settings(partition_by="none", upsert_key="key", maintenance=maintenance)
    sink = IcebergSink(spark, name, typing(), upserts)
    sink.add(
        batch(
            spark,
            0,
            [
                Record(partition=1, offset=0, key=b"k", value=None, minute=10),
                Record(partition=1, offset=1, key=b"x", value=b"x"),
            ],
        )
    )
    sink.maintain()
    again = IcebergSink(spark, name, typing(), upserts)
    late = [
        Record(offset=0, key=b"k", value=b"deleted at minute 10", minute=5),
        Record(offset=1, key=b"y", value=b"y", minute=5),
    ]
    again.add(batch(spark, 1, late))
    assert sorted(row["key"] for row in sql.load(name).scan().to_arrow().to_pylist()) == ["x", "y"]
    again.add(batch(spark, 2, [Record(offset=2, key=b"k", value=b"made again", minute=11)]))
    again.add(batch(spark, 3, [Record(partition=1, offset=2, key=b"k", value=b"later in its own partition", minute=1)]))
    found = {row["key"]: row["value"] for row in sql.load(name).scan().to_arrow().to_pylist()}
    assert found == {"x": "x", "y": "y", "k": "made again"}
    assert sql.load(name.tombstones).scan().to_arrow().column("key").to_pylist() == ["k"]


def test_an_upsert_that_dies_between_its_tombstones_and_its_rows_leaves_what_a_dictionary_would(
    spark: SparkSession, sql: Opened
) -> None:
    name = sql.table("upsert_killed")
    upserts = settings(partition_by="none", upsert_key="key")
    first = [Record(offset=0, key=b"moves", value=b"0", minute=1), Record(offset=1, key=b"goes", value=b"0", minute=1)]
    IcebergSink(spark, name, typing(), upserts).add(batch(spark, 0, first))
    some = [
        # A key that comes from another partition now, one that is deleted and made again in one batch, one that is made
        # and deleted in one.
        Record(offset=2, key=b"moves", value=None, minute=2),
        Record(offset=0, partition=1, key=b"moves", value=b"1", minute=3),
        Record(offset=3, key=b"goes", value=None, minute=4),
        Record(offset=4, key=b"goes", value=b"back", minute=4),
        Record(offset=5, key=b"never", value=b"here", minute=5),
        Record(offset=6, key=b"never", value=None, minute=5),
        # Older than the tombstone that another partition has in the same batch, and than one that comes with an older
        # time but later.
        Record(offset=7, key=b"late", value=None, minute=9),
        Record(offset=1, partition=1, key=b"late", value=b"too late", minute=8),
    ]

    class Killed(IcebergSink):
        def _remembered(self, rows: DataFrame, of: Batch) -> DataFrame:
            super()._remembered(rows, of)
            raise JobStopped("killed")

    with pytest.raises(JobStopped, match="killed"):
        Killed(spark, name, typing(), upserts).add(batch(spark, 1, some))
    for _ in range(2):
        IcebergSink(spark, name, typing(), upserts).add(batch(spark, 1, some))
    rows = {row["key"]: (row["value"], row["partition"]) for row in sql.load(name).scan().to_arrow().to_pylist()}
    assert rows == {"moves": ("1", 1), "goes": ("back", 0)}
    assert len(sql.load(name).scan().to_arrow()) == 2

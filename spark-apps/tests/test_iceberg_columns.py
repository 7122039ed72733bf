"""Columns of real tables: names that records bring, and what somebody else does to columns while the job runs."""

import secrets
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pytest
from iceberg_batches import Record, batch, settings, typing
from iceberg_catalogs import Opened, opened_in
from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from bmq_spark.batches.places import Places
from bmq_spark.errors import ConfigurationError, JobStopped
from bmq_spark.iceberg.catalogs import Catalog, TableName
from bmq_spark.iceberg.notes import Notes
from bmq_spark.iceberg.tables import IcebergTable
from bmq_spark.jobs.iceberg import IcebergOptions, open_sink, parse
from bmq_spark.jobs.iceberg_sink import CHANGES_MAX, IcebergSink
from bmq_spark.jobs.sinks import Batch
from bmq_spark.values import collision
from bmq_spark.values.column_paths import name_in_files


@pytest.fixture(scope="module")
def opened(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Opened:
    folder = tmp_path_factory.mktemp("columns")
    return opened_in(spark, Catalog(name="columns", kind="hadoop", warehouse=str(folder), uri=None), {})


def rows(opened: Opened, name: TableName) -> list[dict[str, Any]]:
    return opened.load(name).scan().to_arrow().sort_by("offset").to_pylist()  # type: ignore[no-any-return]


def values(*texts: str) -> list[Record]:
    return [Record(offset=n, value=text.encode(), key=b"k") for n, text in enumerate(texts)]


def test_names_that_records_bring_become_columns_as_they_are_whatever_they_would_mean_in_a_statement(
    spark: SparkSession, opened: Opened
) -> None:
    name = opened.table("names")
    sink = IcebergSink(spark, name, typing("json"), settings(), infers=True)
    odd = ["${env:AWS_SECRET_ACCESS_KEY}", "${spark.app.name}", "${system:user.dir}", "a`b", "c.d", "; --", "'"]
    texts = ['{"a":1}', *(f'{{"{each}":{{"n":1,"in {each}":[{n}]}}}}' for n, each in enumerate(odd))]
    added = sink.add(batch(spark, 0, values(*texts)))
    assert (added.rows, added.dead_letters) == (len(texts), 0)
    made = rows(opened, name)
    assert set(made[0]["value"]) == {"a", *odd}
    assert [row["value"][each] for row, each in zip(made[1:], odd, strict=True)] == [
        {"n": 1, f"in {each}": [n]} for n, each in enumerate(odd)
    ]


def test_names_of_a_schema_are_in_a_new_table_as_they_are(spark: SparkSession, opened: Opened) -> None:
    name = opened.table("made")
    columns = pa.schema(
        [(each, pa.int64()) for each in ("${env:AWS_SECRET_ACCESS_KEY}", "topic", "partition", "offset")]
    )
    made = IcebergTable.create(spark, name, columns, partition_by="none", upsert_key="", target_file_size_bytes=1 << 20)
    assert made.columns().names == columns.names


def test_names_with_dots_that_meet_another_columns_path_are_dead_letters_and_stop_nothing(
    spark: SparkSession, opened: Opened
) -> None:
    name = opened.table("dots")
    sink = IcebergSink(spark, name, typing("json"), settings(), infers=True)
    texts = [
        '{"x":{"y":2}}',
        '{"x.y":1,"x":{"y":2}}',
        '{"tags":[1],"tags.element":2}',
        '{"rows":[{"id":1}]}',
        '{"rows.id":2}',
        '{"free.name":3}',
    ]
    added = sink.add(batch(spark, 0, values(*texts)))
    assert (added.rows, added.dead_letters) == (3, 3)
    assert [row["offset"] for row in rows(opened, name)] == [0, 3, 5]
    assert "$.x.y has no column" in rows(opened, name.dead_letters)[0]["reason"]


def test_names_that_are_one_in_files_are_dead_letters_and_stop_nothing(spark: SparkSession, opened: Opened) -> None:
    name = opened.table("files")
    sink = IcebergSink(spark, name, typing("json"), settings(), infers=True)
    texts = ['{"1":1}', '{"1":2,"_1":3}', '{"l":[{"a-b":{"x":4}}]}', '{"l":[{"a_x2Db":{"y":5}}]}']
    added = sink.add(batch(spark, 0, values(*texts)))
    assert (added.rows, added.dead_letters) == (2, 2)
    added = sink.add(batch(spark, 1, [Record(offset=4, value=b'{"_1":6}'), Record(offset=5, value=b'{"1":7}')]))
    assert (added.rows, added.dead_letters) == (1, 1)
    made = [row["value"] for row in rows(opened, name)]
    assert [value["1"] for value in made] == [1, None, 7] and made[1]["l"] == [{"a-b": {"x": 4}}]
    assert {*made[0]} == {"1", "l"}
    assert "$._1 has no column" in rows(opened, name.dead_letters)[0]["reason"]


@pytest.mark.parametrize(("there", "added"), [("", "_1 int"), ("l.element.", "_1 struct<b: int>")])
def test_a_table_with_two_columns_that_are_one_in_files_says_what_lets_it_be_written_again(
    spark: SparkSession, opened: Opened, there: str, added: str
) -> None:
    name = opened.table(f"stuck_{secrets.token_hex(4)}")
    catalog = ["--catalog-type", "hadoop", "--warehouse", opened.catalog.warehouse or ""]
    options = parse(["--table", str(name), *catalog, "--topic", "orders", "--format", "json"])
    assert isinstance(options, IcebergOptions)
    open_sink(options, spark).add(batch(spark, 0, values('{"1":1,"l":[{"1":{"a":1}}]}')))
    spark.sql(f"ALTER TABLE {name.sql} ADD COLUMN value.{there}{added}")
    with pytest.raises(ConfigurationError, match=r"are one in Parquet files, .*_1, so that no file") as refused:
        open_sink(options, spark)
    spark.sql(f"ALTER{str(refused.value).partition(': ALTER')[2]}")
    assert open_sink(options, spark).add(batch(spark, 1, [Record(offset=1, value=b'{"1":2}')])).rows == 1
    assert [row["value"]["1"] for row in rows(opened, name)] == [1, 2]


def test_names_that_iceberg_writes_alike_are_alike(spark: SparkSession) -> None:
    """Whichever letters Java knows."""
    by_iceberg = spark._jvm.org.apache.iceberg.avro.AvroSchemaUtil.makeCompatibleName  # type: ignore[union-attr]
    every = "".join(map(chr, (*range(0xD800), *range(0xE000, 0x10000), 0x1F600, 0x1D7CE)))
    assert name_in_files(by_iceberg(f"a{every}")) == name_in_files(f"a{every}")
    assert {letter for letter in every if name_in_files(letter)[0] == "_" and letter.isdecimal()} >= set("09٣")
    for first in (letter for letter in every if letter.isdecimal() or letter in "a_-. é²Ⅷª"):
        for name in (first, f"{first}b"):
            assert name_in_files(by_iceberg(name)) == name_in_files(name)
            if name.isascii():
                assert by_iceberg(name) == name_in_files(name)


def test_a_name_without_end_is_a_dead_letter_and_stays_out_of_the_table_s_metadata(
    spark: SparkSession, opened: Opened
) -> None:
    name = opened.table("long")
    sink = IcebergSink(spark, name, typing("json"), settings(), infers=True)
    added = sink.add(batch(spark, 0, values('{"id":1}', *(f'{{"{each * 100_000}":1}}' for each in "abc"))))
    assert (added.rows, added.dead_letters) == (1, 3)
    assert [row["value"] for row in rows(opened, name)] == [{"id": 1}]
    assert "longer than 255 bytes" in rows(opened, name.dead_letters)[0]["reason"]


def test_a_column_that_somebody_renames_or_drops_while_the_job_runs_is_added_again_and_no_value_is_lost(
    spark: SparkSession, opened: Opened
) -> None:
    name = opened.table("altered")
    sink = IcebergSink(spark, name, typing("json", "a int, b string, l array<struct<c: int>>"), settings())
    alterations = [
        "RENAME COLUMN value.b TO other",
        "DROP COLUMN value.l.element.c",
        "DROP COLUMN headers",
        "RENAME COLUMN value TO was",
    ]
    for offset, alter in enumerate(["", *alterations]):
        if alter:
            # A list of objects keeps one field, whatever goes.
            spark.sql(f"ALTER TABLE {name.sql} ADD COLUMN value.l.element.z{offset} int")
            spark.sql(f"ALTER TABLE {name.sql} {alter}")
        record = Record(offset=offset, value=b'{"a":1,"b":"x","l":[{"c":7}]}', key=b"k", headers=(("h", b"1"),))
        added = sink.add(batch(spark, offset, [record]))
        assert (added.rows, added.dead_letters) == (1, 0)
        last = rows(opened, name)[-1]
        assert (last["value"]["a"], last["value"]["b"], last["value"]["l"][0]["c"]) == (1, "x", 7)
        assert last["headers"] == [{"key": "h", "value": b"1"}]


class Meddled(IcebergSink):
    """Somebody changes the table's columns when a batch's rows are made, and before they are written."""

    alterations: Sequence[str] = ()

    def _write(self, rows: DataFrame, notes: Notes, have: Places, batch: Batch) -> Mapping[str, str]:
        alterations, self.alterations = self.alterations[:1], self.alterations[1:]
        for alter in alterations:
            rows.sparkSession.sql(f"ALTER TABLE {self._table.name.sql} {alter}")
        return super()._write(rows, notes, have, batch)


@pytest.mark.parametrize("upsert_key", ["", "key"])
@pytest.mark.parametrize(
    "alterations",
    [
        ["ADD COLUMN value.z int"],
        ["ADD COLUMN other int", "DROP COLUMN other"],
        ["DROP COLUMN value.b"],
        ["RENAME COLUMN value.b TO c"],
        ["ADD COLUMN value.l.element.z int"],
    ],
    ids=["nested", "twice", "dropped", "renamed", "in a list"],
)
def test_columns_that_somebody_changes_in_the_midst_of_a_batch_stop_nothing(
    spark: SparkSession, opened: Opened, alterations: list[str], upsert_key: str
) -> None:
    name = opened.table(f"meddled_{secrets.token_hex(4)}")
    sink = Meddled(
        spark, name, typing("json", "a int, b string, l array<struct<c: int>>"), settings(upsert_key=upsert_key)
    )
    sink.add(batch(spark, 0, [Record(offset=0, key=b"k0", value=b'{"a":0,"b":"x","l":[{"c":1}]}')]))
    sink.alterations = alterations
    records = [
        Record(offset=1, key=b"k1", value=b'{"a":1,"b":"y","l":[{"c":7}]}'),
        Record(offset=2, key=b"k2", value=b"no JSON"),
    ]
    added = sink.add(batch(spark, 1, records))
    assert (added.rows, added.dead_letters) == (1, 1)
    made = rows(opened, name)
    assert [row["offset"] for row in made] == [0, 1]
    assert (made[1]["value"]["a"], made[1]["value"]["b"], made[1]["value"]["l"][0]["c"]) == (1, "y", 7)
    assert [row["offset"] for row in rows(opened, name.dead_letters)] == [2]


def test_columns_that_somebody_changes_again_and_again_end_the_run_and_not_before_the_batch_was_tried_some_times(
    spark: SparkSession, opened: Opened
) -> None:
    name = opened.table("restless")
    sink = Meddled(spark, name, typing("json", "a int"), settings())
    sink.alterations = [f"ADD COLUMN value.z{number} int" for number in range(CHANGES_MAX + 2)]
    with pytest.raises(
        JobStopped, match=rf"others changed its columns {CHANGES_MAX} times while one batch was written"
    ):
        sink.add(batch(spark, 0, values('{"a":1}')))
    assert len(sink.alterations) == 2
    sink.alterations = []
    assert sink.add(batch(spark, 0, values('{"a":1}'))).rows == 1


def test_a_column_of_another_type_in_the_place_of_ours_stops_the_job_with_both_types(
    spark: SparkSession, opened: Opened
) -> None:
    name = opened.table("retyped")
    sink = IcebergSink(spark, name, typing("json", "a int, b string"), settings())
    spark.sql(f"ALTER TABLE {name.sql} DROP COLUMN value.b")
    spark.sql(f"ALTER TABLE {name.sql} ADD COLUMN value.b int")
    with pytest.raises(JobStopped, match=r"field value\.b: the table has int and the new schema string"):
        sink.add(batch(spark, 0, values('{"a":1,"b":"x"}')))


@pytest.mark.parametrize("column", ["key", "timestamp"])
def test_rows_are_not_merged_where_somebody_took_the_column_by_which_they_are_found(
    spark: SparkSession, opened: Opened, column: str
) -> None:
    name = opened.table(f"found_by_{column}")
    sink = IcebergSink(spark, name, typing(), settings(upsert_key="key"))
    sink.add(batch(spark, 0, [Record(offset=0, key=b"k", value=b"old")]))
    spark.sql(f"ALTER TABLE {name.sql} RENAME COLUMN {column} TO other")
    with pytest.raises(
        JobStopped,
        match=f"column {column} is not there, by which rows are found: somebody renamed or dropped it: give it its "
        "name",
    ):
        sink.add(batch(spark, 1, [Record(offset=1, key=b"k", value=b"new")]))
    spark.sql(f"ALTER TABLE {name.sql} RENAME COLUMN other TO {column}")
    sink.add(batch(spark, 1, [Record(offset=1, key=b"k", value=b"new")]))
    assert [row["value"] for row in rows(opened, name)] == ["new"]


@pytest.mark.parametrize(
    ("there", "added"),
    [
        ("x struct<y: int>", "`x.y` int"),
        ("x struct<y: int>", "`X.Y` int"),
        ("tags array<int>", "`tags.element` int"),
        ("rows array<struct<id: int>>", "`rows.id` int"),
        ("`rows.id` int", "rows array<struct<id: int>>"),
        ("x struct<y: int>", "`x.z` int"),
        ("`1` int", "_1 int"),
        ("`1` struct<a: int>", "_1 struct<b: int>"),
        ("x struct<`a-b`: array<int>>", "x_x2Ea_x2Db int"),
    ],
)
def test_which_fields_are_one_column_is_as_iceberg_has_it(
    spark: SparkSession, opened: Opened, there: str, added: str
) -> None:
    """In a table that is made with both, and in one that has one and gets the other."""

    def fails(*ddls: str) -> bool:
        name = opened.table(f"paths_{len(ddls)}_{secrets.token_hex(4)}")
        try:
            for ddl in ddls:
                sink = IcebergSink(spark, name, typing("json", ddl), settings())
            sink.add(batch(spark, 0, values("{}")))
            return not rows(opened, name)
        except (JobStopped, AnalysisException, Py4JJavaError):
            return True

    kinds = [typing("json", ddl).columns for ddl in (there, f"{there}, {added}", added)]
    assert (collision(kinds[1]) is not None) == fails(f"{there}, {added}")
    assert (collision(kinds[1], kinds[0]) is not None) == fails(there, f"{there}, {added}")
    assert (collision(kinds[2], kinds[0]) is not None) == fails(there, added)


def test_the_columns_of_a_table_that_was_dropped_meanwhile_are_one_line(spark: SparkSession, sql: Opened) -> None:
    name = sql.table("dropped_meanwhile")
    table = IcebergSink(spark, name, typing(), settings()).table
    spark.sql(f"DROP TABLE {name.sql}")
    for asked in (table.schema, table.columns):
        with pytest.raises(JobStopped, match=r"^table sql\.db\.dropped_meanwhile: [^\n]+$"):
            asked()

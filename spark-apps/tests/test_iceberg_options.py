from pathlib import Path

import pyarrow as pa
import pytest

from bmq_spark.errors import ConfigurationError
from bmq_spark.iceberg.catalogs import Catalog, TableName
from bmq_spark.jobs.decoders import typing_of
from bmq_spark.jobs.iceberg import IcebergOptions, Target, parse, require_paths

SQL = ["--table", "lake.db.orders", "--catalog-type", "sql", "--catalog-uri", "jdbc:sqlite:/c.db", "--warehouse", "/w"]


def test_a_catalog_and_a_topic_are_enough() -> None:
    options = parse([*SQL, "--topic", "orders"])
    assert isinstance(options, IcebergOptions)
    assert (options.group, options.target.settings.partition_by, options.target.settings.maintenance) == (
        "iceberg-orders",
        "hour",
        None,
    )
    assert options.target.catalog.settings({}) == {
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.io-impl": "org.apache.iceberg.hadoop.HadoopFileIO",
        "spark.sql.catalog.lake.cache-enabled": "false",
        "spark.sql.catalog.lake.type": "jdbc",
        "spark.sql.catalog.lake.warehouse": "/w",
        "spark.sql.catalog.lake.uri": "jdbc:sqlite:/c.db",
        "spark.sql.catalog.lake.jdbc.schema-version": "V1",
        "spark.sql.catalog.lake.jdbc.busy_timeout": "30000",
        "spark.sql.catalog.lake.retryable_status_codes": "57P01,57P02,57P03",
    }


def test_secrets_of_catalogs_come_from_the_environment() -> None:
    rest = Catalog(name="lake", kind="rest", warehouse="prod", uri="https://catalog", config={"scope": "tables"})
    environment = {
        "ICEBERG_REST_CREDENTIAL": "id:secret",
        "ICEBERG_REST_SCOPE": "all",
        "ICEBERG_SQL_PASSWORD": "not for rest",
    }
    found = rest.settings(environment)
    assert found["spark.sql.catalog.lake.credential"] == "env:ICEBERG_REST_CREDENTIAL", (
        "the driver reads it: it is not among Spark's settings"
    )
    assert (found["spark.sql.catalog.lake.scope"], found["spark.sql.catalog.lake.warehouse"]) == ("tables", "prod")
    assert found["spark.sql.catalog.lake.token-exchange-enabled"] == "false"
    assert not {"id:secret", "not for rest"} & set(found.values())
    sql = Catalog(
        name="lake",
        kind="sql",
        warehouse="/w",
        uri="jdbc:postgresql://db/iceberg",
        config={"jdbc.sslpassword": "env:KEY"},
    )
    given = sql.settings({"ICEBERG_SQL_USER": "job", "KEY": "of the certificate"})
    assert (given["spark.sql.catalog.lake.jdbc.user"], given["spark.sql.catalog.lake.jdbc.sslpassword"]) == (
        "job",
        "of the certificate",
    )
    with pytest.raises(
        ConfigurationError, match=r"^--catalog-config jdbc\.sslpassword=env:KEY: the environment has no KEY: set it$"
    ):
        sql.settings({})


@pytest.mark.parametrize(
    "key", ["token", "credential", "header.Authorization", "header.X-Api-Key", "s3.secret-access-key"]
)
def test_a_secret_is_refused_as_an_argument(key: str) -> None:
    with pytest.raises(
        ConfigurationError,
        match=rf"^--catalog-config {key}: a secret, which anybody sees who lists processes: (set ICEB|put it)",
    ):
        Catalog(name="lake", kind="rest", warehouse=None, uri="https://catalog", config={key: "known"})
    Catalog(
        name="lake",
        kind="rest",
        warehouse=None,
        uri="https://catalog",
        config={key: "env:KEY", "token-exchange-enabled": "true"},
    )


@pytest.mark.parametrize(
    ("kind", "uri"),
    [
        ("sql", "jdbc:postgresql://h/d?user=job&password=known"),
        ("sql", "jdbc:mysql://job:known@h/d"),
        ("rest", "https://job:known@catalog"),
    ],
)
def test_a_password_in_a_catalogs_uri_is_refused_and_not_repeated(kind: str, uri: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        Catalog(name="lake", kind=kind, warehouse="/w", uri=uri)
    assert str(raised.value).startswith("--catalog-uri: it has a user or a password in it") and "known" not in str(
        raised.value
    )


def test_upserts_go_into_a_table_without_partitions() -> None:
    options = parse([*SQL, "--topic", "orders", "--upsert-key", "key"])
    assert isinstance(options, IcebergOptions) and options.target.settings.partition_by == "none"


def test_maintenance_alone_needs_no_topic() -> None:
    target = parse([*SQL, "--maintain", "--keep-snapshots", "2d"])
    assert isinstance(target, Target) and target.settings.maintenance is not None
    assert target.settings.maintenance.keep_snapshots_ms == 2 * 24 * 3_600_000


@pytest.mark.parametrize("uri", ["/w", "file:///w", "s3a://bucket/w"])
def test_hadoops_catalog_has_one_writer_wherever_it_is_and_others_have_many(uri: str) -> None:
    assert not Catalog(name="lake", kind="hadoop", warehouse=uri, uri=None).commits_are_atomic
    assert Catalog(name="lake", kind="sql", warehouse=uri, uri="jdbc:sqlite:/c.db").commits_are_atomic


def test_dead_letters_have_a_table_beside_the_table() -> None:
    name = TableName.parse("lake.a.b.orders")
    assert (name.sql, name.in_catalog, str(name.dead_letters)) == (
        "`lake`.`a`.`b`.`orders`",
        "a.b.orders",
        "lake.a.b.orders_dead_letters",
    )


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ([*SQL], "--topic: name one or more, or give --maintain alone"),
        (
            ["--table", "orders", "--catalog-type", "sql"],
            "--table 'orders': write CATALOG.DB.NAME, each of letters, digits and underscores",
        ),
        (
            ["--table", "l.d.t", "--catalog-type", "hadoop"],
            "--warehouse: --catalog-type hadoop needs one: a folder, or s3a://BUCKET/PREFIX",
        ),
        (
            ["--table", "l.d.t", "--catalog-type", "rest"],
            "--catalog-uri '': --catalog-type rest needs the server's URL, as http://HOST:8181",
        ),
        (
            ["--table", "l.d.t", "--catalog-type", "sql", "--catalog-uri", "c.db", "--warehouse", "/w"],
            "--catalog-uri 'c.db': --catalog-type sql needs jdbc:sqlite:FILE or jdbc:postgresql://HOST/DATABASE",
        ),
        (
            ["--table", "l.d.t", "--catalog-type", "hadoop", "--catalog-uri", "http://c", "--warehouse", "/w"],
            "--catalog-uri http://c: --catalog-type hadoop has none: the warehouse is the catalog",
        ),
        (
            ["--table", "l.d.t", "--catalog-type", "hadoop", "--warehouse", "s3a://b/w", "--maintain"],
            "--maintain without --topic: a hadoop catalog (s3a://b/w) has one writer: give --maintain "
            "to the job that writes, or keep the table in a rest or sql catalog",
        ),
        (
            [*SQL, "--topic", "orders", "--upsert-key", "key", "--partition-by", "hour"],
            "--partition-by hour: with --upsert-key a row's time changes with every record of its key: leave the "
            "option out",
        ),
        (
            [*SQL, "--topic", "orders", "--maintain", "--orphans-older-than", "1h"],
            "--orphans-older-than 1h: give 24h or more: writes under way look like orphans",
        ),
        ([*SQL, "--topic", "orders", "--catalog-config", "scope"], "--catalog-config 'scope': write KEY=VALUE"),
        (
            [*SQL, "--topic", "o", "--upsert-key", "key", "--retention", "1d"],
            "--retention 1d: only whole partitions leave a table: choose --partition-by hour or date",
        ),
    ],
)
def test_what_cannot_be_is_said_in_a_line(arguments: list[str], line: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        parse(arguments)
    assert str(raised.value) == line


def test_a_schema_whose_fields_are_one_column_for_iceberg_is_refused_with_both_of_them(tmp_path: Path) -> None:
    schema = tmp_path / "orders.ddl"
    schema.write_text("id int, `x.y` int, x struct<z int, y: string>")
    options = parse([*SQL, "--topic", "orders", "--format", "json", "--schema", str(schema)])
    assert isinstance(options, IcebergOptions)
    with pytest.raises(ConfigurationError) as refused:
        require_paths(options, typing_of(options), None)
    assert str(refused.value) == (
        f'--schema {schema}: fields "x.y" and "y" in "x" are one column for Iceberg, which joins names by dots: x.y: give one of them a name without '
        "the dot, leave it out of the schema, or keep the topic as a Parquet table (parquet.py)"
    )
    schema.write_text("id int, `x.y` int, x struct<z int>")
    require_paths(options, typing_of(options), pa.schema([("value", pa.struct([("id", pa.int32())]))]))


@pytest.mark.parametrize("is_there", [False, True])
def test_a_schema_whose_fields_are_one_column_in_icebergs_files_is_refused_with_both_of_them(
    tmp_path: Path, is_there: bool
) -> None:
    schema = tmp_path / "orders.ddl"
    schema.write_text("rows array<struct<`_1` int>>" if is_there else "rows array<struct<`1` int, `_1` int>>")
    have = pa.schema([("value", pa.struct([("rows", pa.list_(pa.struct([("1", pa.int32())])))]))])
    options = parse([*SQL, "--topic", "orders", "--format", "json", "--schema", str(schema)])
    assert isinstance(options, IcebergOptions)
    with pytest.raises(ConfigurationError) as refused:
        require_paths(options, typing_of(options), have if is_there else None)
    assert str(refused.value) == (
        f'--schema {schema}: fields "1" in "element" in "rows" and "_1" in "element" in "rows" are one column for '
        "Iceberg, which writes the names of both in Parquet files as: rows.element._1: give one of them another name, "
        "leave it out of the schema, or keep the topic as a Parquet table (parquet.py)"
    )
    schema.write_text("rows array<struct<`1` int>>, `_1` int")
    require_paths(options, typing_of(options), have)


@pytest.mark.parametrize(
    ("value_format", "have", "line"),
    [
        (
            "json",
            pa.string(),
            "--format json: the table has string values, which were made with another --format: give the option "
            "the value",
        ),
        (
            "json",
            pa.binary(),
            "--format json: the table has binary values, which were made with another --format: give the option "
            "the value",
        ),
        (
            "string",
            pa.struct([("a", pa.int64())]),
            "--format string: field value: the table has struct<a bigint> and the new schema string",
        ),
        ("bytes", pa.string(), "--format bytes: field value: the table has string and the new schema binary"),
    ],
)
def test_values_of_another_format_than_the_tables_are_refused_before_a_record_is_read(
    value_format: str, have: pa.DataType, line: str
) -> None:
    options = parse([*SQL, "--topic", "orders", "--format", value_format])
    assert isinstance(options, IcebergOptions)
    with pytest.raises(ConfigurationError) as refused:
        typing_of(options, pa.schema([("value", have)]))
    assert str(refused.value).startswith(line)
    assert str(refused.value).endswith("give the option the value that the table was made with, or name another table")

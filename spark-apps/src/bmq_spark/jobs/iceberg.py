"""The job that keeps topics as an Iceberg table: its arguments, and from them the parts that do the work."""

import argparse
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa
from pyspark.sql import SparkSession

from bmq_spark.batches.records import Typing
from bmq_spark.ending import StopRequest, ended, say
from bmq_spark.errors import ConfigurationError
from bmq_spark.iceberg.catalogs import CATALOG_TYPES, SESSION_SETTINGS, Catalog, TableName
from bmq_spark.iceberg.evolution import quoted
from bmq_spark.iceberg.maintenance import Maintenance, maintain, require_own
from bmq_spark.iceberg.tables import DEAD_LETTERS, PARTITIONINGS, TOMBSTONES, IcebergTable
from bmq_spark.jobs.checkpoint import Checkpoint
from bmq_spark.jobs.cluster import Cluster
from bmq_spark.jobs.decoders import is_inferred, typing_of
from bmq_spark.jobs.hadoop_files import HadoopFolder
from bmq_spark.jobs.iceberg_sink import IcebergSink, TableSettings
from bmq_spark.jobs.newest_version import NewestVersion
from bmq_spark.jobs.sinks import Total
from bmq_spark.jobs.streaming import Stream
from bmq_spark.options import JobOptions, add_shared_arguments, pairs, shared, size_bytes, time_ms
from bmq_spark.session import kept_for, open_session
from bmq_spark.values import collision, iceberg_rules, merge

JOB: Final = "iceberg"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Which table, and how it is kept: all that maintenance alone needs."""

    table: TableName
    catalog: Catalog
    settings: TableSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class IcebergOptions(JobOptions):
    """What this job is told."""

    target: Target


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(
        prog="iceberg.py",
        description="Topics as an Iceberg table, exactly once; without --topic, maintenance alone. Credentials "
        "come from the environment (AWS_ACCESS_KEY_ID, …; ICEBERG_REST_TOKEN or "
        "ICEBERG_REST_CREDENTIAL; ICEBERG_SQL_USER and ICEBERG_SQL_PASSWORD).",
    )
    table = made.add_argument_group("table")
    table.add_argument(
        "--table",
        metavar="CATALOG.DB.NAME",
        required=True,
        help="the table; records that do not fit go to NAME_dead_letters",
    )
    table.add_argument(
        "--catalog-type",
        choices=CATALOG_TYPES,
        required=True,
        help="hadoop: a folder of tables. sql: a database, by JDBC",
    )
    table.add_argument(
        "--warehouse",
        metavar="URI",
        help="where tables lie: a folder or s3a://BUCKET/PREFIX; what a REST server calls it",
    )
    table.add_argument(
        "--catalog-uri",
        metavar="URI",
        help="http://HOST:8181 of a REST server; jdbc:sqlite:FILE, jdbc:postgresql://HOST/DATABASE",
    )
    table.add_argument(
        "--catalog-config",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="one more of Iceberg's catalog properties; repeatable",
    )
    table.add_argument(
        "--partition-by",
        choices=list(PARTITIONINGS),
        help="of a new table, by the records' time in UTC (default: hour; none with --upsert-key)",
    )
    table.add_argument(
        "--target-file-size",
        metavar="SIZE",
        default="128MiB",
        help="what files are written and merged to (default: %(default)s)",
    )
    table.add_argument(
        "--upsert-key",
        metavar="key|FIELD",
        default="",
        help="one row for each key, the last one: the record's key, or a field of the value",
    )
    maintenance = made.add_argument_group("maintenance")
    maintenance.add_argument(
        "--maintain",
        action="store_true",
        help="merge small files, expire snapshots, remove orphans: at the end of --once, or between batches",
    )
    maintenance.add_argument(
        "--maintain-every", metavar="TIME", default="1h", help="of a stream (default: %(default)s)"
    )
    maintenance.add_argument(
        "--keep-snapshots", metavar="TIME", default="5d", help="snapshots that are older expire (default: %(default)s)"
    )
    maintenance.add_argument(
        "--orphans-older-than",
        metavar="TIME",
        default="3d",
        help="files that no snapshot names, 24h or more (default: %(default)s)",
    )
    maintenance.add_argument(
        "--retention", metavar="TIME", help="days of rows that are older leave the table (default: none do)"
    )
    add_shared_arguments(made, job=JOB, topics_required=False)
    return made


def parse(arguments: Sequence[str]) -> IcebergOptions | Target:
    """The table alone where only maintenance is asked for. Raises ConfigurationError; argparse ends the process with
    code 2 by itself.
    """
    found = parser().parse_args(arguments)
    name = TableName.parse(found.table)
    catalog = Catalog(
        name=name.catalog,
        kind=found.catalog_type,
        warehouse=found.warehouse,
        uri=found.catalog_uri,
        config=pairs("--catalog-config", found.catalog_config),
    )
    target = Target(table=name, catalog=catalog, settings=_settings(found))
    if found.topic:
        return IcebergOptions(target=target, **shared(found, job=JOB))
    if not found.maintain:
        raise ConfigurationError("--topic: name one or more, or give --maintain alone")
    if not catalog.commits_are_atomic:
        raise ConfigurationError(
            f"--maintain without --topic: a hadoop catalog ({catalog.warehouse}) has one writer: give --maintain to "
            "the job that writes, or keep the table in a rest or sql catalog"
        )
    return target


def run(options: IcebergOptions, spark: SparkSession, *, stop: StopRequest | None = None) -> Total:
    """Until what is there is taken (`once`), or until it is told to stop. Raises BmqError."""
    target = options.target
    if is_inferred(options) and target.settings.upsert_key:
        raise ConfigurationError(
            "--upsert-key: columns are not inferred where rows are found by a key: give --schema FILE_OR_URI"
        )
    # Before a table is made, whose format is for good: a run that reaches nobody makes none.
    Cluster(options).topics(options.topics)
    sink = open_sink(options, spark)
    folder = HadoopFolder(spark, options.checkpoint or f"{sink.table.location}/_bmq/checkpoint")
    checkpoint = Checkpoint(folder, table_id=sink.table.id, table=str(target.table))
    total = Stream(spark, options, sink, checkpoint, stop=stop).run()
    if options.once and target.settings.maintenance is not None:
        sink.maintain()
    say(total.summary(table=str(target.table), dead_letters=str(target.table.dead_letters)))
    return total


def open_sink(options: IcebergOptions, spark: SparkSession) -> IcebergSink:
    """The table, which is made if there is none, to add batches to. Raises BmqError."""
    target = options.target
    there = IcebergTable.open(spark, target.table)
    if there is not None:
        there.require_rows()
    have = there.columns() if there else None
    require_files(target.table, have)
    typing = typing_of(options, have)
    if not is_inferred(options):
        require_paths(options, typing, have)
    return IcebergSink(
        spark,
        target.table,
        typing,
        target.settings,
        infers=is_inferred(options),
        newest=newest_version(options) if typing.follows else None,
    )


def newest_version(options: IcebergOptions) -> NewestVersion:
    """What the columns of the table follow."""

    def check(typing: Typing, have: pa.Schema) -> None:
        require_paths(options, typing, have)
        merge(have, typing.schema, rules=iceberg_rules)
        options.target.settings.by_key(typing)

    return NewestVersion(options, check)


def require_paths(options: JobOptions, typing: Typing, have: pa.Schema | None) -> None:
    """Raises ConfigurationError where two fields of the values are one column for Iceberg, which says so of a statement
    with all of them.
    """
    both = collision(typing.columns, _values(have))
    if both is None:
        return
    schema = f"--schema {options.schema}" if options.schema else f"registry {options.registry}"
    how, another = (
        ("writes the names of both in Parquet files as", "another name")
        if both.in_files
        else ("joins names by dots", "a name without the dot")
    )
    raise ConfigurationError(
        f"{schema}: fields {_shown(both.one)} and {_shown(both.other)} are one column for Iceberg, which {how}: "
        f"{both.called}: give one of them {another}, leave it out of the schema, or keep the topic as a Parquet table "
        "(parquet.py)"
    )


def require_files(name: TableName, have: pa.Schema | None) -> None:
    """Raises ConfigurationError where the table has two columns of values that are one in Parquet files: nothing can be
    written to it, whatever records have.
    """
    values = _values(have)
    both = collision(values, values) if values is not None else None
    if both is None or not both.in_files:
        return
    raise ConfigurationError(
        f"--table {name}: its columns {_shown(both.one)} and {_shown(both.other)} of values are one in Parquet files, "
        f"{both.called}, so that no file can be written: drop the later one, of which no file has values: ALTER TABLE "
        f"{name} DROP COLUMN {quoted(('value', *both.other))}"
    )


def _values(have: pa.Schema | None) -> pa.DataType | None:
    """The type of values in a table; None where it has none yet."""
    return have.field("value").type if have is not None and "value" in have.names else None


def _shown(names: tuple[str, ...]) -> str:
    """From the inner to the outer."""
    return " in ".join(json.dumps(name, ensure_ascii=False) for name in reversed(names))


def run_maintenance(target: Target, spark: SparkSession) -> None:
    """Raises BmqError."""
    assert target.settings.maintenance is not None
    table = IcebergTable.open(spark, target.table)
    if table is None:
        raise ConfigurationError(f"--table {target.table}: not there: name one that the catalog has")
    require_own(table, target.settings.maintenance)
    say(f"{table.name}: {maintain(spark, table, target.settings.maintenance)}")
    if (dead := _beside(spark, target.table.dead_letters, DEAD_LETTERS, of=table.id)) is not None:
        say(f"{dead.name}: {maintain(spark, dead, target.settings.maintenance, below=table.places())}")
    if (tombstones := _beside(spark, target.table.tombstones, TOMBSTONES, of=table.id)) is not None:
        say(
            f"{tombstones.name}: {maintain(spark, tombstones, replace(target.settings.maintenance, retention_ms=None))}"
        )


def _beside(spark: SparkSession, name: TableName, beside: str, *, of: str) -> IcebergTable | None:
    """None where there is none, or where that one is somebody else's."""
    try:
        return IcebergTable.open_beside(spark, name, beside, of=of)
    except ConfigurationError:
        return None


def main(arguments: Sequence[str]) -> int:
    """Returns the exit code."""

    def job(given: Sequence[str]) -> None:
        options = parse(given)
        stop = StopRequest().listen()
        target = options if isinstance(options, Target) else options.target
        settings = dict(SESSION_SETTINGS) | target.catalog.settings(os.environ)
        event_log = None if isinstance(options, Target) else options.event_log
        spark = open_session(f"iceberg {target.table}", settings=settings, event_log=event_log)
        with kept_for(f"table {target.table}", spark):
            if isinstance(options, Target):
                run_maintenance(options, spark)
            else:
                run(options, spark, stop=stop.listen_in_java(spark))

    return ended(job, arguments)


def _settings(found: argparse.Namespace) -> TableSettings:
    if found.upsert_key and found.partition_by not in (None, "none"):
        raise ConfigurationError(
            f"--partition-by {found.partition_by}: with --upsert-key a row's time changes with every record of its "
            "key: leave the option out"
        )
    partition_by = found.partition_by or ("none" if found.upsert_key else "hour")
    if found.retention and partition_by == "none":
        raise ConfigurationError(
            f"--retention {found.retention}: only whole partitions leave a table: choose --partition-by hour or date"
        )
    target = size_bytes("--target-file-size", found.target_file_size)
    maintenance = Maintenance(
        tidies=found.maintain,
        target_file_size_bytes=target,
        keep_snapshots_ms=time_ms("--keep-snapshots", found.keep_snapshots),
        orphan_age_ms=time_ms("--orphans-older-than", found.orphans_older_than),
        retention_ms=time_ms("--retention", found.retention) if found.retention else None,
    )
    return TableSettings(
        partition_by=partition_by,
        upsert_key=found.upsert_key,
        target_file_size_bytes=target,
        maintenance=maintenance if maintenance.tidies or maintenance.retention_ms is not None else None,
        maintenance_every_ms=time_ms("--maintain-every", found.maintain_every),
    )

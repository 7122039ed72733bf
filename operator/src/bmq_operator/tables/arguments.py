"""The command lines of the jobs in the image of Spark, as `spark-apps` takes them. Pure."""

from typing import Final

from bmq_operator.tables.jobs import TableJob
from bmq_resources.iceberg import Iceberg

FILES: Final = "local:///opt/bmq/spark-apps"
SCHEMA_FOLDER: Final = "/etc/bmq-schema"
SCHEMA_FILES: Final = {"avro": "schema.avsc", "protobuf": "schema.proto"}
"""By their endings the jobs know what they are; that of json tells by itself."""


def write_file(job: TableJob) -> str:
    """Which file is run to write the table."""
    return f"{FILES}/{'parquet' if job.table.iceberg is None else 'iceberg'}.py"


def write_arguments(job: TableJob) -> list[str]:
    """What it is told."""
    table = job.table
    found = _options(
        ("--bootstrap-servers", job.bootstrap_servers),
        *(("--topic", topic) for topic in job.topics),
        ("--lane", table.lane),
        *_place(job, table.iceberg),
        ("--checkpoint", table.checkpoint),
        ("--trigger", "" if table.continuous is None else table.continuous.trigger),
        ("--format", table.format),
        ("--schema", schema_place(job)),
        ("--registry", table.registry),
        ("--message", table.message),
        ("--key-format", table.key_format),
        ("--target-file-size", table.target_file_size),
        ("--retention", table.retention),
        ("--source", table.source),
        ("--store", job.cluster_store if table.source == "bmq" else ""),
        ("--starting-offsets", table.starting_offsets),
        ("--max-records-per-batch", str(table.max_records_per_batch)),
        ("--group", table.group),
        *(("--consumer-config", f"{key}={value}") for key, value in sorted(table.consumer_config.items())),
    )
    flags = {
        "--once": table.continuous is None,
        "--accept-loss": table.accept_loss,
        "--maintain": table.iceberg is not None and table.iceberg.maintain,
    }
    return [*found, *(flag for flag, is_set in flags.items() if is_set)]


def compact_arguments(job: TableJob) -> list[str]:
    """What the run that merges small files is told. Retention too: a quiet topic's job does not look at it."""
    table, compact = job.table, job.table.compact
    return _options(
        ("--output", job.output),
        ("--target-file-size", table.target_file_size),
        ("--min-files", str(compact.min_files)),
        ("--older-than", compact.older_than),
        ("--vacuum-older-than", compact.vacuum_older_than),
        ("--retention", table.retention),
    )


def schema_place(job: TableJob) -> str:
    """Where the schema is found by a run; empty: there is none."""
    schema = job.table.value_schema
    if schema is None:
        return ""
    if schema.uri:
        return schema.uri
    return f"{SCHEMA_FOLDER}/{SCHEMA_FILES.get(job.table.format, 'schema')}"


def _place(job: TableJob, iceberg: Iceberg | None) -> list[tuple[str, str]]:
    if iceberg is None:
        return [("--output", job.output), ("--partition-by", job.table.partition_by)]
    return [
        ("--table", iceberg.table),
        ("--catalog-type", iceberg.catalog_type),
        ("--catalog-uri", iceberg.catalog_uri),
        ("--warehouse", iceberg.warehouse),
        # Rows of a key are found wherever they are, so a table with one is not parted by time.
        ("--partition-by", "" if iceberg.upsert_key else job.table.partition_by),
        ("--upsert-key", iceberg.upsert_key),
    ]


def _options(*given: tuple[str, str]) -> list[str]:
    """Those that have a value, in one word with it: a value may begin with a dash."""
    return [f"{name}={value}" for name, value in given if value]

"""The command lines of the jobs in the image of Spark, as `spark-apps` takes them. Pure."""

from typing import Final

from bmq.resources.tables import Iceberg
from bmq_operator.tables.jobs import TableJob

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
    found = ["--bootstrap-servers", job.bootstrap_servers]
    for topic in job.topics:
        found += ["--topic", topic]
    found += _option("--lane", table.lane)
    found += _place(job, table.iceberg)
    found += _option("--checkpoint", table.checkpoint)
    found += ["--once"] if table.continuous is None else ["--trigger", table.continuous.trigger]
    found += ["--format", table.format]
    found += _option("--schema", schema_place(job)) + _option("--registry", table.registry) + _option("--message", table.message)
    found += ["--key-format", table.key_format, "--target-file-size", table.target_file_size]
    found += _option("--retention", table.retention)
    found += ["--source", table.source]
    if table.source == "bmq":
        found += ["--store", job.cluster_store]
    found += ["--starting-offsets", table.starting_offsets, "--max-records-per-batch", str(table.max_records_per_batch)]
    found += _option("--group", table.group)
    found += ["--accept-loss"] if table.accept_loss else []
    for key, value in sorted(table.consumer_config.items()):
        found += ["--consumer-config", f"{key}={value}"]
    return found


def compact_arguments(job: TableJob) -> list[str]:
    """What the run that merges small files is told."""
    compact = job.table.compact
    return [
        *("--output", job.output),
        *("--target-file-size", job.table.target_file_size),
        *("--min-files", str(compact.min_files)),
        *("--older-than", compact.older_than),
        *("--vacuum-older-than", compact.vacuum_older_than),
    ]


def schema_place(job: TableJob) -> str:
    """Where the schema is found by a run; empty: there is none."""
    schema = job.table.value_schema
    if schema is None:
        return ""
    if schema.uri:
        return schema.uri
    return f"{SCHEMA_FOLDER}/{SCHEMA_FILES.get(job.table.format, 'schema')}"


def _place(job: TableJob, iceberg: Iceberg | None) -> list[str]:
    partition_by = ["--partition-by", job.table.partition_by]
    if iceberg is None:
        return ["--output", job.output, *partition_by]
    found = ["--table", iceberg.table, "--catalog-type", iceberg.catalog_type]
    found += _option("--catalog-uri", iceberg.catalog_uri) + _option("--warehouse", iceberg.warehouse)
    if iceberg.upsert_key:
        # Rows of a key are found wherever they are, so by default they are not parted by time.
        found += ["--upsert-key", iceberg.upsert_key]
    else:
        found += partition_by
    return found + (["--maintain"] if iceberg.maintain else [])


def _option(name: str, value: str) -> list[str]:
    return [name, value] if value else []

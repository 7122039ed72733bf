"""How topics become a table: what a Topic's `parquet` and a ParquetSink have in common.

The words are those of the commands in `spark-apps`, which the operator has run by the Spark Operator.
"""

from typing import Final, Literal

from pydantic import Field

from bmq_resources.base import OBJECT_NAME_OR_NONE, Part, rule, rules
from bmq_resources.iceberg import Iceberg
from bmq_resources.pods import Placement
from bmq_resources.spark import SparkResources
from bmq_resources.texts import SettingsMap
from bmq_resources.uris import FILE_RULE, HTTP_RULE, URI_LENGTH_MAX, folder

CRON_PATTERN: Final = (
    r"^(@(yearly|annually|monthly|weekly|daily|midnight|hourly)|@every [1-9][0-9hms]{0,15}|[^ ]+( [^ ]+){4})$"
)
DURATION_PATTERN: Final = r"^[1-9][0-9]{0,5}[smhd]$"
CONSUMER_NAMES_RULE: Final = "self.all(name, name.matches('^[A-Za-z0-9._-]+$'))"
JOBS_OWN: Final = tuple(
    prefix + name
    for prefix in ("", "kafka.")
    for name in (
        "bootstrap.servers",
        "group.id",
        "auto.offset.reset",
        "enable.auto.commit",
        "client.id",
        "isolation.level",
    )
)
"""Settings of Kafka's consumer that a job makes itself, by both names that it takes."""
JOBS_OWN_RULE: Final = f"!self.exists(name, name in {list(JOBS_OWN)})"


class ConfigMapKey(Part):
    """A key of a ConfigMap in the resource's namespace."""

    name: str = Field(
        default="",
        max_length=253,
        pattern=OBJECT_NAME_OR_NONE,
        description="The ConfigMap, with the label bmq.io/use: allowed, or one that the chart allows. Empty: none.",
    )
    key: str = Field(
        default="schema", max_length=253, pattern=r"^[-._a-zA-Z0-9]+$", description="Under which key it is."
    )


class ValueSchema(
    Part,
    json_schema_extra=rules(
        rule(
            "(self.text != '' ? 1 : 0) + (self.configMapKeyRef.name != '' ? 1 : 0) + (self.uri != '' ? 1 : 0) == 1",
            "schema is text, configMapKeyRef or uri: write one of them, and leave the others out",
        )
    ),
):
    """Where the schema of values comes from."""

    text: str = Field(
        default="",
        max_length=131_072,
        description="The schema itself: of avro an Avro schema, of protobuf a .proto file, of json a JSON Schema "
        "or Spark's DDL (id BIGINT).",
    )
    config_map_key_ref: ConfigMapKey = Field(default=ConfigMapKey(), description="A ConfigMap that has it.")
    uri: str = Field(
        default="",
        max_length=URI_LENGTH_MAX,
        description="A file in a bucket that has it, for example s3a://bucket/schemas/order.avsc.",
        json_schema_extra=rules(
            rule(FILE_RULE, "schema.uri is a file in a bucket: write s3a://BUCKET/FILE, or use text or configMapKeyRef")
        ),
    )


class Continuous(Part):
    """A stream that never ends."""

    trigger: str = Field(
        default="1m",
        max_length=16,
        pattern=DURATION_PATTERN,
        description="How often what came since is written: 30s, 1m, 1h.",
    )


class Compact(Part):
    """Small files are merged by runs of their own. Readers see either the small ones or the merged one."""

    mode: Literal["Auto", "Always", "Never"] = Field(
        default="Auto",
        description="Auto: of a table that is written continuously, and gets files with each trigger. Always: of "
        "any. Never: of none.",
    )
    schedule: str = Field(
        default="17 * * * *", max_length=128, pattern=CRON_PATTERN, description="When, as cron has it, in `timeZone`."
    )
    min_files: int = Field(
        default=4, ge=2, le=10_000, description="From how many small files on those of a partition are merged."
    )
    older_than: str = Field(
        default="1h",
        max_length=16,
        pattern=DURATION_PATTERN,
        description="How old files have to be: the newest partitions still get some.",
    )
    vacuum_older_than: str = Field(
        default="1h",
        max_length=16,
        pattern=DURATION_PATTERN,
        description="How long replaced files stay, for readers that began before.",
    )


class StoreAccess(Part):
    """Keys to the bucket, and where it is."""

    secret_name: str = Field(
        default="",
        max_length=253,
        pattern=OBJECT_NAME_OR_NONE,
        description="A Secret of the resource's namespace, with the label bmq.io/use: allowed, or one that the "
        "chart allows. Empty: the Cluster's own keys, where it is in the same namespace and has any on "
        "s3://; else the pods' own identity is what the store knows.",
    )
    access_key_id_key: str = Field(
        default="AWS_ACCESS_KEY_ID", min_length=1, max_length=253, description="Under which key the access key's id is."
    )
    secret_access_key_key: str = Field(
        default="AWS_SECRET_ACCESS_KEY", min_length=1, max_length=253, description="Under which key the secret key is."
    )
    endpoint: str = Field(
        default="",
        max_length=URI_LENGTH_MAX,
        description="The store's address where it is not AWS, for example http://minio.storage.svc:9000. Empty: "
        "the Cluster's, with its keys.",
        json_schema_extra=rules(
            rule(HTTP_RULE, "store.endpoint is an address: write http://HOST:PORT or https://HOST")
        ),
    )
    region: str = Field(
        default="",
        max_length=64,
        pattern=r"^[a-z0-9-]*$",
        description="Its region. Empty: the Cluster's, with its keys; else us-east-1.",
    )


class Table(
    Part,
    json_schema_extra=rules(
        rule(
            "(self.output != '') != has(self.iceberg)",
            "the table is at output or in iceberg: write one of them, and leave the other out",
        ),
        rule(
            "(self.schedule != '') != has(self.continuous)",
            "the table is written by a schedule or is continuous: write one, and leave the other out",
        ),
        rule(
            "!(self.format in ['avro', 'protobuf']) || has(self.schema) || self.registry != ''",
            "format avro and protobuf need a schema: write schema or registry",
        ),
        rule(
            "!(self.format in ['bytes', 'string']) || !has(self.schema) && self.registry == ''",
            "format bytes and string have no schema: leave schema and registry out, or write json, avro or protobuf",
        ),
        rule(
            "self.message == '' || self.format == 'protobuf'",
            "message is for protobuf alone: leave it out, or write format: protobuf",
        ),
        rule(
            "self.format != 'json' || self.registry == ''",
            "registry is for avro and protobuf alone: leave it out, or write another format",
        ),
        rule(
            "!has(self.iceberg) || self.retention == '' || (self.iceberg.upsertKey == '' && self.partitionBy != "
            "'none')",
            "retention takes whole partitions out of an Iceberg table, which has none by upsertKey or partitionBy "
            "none: leave it out, or write partitionBy hour or date and no upsertKey",
        ),
        rule(
            "!has(self.iceberg) || self.iceberg.upsertKey == '' || self.format != 'json' || has(self.schema)",
            "iceberg.upsertKey with format json needs a schema, as columns are not inferred then: write schema",
        ),
        rule(
            "!has(self.iceberg) || self.iceberg.upsertKey in ['', 'key'] || !(self.format in ['bytes', 'string'])",
            "iceberg.upsertKey names a field, and values of format bytes and string have none: write upsertKey "
            "key, or another format",
        ),
    ),
):
    """A table that Spark writes from topics."""

    output: str = Field(
        default="",
        max_length=URI_LENGTH_MAX,
        description="Where the table is, for example s3a://bucket/tables/orders. Nothing else may be there.",
        json_schema_extra=folder("output"),
    )
    iceberg: Iceberg | None = Field(default=None, description="An Iceberg table in place of `output`.")
    checkpoint: str = Field(
        default="",
        max_length=URI_LENGTH_MAX,
        description="Where Spark keeps how far it is. Empty: _bmq/checkpoint below the output. Of several tables "
        "each has a folder of it.",
        json_schema_extra=folder("checkpoint"),
    )
    schedule: str = Field(
        default="",
        max_length=128,
        pattern=f"^$|{CRON_PATTERN}",
        description='When a run writes all that came since the last one, as cron has it, for example "0 * * * *". '
        "A run that goes on is waited for.",
    )
    time_zone: str = Field(
        default="UTC",
        max_length=64,
        pattern=r"^[A-Za-z][A-Za-z0-9_+/-]*$",
        description="That of the schedules, for example Europe/Berlin.",
    )
    continuous: Continuous | None = Field(
        default=None, description="A stream in place of `schedule`; {} is one with a trigger of a minute."
    )
    format: Literal["bytes", "string", "json", "avro", "protobuf"] = Field(
        default="bytes",
        description="What values are. Those that are not go to the table's dead letters, with the reason.",
    )
    value_schema: ValueSchema | None = Field(
        default=None,
        alias="schema",
        description="The schema of values. Without one that of json is inferred, and grows with what comes.",
    )
    registry: str = Field(
        default="",
        max_length=URI_LENGTH_MAX,
        description="A schema registry that avro and protobuf values refer to, for example http://registry:8081.",
        json_schema_extra=rules(rule(HTTP_RULE, "registry is an address: write http://HOST:PORT or https://HOST")),
    )
    message: str = Field(
        default="",
        max_length=512,
        pattern=r"^[A-Za-z0-9_.]*$",
        description="Of protobuf: the full name of the message that values are.",
    )
    key_format: Literal["bytes", "string"] = Field(default="bytes", description="What keys are.")
    partition_by: Literal["hour", "date", "none"] = Field(
        default="hour", description="How the table is parted, by the records' timestamps in UTC."
    )
    target_file_size: str = Field(
        default="128MiB",
        max_length=16,
        pattern=r"^[1-9][0-9]{0,3}(MiB|GiB)$",
        description="How large files are to become.",
    )
    retention: str = Field(
        default="",
        max_length=16,
        pattern=r"^([1-9][0-9]{0,4}[hd])?$",
        description="How long records stay in the table, for example 30d. Empty: for ever. Whole partitions leave: "
        "an Iceberg table needs some.",
    )
    source: Literal["kafka", "bmq"] = Field(
        default="kafka",
        description="kafka: from the brokers, by the Kafka protocol. bmq: from the Cluster's bucket; the keys have "
        "to open it.",
    )
    starting_offsets: Literal["earliest", "latest"] = Field(default="earliest", description="Where a new table begins.")
    lane: str = Field(
        default="",
        max_length=32,
        pattern=r"^([a-z0-9]([-a-z0-9]{0,30}[a-z0-9])?)?$",
        description="What was written in this lane, in place of the base's records.",
    )
    group: str = Field(
        default="",
        max_length=249,
        description="The consumer group by which the table's lag is seen. Of several each has its topic appended. "
        "Empty: parquet-TOPIC.",
    )
    max_records_per_batch: int = Field(
        default=500_000, ge=1, le=1_000_000_000_000, description="Records of a batch at most, of all partitions."
    )
    accept_loss: bool = Field(
        default=False,
        description="true: goes on where a topic was made anew, or records were deleted before they were read. "
        "false: that is an error.",
    )
    consumer_config: SettingsMap = Field(
        default={},
        max_length=64,
        description="Further settings of the Kafka consumer, by Kafka's names, of those that the chart allows; up to "
        "32,768 characters in all.",
        json_schema_extra=rules(
            rule(
                JOBS_OWN_RULE,
                "consumerConfig: servers, group, first offsets, commits, client and isolation are the job's: leave "
                "them out",
            ),
            rule(
                CONSUMER_NAMES_RULE,
                "consumerConfig: names are of letters, digits, dots, dashes and underscores: correct the name",
            ),
        ),
    )
    compact: Compact = Field(
        default=Compact(), description="When small files are merged. Of an Iceberg table `maintain` says so instead."
    )
    store: StoreAccess = Field(default=StoreAccess(), description="Keys to the bucket, and where it is.")
    resources: SparkResources = Field(default=SparkResources(), description="What a run may use.")
    placement: Placement = Field(default=Placement(), description="Where driver and executors run.")
    spark_conf: SettingsMap = Field(
        default={},
        max_length=64,
        description="Further settings of Spark, of those that the chart allows, for example "
        'spark.sql.shuffle.partitions: "8"; up to 32,768 characters in all.',
        json_schema_extra=rules(
            rule("self.all(name, name.startsWith('spark.'))", "sparkConf: names begin with spark.: correct the name")
        ),
    )
    image: str = Field(
        default="",
        max_length=500,
        pattern=r"^[^ ]*$",
        description="Their image, one that the chart allows. Empty: the chart's `spark.image`.",
    )
    service_account: str = Field(
        default="",
        max_length=253,
        pattern=OBJECT_NAME_OR_NONE,
        description="The driver's ServiceAccount, with the label bmq.io/use: allowed, or one that the chart "
        "allows. Empty: the chart's.",
    )
    suspend: bool = Field(default=False, description="true: nothing runs, and the place in the topics is kept.")


class TableStatus(Part):
    """What has become of a table's runs."""

    output: str = Field(default="", description="The table: where it is, or its name in the Iceberg catalog.")

    kind: str = Field(default="", description="SparkApplication or ScheduledSparkApplication; empty: neither is there.")
    application: str = Field(default="", description="Its name.")
    state: str = Field(default="", description="What the Spark Operator says of the run that goes on, or was last.")
    driver: str = Field(default="", description="The pod of that run's driver.")
    last_run: str = Field(default="", description="When the last run began (RFC 3339).")
    last_success: str = Field(default="", description="When a run ended well last; of a stream since when it runs.")
    next_run: str = Field(default="", description="When the next run begins, of a schedule or after a failure.")
    failures: int = Field(default=0, ge=0, description="How often in a row the operator had to begin anew.")
    last_error: str = Field(default="", description="What the last run that failed said.")
    lag: int = Field(default=-1, ge=-1, description="Records that are not in the table yet; -1: not known.")

"""Topics as a stream of records of one shape, whether brokers serve them (Spark's Kafka connector) or the bucket does
(format `bmq`).
"""

from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

from bmq_spark.batches.places import Places, to_json
from bmq_spark.options import JobOptions

COLUMNS: Final = ("key", "value", "headers", "topic", "partition", "offset", "timestamp", "timestampType", "lane")
TIME_FIRST_MS: Final = -2_177_452_800_000
"""The year 1901. Spark's Kafka connector reads times by Java's old calendar, which has other days before 1582 and, in
most zones, other minutes before 1900. There is no way back from that: two days of it may become one.
"""
TIME_LAST_MS: Final = 253_402_300_799_999
"""The end of the year 9999."""


def records_stream(spark: SparkSession, options: JobOptions, initial: Places) -> DataFrame:
    """The stream from these places on, which name every partition that there is now.

    Where records are gone it fails rather than to pass over them. A time that is not the same by both sources, or that
    no calendar of SQL has, becomes the first or the last one: folders, partitions and readers know no others.
    """
    frame = _kafka(spark, options, initial) if options.source == "kafka" else _bmq(spark, options, initial)
    # The lane that is read in, also of what it reads of the base: the brokers do not say which records those are.
    frame = frame.withColumn("lane", sql.lit(options.lane))
    # As numbers: a literal of a time goes through that calendar, too.
    first, last = (sql.timestamp_millis(sql.lit(ms)) for ms in (TIME_FIRST_MS, TIME_LAST_MS))
    within = sql.greatest(first, sql.least(last, sql.col("timestamp")))
    return frame.withColumn("timestamp", within).select(*COLUMNS)


def _kafka(spark: SparkSession, options: JobOptions, initial: Places) -> DataFrame:
    reader = spark.readStream.format("kafka").options(
        **{
            "kafka.bootstrap.servers": options.bootstrap_servers,
            "kafka.client.id": options.client_id,
            "kafka.default.api.timeout.ms": "30000",
            "kafka.request.timeout.ms": "20000",
            "subscribe": ",".join(options.topics),
            "startingOffsets": to_json(initial),
            "includeHeaders": "true",
            "failOnDataLoss": "true",
            "maxOffsetsPerTrigger": str(options.max_records_per_batch),
            "minPartitions": str(spark.sparkContext.defaultParallelism),
            "groupIdPrefix": f"{options.group}-spark",
        }
    )
    return reader.options(**{f"kafka.{key}": value for key, value in options.consumer_config.items()}).load()


def _bmq(spark: SparkSession, options: JobOptions, initial: Places) -> DataFrame:
    from bmq_spark.source import register

    register(spark)
    return spark.readStream.format("bmq").options(**bmq_options(options, initial)).load()


def bmq_options(options: JobOptions, initial: Places) -> dict[str, str]:
    """What the source is told: segments from the store, and only what is in none yet from the brokers."""
    return {
        "store": options.store or "",
        "topic": ",".join(options.topics),
        "lane": options.lane,
        "tail": "protocol",
        "kafka.bootstrap.servers": options.bootstrap_servers,
        "startingOffsets": to_json(initial),
        "maxRecordsPerTrigger": str(options.max_records_per_batch),
    }

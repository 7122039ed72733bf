"""Sessions counted from a topic: how often each user came by, and for how long, as an Iceberg table.

Values are JSON objects with a `user`; a session is over when a user was away for `--gap`, and counts once no record can
be late for it any more. A batch of finished sessions is one snapshot, whose summary names the batch: one that comes
again after a failure is known, and left out.
"""

import argparse
import json
from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

from bmq_spark.session import open_session

CATALOG = "lake"
TABLE = f"{CATALOG}.events.sessions"
CREATE = (
    f"CREATE TABLE IF NOT EXISTS {TABLE} (user string, began timestamp, ended timestamp, records bigint) "
    "USING iceberg PARTITIONED BY (days(began))"
)


def sessions(records: DataFrame, *, gap: str, late: str) -> DataFrame:
    """One row for each session that is over: of the columns of TABLE."""
    user = sql.get_json_object(sql.col("value").cast("string"), "$.user").alias("user")
    events = records.select(user, "timestamp").filter("user IS NOT NULL").withWatermark("timestamp", late)
    counted = events.groupBy("user", sql.session_window("timestamp", gap).alias("session")).agg(
        sql.count("*").alias("records")
    )
    return counted.select(
        "user", sql.col("session.start").alias("began"), sql.col("session.end").alias("ended"), "records"
    )


class Sessions:
    """The table, to which each batch of a query is added once."""

    def __init__(self, spark: SparkSession) -> None:
        spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {TABLE.rpartition('.')[0]}")
        spark.sql(CREATE)

    def add(self, batch: DataFrame, number: int) -> None:
        """For foreachBatch. Spark may call it again with a batch that it does not know to be done."""
        spark = batch.sparkSession
        query = spark.sparkContext.getLocalProperty("sql.streaming.queryId")
        done = spark.sql(
            f"SELECT summary['batch'] AS batch FROM {TABLE}.snapshots WHERE summary['query'] = '{query}'"
        ).collect()
        if all(number > int(row["batch"]) for row in done):
            batch.writeTo(TABLE).option("snapshot-property.query", query).option(
                "snapshot-property.batch", str(number)
            ).append()


def settings(warehouse: str) -> dict[str, str]:
    """Spark's, of the catalog that TABLE is in. Nothing of it is cached: Sessions has to see the newest snapshot."""
    catalog = f"spark.sql.catalog.{CATALOG}"
    return {
        catalog: "org.apache.iceberg.spark.SparkCatalog",
        f"{catalog}.type": "hadoop",
        f"{catalog}.warehouse": warehouse,
        f"{catalog}.cache-enabled": "false",
    }


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Sessions counted from a topic into an Iceberg table")
    parser.add_argument("--bootstrap-servers", default="127.0.0.1:9092")
    parser.add_argument("--topic", default="clicks")
    parser.add_argument("--warehouse", required=True, help="a folder, or s3a://BUCKET/PREFIX")
    parser.add_argument("--checkpoint", required=True, help="a folder, or s3a://BUCKET/PREFIX")
    parser.add_argument("--gap", default="30 minutes", help="a session ends when a user is away for so long")
    parser.add_argument("--late", default="10 minutes", help="records that are later than this do not count")
    parser.add_argument("--once", action="store_true", help="take what is there, then end")
    return parser.parse_args(arguments)


def run(spark: SparkSession, options: argparse.Namespace) -> None:
    """Until what is there is counted (--once), or for ever."""
    records = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", options.bootstrap_servers)
        .option("subscribe", options.topic)
        .option("startingOffsets", "earliest")
        .load()
    )
    stream = sessions(records, gap=options.gap, late=options.late).writeStream.option(
        "checkpointLocation", options.checkpoint
    )
    stream = stream.trigger(availableNow=True) if options.once else stream.trigger(processingTime="1 minute")
    query = stream.outputMode("append").foreachBatch(Sessions(spark).add).start()
    query.awaitTermination()
    print(json.dumps({"sessions": spark.table(TABLE).count()}))


def main() -> None:
    options = parse()
    spark = open_session("session counts", settings=settings(options.warehouse))
    try:
        run(spark, options)
    finally:
        spark.stop()


if __name__ == "__main__":
    main()

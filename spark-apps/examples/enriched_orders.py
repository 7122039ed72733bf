"""Orders from a topic, joined with a dimension that lies in Parquet files: each order with its customer's name and
country.

The dimension is read anew for every batch, so a customer who was added meanwhile is found. An order of an unknown
customer is kept, without a name. Spark's own Parquet sink keeps the result exactly once, by its log in
OUTPUT/_spark_metadata.
"""

import argparse
import json
from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

from bmq_spark.session import open_session

ORDER = "order_id bigint, customer_id bigint, amount decimal(12,2)"
CUSTOMER = "customer_id bigint, name string, country string"


def enriched(records: DataFrame, customers: DataFrame) -> DataFrame:
    """Orders with `name` and `country`, and the day that they came in; values that are no orders are left out."""
    order = sql.from_json(sql.col("value").cast("string"), ORDER).alias("order")
    orders = records.select(order, "timestamp").select("order.*", "timestamp").filter("order_id IS NOT NULL")
    return orders.join(sql.broadcast(customers), "customer_id", "left").withColumn("day", sql.to_date("timestamp"))


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Orders from a topic joined with a Parquet dimension")
    parser.add_argument("--bootstrap-servers", default="127.0.0.1:9092")
    parser.add_argument("--topic", default="orders")
    parser.add_argument(
        "--customers",
        required=True,
        help="Parquet files with customer_id, name, country: a folder, or s3a://BUCKET/PREFIX",
    )
    parser.add_argument("--output", required=True, help="a folder, or s3a://BUCKET/PREFIX")
    parser.add_argument("--checkpoint", required=True, help="a folder, or s3a://BUCKET/PREFIX")
    parser.add_argument("--once", action="store_true", help="take what is there, then end")
    return parser.parse_args(arguments)


def run(spark: SparkSession, options: argparse.Namespace) -> None:
    """Until what is there is joined (--once), or for ever."""
    records = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", options.bootstrap_servers)
        .option("subscribe", options.topic)
        .option("startingOffsets", "earliest")
        .load()
    )
    customers = spark.read.schema(CUSTOMER).parquet(options.customers)
    stream = enriched(records, customers).writeStream.option("checkpointLocation", options.checkpoint)
    stream = stream.trigger(availableNow=True) if options.once else stream.trigger(processingTime="1 minute")
    query = stream.outputMode("append").partitionBy("day").format("parquet").start(options.output)
    query.awaitTermination()
    rows = spark.read.parquet(options.output).agg(sql.count("*"), sql.count("name")).collect()[0]
    print(json.dumps({"orders": rows[0], "with a customer": rows[1]}))


def main() -> None:
    options = parse()
    spark = open_session("enriched orders")
    try:
        run(spark, options)
    finally:
        spark.stop()


if __name__ == "__main__":
    main()

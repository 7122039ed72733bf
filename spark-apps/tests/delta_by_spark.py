"""What Spark's own Delta reads of a table, as JSON lines by offset: `python delta_by_spark.py JARS FOLDER…`."""

import json
import sys
from pathlib import Path

from pyspark.sql import SparkSession

SETTINGS = {
    "spark.master": "local[1]",
    "spark.driver.memory": "512m",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.databricks.delta.snapshotPartitions": "1",
}


def main(jars: str, *folders: str) -> None:
    builder = SparkSession.builder.config("spark.jars", ",".join(str(jar) for jar in sorted(Path(jars).glob("*.jar"))))
    for key, value in SETTINGS.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    for folder in folders:
        rows = spark.read.format("delta").load(folder).select("offset", "value", "date", "hour").orderBy("offset")
        print(json.dumps([row.asDict(recursive=True) for row in rows.collect()], default=str))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])

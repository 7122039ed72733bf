"""What Spark's own Delta reads of a table, as JSON lines, rows by offset and counts by filter: `python
delta_by_spark.py JARS FOLDER…`.
"""

import json
import sys
from functools import reduce
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

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
FILTERS = (
    "key IS NULL", "topic = 'orders'", "partition = 0", "offset = 1", "lane = ''", "size(headers) >= 0", "timestamp >= '2026-01-01'",
    "date = '2026-01-01'", "hour = 0", "value.byte = 1000", "value.int > 5", "value.single > 2", "isnan(value.single)", "value.count >= 0.5",
    "value.money > 100", "value.list[0] > 100", "value.map['a'] = 5", "value.in.a > 6", "value.in.b = 'x'", "value.new IS NULL",
)  # fmt: skip
"""One or more for each column. What a filter finds, with files that it may pass over, is compared with what is counted
by looking at all rows."""


def main(jars: str, *folders: str) -> None:
    builder = SparkSession.builder.config("spark.jars", ",".join(str(jar) for jar in sorted(Path(jars).glob("*.jar"))))
    for key, value in SETTINGS.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    for folder in folders:
        table = spark.read.format("delta").load(folder)
        rows = table.select("offset", "value", "date", "hour").orderBy("offset")
        counts = table.selectExpr(*(f"count_if({filtered})" for filtered in FILTERS)).first()
        each = [table.where(filtered).selectExpr(f"{number} AS n") for number, filtered in enumerate(FILTERS)]
        counted = {row["n"]: row["count"] for row in reduce(DataFrame.unionAll, each).groupBy("n").count().collect()}
        found = [counted.get(number, 0) for number in range(len(FILTERS))]
        print(
            json.dumps(
                {"rows": [row.asDict(recursive=True) for row in rows.collect()], "found": found, "right": list(counts)},
                default=str,
            )
        )
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])

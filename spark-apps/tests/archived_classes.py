"""Does what most jobs of the tests do, and has the JVM archive the classes that it loaded for that: one that takes
them from the archive starts in two thirds of the time.
"""

import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from pyspark.sql import DataFrame
from quick_java import ARCHIVE, archiving_options

from bmq_spark.session import open_session


def main() -> int:
    """The exit code."""
    os.environ["JDK_JAVA_OPTIONS"] = archiving_options()
    with TemporaryDirectory() as folder:
        place = Path(folder)
        spark = open_session("classes", settings={"spark.master": "local[2]"})
        spark.range(100).selectExpr("id", "cast(id AS string) AS text").write.parquet(f"{place}/table")

        def add(batch: DataFrame, number: int) -> None:
            batch.selectExpr("id % 3 AS of", "text").groupBy("of").count().write.mode("append").json(f"{place}/counts")

        rows = spark.readStream.schema("id LONG, text STRING").parquet(f"{place}/table")
        stream = rows.writeStream.foreachBatch(add).option("checkpointLocation", f"{place}/checkpoint")
        stream.trigger(availableNow=True).start().awaitTermination()
        counted = spark.read.json(f"{place}/counts").count()
        gateway = spark.sparkContext._gateway
        spark.stop()
    assert counted == 3 and gateway is not None
    gateway.shutdown()
    gateway.proc.stdin.close()  # which ends it, and it writes the archive before
    ended = gateway.proc.wait(120)
    return ended if ended or ARCHIVE.exists() else 1


if __name__ == "__main__":
    sys.exit(main())

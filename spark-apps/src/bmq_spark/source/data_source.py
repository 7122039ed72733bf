"""The entry that Spark knows: `format("bmq")`, by its Python data source API.

Spark loads this in a new process for each query, to ask for the columns, before it loads it again to plan and to read.
So what only plans and reads is imported where it is needed: that halves the time to the first record.
"""

from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader

from bmq_spark.source.columns import spark_schema
from bmq_spark.source.options import parse_options
from bmq_spark.source.spark_zips import forget_importers

PUSHDOWN: str = "spark.sql.python.filterPushdown.enabled"


class BmqDataSource(DataSource):
    """Topics of bmq, read from their segments."""

    @classmethod
    def name(cls) -> str:
        """What `format` takes."""
        return "bmq"

    def schema(self) -> str:
        """The record's columns, or those of the option `columns`. Raises ConfigurationError."""
        forget_importers()
        return spark_schema(parse_options(self.options).columns)

    def reader(self, schema: Any) -> DataSourceReader:
        """For `spark.read`. Raises ConfigurationError."""
        from bmq_spark.source.batch import BatchReader

        return BatchReader(parse_options(self.options))

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        """For `spark.readStream`. Raises ConfigurationError."""
        from bmq_spark.source.stream import StreamReader

        return StreamReader(parse_options(self.options))


def register(spark: SparkSession) -> None:
    """Makes `format("bmq")` known to a session, and lets Spark hand its filters down to it."""
    spark.conf.set(PUSHDOWN, "true")
    spark.dataSource.register(BmqDataSource)

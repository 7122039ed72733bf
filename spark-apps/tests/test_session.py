"""The session that all tests share."""

from compat_server import Bmq
from conftest import Buckets
from pyspark.sql import SparkSession


def test_spark_writes_and_reads_a_bucket_and_reads_topics(spark: SparkSession, minio: Buckets, bmq: Bmq) -> None:
    uri = minio.location("session").hadoop("rows")
    spark.range(10).write.parquet(uri)
    assert spark.read.parquet(uri).count() == 10
    assert bmq.is_ready()

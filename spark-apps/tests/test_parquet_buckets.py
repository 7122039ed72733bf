import pytest
from compat_server import Bmq
from parquet_jobs import arguments, produce, topic_of
from pyspark.sql import SparkSession

from bmq_spark.errors import BmqError
from bmq_spark.jobs.parquet import parse, run
from bmq_spark.table import read


def test_table_and_checkpoint_may_be_in_a_bucket(bmq: Bmq, spark: SparkSession, minio: "object") -> None:
    topic = topic_of(bmq.servers)
    output = minio.location().uri.replace("s3://", "s3a://")  # type: ignore[attr-defined]
    options = parse(arguments(bmq.servers, output, topic))
    for first in (0, 100):
        produce(bmq.servers, topic, [b"%d" % number for number in range(first, first + 100)])
        assert run(options, spark).rows == 100
    assert sorted(int(bytes(row.value)) for row in read(spark, output).collect()) == list(range(200))


def test_a_bucket_that_refuses_stops_the_job_with_one_line(
    bmq: Bmq, spark: SparkSession, minio: "object", monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = topic_of(bmq.servers, partitions=1)
    output = minio.location("refused").uri.replace("s3://", "s3a://")  # type: ignore[attr-defined]
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "not-the-secret")
    with pytest.raises(BmqError) as refused:
        run(parse(arguments(bmq.servers, output, topic)), spark)
    line = str(refused.value)
    assert "\n" not in line
    assert "SignatureDoesNotMatch" in line or "credentials" in line or "403" in line, line

"""A job whose keys may not do all that it needs: over MinIO, with a user and policies of the test's own."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from compat_server import Bmq
from minio import MinioAdmin
from minio.credentials.providers import StaticProvider
from parquet_jobs import arguments, produce, topic_of
from parquet_process import batches, running
from pyspark.sql import SparkSession

from bmq_spark.errors import BmqError
from bmq_spark.jobs.parquet import parse, run
from bmq_spark.table import dataset

ALL, READS, WRITES = ("s3:*",), ("s3:GetObject", "s3:ListBucket", "s3:GetBucketLocation"), ("s3:PutObject",)
USER, SECRET = "engineer", "engineers-secret"


class Rights:
    """Of one user, on one bucket."""

    def __init__(self, port: int, keys: tuple[str, str]) -> None:
        self._admin = MinioAdmin(endpoint=f"127.0.0.1:{port}", credentials=StaticProvider(*keys), secure=False)
        self._admin.user_add(USER, SECRET)

    def give(self, actions: tuple[str, ...]) -> None:
        """These, and no others."""
        statement = {
            "Effect": "Allow",
            "Action": list(actions),
            "Resource": ["arn:aws:s3:::tables", "arn:aws:s3:::tables/*"],
        }
        self._admin.policy_add("engineers", policy={"Version": "2012-10-17", "Statement": [statement]})
        self._admin.policy_set("engineers", user=USER)


@pytest.fixture
def rights(minio: "Buckets", monkeypatch: pytest.MonkeyPatch) -> Iterator[Rights]:  # type: ignore[name-defined] # noqa: F821
    """This process and those that it starts have the user's keys, this process's Spark keeps its own."""
    found = Rights(minio.port, (minio.environment["AWS_ACCESS_KEY_ID"], minio.environment["AWS_SECRET_ACCESS_KEY"]))
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", USER)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{minio.port}")
    yield found


def numbers_in(table: str) -> list[int]:
    return sorted(int(value) for value in dataset(table).to_table(columns=["value"]).column("value").to_pylist())


@pytest.mark.timeout(600)
def test_a_job_without_rights_says_so_and_goes_on_when_it_has_them(
    bmq: Bmq, spark: SparkSession, rights: Rights, tmp_path: Path
) -> None:
    topic = topic_of(bmq.servers, partitions=1)
    table = f"s3a://tables/{topic}"
    here = parse([*arguments(bmq.servers, table, topic), "--checkpoint", str(tmp_path / "checkpoint")])
    produce(bmq.servers, topic, [b"%d" % number for number in range(100)])

    def refusal() -> str:
        with pytest.raises(BmqError) as refused:
            run(here, spark)
        line = str(refused.value)
        assert "\n" not in line and f"in s3://tables/{topic}/_bmq" in line
        assert "HTTP 403 AccessDenied: Access Denied: check the keys and their policy" in line
        return line

    rights.give(WRITES)
    assert refusal().startswith("self-test of the object store failed: get selftest/")
    rights.give(READS)
    assert refusal().startswith("self-test of the object store failed: create selftest/")
    rights.give(ALL)
    given = arguments(bmq.servers, table, topic, once=False)
    with running(given, tmp_path / "refused.log") as job:
        job.until_batches(table, 1)
        rights.give(READS)
        produce(bmq.servers, topic, [b"%d" % number for number in range(100, 200)])
        assert job.process.wait(240) == 1, job.said()[-3000:]
        (line,) = job.errors()
    assert (
        "AccessDenied" in line
        and f"tables/{topic}" in line
        and ("check the keys and their policy" in line or "what they may do" in line)
    ), line
    assert batches(table) == 1
    assert numbers_in(table) == list(range(100))
    rights.give(ALL)
    with running([*given, "--once"], tmp_path / "goes-on.log") as job:
        assert job.process.wait(240) == 0, job.said()[-3000:]
    assert numbers_in(table) == list(range(200))

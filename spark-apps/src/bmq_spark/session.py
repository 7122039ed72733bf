"""The SparkSession of a job: what spark-submit made, or else one on this machine with the jars that `tools/get` put beside the project.

Spark reaches buckets (checkpoints) by S3A, which gets endpoint and region from the same variables as everything else here.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from bmq_spark.errors import ConfigurationError

JARS: Final = ("spark-jars", "iceberg-jars")


def open_session(name: str, *, settings: Mapping[str, str] | None = None) -> SparkSession:
    """A session called `name`; `settings` are Spark's and win over the defaults here, but not over spark-submit's.

    Raises ConfigurationError where no jars are to be found.
    """
    builder = SparkSession.builder.appName(name)
    under_submit = "PYSPARK_GATEWAY_PORT" in os.environ
    defaults = _s3a() | {"spark.sql.session.timeZone": "UTC", "spark.sql.execution.arrow.maxRecordsPerBatch": "20000"}
    if not under_submit:
        defaults |= _local()
    for key, value in (defaults | dict(settings or {})).items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel(os.environ.get("BMQ_SPARK_LOG", "ERROR"))
    return session


def _local() -> Mapping[str, str]:
    return {
        "spark.master": os.environ.get("SPARK_MASTER", "local[*]"),
        "spark.jars": ",".join(_jars()),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": str(os.cpu_count() or 2),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
    }


def _jars() -> list[str]:
    tools = Path(os.environ.get("TOOLS") or Path(__file__).resolve().parents[3] / ".cache" / "tools")
    jars = [str(jar) for folder in JARS for jar in sorted((tools / folder).glob("*.jar"))]
    if not jars:
        raise ConfigurationError(f"jars {tools}/{JARS[0]}: not there: run `make spark`, or name another folder by TOOLS")
    return jars


def _s3a() -> dict[str, str]:
    environment = os.environ
    endpoint = environment.get("AWS_ENDPOINT_URL_S3") or environment.get("AWS_ENDPOINT_URL")
    settings = {"spark.hadoop.fs.s3a.endpoint.region": environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION") or "us-east-1"}
    if endpoint:
        settings |= {"spark.hadoop.fs.s3a.endpoint": endpoint, "spark.hadoop.fs.s3a.path.style.access": "true"}
    return settings

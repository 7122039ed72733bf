"""The SparkSession of a job: what spark-submit made, or else one on this machine with the jars that `tools/get` put
beside the project.

Spark reaches buckets (checkpoints) by S3A, which gets endpoint and region from the same variables as everything else
here.
"""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from bmq_spark.errors import MORE_MEMORY, ConfigurationError, JobStopped

JARS: Final = ("spark-jars", "iceberg-jars")
ARROW_BATCH_BYTES: Final = 16 << 20
"""What a Python worker is handed at once; a single record may be larger."""
SESSION_GONE: Final = (Py4JError, PySparkException, OSError, EOFError)
"""What a call raises whose Java has ended, or is ending."""
_SAID_MAX: Final = 200
_ENDS_S: Final = 5
"""A process that was killed gives its connections up first, then its memory."""
_LITERAL: Final = {"spark.sql.variable.substitute": "false"}
"""Else Spark puts the driver's environment in the place of `${env:…}` in every statement, and names that records and
schemas bring are in some."""
_QUIET: Final = Path(__file__).with_name("log4j2.properties")


def open_session(name: str, *, settings: Mapping[str, str] | None = None, event_log: str | None = None) -> SparkSession:
    """A session called `name`; `settings` are Spark's and win over the defaults here. `event_log` is a folder for
    Spark's history server.

    Raises ConfigurationError where no jars are to be found.
    """
    builder = SparkSession.builder.appName(name)
    under_submit = "PYSPARK_GATEWAY_PORT" in os.environ
    defaults = _s3a() | {
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "20000",
        "spark.sql.execution.arrow.maxBytesPerBatch": str(ARROW_BATCH_BYTES),
    }
    if event_log:
        defaults |= {"spark.eventLog.enabled": "true", "spark.eventLog.dir": _folder(event_log)}
    if not under_submit:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # else workers are whatever python3 the PATH has
        defaults |= _local()
    for key, value in (defaults | dict(settings or {}) | _LITERAL).items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel(os.environ.get("BMQ_SPARK_LOG", "FATAL"))
    # It would print a traceback for Java's end, which is told by whoever needed Java.
    setattr(session.sparkContext._accumulatorServer, "handle_error", lambda *_: None)  # noqa: B010
    return session


@contextmanager
def kept_for(job: str, spark: SparkSession) -> Iterator[None]:
    """The session is there for what is done within, and stopped afterwards, which hides no reason for an end. Where its
    Java has ended, that is the reason, whatever `job` met: JobStopped.
    """
    try:
        yield
    except Exception as error:
        if (how := _ended(spark)) is None:
            raise
        said = (str(error).strip().splitlines() or [type(error).__name__])[0][:_SAID_MAX]
        raise JobStopped(
            f"{job}: Spark's JVM ended ({how}; killed, or out of memory?): {said}: the place is kept; {MORE_MEMORY}, "
            "and run it again"
        ) from error
    finally:
        with suppress(*SESSION_GONE):
            spark.stop()


def _ended(spark: SparkSession) -> str | None:
    """How its Java ended; None: it answers."""
    try:
        spark._jvm.java.lang.System.nanoTime()  # type: ignore[union-attr]
    except SESSION_GONE:
        process: subprocess.Popen[bytes] | None = getattr(spark.sparkContext._gateway, "proc", None)
        if process is None:  # under spark-submit Java is the parent
            return "it does not answer"
        try:
            code = process.wait(_ENDS_S)
        except subprocess.TimeoutExpired:
            return "it does not answer"
        return f"by signal {-code}" if code < 0 else f"with code {code}"
    return None


def _local() -> Mapping[str, str]:
    return {
        "spark.master": os.environ.get("SPARK_MASTER", "local[*]"),
        "spark.jars": ",".join(_jars()),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": str(os.cpu_count() or 2),
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={_QUIET.as_uri()}",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
    }


def _folder(uri: str) -> str:
    """Spark refuses to start where its event log's folder is not there."""
    if "://" in uri:
        return uri
    folder = Path(uri).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    return folder.as_uri()


def _jars() -> list[str]:
    tools = Path(os.environ.get("TOOLS") or Path(__file__).resolve().parents[3] / ".cache" / "tools")
    jars = [str(jar) for folder in JARS for jar in sorted((tools / folder).glob("*.jar"))]
    if not jars:
        raise ConfigurationError(
            f"jars {tools}/{JARS[0]}: not there: run `make spark`, or name another folder by TOOLS"
        )
    return jars


def _s3a() -> dict[str, str]:
    environment = os.environ
    endpoint = environment.get("AWS_ENDPOINT_URL_S3") or environment.get("AWS_ENDPOINT_URL")
    settings = {
        "spark.hadoop.fs.s3a.endpoint.region": environment.get("AWS_REGION")
        or environment.get("AWS_DEFAULT_REGION")
        or "us-east-1"
    }
    if endpoint:
        settings |= {"spark.hadoop.fs.s3a.endpoint": endpoint, "spark.hadoop.fs.s3a.path.style.access": "true"}
    return settings

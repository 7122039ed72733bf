"""What tests of the jobs share: one Spark session, one MinIO, one bmq for all tests of a process."""

import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from compat_server import Bmq, Minio, free_port
from hypothesis import HealthCheck, settings
from iceberg_catalogs import Opened, RestServer, opened_in
from pyspark.sql import SparkSession
from quick_java import java_options

from bmq.runtime.bucket import ensure_bucket
from bmq.runtime.store_url import parse_store_url
from bmq_spark.iceberg.catalogs import Catalog
from bmq_spark.locations import Location
from bmq_spark.session import open_session

settings.register_profile("spark", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("spark")
KEYS = {"AWS_ACCESS_KEY_ID": "bmq-test", "AWS_SECRET_ACCESS_KEY": "bmq-test-secret", "AWS_REGION": "us-east-1"}
BUCKET = "tables"
ESSENTIAL = ("test_parquet_job.py",)
"""Tests with Spark that `make test` runs, too."""
BY_PROCESS = (
    "test_iceberg_authentication.py",
    "test_iceberg_job.py",
    "test_java_gone.py",
    "test_parquet_kills.py",
    "test_parquet_streams.py",
    "test_source_spark_zips.py",
    "test_table_delta_spark.py",
    "test_spark_examples.py",
)
_names = itertools.count(1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What runs Spark or MinIO is left to `make verify`, but for the essential, which needs no MinIO."""
    for item in items:
        stores = getattr(getattr(item, "callspec", None), "params", {}).values()
        runs = {"spark", "minio", "bmq"}.intersection((*getattr(item, "fixturenames", ()), *map(str, stores)))
        if (runs or item.path.name in BY_PROCESS) and item.path.name not in ESSENTIAL:
            item.add_marker(pytest.mark.verify)


@pytest.fixture(scope="session", autouse=True)
def keys() -> None:
    """MinIO's, and what makes JVMs quick, before anything is started that inherits the environment: Spark's Python
    workers have that of its JVM.
    """
    os.environ.update(KEYS, JDK_JAVA_OPTIONS=java_options())


@pytest.fixture(scope="session")
def minio_port() -> int:
    """Where MinIO is started when a test asks for it: Spark is told at its start."""
    return free_port()


@pytest.fixture(scope="session")
def spark(keys: None, minio_port: int, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session on this machine; `s3a://` reaches the MinIO of these tests."""
    folder = tmp_path_factory.mktemp("spark")
    session = open_session(
        "tests",
        settings={
            "spark.master": "local[2]",
            "spark.driver.memory": "1g",
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
            "spark.local.dir": str(folder / "local"),
            "spark.hadoop.fs.s3a.endpoint": f"http://127.0.0.1:{minio_port}",
            "spark.hadoop.fs.s3a.path.style.access": "true",
            "spark.sql.shuffle.partitions": "2",
        },
    )
    yield session
    session.stop()


class Buckets(Minio):
    """MinIO with one bucket; `store_url` is bmq's, `location` a place for a table that no other test has."""

    def location(self, name: str = "table") -> Location:
        return Location.parse(f"s3a://{BUCKET}/{name}-{next(_names)}?endpoint=http://127.0.0.1:{self.port}")


@pytest.fixture(scope="session")
def minio(keys: None, minio_port: int, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Buckets]:
    """Its keys are in this process's environment too (`environment` names them)."""
    server = Buckets(tmp_path_factory.mktemp("minio"), port=minio_port)
    ensure_bucket(parse_store_url(server.store_url(BUCKET)))
    yield server
    server.stop()


@pytest.fixture(scope="session")
def bmq(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bmq]:
    """`bmq up` over a folder, ready: `servers` is its address."""
    folder: Path = tmp_path_factory.mktemp("bmq")
    server = Bmq(["--data", str(folder / "data")], log=folder / "bmq.log")
    server.start()
    yield server
    assert server.stop() == 0, server.tail_of_log()


@pytest.fixture(scope="session")
def rest(minio: Buckets, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RestServer]:
    """Iceberg's REST server over the bucket."""
    hadoop = {
        "fs.s3a.endpoint": f"http://127.0.0.1:{minio.port}",
        "fs.s3a.path.style.access": "true",
        "fs.s3a.endpoint.region": "us-east-1",
    }
    server = RestServer(tmp_path_factory.mktemp("rest"), warehouse="s3a://tables/rest", hadoop=hadoop)
    yield server
    server.stop()


@pytest.fixture(scope="session")
def sql(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Opened:
    """A catalog in SQLite, of tables in a folder."""
    folder = tmp_path_factory.mktemp("sql")
    return opened_in(
        spark,
        Catalog(
            name="sql", kind="sql", warehouse=str(folder / "warehouse"), uri=f"jdbc:sqlite:{folder / 'catalog.db'}"
        ),
        {},
    )

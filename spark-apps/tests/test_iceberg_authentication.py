"""Catalogs that ask who is there: bearer tokens, OAuth2 client credentials, a database's password."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from compat_server import ROOT, Bmq
from iceberg_catalogs import Postgres, RestServer
from iceberg_front import Front
from parquet_jobs import produce, topic_of
from pyiceberg.catalog.rest import RestCatalog
from pyspark.sql import SparkSession

from bmq_spark.errors import ConfigurationError
from bmq_spark.iceberg.catalogs import Catalog, TableName
from bmq_spark.iceberg.tables import IcebergTable

TO_CHECK_REST = (
    "check ICEBERG_REST_TOKEN, or ICEBERG_REST_CREDENTIAL with ICEBERG_REST_OAUTH2_SERVER_URI and "
    "ICEBERG_REST_SCOPE, and what they may do"
)
EXPIRES_S = 5
"""Less than a run takes."""


@pytest.fixture(scope="module")
def front(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Front]:
    folder = tmp_path_factory.mktemp("catalog")
    server = RestServer(folder, warehouse=str(folder / "warehouse"), hadoop={})
    before = Front(server.uri, expires_s=EXPIRES_S)
    yield before
    before.stop()
    server.stop()


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    server = Postgres()
    yield server
    server.stop()


def _refused(spark: SparkSession, catalog: Catalog, **properties: str) -> str:
    """The line, of a catalog that is told these properties by the environment."""
    for key, value in catalog.settings({}).items():
        spark.conf.set(key, value)
    for key, value in properties.items():
        spark.conf.set(f"spark.sql.catalog.{catalog.name}.{key.replace('_', '-')}", value)
    with pytest.raises(ConfigurationError) as raised:
        IcebergTable.open(spark, TableName.parse(f"{catalog.name}.db.orders"))
    return str(raised.value)


def test_a_rest_catalog_that_knows_nobody_by_this_token_is_said_in_a_line(spark: SparkSession, front: Front) -> None:
    def refused(name: str, **properties: str) -> str:
        return _refused(spark, Catalog(name=name, kind="rest", warehouse=None, uri=front.uri), **properties)

    begin = "the catalog refuses: NotAuthorizedException: Not authorized: "
    assert refused("nobody") == f"table nobody.db.orders: {begin}no token: {TO_CHECK_REST}"
    assert (
        refused("wrong", token="guessed")
        == f"table wrong.db.orders: {begin}not a token of this catalog: {TO_CHECK_REST}"
    )
    by_client = {"oauth2_server_uri": front.token_uri, "scope": front.scope}
    line = refused("secret", credential="job:guessed", **by_client)
    assert line == f"table secret.db.orders: {begin}invalid_client: no such client, or another secret: {TO_CHECK_REST}"
    line = refused("scope", credential=f"job:{front.client_secret}", **(by_client | {"scope": "everything"}))
    assert "invalid_scope: not everything" in line and line.endswith(TO_CHECK_REST) and front.client_secret not in line


def test_a_database_that_refuses_the_password_is_said_in_a_line(
    spark: SparkSession, postgres: Postgres, tmp_path: Path
) -> None:
    def refused(name: str, password: str) -> str:
        catalog = Catalog(name=name, kind="sql", warehouse=str(tmp_path), uri=postgres.uri)
        spark.conf.set(f"spark.sql.catalog.{name}.jdbc.user", postgres.user)
        if password:
            spark.conf.set(f"spark.sql.catalog.{name}.jdbc.password", password)
        return _refused(spark, catalog)

    for line in (refused("wrong_password", "guessed"), refused("no_password", "")):
        assert (
            "password" in line and line.endswith("check ICEBERG_SQL_USER and ICEBERG_SQL_PASSWORD") and "\n" not in line
        )
        assert "the catalog refuses: " in line and "guessed" not in line


@pytest.mark.timeout(800)
def test_a_job_gets_its_tokens_by_oauth2_anew_when_they_expire_and_says_its_secret_nowhere(
    bmq: Bmq, front: Front, tmp_path: Path
) -> None:
    topic = topic_of(bmq.servers, partitions=1)
    produce(bmq.servers, topic, [b"%d" % number for number in range(100)])
    command = [
        sys.executable,
        str(ROOT / "spark-apps" / "iceberg.py"),
        "--bootstrap-servers",
        bmq.servers,
        "--topic",
        topic,
        "--once",
    ]
    command += [
        "--table",
        "lake.db.orders",
        "--catalog-type",
        "rest",
        "--catalog-uri",
        front.uri,
        "--event-log",
        str(tmp_path / "events"),
    ]
    command += ["--max-records-per-batch", "40"]
    environment = dict(os.environ) | {
        "SPARK_MASTER": "local[2]",
        "ICEBERG_REST_CREDENTIAL": f"{front.client_id}:{front.client_secret}",
        "ICEBERG_REST_OAUTH2_SERVER_URI": front.token_uri,
        "ICEBERG_REST_SCOPE": front.scope,
        "BMQ_SPARK_LOG": "INFO",
    }
    before = len(front.refused)
    ended = subprocess.run(command, check=False, env=environment, capture_output=True, text=True, timeout=600)
    assert ended.returncode == 0, ended.stderr[-3000:]
    assert front.given > 1, "the run takes longer than a token lasts"
    assert front.refused[before:] == []
    assert (
        RestCatalog("lake", uri=front.uri, token=front.token).load_table("db.orders").scan().to_arrow().num_rows == 100
    )

    events = "".join(_decompressed(file) for file in (tmp_path / "events").rglob("*.zstd"))
    assert "spark.sql.catalog.lake.credential" in events, "it is among Spark's settings, by the name of its variable"
    for said in (events, ended.stdout, ended.stderr, json.dumps(command)):
        assert front.client_secret not in said and front.token not in said


def _decompressed(file: Path) -> str:
    with pa.input_stream(str(file), compression="zstd") as stream:
        return str(stream.read().decode())

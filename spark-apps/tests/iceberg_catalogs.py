"""Real Iceberg catalogs for tests, how pyiceberg opens their tables, and the servers of catalogs: Iceberg's own REST
server and PostgreSQL.
"""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyspark
import pytest
from compat_server import ROOT, free_port
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import StaticTable, Table
from pyspark.sql import SparkSession

from bmq_spark.iceberg.catalogs import Catalog, TableName

TOOLS = Path(os.environ.get("TOOLS") or ROOT / ".cache" / "tools")


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """A catalog that Spark's session knows by its name; `s3` is how pyiceberg reaches the bucket."""

    catalog: Catalog
    s3: Mapping[str, str]
    login: str = ""
    """USER:PASSWORD of a database that asks for them."""

    def table(self, name: str) -> TableName:
        return TableName.parse(f"{self.catalog.name}.db.{name}")

    def load(self, name: TableName) -> Table:
        """The table as pyiceberg reads it, by the catalog or, for Hadoop's, by its newest metadata."""
        where = f"db.{name.name}"
        if self.catalog.kind == "rest":
            return RestCatalog("rest", uri=self.catalog.uri, **self.s3).load_table(where)
        if self.catalog.kind == "sql":
            return SqlCatalog(self.catalog.name, uri=self._database(), **self.s3).load_table(where)
        from pyiceberg.io import load_file_io

        folder = f"{self.catalog.warehouse}/db/{name.name}/metadata"
        with load_file_io(dict(self.s3), folder).new_input(f"{folder}/version-hint.text").open() as hint:
            version = int(hint.read())
        return StaticTable.from_metadata(f"{folder}/v{version}.metadata.json", dict(self.s3))

    def _database(self) -> str:
        """As SQLAlchemy names it."""
        assert self.catalog.uri is not None
        kind, _, where = self.catalog.uri.removeprefix("jdbc:").partition(":")
        return (
            f"sqlite:///{where}"
            if kind == "sqlite"
            else f"postgresql+psycopg2://{self.login}@{where.removeprefix('//')}"
        )


def opened_in(spark: SparkSession, catalog: Catalog, s3: Mapping[str, str]) -> Opened:
    """The catalog, known to the session."""
    for key, value in catalog.settings({}).items():
        spark.conf.set(key, value)
    return Opened(catalog=catalog, s3=s3)


@dataclass(kw_only=True)
class Postgres:
    """A PostgreSQL server with one user, who has to say the password."""

    user: str = "job"
    password: str = "known to nobody else"
    port: int = field(default_factory=free_port)

    def __post_init__(self) -> None:
        """Skips the test where PostgreSQL is not to be had. It does not run as root, so there it runs as nobody."""
        got = subprocess.run(
            [ROOT / "tools" / "get", "postgresql"], check=False, timeout=600, capture_output=True, text=True
        )
        if got.returncode != 0:
            pytest.skip(f"no PostgreSQL: {got.stderr.strip().splitlines()[-1]}")
        self._folder = Path(tempfile.mkdtemp(prefix="postgres-"))
        (self._folder / "password").write_text(self.password)
        server = TOOLS / "postgresql"
        self._as: dict[str, Any] = {}
        if os.geteuid() == 0:
            # Nobody may not be let into the folder where the tools are.
            server = Path(shutil.copytree(server, self._folder / "server"))
            for path in (self._folder, self._folder / "password"):
                shutil.chown(path, "nobody")
            self._as = {"user": "nobody", "extra_groups": []}
        self._bin, self._data = server / "bin", self._folder / "data"
        self._run(
            "initdb",
            "--username",
            self.user,
            "--auth",
            "scram-sha-256",
            "--pwfile",
            str(self._folder / "password"),
            "--no-sync",
            "--no-locale",
        )
        self.come()

    def go(self) -> None:
        """It ends, and takes its connections back."""
        self._run("pg_ctl", "stop", "--mode", "fast")

    def come(self) -> None:
        options = f"-h 127.0.0.1 -p {self.port} -c fsync=off -c unix_socket_directories=''"
        self._run(
            "pg_ctl", "start", "--wait", "--timeout", "120", "--log", str(self._folder / "log"), "--options", options
        )

    @property
    def uri(self) -> str:
        return f"jdbc:postgresql://127.0.0.1:{self.port}/postgres"

    def stop(self) -> None:
        self._run("pg_ctl", "stop", "--mode", "immediate")
        shutil.rmtree(self._folder)

    def _run(self, name: str, *arguments: str) -> None:
        # To a file: the server that pg_ctl leaves running would keep a pipe open.
        with (self._folder / f"{name}.out").open("wb") as out:
            ended = subprocess.run(
                [self._bin / name, "--pgdata", self._data, *arguments],
                check=False,
                cwd="/",
                stdout=out,
                stderr=out,
                timeout=150,
                **self._as,
            )
        assert ended.returncode == 0, (self._folder / f"{name}.out").read_text()


class RestServer:
    """Iceberg's REST catalog (its tests' adapter and servlet) over SQLite, served by the Jetty inside Spark's jars, in
    a process of its own.
    """

    def __init__(self, folder: Path, *, warehouse: str, hadoop: Mapping[str, str]) -> None:
        subprocess.run([ROOT / "tools" / "get", "iceberg-rest"], check=True, timeout=600)
        spark_jars = Path(pyspark.__file__).parent / "jars"
        port = launch_gateway(
            jarpath=str(next(spark_jars.glob("py4j-*.jar"))),
            # Hadoop's S3A first: Iceberg's test classes have a part of it of their own.
            classpath=":".join(
                [
                    *_jars("spark-jars"),
                    *_jars("iceberg-rest"),
                    *_jars("iceberg-jars", "sqlite-jdbc-*.jar"),
                    f"{spark_jars}/*",
                ]
            ),
            javaopts=["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"],
            die_on_exit=True,
        )
        self._gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auto_convert=True))
        jvm: Any = self._gateway.jvm
        configuration = jvm.org.apache.hadoop.conf.Configuration()
        for key, value in hadoop.items():
            configuration.set(key, value)
        catalog = jvm.org.apache.iceberg.jdbc.JdbcCatalog()
        catalog.setConf(configuration)
        catalog.initialize(
            "backing",
            {
                "uri": f"jdbc:sqlite:{folder / 'rest.db'}",
                "warehouse": warehouse,
                "io-impl": "org.apache.iceberg.hadoop.HadoopFileIO",
                "jdbc.schema-version": "V1",
            },
        )
        jetty = jvm.org.sparkproject.jetty
        servlet = jvm.org.apache.iceberg.rest.RESTCatalogServlet(
            jvm.org.apache.iceberg.rest.RESTCatalogAdapter(catalog)
        )
        context = jetty.servlet.ServletContextHandler()
        context.addServlet(jetty.servlet.ServletHolder(servlet), "/*")
        address = jvm.java.net.InetSocketAddress("127.0.0.1", 0)
        self._server = jetty.server.Server(address)
        self._server.setHandler(context)
        self._server.start()
        self.uri = f"http://127.0.0.1:{self._server.getURI().getPort()}"

    def stop(self) -> None:
        self._server.stop()
        self._gateway.shutdown()


def _jars(folder: str, pattern: str = "*.jar") -> Sequence[str]:
    return sorted(str(jar) for jar in (TOOLS / folder).glob(pattern))

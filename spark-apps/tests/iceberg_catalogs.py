"""Real Iceberg catalogs for tests, how pyiceberg opens their tables, and Iceberg's own REST server."""

import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyspark
from compat_server import ROOT
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import StaticTable, Table

from bmq_spark.iceberg.catalogs import Catalog, TableName

TOOLS = Path(os.environ.get("TOOLS") or ROOT / ".cache" / "tools")


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """A catalog that Spark's session knows by its name; `s3` is how pyiceberg reaches the bucket."""

    catalog: Catalog
    s3: Mapping[str, str]

    def table(self, name: str) -> TableName:
        return TableName.parse(f"{self.catalog.name}.db.{name}")

    def load(self, name: TableName) -> Table:
        """The table as pyiceberg reads it, by the catalog or, for Hadoop's, by its newest metadata."""
        where = f"db.{name.name}"
        if self.catalog.kind == "rest":
            return RestCatalog("rest", uri=self.catalog.uri, **self.s3).load_table(where)
        if self.catalog.kind == "sql":
            assert self.catalog.uri is not None
            return SqlCatalog(self.catalog.name, uri="sqlite:///" + self.catalog.uri.removeprefix("jdbc:sqlite:"), **self.s3).load_table(where)
        from pyiceberg.io import load_file_io

        folder = f"{self.catalog.warehouse}/db/{name.name}/metadata"
        with load_file_io(dict(self.s3), folder).new_input(f"{folder}/version-hint.text").open() as hint:
            version = int(hint.read())
        return StaticTable.from_metadata(f"{folder}/v{version}.metadata.json", dict(self.s3))


class RestServer:
    """Iceberg's REST catalog (its tests' adapter and servlet) over SQLite, served by the Jetty inside Spark's jars, in a process of its own."""

    def __init__(self, folder: Path, *, warehouse: str, hadoop: Mapping[str, str]) -> None:
        subprocess.run([ROOT / "tools" / "get", "iceberg-rest"], check=True, timeout=600)
        spark_jars = Path(pyspark.__file__).parent / "jars"
        port = launch_gateway(
            jarpath=str(next(spark_jars.glob("py4j-*.jar"))),
            # Hadoop's S3A first: Iceberg's test classes have a part of it of their own.
            classpath=":".join([*_jars("spark-jars"), *_jars("iceberg-rest"), *_jars("iceberg-jars", "sqlite-jdbc-*.jar"), f"{spark_jars}/*"]),
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
        servlet = jvm.org.apache.iceberg.rest.RESTCatalogServlet(jvm.org.apache.iceberg.rest.RESTCatalogAdapter(catalog))
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

"""Iceberg's catalogs, as arguments name them and as Spark is told of them. Secrets come from the environment, never by arguments.

Data and metadata are read and written by Hadoop's file systems (S3A for buckets), as Spark's checkpoints are: no second client for buckets.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from bmq_spark.errors import ConfigurationError
from bmq_spark.locations import Location

CATALOG_TYPES: Final = ("hadoop", "rest", "sql")
FILE_IO: Final = "org.apache.iceberg.hadoop.HadoopFileIO"
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_SECRETS: Final = {
    "rest": {"ICEBERG_REST_TOKEN": "token", "ICEBERG_REST_CREDENTIAL": "credential"},
    "sql": {"ICEBERG_SQL_USER": "jdbc.user", "ICEBERG_SQL_PASSWORD": "jdbc.password"},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TableName:
    """CATALOG.DB.NAME; the middle may have several levels."""

    catalog: str
    namespace: tuple[str, ...]
    name: str

    @classmethod
    def parse(cls, text: str) -> "TableName":
        """Raises ConfigurationError."""
        parts = text.split(".")
        if len(parts) < 3 or not all(_NAME.fullmatch(part) for part in parts):
            raise ConfigurationError(f"--table {text!r}: write CATALOG.DB.NAME, each of letters, digits and underscores")
        if parts[0] == "spark_catalog":
            raise ConfigurationError(f"--table {text}: spark_catalog is Spark's own: choose another name for the catalog")
        return cls(catalog=parts[0], namespace=tuple(parts[1:-1]), name=parts[-1])

    @property
    def dead_letters(self) -> "TableName":
        """The table of the records that do not fit."""
        return TableName(catalog=self.catalog, namespace=self.namespace, name=f"{self.name}_dead_letters")

    @property
    def sql(self) -> str:
        """For Spark's SQL."""
        return ".".join(f"`{part}`" for part in (self.catalog, *self.namespace, self.name))

    @property
    def namespace_sql(self) -> str:
        """For Spark's SQL."""
        return ".".join(f"`{part}`" for part in (self.catalog, *self.namespace))

    @property
    def in_catalog(self) -> str:
        """As the catalog's own procedures name it."""
        return ".".join((*self.namespace, self.name))

    def __str__(self) -> str:
        return f"{self.catalog}.{self.in_catalog}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalog:
    """A catalog that a table is in."""

    name: str
    kind: str
    """One of CATALOG_TYPES."""
    warehouse: str | None
    """A folder or s3a://BUCKET/PREFIX; what a REST server calls it."""
    uri: str | None
    """The server's, or the database's for JDBC."""
    config: Mapping[str, str] = field(default_factory=dict)
    """More of Iceberg's catalog properties; they win."""

    def __post_init__(self) -> None:
        """Raises ConfigurationError."""
        if self.kind == "hadoop" and self.uri:
            raise ConfigurationError(f"--catalog-uri {self.uri}: --catalog-type hadoop has none: the warehouse is the catalog")
        if self.kind == "rest" and not (self.uri or "").startswith(("http://", "https://")):
            raise ConfigurationError(f"--catalog-uri {self.uri or ''!r}: --catalog-type rest needs the server's URL, as http://HOST:8181")
        if self.kind == "sql" and not (self.uri or "").startswith("jdbc:"):
            raise ConfigurationError(
                f"--catalog-uri {self.uri or ''!r}: --catalog-type sql needs jdbc:sqlite:FILE or jdbc:postgresql://HOST/DATABASE"
            )
        if self.kind != "rest" and not self.warehouse:
            raise ConfigurationError(f"--warehouse: --catalog-type {self.kind} needs one: a folder, or s3a://BUCKET/PREFIX")

    @property
    def commits_are_atomic(self) -> bool:
        """Hadoop's catalog commits by a rename, which a bucket has none of: there only one process at a time may write."""
        return self.kind != "hadoop" or (self.warehouse or "").partition("://")[0] in ("file", self.warehouse)

    def settings(self, environment: Mapping[str, str]) -> dict[str, str]:
        """Spark's settings."""
        prefix = f"spark.sql.catalog.{self.name}"
        found = {"io-impl": FILE_IO, "cache-enabled": "false", "type": {"sql": "jdbc"}.get(self.kind, self.kind)}
        if self.warehouse:
            found["warehouse"] = self.warehouse if self.kind == "rest" else Location.parse(self.warehouse).hadoop().rstrip("/")
        if self.uri:
            found["uri"] = self.uri
        if self.kind == "sql":
            found["jdbc.schema-version"] = "V1"
        found |= {key: environment[name] for name, key in _SECRETS.get(self.kind, {}).items() if environment.get(name)}
        found |= self.config
        return {prefix: "org.apache.iceberg.spark.SparkCatalog"} | {f"{prefix}.{key}": value for key, value in found.items()}


SESSION_SETTINGS: Final = {
    # REST catalogs name buckets s3://; Hadoop knows them as s3a.
    "spark.hadoop.fs.s3.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem",
    "spark.redaction.regex": "(?i)secret|password|passwd|token|credential|access[.]?key",
}

"""Iceberg's catalogs, as arguments name them and as Spark is told of them. Secrets come from the environment, never by
arguments.

Data and metadata are read and written by Hadoop's file systems (S3A for buckets), as Spark's checkpoints are: no second
client for buckets.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from bmq_spark.errors import ConfigurationError
from bmq_spark.locations import Location
from bmq_spark.patience import WAIT_S

CATALOG_TYPES: Final = ("hadoop", "rest", "sql")
FILE_IO: Final = "org.apache.iceberg.hadoop.HadoopFileIO"
RECONNECTED: Final = "57P01,57P02,57P03"
"""SQL's states by which a database that ends takes its connections back: Iceberg asks by a new one, as it does by
itself where a connection was cut."""
_SQLITE: Final = "jdbc:sqlite:"
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
BY_ENVIRONMENT: Final = {
    "rest": {
        "ICEBERG_REST_TOKEN": "token",
        "ICEBERG_REST_CREDENTIAL": "credential",
        "ICEBERG_REST_OAUTH2_SERVER_URI": "oauth2-server-uri",
        "ICEBERG_REST_SCOPE": "scope",
    },
    "sql": {"ICEBERG_SQL_USER": "jdbc.user", "ICEBERG_SQL_PASSWORD": "jdbc.password"},
}
"""Variables by type of catalog, and the catalog's properties that they give."""
_FROM_VARIABLE: Final = "env:"
"""Iceberg's own mark of a value that is a variable's name."""
_SECRET: Final = re.compile(
    r"(?i)secret|passw(?:or)?d|token(?!-(?:exchange|expires|refresh))|credential$|authorization|access[-.]?key|api[-.]?key"
)
_PASSWORD_IN_URI: Final = re.compile(r"(?i)//[^/@?]*:[^/@?]*@|[?&;]\w*(?:user|passw(?:or)?d)=")
_REFUSED: Final = (
    ("NotAuthorizedException", "rest"),
    ("ForbiddenException", "rest"),
    ("invalid_client", "rest"),
    ("invalid_scope", "rest"),
    ("password authentication failed", "sql"),
    ("no password was provided", "sql"),
    ("password-based authentication", "sql"),
)
_CHECK: Final = {
    "rest": "check ICEBERG_REST_TOKEN, or ICEBERG_REST_CREDENTIAL with ICEBERG_REST_OAUTH2_SERVER_URI and "
    "ICEBERG_REST_SCOPE, and what they may do",
    "sql": "check ICEBERG_SQL_USER and ICEBERG_SQL_PASSWORD",
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
            raise ConfigurationError(
                f"--table {text!r}: write CATALOG.DB.NAME, each of letters, digits and underscores"
            )
        if parts[0] == "spark_catalog":
            raise ConfigurationError(
                f"--table {text}: spark_catalog is Spark's own: choose another name for the catalog"
            )
        return cls(catalog=parts[0], namespace=tuple(parts[1:-1]), name=parts[-1])

    @property
    def dead_letters(self) -> "TableName":
        """The table of the records that do not fit."""
        return TableName(catalog=self.catalog, namespace=self.namespace, name=f"{self.name}_dead_letters")

    @property
    def tombstones(self) -> "TableName":
        """The table of the deletions that have to be remembered."""
        return TableName(catalog=self.catalog, namespace=self.namespace, name=f"{self.name}_tombstones")

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
            raise ConfigurationError(
                f"--catalog-uri {self.uri}: --catalog-type hadoop has none: the warehouse is the catalog"
            )
        if self.kind == "rest" and not (self.uri or "").startswith(("http://", "https://")):
            raise ConfigurationError(
                f"--catalog-uri {self.uri or ''!r}: --catalog-type rest needs the server's URL, as http://HOST:8181"
            )
        if self.kind == "sql" and not (self.uri or "").startswith("jdbc:"):
            raise ConfigurationError(
                f"--catalog-uri {self.uri or ''!r}: --catalog-type sql needs jdbc:sqlite:FILE or "
                "jdbc:postgresql://HOST/DATABASE"
            )
        if _PASSWORD_IN_URI.search(self.uri or ""):
            raise ConfigurationError(
                "--catalog-uri: it has a user or a password in it, which anybody sees who lists processes: give "
                "them by " + (" and ".join(BY_ENVIRONMENT["sql"]) if self.kind == "sql" else "ICEBERG_REST_CREDENTIAL")
            )
        for key, value in self.config.items():
            if _SECRET.search(key) and not value.startswith(_FROM_VARIABLE):
                variable = next(
                    (name for name, given in BY_ENVIRONMENT.get(self.kind, {}).items() if given == key), None
                )
                remedy = (
                    f"set {variable}"
                    if variable
                    else f"put it into a variable of the environment, and write {key}=env:VARIABLE"
                )
                raise ConfigurationError(
                    f"--catalog-config {key}: a secret, which anybody sees who lists processes: {remedy}"
                )
        if self.kind != "rest" and not self.warehouse:
            raise ConfigurationError(
                f"--warehouse: --catalog-type {self.kind} needs one: a folder, or s3a://BUCKET/PREFIX"
            )

    @property
    def commits_are_atomic(self) -> bool:
        """Hadoop's catalog looks whether a version is there and then renames, under a lock of its process: a rename in
        a folder replaces what another process put there meanwhile, and a bucket has none. So one process at a time may
        write.
        """
        return self.kind != "hadoop"

    def settings(self, environment: Mapping[str, str]) -> dict[str, str]:
        """Spark's settings. Raises ConfigurationError where a variable is not there that a property names.

        A REST catalog is told the variables' names, and reads them in the driver: its secrets are not among Spark's
        settings.
        """
        prefix = f"spark.sql.catalog.{self.name}"
        found = {"io-impl": FILE_IO, "cache-enabled": "false", "type": {"sql": "jdbc"}.get(self.kind, self.kind)}
        if self.warehouse:
            found["warehouse"] = (
                self.warehouse if self.kind == "rest" else Location.parse(self.warehouse).hadoop().rstrip("/")
            )
        if self.uri:
            found["uri"] = self.uri
        if self.kind == "sql":
            found["jdbc.schema-version"] = "V1"
            found["retryable_status_codes"] = RECONNECTED
        if (self.uri or "").startswith(_SQLITE):
            found["jdbc.busy_timeout"] = str(WAIT_S * 1000)
        given = {
            key: f"{_FROM_VARIABLE}{name}"
            for name, key in BY_ENVIRONMENT.get(self.kind, {}).items()
            if environment.get(name)
        }
        if "credential" in given:
            # What the credential got once it gets again: not every server exchanges an old token for a new one, which
            # is Iceberg's default.
            found["token-exchange-enabled"] = "false"
        for key, value in (given | dict(self.config)).items():
            found[key] = _known(key, value, environment) if self.kind == "rest" else _looked_up(key, value, environment)
        return {prefix: "org.apache.iceberg.spark.SparkCatalog"} | {
            f"{prefix}.{key}": value for key, value in found.items()
        }


def refusal(text: str) -> str | None:
    """What to do where the text says that a catalog knows nobody by these credentials; None where it says something
    else.
    """
    return next((_CHECK[kind] for name, kind in _REFUSED if name in text), None)


def _known(key: str, value: str, environment: Mapping[str, str]) -> str:
    _looked_up(key, value, environment)
    return value


def _looked_up(key: str, value: str, environment: Mapping[str, str]) -> str:
    if not value.startswith(_FROM_VARIABLE):
        return value
    name = value.removeprefix(_FROM_VARIABLE)
    if not environment.get(name):
        raise ConfigurationError(f"--catalog-config {key}={value}: the environment has no {name}: set it")
    return environment[name]


SESSION_SETTINGS: Final = {
    # REST catalogs name buckets s3://; Hadoop knows them as s3a.
    "spark.hadoop.fs.s3.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem",
    "spark.redaction.regex": "(?i)secret|password|passwd|token|credential|access[.]?key",
}

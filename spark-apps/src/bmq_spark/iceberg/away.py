"""Which errors say that a catalog is away for a while: it was not reached, is started anew, or somebody holds its lock.
Whoever only looks asks again then, and whoever has staged something looks whether it came through.
"""

import re
from collections.abc import Iterator
from typing import Any, Final

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

ANSWERS: Final = (PySparkException, Py4JJavaError)
"""What a call of Iceberg raises where it did not do what it was told: PySpark has exceptions of its own for some of
Java's."""
_WORDS: Final = (
    "ConnectException",
    "ConnectTimeoutException",
    "NoRouteToHostException",
    "UnknownHostException",
    "JsonParseException",
    # PostgreSQL and its driver.
    "terminating connection",
    "the database system is",
    "An I/O error occurred while sending",
    "This connection has been closed",
    "The connection attempt failed",
    "too many clients",
    # SQLite
    "SQLITE_BUSY",
)
"""What a catalog's client says where it reached nobody, a gateway answered by a page of its own, or a database let it
go. Other answers that pass it waits for by itself."""
_STATES: Final = re.compile(r"08[0-9A-Z]{3}|57P0[1-3]|53300")
"""SQL's states of the same: connections that are none any more, a server that ends, has crashed or is starting, and one
that has no connection left. A server may say its words in another language."""
_UNKNOWN: Final = ("CommitStateUnknownException", "RESTException: Error occurred while processing")
"""What Iceberg says where a connection was lost: it leaves the files then, for the commit may have come through."""
_CAUSES_MAX: Final = 20
_MISSING: Final = ("NoSuchTableException", "NoSuchNamespaceException", "TABLE_OR_VIEW_NOT_FOUND", "SCHEMA_NOT_FOUND")
"""What Iceberg and Spark make of any 404 of a REST catalog, whoever gave it."""
_LISTS: Final = 2
"""So often a catalog is asked for what it surely has: of two answers that come by turns one would do."""


def is_away(error: Exception) -> bool:
    """Whether the catalog was not reached, or could not now: it may a moment later."""
    if not isinstance(error, ANSWERS):
        return False
    said = str(error)
    return any(word in said for word in _WORDS) or any(map(_STATES.fullmatch, _states(error)))


def is_unknown(error: Exception) -> bool:
    """Whether what was asked for may have been done, or may come to be: the answer was lost."""
    return any(word in str(error) for word in _UNKNOWN)


def is_missing(error: Exception) -> bool:
    """Whether a table, or what it is in, was not found. A REST catalog may be away then: see `require_catalog`."""
    return isinstance(error, ANSWERS) and any(word in str(error) for word in _MISSING)


def is_rest(spark: SparkSession, catalog: str) -> bool:
    """Whether the catalog that is called so is asked over HTTP, where something before it may answer in its place."""
    return spark.conf.get(f"spark.sql.catalog.{catalog}.type", "") == "rest"


def require_catalog(spark: SparkSession, catalog: str) -> None:
    """Raises what `is_missing` tells where a REST catalog does not answer itself: a gateway whose route to it is away
    says 404, which Iceberg takes for a table that is not there. Every catalog has a list of namespaces; one that
    refuses it does answer.
    """
    jvm: Any = spark._jvm
    try:
        asked = jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergCatalog(spark._jsparkSession, catalog)
        for _ in range(_LISTS):
            asked.listNamespaces()
    except ANSWERS as error:
        if is_missing(error) or is_away(error):
            raise


def _states(error: Exception) -> Iterator[str]:
    """The SQL states among what Java threw, and its causes."""
    thrown = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    for _ in range(_CAUSES_MAX):
        if thrown is None:
            return
        try:
            state = thrown.getSQLState()
        except Py4JError:  # no exception of SQL's
            state = None
        if isinstance(state, str):
            yield state
        try:
            thrown = thrown.getCause()
        except Py4JError:  # Java has ended
            return

"""Which errors say that a catalog is away for a while: it was not reached, is started anew, or somebody holds its lock.
Whoever only looks asks again then, and whoever has staged something looks whether it came through.
"""

import re
from collections.abc import Iterator
from typing import Final

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException

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
_CAUSES_MAX: Final = 20


def is_away(error: Exception) -> bool:
    """Whether the catalog was not reached, or could not now: it may a moment later."""
    if not isinstance(error, ANSWERS):
        return False
    said = str(error)
    return any(word in said for word in _WORDS) or any(map(_STATES.fullmatch, _states(error)))


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

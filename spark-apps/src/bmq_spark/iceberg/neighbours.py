"""Whose metadata lie in a table's folder: a catalog gives a new table the folder of its name, also where another one's
files are.
"""

from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import SparkSession

from bmq_spark.batches.explaining import cause
from bmq_spark.iceberg.away import ANSWERS
from bmq_spark.iceberg.tables import METADATA, IcebergTable, unreachable

_FILE: Final = ".metadata.json"
_CUT_OFF: Final = (
    "JsonParseException",
    "JsonEOFException",
    "MismatchedInputException",
    "Cannot parse",
    "EOFException",
    "ZipException",
    "ChecksumException",
)
"""What Iceberg says of a file that is no metadata of any table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbours:
    """What lies beside a table's own metadata."""

    another: tuple[str, str] | None
    """A file that is another table's, and that one's id."""
    unread: tuple[str, str] | None
    """A file that the store did not give, and what it said: it may be another table's."""
    cut_off: str | None
    """A file that is nobody's metadata, as whoever is killed while it writes one leaves it."""


def neighbours(spark: SparkSession, table: IcebergTable) -> Neighbours:
    """Files that the table's own metadata names are not read. Others of its own are few: commits that failed left them.
    Raises JobStopped.
    """
    jvm: Any = spark._jvm
    another, unread, cut_off = None, None, None
    own = table.own_metadata()
    try:
        folder = jvm.org.apache.hadoop.fs.Path(f"{table.location}/{METADATA}")
        files = folder.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf())
        there = [found.getPath() for found in files.listStatus(folder)] if files.exists(folder) else []
    except ANSWERS as error:
        raise unreachable(table.name, error) from error
    for path in there:
        name, where = str(path.getName()), str(path.toString())
        if _FILE not in name or name.startswith((".", "_")) or name in own:
            continue
        try:
            found = str(jvm.org.apache.iceberg.TableMetadataParser.read(table.io, where).uuid())
        except ANSWERS as error:
            said = str(error)
            if any(word in said for word in _CUT_OFF):
                cut_off = where
            elif files.exists(path):
                unread = (where, cause(said))
            continue
        if found != table.id:
            another = (where, found)
            break
    return Neighbours(another=another, unread=unread, cut_off=cut_off)

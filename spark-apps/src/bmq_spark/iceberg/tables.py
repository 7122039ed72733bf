"""One Iceberg table as the jobs see it: made when it is missing, its schema brought up to date, its places read from its snapshots."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from bmq_spark.errors import ConfigurationError, JobStopped
from bmq_spark.iceberg.catalogs import TableName, refusal
from bmq_spark.iceberg.evolution import changes, columns, ddl, statements
from bmq_spark.iceberg.notes import PLACES, newest, places_of
from bmq_spark.jobs.explaining import cause
from bmq_spark.jobs.places import Places

PARTITIONINGS: Final = {"hour": "PARTITIONED BY (hours(timestamp))", "date": "PARTITIONED BY (days(timestamp))", "none": ""}
MADE_BY: Final = "bmq.upsert-key"
"""The property by which a table of these jobs is known; empty where rows are only added."""
TOPIC: Final = "bmq.topic-id."
ORDER: Final = ("topic", "partition", "offset")
_PROPERTIES: Final = {
    "format-version": "2",
    "write.parquet.compression-codec": "zstd",
    # A batch's rows meet by partition before they are written: one file for an hour rather than one for every task.
    "write.distribution-mode": "hash",
    # A change writes what changed, and where the old row was; maintenance merges the two.
    "write.merge.mode": "merge-on-read",
    "write.update.mode": "merge-on-read",
    "write.delete.mode": "merge-on-read",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "100",
}


class IcebergTable:
    """A table that is there. Its methods raise JobStopped, in one line, where the catalog or the bucket does not answer."""

    def __init__(self, spark: SparkSession, name: TableName) -> None:
        self.name = name
        self._spark = spark
        self._places: dict[int, Places] = {}
        self._table: Any = _load(spark, name)

    @classmethod
    def open(cls, spark: SparkSession, name: TableName) -> "IcebergTable | None":
        """None where there is none. Raises ConfigurationError where the catalog refuses the credentials."""
        try:
            return cls(spark, name) if spark.catalog.tableExists(name.sql) else None
        except (PySparkException, Py4JJavaError) as error:
            stopped = _unreachable(name, error)
            raise (ConfigurationError(str(stopped)) if refusal(str(error)) else stopped) from error

    @classmethod
    def create(
        cls, spark: SparkSession, name: TableName, schema: pa.Schema, *, partition_by: str, upsert_key: str, target_file_size_bytes: int
    ) -> "IcebergTable":
        """The table, made if it is not there. Raises ConfigurationError where it is one of another kind."""
        found = cls.open(spark, name)
        if found is None:
            properties = _PROPERTIES | {MADE_BY: upsert_key, "write.target-file-size-bytes": str(target_file_size_bytes)}
            listed = ", ".join(f"'{key}' = '{value}'" for key, value in properties.items())
            try:
                spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {name.namespace_sql}")
                spark.sql(
                    f"CREATE TABLE IF NOT EXISTS {name.sql} ({ddl(schema)}) USING iceberg {PARTITIONINGS[partition_by]} TBLPROPERTIES ({listed})"
                )
            except (PySparkException, Py4JJavaError) as error:
                raise _unreachable(name, error) from error
            found = cls(spark, name)
            found._sort()
            found.note({})
        kept = found.properties().get(MADE_BY)
        if kept is None:
            raise ConfigurationError(f"--table {name}: it is there, and not made by this job: choose another name")
        if kept != upsert_key:
            raise ConfigurationError(
                f"--upsert-key {upsert_key or 'none'}: the table {name} was made with {kept or 'none'}: give it that one, or choose another --table"
            )
        return found

    @property
    def id(self) -> str:
        """The table's for ever, whatever it is called."""
        return str(self._table.uuid())

    @property
    def location(self) -> str:
        """Where it lies."""
        return str(self._table.location())

    def properties(self) -> Mapping[str, str]:
        """Read anew."""
        self.refresh()
        return dict(self._table.properties())

    def schema(self) -> StructType:
        """As it is now."""
        return self._spark.table(self.name.sql).schema

    def columns(self) -> pa.Schema:
        """As it is now."""
        return columns(self.schema())

    def refresh(self) -> None:
        """Sees what others committed."""
        try:
            self._table.refresh()
        except Py4JJavaError as error:
            raise _unreachable(self.name, error) from error

    def places(self) -> dict[str, dict[int, int]]:
        """Up to where it has each partition, read anew. A table that was rolled back has the places of what it was rolled back to."""
        return newest(reversed([places for _, places in self._history()]))

    def newest_notes(self) -> tuple[int, Places] | None:
        """The newest snapshot of a batch, by its id."""
        return next(((number, places) for number, places in self._history() if places), None)

    def summary(self) -> Mapping[str, str]:
        """Of the newest snapshot, read anew."""
        self.refresh()
        return dict(self._table.currentSnapshot().summary())

    def snapshot_id(self) -> int:
        """Of the newest snapshot, read anew."""
        self.refresh()
        return int(self._table.currentSnapshot().snapshotId())

    def evolve(self, wanted: pa.Schema) -> bool:
        """Adds and widens columns until rows of `wanted` go in; whether anything changed. Raises JobStopped where they never do."""
        needed = changes(self.schema(), wanted, table=str(self.name))
        try:
            for statement in statements(needed, self.name.sql):
                self._spark.sql(statement)
        except (PySparkException, Py4JJavaError) as error:
            raise JobStopped(f"table {self.name}: its schema cannot be changed: {cause(str(error))}") from error
        if needed:
            self.refresh()
        return bool(needed)

    def set_property(self, key: str, value: str) -> None:
        """A commit of its own."""
        try:
            self._table.updateProperties().set(key, value).commit()
        except Py4JJavaError as error:
            raise _unreachable(self.name, error) from error
        self.refresh()

    def expire(self, before_ms: int) -> None:
        """Forgets the snapshots that were committed before, but never the newest, and deletes the files that only they name."""
        try:
            self._table.expireSnapshots().expireOlderThan(before_ms).retainLast(1).commit()
        except Py4JJavaError as error:
            raise _unreachable(self.name, error) from error
        self.refresh()

    def note(self, properties: Mapping[str, str]) -> None:
        """A snapshot that adds nothing, and says this."""
        try:
            adding = self._table.newAppend()
            for key, value in properties.items():
                adding.set(key, value)
            adding.commit()
        except Py4JJavaError as error:
            raise _unreachable(self.name, error) from error
        self.refresh()

    def roll_back(self, snapshot_id: int) -> None:
        """To a snapshot of before, which every table has: it is made with an empty one."""
        try:
            self._table.manageSnapshots().rollbackTo(snapshot_id).commit()
        except Py4JJavaError as error:
            raise _unreachable(self.name, error) from error
        self.refresh()

    def _history(self) -> Iterator[tuple[int, Places]]:
        """Snapshots from the newest back to the oldest that is kept, with their places. Each is asked for its summary once."""
        self.refresh()
        snapshot = self._table.currentSnapshot()
        while snapshot is not None:
            number = int(snapshot.snapshotId())
            if number not in self._places:
                text = snapshot.summary().get(PLACES)
                self._places[number] = places_of({PLACES: text} if text else {}, table=str(self.name))
            yield number, self._places[number]
            parent = snapshot.parentId()
            snapshot = None if parent is None else self._table.snapshot(parent)

    def _sort(self) -> None:
        """Files have rows in the order of the topics: offsets compress well, and a reader of one partition skips most."""
        jvm: Any = self._spark._jvm
        first, reference = jvm.org.apache.iceberg.NullOrder.NULLS_FIRST, jvm.org.apache.iceberg.expressions.Expressions.ref
        order = self._table.replaceSortOrder()
        for column in ORDER:
            order.asc(reference(column), first)
        order.commit()


def _load(spark: SparkSession, name: TableName) -> Any:
    jvm: Any = spark._jvm
    try:
        return jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(spark._jsparkSession, name.sql)
    except Py4JJavaError as error:
        raise _unreachable(name, error) from error


def _unreachable(name: TableName, error: Exception) -> JobStopped:
    if remedy := refusal(str(error)):
        return JobStopped(f"table {name}: the catalog refuses: {cause(str(error))}: {remedy}")
    return JobStopped(f"table {name}: {cause(str(error))}: see that the catalog runs and lets this job write; the place is kept")

"""Batches as snapshots: rows are added, or merged by their key, and the snapshot that does it carries the batch's notes.

A write that fails for what somebody else committed meanwhile is tried again; whether a write of unknown outcome came through is read from the table.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from bmq_spark.iceberg.evolution import spark_columns
from bmq_spark.iceberg.notes import Notes
from bmq_spark.iceberg.tables import IcebergTable
from bmq_spark.iceberg.upsert import last_of_each_key, merge_statement
from bmq_spark.jobs.buried import Buried
from bmq_spark.jobs.places import each, place
from bmq_spark.jobs.records import REASON, Typing, dead_letters
from bmq_spark.values import conform, observe
from bmq_spark.values.inference import NOTHING, union

ATTEMPTS: Final = 3
_CONFLICTS: Final = ("ValidationException", "CommitFailedException", "CommitStateUnknownException")
_SESSION_NOTE: Final = "spark.sql.iceberg.snapshot-property."
_SOURCE: Final = "bmq_batch"
SEEN: Final = "seen binary"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """What a worker makes of records: rows of the table's columns, and the reason where there is one; nothing of those that are buried."""

    typing: Typing
    columns: pa.Schema
    buried: Buried

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Takes records."""
        for batch in batches:
            rows, reasons = self.typing.rows(batch)
            arrays = [_column(rows, field) for field in self.columns]
            made = pa.RecordBatch.from_arrays([*arrays, reasons], schema=self.columns.append(REASON))
            fit, unfit = self.buried.split(batch, reasons)
            yield made.filter(pc.or_(fit, unfit)) if self.buried.places else made

    def of(self, records: DataFrame) -> DataFrame:
        """Runs where the records are."""
        return records.mapInArrow(self, spark_columns(self.columns.append(REASON)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Letters:
    """What a worker makes of the records that do not fit, but for those that are buried."""

    typing: Typing
    buried: Buried

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Takes records."""
        for batch in batches:
            reasons = self.typing.rows(batch)[1]
            yield dead_letters(batch, reasons, self.buried.split(batch, reasons)[1])


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What a worker sees in values that do not fit, and that may become columns: a row of SEEN."""

    typing: Typing

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Takes records."""
        seen = NOTHING
        for batch in batches:
            unfit = batch.column("value").filter(self.typing.rows(batch)[1].is_valid())
            seen = union(seen, observe(unfit, known=self.typing.columns))
        content = pa.schema([pa.field("value", seen)]).serialize().to_pybytes()
        yield pa.RecordBatch.from_pylist([{"seen": content}], schema=pa.schema([pa.field("seen", pa.binary())]))


def seen_in(content: bytes) -> pa.DataType:
    """What a row of SEEN tells."""
    return pa.ipc.read_schema(pa.py_buffer(content)).field("value").type


def append(rows: DataFrame, table: IcebergTable, notes: Notes) -> None:
    """Adds rows of the table's columns, in one snapshot. Raises what Spark raised where nothing was committed."""

    def write() -> None:
        writer = rows.writeTo(table.name.sql)
        for key, value in notes.properties().items():
            writer = writer.option(f"snapshot-property.{key}", value)
        writer.append()

    _committed(write, table, notes)


def upsert(rows: DataFrame, table: IcebergTable, notes: Notes, *, field: str) -> None:
    """Merges rows by their key, in one snapshot. Raises what Spark raised where nothing was committed."""
    session = rows.sparkSession
    last_of_each_key(rows, field).createOrReplaceTempView(_SOURCE)

    def write() -> None:
        with _noted(session, notes):
            session.sql(merge_statement(table.name.sql, _SOURCE, field, rows.columns))

    try:
        _committed(write, table, notes)
    finally:
        session.catalog.dropTempView(_SOURCE)


def has(table: IcebergTable, notes: Notes) -> bool:
    """Whether the table has the batch already."""
    have = table.places()
    return all((place(have, topic, partition) or 0) >= end for topic, partition, end in each(notes.places))


def _committed(write: Callable[[], None], table: IcebergTable, notes: Notes) -> None:
    """Until the table has the batch. A batch that changes nothing leaves a snapshot, too, so that its places are kept."""
    for attempt in range(1, ATTEMPTS + 1):
        try:
            write()
        except (PySparkException, Py4JError) as error:
            if has(table, notes):
                return
            if attempt == ATTEMPTS or not any(name in str(error) for name in _CONFLICTS):
                raise
        else:
            if not has(table, notes):
                table.note(notes.properties())
            return


@contextmanager
def _noted(session: SparkSession, notes: Notes) -> Iterator[None]:
    """Statements of the session write these into their snapshot."""
    conf = session.conf
    for key, value in notes.properties().items():
        conf.set(_SESSION_NOTE + key, value)
    try:
        yield
    finally:
        for key in notes.properties():
            conf.unset(_SESSION_NOTE + key)


def _column(rows: pa.RecordBatch, field: pa.Field) -> pa.Array:
    index = rows.schema.get_field_index(field.name)
    return conform(rows.column(index), field.type) if index >= 0 else pa.nulls(rows.num_rows, type=field.type)

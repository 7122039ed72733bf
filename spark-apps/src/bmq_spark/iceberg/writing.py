"""Batches as rows: what workers make of records, and how rows are added to a table, or merged by their key, in one
snapshot (`publishing`).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as sql

from bmq_spark.batches.buried import Buried
from bmq_spark.batches.places import Counts, Places
from bmq_spark.batches.records import DEAD_LETTERS, Typing, dead_letters, observed
from bmq_spark.iceberg.clocks import too_old
from bmq_spark.iceberg.evolution import spark_columns
from bmq_spark.iceberg.notes import Notes
from bmq_spark.iceberg.publishing import ATTEMPTS, commit, was_lost, was_overtaken
from bmq_spark.iceberg.tables import IcebergTable
from bmq_spark.iceberg.upsert import merge_statement, remember_statement
from bmq_spark.values import Observation, conform

LETTER: Final = "_bmq_dead_letter"
"""The column beside a table's own that has a record which does not fit, as its dead letter; null where it fits. Spelt
as nobody names a column."""
WRITER: Final = pa.field("_bmq_writer", pa.int32())
"""The column beside these that has the id of the schema which a record was written by, where columns follow a registry:
see RegisteredDecoder.writers."""
_LETTER_TYPE: Final = pa.struct(list(DEAD_LETTERS))
_SOURCE: Final = "bmq_batch"
WRITERS_MAX: Final = 100_000
SEEN: Final = "seen binary"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """What a worker makes of records: rows of the table's columns, LETTER and WRITER; nothing of those that are buried.

    One look at a record decides both: a second one might find what the first did not, in a registry that has learnt a
    schema meanwhile, and the record would be in neither table.
    """

    typing: Typing
    columns: pa.Schema
    buried: Buried
    settled: bool
    """Whether the columns are known to be those that the batch needs: see Buried."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Takes records."""
        for batch in batches:
            rows, reasons = self.typing.rows(batch)
            fit, unfit = self.buried.split(batch, reasons, settled=self.settled)
            beside = [_letters(batch, reasons, unfit), self.typing.writers(batch)]
            made = pa.RecordBatch.from_arrays([*_columns(rows, self.columns), *beside], schema=self._made)
            yield made.filter(pc.or_(fit, unfit)) if self.buried.places else made

    def of(self, records: DataFrame) -> DataFrame:
        """Runs where the records are."""
        return records.mapInArrow(self, spark_columns(self._made))

    @property
    def _made(self) -> pa.Schema:
        return self.columns.append(pa.field(LETTER, _LETTER_TYPE)).append(WRITER)


def that_fit(rows: DataFrame) -> DataFrame:
    """The table's rows among what `Rows` made."""
    return rows.filter(sql.col(LETTER).isNull()).drop(LETTER, WRITER.name)


def letters_of(rows: DataFrame) -> DataFrame:
    """The dead letters among what `Rows` made."""
    return rows.filter(sql.col(LETTER).isNotNull()).select(f"{LETTER}.*")


def counts_of(rows: DataFrame) -> tuple[Counts, int]:
    """How many records `Rows` made something of, and how many of these are dead letters: one look at all of them."""
    found = rows.groupBy("topic", "partition").agg(sql.count("*"), sql.count(LETTER)).collect()
    return {(topic, partition): count for topic, partition, count, _ in found}, sum(row[3] for row in found)


def writers_of(rows: DataFrame) -> dict[int, int]:
    """How many of what `Rows` made are of each schema, of those that are told of; WRITERS_MAX of these."""
    writer = sql.col(WRITER.name)
    told = rows.filter(writer.isNotNull()).groupBy(writer).count().limit(WRITERS_MAX).collect()
    return {row[WRITER.name]: row["count"] for row in told}


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What a worker sees in values that do not fit, and that may become columns: a row of SEEN."""

    typing: Typing

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Takes records."""
        seen = Observation()
        for batch in batches:
            seen.take(observed(batch, self.typing.rows(batch)[1]))
        schema = pa.schema([pa.field("seen", pa.binary())])
        yield pa.RecordBatch.from_pylist([{"seen": seen.packed()}], schema=schema)


def append(
    rows: DataFrame,
    table: IcebergTable,
    notes: Notes,
    *,
    have: Places,
    verify: Callable[[], None],
    look: Callable[[Mapping[str, str]], None] | None = None,
) -> Mapping[str, str]:
    """Adds rows of the table's columns. See `publishing.commit`; raises also what Spark raised where nothing was
    committed.
    """
    return commit(
        rows.sparkSession,
        table,
        notes,
        have=have,
        verify=verify,
        look=look,
        write=lambda: rows.writeTo(table.name.sql).append(),
    )


def upsert(
    rows: DataFrame,
    table: IcebergTable,
    notes: Notes,
    *,
    field: str,
    own: Sequence[str],
    have: Places,
    verify: Callable[[], None],
) -> Mapping[str, str]:
    """Merges rows by their key, of which each has one; `own`: the columns that are the job's. See `append`."""
    session = rows.sparkSession
    rows.createOrReplaceTempView(_SOURCE)

    def write() -> None:
        session.sql(merge_statement(table.name.sql, _SOURCE, field, columns=table.columns().names, own=own))

    try:
        return commit(session, table, notes, have=have, verify=verify, write=write)
    finally:
        session.catalog.dropTempView(_SOURCE)


def remember(tombstones: DataFrame, table: IcebergTable) -> None:
    """Merges them into the table of tombstones; again where others committed to it meanwhile, as a compaction does, or
    the answer was lost: that may be done at will, for it needs no places. Raises JobStopped where Iceberg refuses the
    time, else what Spark raised.
    """
    session = tombstones.sparkSession
    tombstones.createOrReplaceTempView(_SOURCE)
    try:
        for left in reversed(range(ATTEMPTS)):
            try:
                session.sql(remember_statement(table.name.sql, _SOURCE))
                return
            except (PySparkException, Py4JError) as error:
                if (stopped := too_old(table.name, str(error))) is not None:
                    raise stopped from error
                if not left or not (was_overtaken(error) or was_lost(error, table)):
                    raise
            table.refresh()  # waits for a catalog that is away
    finally:
        session.catalog.dropTempView(_SOURCE)


def _letters(records: pa.RecordBatch, reasons: pa.Array, which: pa.Array) -> pa.Array:
    """A dead letter for each of the records that is one, else null; nothing is copied of the others."""
    if not which.true_count:
        return pa.nulls(len(which), type=_LETTER_TYPE)
    places = pc.subtract(pc.cumulative_sum(which.cast(pa.int64())), 1)
    return (
        dead_letters(records, reasons, which)
        .to_struct_array()
        .take(pc.if_else(which, places, pa.scalar(None, pa.int64())))
    )


def _columns(rows: pa.RecordBatch, columns: pa.Schema) -> list[pa.Array]:
    """Null where the rows have no such column. Raises what `conform` does, also where the table lacks a whole
    column.
    """
    return list(conform(rows.to_struct_array(), pa.struct(list(columns))).flatten())

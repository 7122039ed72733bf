"""Batches into an Iceberg table and its table of dead letters.

A batch is one snapshot, which is committed together with the table's places, on the condition that the table is still
where the batch begins (`iceberg.publishing`). Dead letters are committed first, in a table with places of its own, so
that a batch which is killed between the two commits adds the second half alone when it comes again.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from bmq_spark.batches.buried import Buried
from bmq_spark.batches.places import Places, Range, ahead, each, ends_of, place
from bmq_spark.batches.records import DEAD_LETTERS, Typing
from bmq_spark.ending import say
from bmq_spark.errors import BmqError, ConfigurationError, JobStopped
from bmq_spark.iceberg.catalogs import TableName
from bmq_spark.iceberg.clocks import Watched
from bmq_spark.iceberg.maintenance import Maintenance, maintain, require_own
from bmq_spark.iceberg.notes import Notes
from bmq_spark.iceberg.publishing import commit, moved
from bmq_spark.iceberg.tables import BESIDE_OF, TOMBSTONES, TOPIC, IcebergTable
from bmq_spark.iceberg.tables import DEAD_LETTERS as LETTERS
from bmq_spark.iceberg.upsert import (
    KEY_TIMESTAMP,
    RECORD_KEY,
    KeyedTyping,
    are_alone,
    deletions,
    found_by,
    keyed,
    last_of_each_partition,
    tombstone_columns,
    winners,
)
from bmq_spark.iceberg.writing import (
    SEEN,
    Rows,
    Seen,
    append,
    counts_of,
    letters_of,
    remember,
    that_fit,
    upsert,
    writers_of,
)
from bmq_spark.jobs.cluster import Topic
from bmq_spark.jobs.decoders import inferred
from bmq_spark.jobs.identity import another_topic
from bmq_spark.jobs.loss import NAMED_MAX
from bmq_spark.jobs.newest_version import NewestVersion, left_out
from bmq_spark.jobs.sinks import Added, Batch
from bmq_spark.values import Observation, SchemaBreaks, iceberg_rules, merge_types, settle

UPSERT_ORDER: Final = "bmq.upsert-order"
"""The property of a table with one row for each key that names the column by which partitions are compared. A table of
before gets it when it is opened."""
CHANGES_MAX: Final = 5
"""So often a batch is begun anew where others change the table's columns while it is written."""
KEPT: Final = StorageLevel.MEMORY_AND_DISK
"""Values are decoded once, and looked at twice: for dead letters, which are committed first, and for rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSettings:
    """How the table is made and kept."""

    partition_by: str
    upsert_key: str
    """Empty: rows are only added."""
    target_file_size_bytes: int
    maintenance: Maintenance | None
    """None: somebody else maintains the table."""
    maintenance_every_ms: int

    def by_key(self, typing: Typing) -> Typing:
        """What finds rows by their key, where there is one. Raises ConfigurationError for one that finds nothing."""
        return keyed(typing, self.upsert_key) if self.upsert_key else typing


class IcebergSink:
    """A sink that adds batches to an Iceberg table, and what does not fit to a table of dead letters beside it."""

    def __init__(
        self,
        spark: SparkSession,
        name: TableName,
        typing: Typing,
        settings: TableSettings,
        *,
        infers: bool = False,
        newest: NewestVersion | None = None,
        clock: Watched | None = None,
    ) -> None:
        """Makes the table if it is missing; `infers`: values that do not fit may make columns. Columns follow `newest`,
        if any. `clock`: this machine's. Raises BmqError.
        """
        self._spark = spark
        self._clock = clock or Watched()
        self._newest = newest
        self._typing = settings.by_key(typing)
        self._infers = infers
        self._settings = settings
        # Before a table is made that could not have these.
        there = IcebergTable.open(spark, name)
        if there is not None:
            self._clock.require(there)
        of = there.id if there else None
        self._dead = IcebergTable.open_beside(spark, name.dead_letters, LETTERS, of=of) if self._may_not_fit() else None
        self._tombstones = (
            IcebergTable.open_beside(spark, name.tombstones, TOMBSTONES, of=of)
            if settings.upsert_key == RECORD_KEY
            else None
        )
        self._table = self._create(name, self._schema(), settings.upsert_key)
        if settings.maintenance is not None:
            require_own(self._table, settings.maintenance)
        self._evolve()
        self._table.bound_row_groups()
        for beside in filter(None, (self._dead, self._tombstones)):
            beside.bound_row_groups()
            if BESIDE_OF not in beside.properties():
                beside.set_property(BESIDE_OF, self._table.id)
        if settings.upsert_key and UPSERT_ORDER not in self._table.properties():
            self._table.set_property(UPSERT_ORDER, KEY_TIMESTAMP)
        if self._tombstones is not None:
            self._tombstones.evolve(self._tombstone_columns())
        self._kept_s = time.monotonic()
        self._made_for: pa.Schema | None = None
        """The columns that the rows of the batch under way are made for; None: none are yet."""
        self._letters = 0
        """Dead letters that it added."""
        self._writers: dict[int, int] = {}
        """How many records it has of schemas other than the newest version."""

    @property
    def table(self) -> IcebergTable:
        """The table of the rows."""
        return self._table

    @property
    def name(self) -> str:
        """What messages call it: the table, by its name."""
        return f"the table {self._table.name}"

    def places(self) -> Places:
        """Up to where the table has each partition, read anew."""
        return self._table.places()

    def check(self, topics: Mapping[str, Topic]) -> None:
        """Raises JobStopped where the table is of other topics than these, by id. Ids are properties of the table:
        those of new topics are noted there.

        Raises ConfigurationError where it has rows by key of topics that are not among these: a job looks at rows and
        tombstones before it merges, and would not see what another one deletes meanwhile.
        """
        kept = self._table.properties()
        if self._settings.upsert_key:
            self._require_all(topics, kept)
        for name, topic in topics.items():
            known = kept.get(TOPIC + name)
            if known is None:
                self._table.set_property(TOPIC + name, topic.id)
            elif known != topic.id:
                raise another_topic(name, topic, kept=known, what=self.name, option="--table")

    def _require_all(self, topics: Mapping[str, Topic], kept: Mapping[str, str]) -> None:
        others = sorted(name for key in kept if (name := key.removeprefix(TOPIC)) != key and name not in topics)
        if not others:
            return
        named = ", ".join(others[:NAMED_MAX]) + (", …" if len(others) > NAMED_MAX else "")
        raise ConfigurationError(
            f"--topic: the table {self._table.name} has one row for each key, of other topics, too: {named}: name all "
            "of them in one job, since two would undo each other's deletions. Of a topic that no job reads any more: "
            f"ALTER TABLE {self._table.name} UNSET TBLPROPERTIES ('{TOPIC}{others[0]}')"
        )

    def retire(self, query_id: str) -> None:
        """Does nothing: what this query wrote without a snapshot goes with the orphans of maintenance."""

    def pass_over(self, lost: Sequence[Range]) -> None:
        """Commits that these are gone, so that the table's places are where they end: a snapshot that adds nothing says
        so. Raises BmqError.
        """
        notes = Notes(places=ends_of(lost), lost=", ".join(map(str, lost)))
        commit(self._spark, self._table, notes, have=self._table.places())

    def begin_at(self, places: Places) -> None:
        """Commits that topics of which the table has nothing begin there: a snapshot that adds nothing says so. Raises
        BmqError.
        """
        have = self._table.places()
        commit(self._spark, self._table, Notes(places=ahead(have, places)), have=have)

    def add(self, batch: Batch) -> Added:
        """Writes and commits. A batch that the table has is passed over; one whose rows do not go in since others
        changed the columns is begun anew. Raises BmqError where nothing was committed.

        That is as if the run had ended and begun again: what is in the dead letters by then stays there, and is not
        added again.
        """
        letters = 0
        for _ in range(CHANGES_MAX):
            self._letters = 0
            try:
                added = self._add(batch)
            except PySparkException:
                letters += self._letters
                columns = self._made_for
                self._table.refresh()
                if columns is None or self._table.columns() == columns:
                    raise
            else:
                return replace(added, dead_letters=letters + added.dead_letters)
        raise JobStopped(
            f"{self.name}: others changed its columns {CHANGES_MAX} times while one batch was written: the place "
            "is kept; run it when they are done"
        )

    def _add(self, batch: Batch) -> Added:
        self._made_for = None
        self._clock.require(self._table)
        have = self._table.places()
        if all((place(have, topic, partition) or 0) >= end for topic, partition, end in each(batch.ends)):
            return Added(rows=0, files=0, size_bytes=0, dead_letters=0)
        if any(place(have, part.topic, part.partition) not in (None, part.start) for part in batch.ranges):
            raise moved(self._table)
        notes = Notes(places=ahead(have, batch.ends), query_id=batch.query_id, batch_id=batch.batch_id)
        dead = self._dead.places() if self._dead else {}
        buried = self._buried(have, dead)
        self._adopt()
        self._evolve()  # somebody may have renamed or dropped columns since the last batch
        rows = self._rows(batch, buried, settled=not (self._infers and buried.places))
        try:
            if self._may_not_fit():
                rows = self._newer(rows.persist(KEPT), batch, buried)
                unfit = self._unfit(rows, batch, buried)
                if unfit and self._infers:
                    rows = self._grown(rows, batch, buried)
                    unfit = self._unfit(rows, batch, buried)
                self._letters = self._bury(letters_of(rows), batch, notes, dead) if unfit else 0
            fields = left_out(self._typing, self._writers)
            summary = self._write(that_fit(rows), notes, have, batch)
        finally:
            rows.unpersist()
        count = {key: int(summary.get(key, 0)) for key in ("added-records", "added-data-files", "added-files-size")}
        self._keep()
        return Added(
            rows=count["added-records"],
            files=count["added-data-files"],
            size_bytes=count["added-files-size"],
            dead_letters=self._letters,
            left_out=fields,
        )

    def _create(self, name: TableName, schema: pa.Schema, upsert_key: str = "", *, beside: str = "") -> IcebergTable:
        settings = self._settings
        return IcebergTable.create(
            self._spark,
            name,
            schema,
            partition_by=settings.partition_by,
            upsert_key=upsert_key,
            target_file_size_bytes=settings.target_file_size_bytes,
            beside=beside,
            of=self._table.id if beside else "",
        )

    def _schema(self) -> pa.Schema:
        return self._typing.row_schema if isinstance(self._typing, KeyedTyping) else self._typing.schema

    def _tombstone_columns(self) -> pa.Schema:
        return tombstone_columns(self._table.columns().field(RECORD_KEY).type)

    def _evolve(self) -> None:
        key = self._settings.upsert_key
        needed = [*found_by(key)] if key else []
        if key and UPSERT_ORDER in self._table.properties():
            needed.append((KEY_TIMESTAMP,))
        self._table.evolve(self._schema(), found_by=needed)

    def _adopt(self) -> None:
        """Where columns are inferred, those that somebody has added to the table since have the types that they were
        given there.
        """
        have = self._table.columns()
        if not self._infers or "value" not in have.names or not pa.types.is_struct(have.field("value").type):
            return
        columns = known_anew(have.field("value").type, self._typing.columns)
        if columns != self._typing.columns:
            self._typing = inferred(self._typing, columns)

    def _rows(self, batch: Batch, buried: Buried, *, settled: bool) -> DataFrame:
        self._made_for = self._table.columns()
        return Rows(typing=self._typing, columns=self._made_for, buried=buried, settled=settled).of(batch.records)

    def _buried(self, have: Places, dead: Places) -> Buried:
        table = self._dead
        if table is None or all(end <= (place(have, topic, number) or 0) for topic, number, end in each(dead)):
            return Buried()
        return Buried.read(
            lambda: table.read(self._spark),
            theirs=dead,
            table=have,
            undone=self._table.state().undone,
            remedy=f"; or, if {self._table.name} was set back to what it was before, and dead letters were deleted "
            f"since, set {table.name} back, too (docs/tables.md)",
        )

    def _unfit(self, rows: DataFrame, batch: Batch, buried: Buried) -> int:
        """How many of the rows are dead letters. Raises JobStopped where records did not come."""
        counts, unfit = counts_of(rows)
        batch.require_all(buried.added_to(counts, batch.ranges))
        return unfit

    def _grown(self, rows: DataFrame, batch: Batch, buried: Buried) -> DataFrame:
        """The rows again, where values had something that becomes a column; else the same."""
        self._adopt()
        told = batch.records.mapInArrow(Seen(typing=self._typing), SEEN).collect()
        columns = settle(
            self._typing.columns,
            [Observation.unpacked(bytes(row["seen"])) for row in told],
            rules=iceberg_rules,
            by_path=True,
        )
        if columns == self._typing.columns and not buried.places:
            return rows
        batch.verify()  # columns stay, whatever becomes of the batch
        rows.unpersist()
        self._typing = inferred(self._typing, columns)
        self._evolve()
        return self._rows(batch, buried, settled=True).persist(KEPT)

    def _newer(self, rows: DataFrame, batch: Batch, buried: Buried) -> DataFrame:
        """The rows again, where records of a schema that was not met before bring a newer version; else the same."""
        if self._newest is None:
            return rows
        self._writers = writers_of(rows)
        typing = self._newest.after(self._typing, self._writers, self._table.columns())
        if typing is None:
            return rows
        batch.verify()
        rows.unpersist()
        self._typing = self._settings.by_key(typing)
        self._evolve()
        rows = self._rows(batch, buried, settled=True).persist(KEPT)
        self._writers = writers_of(rows)  # of the version before are others now
        return rows

    def _may_not_fit(self) -> bool:
        """Bytes always do, where no key is needed."""
        binary = pa.binary()
        return bool(self._settings.upsert_key) or not (
            self._typing.key.arrow_type == binary and self._typing.value.arrow_type == binary
        )

    def _write(self, rows: DataFrame, notes: Notes, have: Places, batch: Batch) -> Mapping[str, str]:
        key = self._settings.upsert_key
        if not key:
            look = None if self._may_not_fit() else _counting(batch)
            return append(rows, self._table, notes, have=have, verify=batch.verify, look=look)
        merged = self._remembered(rows, batch)
        return upsert(merged, self._table, notes, field=key, own=self._schema().names, have=have, verify=batch.verify)

    def _remembered(self, rows: DataFrame, batch: Batch) -> DataFrame:
        """One row for each key, to be merged; those that delete are kept in the table of tombstones first."""
        key = self._settings.upsert_key
        last = last_of_each_partition(rows, key)
        if self._tombstones is None and are_alone(last, key):
            return last
        session = rows.sparkSession
        known = self._tombstones.read(session) if self._tombstones else None
        # Made now, and without the table in it: Spark cannot merge into a table what it would read from it through a
        # view.
        won = winners(last, self._table.read(session), known, key).localCheckpoint(storageLevel=KEPT)
        gone = deletions(won)
        if gone.limit(1).count():
            batch.verify()
            if self._tombstones is None:
                self._tombstones = self._create(
                    self._table.name.tombstones, self._tombstone_columns(), beside=TOMBSTONES
                )
            remember(gone, self._tombstones)
        return won

    def _bury(self, letters: DataFrame, batch: Batch, notes: Notes, have: Places) -> int:
        """Commits the batch's dead letters, as far as their table has not got them; how many. `have`: the places of
        their table when the letters were chosen. Raises JobStopped where it has others by now, as one has that
        another driver made meanwhile.
        """
        if self._dead is None:
            self._dead = self._create(self._table.name.dead_letters, DEAD_LETTERS, beside=LETTERS)
        self._dead.evolve(DEAD_LETTERS)  # somebody may have renamed or dropped columns
        theirs = replace(notes, places=ahead(have, batch.ends))
        return int(append(letters, self._dead, theirs, have=have, verify=batch.verify).get("added-records", 0))

    def _keep(self) -> None:
        """Maintenance between two batches; its failure stops nothing, for it is tried again."""
        settings = self._settings
        if settings.maintenance is None or time.monotonic() - self._kept_s < settings.maintenance_every_ms / 1000:
            return
        self._kept_s = time.monotonic()
        try:
            self.maintain()
        except BmqError as error:
            say(f"warning: {error}")

    def maintain(self) -> None:
        """Does the maintenance of the table, and of its dead letters and tombstones where it has them. Raises
        JobStopped.
        """
        assert self._settings.maintenance is not None
        say(f"{self._table.name}: {maintain(self._spark, self._table, self._settings.maintenance)}")
        if self._dead is not None:
            say(
                f"{self._dead.name}: "
                f"{maintain(self._spark, self._dead, self._settings.maintenance, below=self._table.places())}"
            )
        if self._tombstones is not None:
            say(
                f"{self._tombstones.name}: "
                f"{maintain(self._spark, self._tombstones, replace(self._settings.maintenance, retention_ms=None))}"
            )


def known_anew(table: pa.DataType, known: pa.DataType) -> pa.DataType:
    """The columns of the values that a job knew, with those that the table has now; where the two cannot be one, the
    table's alone.
    """
    try:
        return merge_types(table, known, rules=iceberg_rules)
    except SchemaBreaks:
        return table


def _counting(batch: Batch) -> Callable[[Mapping[str, str]], None]:
    """Looks whether all records were written, for a batch all of whose records are rows. Only where they are fewer than
    the offsets, which they also are with a topic that has gaps beside one that has none, it reads them once more, to
    say of which partitions some are missing.
    """

    def look(summary: Mapping[str, str]) -> None:
        written = int(summary.get("added-records", 0))
        if not batch.dense or written == batch.offsets:
            return
        found = batch.records.groupBy("topic", "partition").count().collect()
        batch.require_all({(topic, partition): count for topic, partition, count in found})
        if written != sum(count for _, _, count in found):
            raise JobStopped(
                f"{', '.join(map(str, batch.ranges[:NAMED_MAX]))}: {written} records were written, and more are "
                "there: the place is kept; run the job again"
            )

    return look

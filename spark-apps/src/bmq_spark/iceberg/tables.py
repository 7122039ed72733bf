"""One Iceberg table as the jobs see it: made when it is missing, its schema brought up to date, its places read,
snapshots staged and published.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import DataType, StructField, StructType

from bmq_spark.batches.explaining import cause
from bmq_spark.batches.places import Places, merged, to_json
from bmq_spark.errors import ConfigurationError, JobStopped, TableBroken
from bmq_spark.iceberg.away import ANSWERS, is_away, is_missing, is_rest, is_unknown, require_catalog
from bmq_spark.iceberg.catalogs import TableName, refusal
from bmq_spark.iceberg.clocks import too_old
from bmq_spark.iceberg.evolution import changes, columns, ddl
from bmq_spark.iceberg.lineage import Lineages
from bmq_spark.iceberg.notes import (
    BY_HAND,
    PLACES,
    SNAPSHOT,
    UNDONE,
    named_by,
    places_by,
    properties,
    undone_by,
)
from bmq_spark.patience import PATIENCE, Patience

T = TypeVar("T")

PARTITIONINGS: Final = {
    "hour": "PARTITIONED BY (hours(timestamp))",
    "date": "PARTITIONED BY (days(timestamp))",
    "none": "",
}
MADE_BY: Final = "bmq.upsert-key"
"""The property by which a table of these jobs is known; empty where rows are only added."""
TOPIC: Final = "bmq.topic-id."
"""With a topic's name behind it: its id. Tables of rows have it before their first batch, those beside them never."""
BESIDE: Final = "bmq.beside"
"""The property of a table beside another that says what of it is there (`DEAD_LETTERS`, `TOMBSTONES`). Tables of before
are known by their columns."""
BESIDE_OF: Final = "bmq.beside-of"
"""The property of such a table that has the id of the one beside which it is. Tables of before get it when they are
opened."""
DEAD_LETTERS: Final = "dead letters"
TOMBSTONES: Final = "tombstones"
WAP: Final = "write.wap.enabled"
"""Without it Spark makes what it writes the newest snapshot at once."""
ORDER: Final = ("topic", "partition", "offset")
ROW_GROUPS: Final = {
    "write.parquet.row-group-check-min-record-count": "1",
    "write.parquet.row-group-check-max-record-count": "10",
}
"""A row group is held in memory, and ends by its size. Iceberg looks at that after 100 records first, and then, by what
they had, after up to 10,000 more: few large ones, or such behind many small ones, would be gigabytes."""
_PROPERTIES: Final = ROW_GROUPS | {
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
    WAP: "true",
}
CAME_TWICE: Final = "Snapshot already exists"
"""What a catalog says of a snapshot that somebody on the way delivered twice. It has it; Iceberg takes the answer for a
refusal and deletes its files, so that it must never be the newest."""
METADATA: Final = "metadata"
"""Where Iceberg writes what it says of a table, below the table's location."""
_MAIN: Final = "main"
_MARK: Final = "wap.id"
"""What Iceberg calls the mark of a staged snapshot in its summary."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Staged:
    """A snapshot that no reader sees yet."""

    snapshot_id: int
    parent_id: int | None
    """What was the newest when it was staged; None: there was none."""
    sequence: int
    summary: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """A table at one moment."""

    metadata: Any
    """Iceberg's, which a commit is compared with."""
    newest_id: int | None
    ancestors: frozenset[int]
    """The newest and those before it, down to the one that the table's properties name."""
    places: dict[str, dict[int, int]]
    undone: dict[str, dict[int, int]]
    """Up to where it had those partitions before it was rolled back that it has not as far again."""

    def has(self, staged: Staged) -> bool:
        """Whether it is there: it may have expired."""
        return self.metadata.snapshot(staged.snapshot_id) is not None


class IcebergTable:
    """A table that is there. Its methods raise JobStopped, in one line, where the catalog or the bucket does not
    answer. What only looks waits for a catalog that is away.
    """

    def __init__(self, spark: SparkSession, name: TableName, *, patience: Patience = PATIENCE) -> None:
        self.name = name
        self._spark = spark
        self._patience = patience
        self._lineages = Lineages(self._former, table=str(name))
        load = spark._jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable  # type: ignore[union-attr]
        self._table: Any = self._look(lambda: load(spark._jsparkSession, name.sql))

    @classmethod
    def open(cls, spark: SparkSession, name: TableName, *, patience: Patience = PATIENCE) -> "IcebergTable | None":
        """None where there is none. Raises ConfigurationError where the catalog refuses the credentials."""
        try:
            is_there = patience.ask(lambda: _exists(spark, name), lambda error: is_away(error) or is_missing(error))
            return cls(spark, name, patience=patience) if is_there else None
        except ANSWERS as error:
            stopped = unreachable(name, error)
            raise (ConfigurationError(str(stopped)) if refusal(str(error)) else stopped) from error

    @classmethod
    def create(
        cls,
        spark: SparkSession,
        name: TableName,
        schema: pa.Schema,
        *,
        partition_by: str,
        upsert_key: str,
        target_file_size_bytes: int,
        beside: str = "",
        of: str = "",
    ) -> "IcebergTable":
        """The table, made if it is not there; `beside`: what of another table it has, and that one's id. Raises
        ConfigurationError where it is one of another kind, TableBroken where somebody took its snapshot away.
        """
        found = cls.open(spark, name)
        if found is None:
            made = _PROPERTIES | {MADE_BY: upsert_key, "write.target-file-size-bytes": str(target_file_size_bytes)}
            made |= {BESIDE: beside, BESIDE_OF: of} if beside else {}
            listed = ", ".join(f"'{key}' = '{value}'" for key, value in made.items())

            def make() -> None:
                spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {name.namespace_sql}")
                spark.sql(
                    f"CREATE TABLE IF NOT EXISTS {name.sql} ({ddl(schema)}) USING iceberg "
                    f"{PARTITIONINGS[partition_by]} TBLPROPERTIES ({listed})"
                )

            try:  # again where the answer was lost: what is there by then stays
                PATIENCE.ask(make, lambda error: is_away(error) or is_unknown(error))
            except ANSWERS as error:
                raise unreachable(name, error) from error
            found = cls(spark, name)
        elif not beside:
            found.require_rows()
        kept = found.properties().get(MADE_BY)
        if kept is None:
            raise ConfigurationError(f"--table {name}: it is there, and not made by this job: choose another name")
        if kept != upsert_key:
            raise ConfigurationError(
                f"--upsert-key {upsert_key or 'none'}: the table {name} was made with {kept or 'none'}: give it "
                "that one, or choose another --table"
            )
        if found.newest_id() is None:  # just made, perhaps by a job that was killed then
            found.state()
            found._sort()
            # The one that a table without a batch is rolled back to.
            found.begin()
        return found

    @classmethod
    def open_beside(cls, spark: SparkSession, name: TableName, beside: str, *, of: str | None) -> "IcebergTable | None":
        """The table of these of another one's, which has the id `of`; None where there is none. Raises
        ConfigurationError where it is somebody else's, or is left of a table that was dropped: what such a one has
        would count for the new one. `of` is None where the table is not there yet.
        """
        found = cls.open(spark, name)
        if found is None:
            return None
        kept = found.properties()
        topics = sorted(key.removeprefix(TOPIC) for key in kept if key.startswith(TOPIC))
        is_left = of is None or kept.get(BESIDE_OF, of) != of
        if MADE_BY in kept and not topics and not is_left:
            return found
        whose, remedy = "not made by this job", "rename"
        if topics:
            whose = f"a table of the topic {topics[0]}"
        elif MADE_BY in kept:
            whose, remedy = "left of another table, as of one that was dropped", "rename or drop"
        raise ConfigurationError(
            f"--table: its {beside} would go to {name}, which is {whose}: {remedy} that one, or choose another --table"
        )

    def require_rows(self) -> None:
        """Raises ConfigurationError where it has what another table's records left beside it, and no rows."""
        kept, names = self.properties(), self.columns().names
        if MADE_BY not in kept or any(key.startswith(TOPIC) for key in kept):
            return
        beside = kept.get(BESIDE) or (
            DEAD_LETTERS if "reason" in names else TOMBSTONES if "headers" not in names else None
        )
        if beside:
            raise ConfigurationError(f"--table {self.name}: it has the {beside} of another table: choose another name")

    @property
    def id(self) -> str:
        """The table's for ever, whatever it is called."""
        return str(self._table.uuid())

    @property
    def location(self) -> str:
        """Where it lies."""
        return str(self._table.location())

    @property
    def io(self) -> Any:
        """Iceberg's, by which its files are written."""
        return self._table.io()

    @property
    def has_times(self) -> bool:
        """Whether it has partitions, which these jobs make by the records' time, and every record is a row."""
        return not self.properties().get(MADE_BY) and not self._table.spec().isUnpartitioned()

    def own_metadata(self) -> frozenset[str]:
        """The names of the files of metadata that the newest one names, and its own."""
        metadata = self._metadata()
        try:
            files = [metadata.metadataFileLocation(), *(each.file() for each in metadata.previousFiles())]
        except ANSWERS as error:
            raise unreachable(self.name, error) from error
        return frozenset(str(file).rpartition("/")[2] for file in files)

    def properties(self) -> Mapping[str, str]:
        """Read anew."""
        self.refresh()
        return dict(self._table.properties())

    def schema(self) -> StructType:
        """As it is now."""
        return self.read(self._spark).schema

    def read(self, session: SparkSession) -> DataFrame:
        """Its rows as they are now, as the session has them: a stream's batches have one of their own."""
        return self._look(lambda: session.table(self.name.sql))

    def columns(self) -> pa.Schema:
        """As it is now."""
        return columns(self.schema())

    def refresh(self) -> None:
        """Sees what others committed."""
        self._look(self._table.refresh)

    def places(self) -> dict[str, dict[int, int]]:
        """Up to where it has each partition, read anew. A table that was rolled back has the places of what it was
        rolled back to.

        Raises TableBroken where it has rows and nothing says whose.
        """
        state = self.state()
        newest = state.metadata.currentSnapshot()
        if not state.places and newest is not None and self._has_rows(newest):
            raise TableBroken(
                f"table {self.name}: it has rows, and nothing says up to where it has its topics: roll it back to "
                f"a snapshot that a job wrote, or say it: ALTER TABLE … SET TBLPROPERTIES ('{PLACES}' = "
                f"'{{\"TOPIC\": {{\"0\": NEXT_OFFSET}}}}', '{SNAPSHOT}' = '{BY_HAND}')"
            )
        return state.places

    def newest_id(self) -> int | None:
        """The id of the newest snapshot, read anew; None where there is none."""
        self.refresh()
        snapshot = self._table.currentSnapshot()
        return None if snapshot is None else int(snapshot.snapshotId())

    def newest_operation(self) -> str | None:
        """What the newest snapshot did, in Iceberg's words."""
        self.refresh()
        snapshot = self._table.currentSnapshot()
        return None if snapshot is None else str(snapshot.operation())

    def state(self) -> State:
        """Read anew. Raises TableBroken where it has places and no snapshot that has them: a rollback leaves one."""
        metadata = self._metadata()
        kept = {
            key: str(value)
            for key in (PLACES, SNAPSHOT, UNDONE)
            if (value := metadata.properties().get(key)) is not None
        }
        named = named_by(kept)
        if named is not None and metadata.currentSnapshot() is None:
            raise self._emptied(metadata, named[0])
        lineage = self._lineages.of(metadata, named)
        places = places_by(kept, lineage, table=str(self.name))
        return State(
            metadata=metadata,
            newest_id=lineage.ancestors[0].snapshot_id if lineage.ancestors else None,
            ancestors=frozenset(each.snapshot_id for each in lineage.ancestors),
            places=places,
            undone=undone_by(kept, places, table=str(self.name)),
        )

    def _emptied(self, metadata: Any, snapshot_id: int) -> TableBroken:
        """`snapshot_id`: what the properties name."""
        said = f"table {self.name}: it has no current snapshot, and {PLACES} says that it had records: "
        if metadata.snapshot(snapshot_id) is not None:
            return TableBroken(
                f"{said}somebody removed its branch {_MAIN}: set it back: CALL `{self.name.catalog}`.system."
                f"set_current_snapshot(table => '{self.name.in_catalog}', snapshot_id => {snapshot_id})"
            )
        return TableBroken(
            f"{said}the snapshot {snapshot_id} was removed, as by an expiry that met its commit, and the rows with it: "
            "register the table's metadata of before, if its files are still there, or drop the table, and what is "
            f"beside it, to begin anew. To go on without these rows: ALTER TABLE {self.name} SET TBLPROPERTIES "
            f"('{SNAPSHOT}' = '{BY_HAND}')"
        )

    def _former(self, file: str) -> Any:
        """The table's metadata of before, in that file; None where it is gone."""
        jvm: Any = self._spark._jvm
        try:
            return jvm.org.apache.iceberg.TableMetadataParser.read(self._table.io(), file)
        except ANSWERS:
            return None

    def evolve(self, wanted: pa.Schema, *, found_by: Collection[tuple[str, ...]] = ()) -> bool:
        """Adds and widens columns until rows of `wanted` go in, in one commit; whether anything changed.

        Raises JobStopped where they never do, or a column of `found_by` is not there: the rows that are have lost it,
        and adding it does not help. Names go to Iceberg as they are. In the text of a statement Spark would put the
        driver's environment in the place of `${env:…}`.
        """
        self.refresh()
        needed = changes(self.schema(), wanted, table=str(self.name))
        if not needed:
            return False
        gone = [
            path for path in found_by for change in needed if change.added and path[: len(change.path)] == change.path
        ]
        if gone:
            raise JobStopped(
                f"table {self.name}: column {'.'.join(gone[0])} is not there, by which rows are found: somebody "
                "renamed or dropped it: give it its name back (ALTER TABLE … RENAME COLUMN …), roll the table "
                "back, or write to another --table"
            )
        try:
            update = self._table.updateSchema()
            for change in needed:
                *parents, name = change.path
                if change.added:
                    update.addColumn(".".join(parents) or None, name, self._iceberg_type(change.type))
                else:
                    update.updateColumn(".".join(change.path), self._iceberg_type(change.type))
            update.commit()
        except ANSWERS as error:
            raise too_old(self.name, str(error)) or JobStopped(
                f"table {self.name}: its schema cannot be changed: {cause(str(error))}"
            ) from error
        self.refresh()
        return True

    def set_property(self, key: str, value: str) -> None:
        """A commit of its own."""
        try:
            self._table.updateProperties().set(key, value).commit()
        except ANSWERS as error:
            raise unreachable(self.name, error) from error
        self.refresh()

    def bound_row_groups(self) -> None:
        """Sets what new tables are made with on one of before; what somebody has set stays."""
        kept = self.properties()
        missing = {key: value for key, value in ROW_GROUPS.items() if key not in kept}
        if not missing:
            return
        try:
            update = self._table.updateProperties()
            for key, value in missing.items():
                update.set(key, value)
            update.commit()
        except ANSWERS as error:
            raise unreachable(self.name, error) from error
        self.refresh()

    def expire(self, before_ms: int) -> None:
        """Forgets the snapshots that were committed before, but never the newest, and deletes the files that only they
        name.
        """
        try:
            self._table.expireSnapshots().expireOlderThan(before_ms).retainLast(1).commit()
        except ANSWERS as error:
            raise unreachable(self.name, error) from error
        self.refresh()

    def begin(self) -> None:
        """A first snapshot, which adds nothing."""
        try:
            self._table.newAppend().commit()
        except ANSWERS as error:
            raise unreachable(self.name, error) from error
        self.refresh()

    def stages(self) -> None:
        """Has Spark stage what it is told to. A table that an older version of the job made has this to be said
        first.
        """
        if self.properties().get(WAP) != "true":
            self.set_property(WAP, "true")

    def staged(self, mark: str) -> Staged | None:
        """The snapshot that was staged under that mark; None where there is none."""
        self.refresh()
        for snapshot in reversed(list(self._table.snapshots())):
            if snapshot.summary().get(_MARK) == mark:
                return _staged(snapshot)
        return None

    def stage_nothing(self, mark: str, summary: Mapping[str, str]) -> Staged | None:
        """A snapshot that adds nothing, and says this; None where it came twice (see CAME_TWICE), or the catalog is
        away.
        """
        try:
            adding = self._table.newAppend().stageOnly().set(_MARK, mark)
            for key, value in summary.items():
                adding.set(key, value)
            adding.commit()
        except ANSWERS as error:
            if CAME_TWICE in str(error) or self.may_come(error):
                return None
            raise unreachable(self.name, error) from error
        found = self.staged(mark)
        if found is None:
            raise JobStopped(
                f"table {self.name}: a snapshot that was staged is not there: the place is kept; run the job again"
            )
        return found

    def step(self, state: State, staged: Staged, places: Places) -> str | None:
        """Makes a staged snapshot the newest and these the places of their partitions, if the table is as in `state`.

        Whether it did, the next state tells, whatever the catalog said or did not say: that is returned, in one line.
        Raises JobStopped where the catalog refuses who asks, or Iceberg the time.
        """
        kept = properties(merged(state.places, places), snapshot_id=staged.snapshot_id, sequence=staged.sequence)
        if state.undone or state.metadata.properties().get(UNDONE) is not None:
            kept[UNDONE] = to_json(state.undone)
        jvm: Any = self._spark._jvm
        try:
            after = (
                jvm.org.apache.iceberg.TableMetadata.buildFrom(state.metadata)
                .setBranchSnapshot(staged.snapshot_id, _MAIN)
                .setProperties(kept)
                .build()
            )
            self._table.operations().commit(state.metadata, after)
        except ANSWERS as error:
            if refusal(str(error)) or too_old(self.name, str(error)):
                raise unreachable(self.name, error) from error
            return cause(str(error))
        return None

    def drop(self, staged: Staged, *, has_files: bool = True) -> None:
        """Forgets a staged snapshot that is not to be the newest, and deletes its files. What goes wrong here is left
        to maintenance.
        """
        try:
            self._table.refresh()
            if self._table.snapshot(staged.snapshot_id) is not None:
                expiring = self._table.expireSnapshots().expireOlderThan(0).expireSnapshotId(staged.snapshot_id)
                expiring.cleanExpiredFiles(has_files).commit()
        except ANSWERS:
            return

    def _metadata(self) -> Any:
        """Iceberg's, read anew."""
        return self._look(lambda: self._table.operations().refresh())

    def may_come(self, error: Exception) -> bool:
        """Whether the catalog is away, or something before it says that this table is not there, which was."""
        return is_away(error) or (is_missing(error) and is_rest(self._spark, self.name.catalog))

    def _look(self, question: Callable[[], T]) -> T:
        """What the catalog answers, and changes nothing by. Raises JobStopped."""
        try:
            return self._patience.ask(question, self.may_come)
        except ANSWERS as error:
            raise unreachable(self.name, error) from error

    def _iceberg_type(self, kind: DataType) -> Any:
        """As Iceberg's Java code has it."""
        parsed = self._spark._jsparkSession.parseDataType(StructType([StructField("x", kind)]).json())
        jvm: Any = self._spark._jvm
        return jvm.org.apache.iceberg.spark.SparkSchemaUtil.convert(parsed).findType("x")

    def _has_rows(self, snapshot: Any) -> bool:
        rows = snapshot.summary().get("total-records")
        if rows is not None:
            return int(rows) > 0
        try:
            return bool(self._table.newScan().planFiles().iterator().hasNext())
        except ANSWERS as error:
            raise unreachable(self.name, error) from error

    def _sort(self) -> None:
        """Files have rows in the order of the topics: offsets compress well, and a reader of one partition skips
        most.
        """
        jvm: Any = self._spark._jvm
        first, reference = (
            jvm.org.apache.iceberg.NullOrder.NULLS_FIRST,
            jvm.org.apache.iceberg.expressions.Expressions.ref,
        )
        try:
            order = self._table.replaceSortOrder()
            for column in ORDER:
                order.asc(reference(column), first)
            order.commit()
        except ANSWERS as error:
            raise unreachable(self.name, error) from error


def _exists(spark: SparkSession, name: TableName) -> bool:
    """Whether the catalog has it. Raises where it is not the catalog that says that it has not."""
    if spark.catalog.tableExists(name.sql):
        return True
    if not is_rest(spark, name.catalog):
        return False
    require_catalog(spark, name.catalog)
    return spark.catalog.tableExists(name.sql)


def _staged(snapshot: Any) -> Staged:
    parent = snapshot.parentId()
    return Staged(
        snapshot_id=int(snapshot.snapshotId()),
        parent_id=None if parent is None else int(parent),
        sequence=int(snapshot.sequenceNumber()),
        summary=dict(snapshot.summary()),
    )


def unreachable(name: TableName, error: Exception) -> JobStopped:
    """In one line, with what to do."""
    if (stopped := too_old(name, str(error))) is not None:
        return stopped
    if remedy := refusal(str(error)):
        return JobStopped(f"table {name}: the catalog refuses: {cause(str(error))}: {remedy}")
    return JobStopped(
        f"table {name}: {cause(str(error))}: see that the catalog runs and lets this job write; the place is kept"
    )

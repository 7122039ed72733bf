"""Batches into a Parquet table and its dead letters.

One pass over a batch writes both: a worker decodes records, writes rows and dead letters as files of their tables, and
tells which. Nothing of it counts until the driver commits: the columns that the batch brings, its dead letters, then
its rows. The table's places decide what a batch adds; the dead letters have places of their own, so that a batch which
is killed before its rows are committed adds these alone when it comes again. It may come again with fewer records,
which would not bring the columns by which it was decided what a dead letter is: so they are in the table by then.
"""

import math
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Self

from pyspark.sql import SparkSession

from bmq.errors import StoreError
from bmq.ports import Clock
from bmq_spark.batches.buried import Buried
from bmq_spark.batches.places import Places, Range, each, place
from bmq_spark.batches.records import DEAD_LETTERS, Typing
from bmq_spark.ending import say
from bmq_spark.errors import CommitRefused, ConfigurationError, JobStopped
from bmq_spark.jobs.cluster import Topic
from bmq_spark.jobs.decoders import inferred, is_inferred, typing_of
from bmq_spark.jobs.folders import FOLDERS_MAX, are_many, by_folder, fullest
from bmq_spark.jobs.identity import check_identity
from bmq_spark.jobs.newest_version import NewestVersion, left_out
from bmq_spark.jobs.parquet_task import DEAD_BYTES_MAX, OUTCOME, ParquetTask, counts_in, seen_in, writers_in
from bmq_spark.jobs.sinks import Added, Batch
from bmq_spark.locations import Location
from bmq_spark.options import JobOptions
from bmq_spark.table import (
    DEAD_LETTERS_FOLDER,
    Commit,
    Covered,
    DataFile,
    FileName,
    Gap,
    Layout,
    PartitionBy,
    Snapshot,
    Table,
    data_files,
    frame,
)
from bmq_spark.table.clocks import why_not_by_age
from bmq_spark.table.delta import LOG as DELTA_LOG
from bmq_spark.table.delta import publish
from bmq_spark.table.layout import DEAD_LETTERS_OF, is_apart
from bmq_spark.table.log import is_of_rows, now_ms
from bmq_spark.table.proof import prove
from bmq_spark.table.vacuum import expire
from bmq_spark.values import parquet_rules, settle

EXPIRY_INTERVAL_MS: Final = 3_600_000
TASK_BYTES: Final = 32 << 20
TASK_RECORDS: Final = 50_000
"""A task has no fewer records, so that small batches make few files, unless they come to TASK_BYTES of files."""


class ParquetSink:
    """A sink that adds batches to a Parquet table, and what does not fit to its dead letters."""

    def __init__(
        self,
        spark: SparkSession,
        table: Table,
        typing: Typing,
        *,
        infers: bool,
        partition_by: PartitionBy,
        target_bytes: int,
        retention_ms: int | None,
        folders_max: int = FOLDERS_MAX,
        clock: Clock | None = None,
        newest: NewestVersion | None = None,
    ) -> None:
        """`open` checks that the table is of these. Raises ConfigurationError where another one's rows, or another
        one's dead letters, are in the folder of its dead letters.
        """
        self.location = table.location
        self._spark = spark
        self._table = table
        self._dead_location = table.location.child(DEAD_LETTERS_FOLDER)
        self._dead = _dead_letters_at(self._dead_location, of=self.id)
        self._typing = typing
        self._infers = infers
        self._partition_by = partition_by
        self._target_bytes = target_bytes
        self._query_id = ""
        self._retention_ms = retention_ms
        self._folders_max = folders_max
        self._expired_ms = 0
        self._clock = clock
        self._newest = newest
        self._left_out = 0
        """Records of the batch under way with fields that are no columns."""

    @classmethod
    def open(
        cls,
        spark: SparkSession,
        location: Location,
        options: JobOptions,
        *,
        partition_by: PartitionBy,
        target_bytes: int,
        retention_ms: int | None,
        folders_max: int = FOLDERS_MAX,
        clock: Clock | None = None,
    ) -> Self:
        """The table there, which is made if there is none.

        Raises ConfigurationError where it was made with another format, partitioning or lane, StoreUnusable where the
        store cannot carry a table, and BmqError.
        """
        fixed = {
            "format": options.format,
            "key-format": options.key_format,
            "partition-by": partition_by.value,
            "lane": options.lane,
        }
        prove(location)
        table = Table.create(location, {"id": secrets.token_hex(8), **fixed})
        snapshot = table.snapshot()
        kept = snapshot.properties
        if DEAD_LETTERS_OF in kept:
            raise ConfigurationError(
                f"--output {location.hadoop()}: it has the dead letters of another table: name another folder"
            )
        for name, value in fixed.items():
            if kept.get(name, value) != value:
                raise ConfigurationError(
                    f"--{name} {value or 'none'}: the table {location.hadoop()} was made with {kept[name] or 'none'}: "
                    "give the option that value, or another --output"
                )
        typing = typing_of(options, snapshot.schema)
        return cls(
            spark,
            table,
            typing,
            infers=is_inferred(options),
            partition_by=partition_by,
            target_bytes=target_bytes,
            retention_ms=retention_ms,
            folders_max=folders_max,
            clock=clock,
            newest=NewestVersion(options) if typing.follows else None,
        )

    @property
    def id(self) -> str:
        """The table's, for ever."""
        return self._table.snapshot().properties.get("id", self.location.uri)

    @property
    def name(self) -> str:
        """What messages call it: the table, by its place."""
        return f"the table {self.location.hadoop()}"

    def places(self) -> Places:
        """Up to where the table has each partition, read anew."""
        return self._table.snapshot().offsets

    def check(self, topics: Mapping[str, Topic]) -> None:
        """Raises JobStopped where the table is of other topics than these, by id; ids of new topics are noted at its
        place.
        """
        check_identity(self.location, topics, what=self.name)

    def retire(self, query_id: str) -> None:
        """Begins a run of this query, so that earlier ones add nothing any more; what they left without a commit is
        removed.
        """
        self._begin(query_id)

    def pass_over(self, lost: Sequence[Range]) -> None:
        """Commits that these are gone, as gaps, so that the table's places are where they end. Raises BmqError."""
        covered = tuple(
            Covered(topic=hole.topic, partition=hole.partition, first=hole.end, next=hole.end) for hole in lost
        )
        gaps = tuple(_gap(hole) for hole in lost)
        self._table.commit_on_newest(
            lambda newest: self._table.commit_after(
                newest, covered=covered, gaps=gaps, notes={"operation": "accept loss"}
            )
        )
        self._publish()

    def begin_at(self, places: Places) -> None:
        """Commits that partitions of which the table has nothing begin there; nothing where there are none. Raises
        BmqError.
        """

        def decide(newest: Snapshot) -> Commit | None:
            standing = tuple(
                Covered(topic=topic, partition=partition, first=offset, next=offset)
                for topic, partition, offset in each(places)
                if place(newest.offsets, topic, partition) is None
            )
            return (
                self._table.commit_after(newest, covered=standing, notes={"operation": "begin at"})
                if standing
                else None
            )

        self._table.commit_on_newest(decide)

    def add(self, batch: Batch) -> Added:
        """Writes the batch, and commits its columns, its dead letters, then its rows; expires what is past retention.
        Raises BmqError where its rows were not committed.
        """
        if batch.query_id != self._query_id:
            self._begin(batch.query_id)
        before = self._table.snapshot()
        files, letters = self._write(batch, before, self._buried(before))
        batch.verify()
        number, covered = (batch.query_id, batch.batch_id), _covered(batch, before.offsets)
        try:
            if letters:  # without them, columns and rows come by one commit
                self._table.commit_columns(number, offsets=covered, schema=self._typing.schema)
                self._commit_letters(batch, letters)
            self._table.commit_batch(
                number,
                added=files,
                offsets=covered,
                schema=self._typing.schema,
                notes={"dead_letters": str(sum(file.rows for file in letters))} if letters else None,
            )
        except CommitRefused as error:
            raise JobStopped(
                f"{self.name}: {error}: does another job write to it? Let one of them go on alone"
            ) from error
        self.expire()
        self._publish()
        return Added(
            rows=sum(file.rows for file in files),
            files=len(files),
            size_bytes=sum(file.bytes for file in files),
            dead_letters=sum(file.rows for file in letters),
            apart=sum(file.rows for file in (*files, *letters) if is_apart(file.folder)),
            left_out=self._left_out,
        )

    def catch_up(self) -> None:
        """Before a run, which may find nothing to add: expires what is past retention, and publishes what was committed
        and is not yet. Raises BmqError.
        """
        self.expire()
        self._publish()

    def expire(self) -> None:
        """Takes out what is older than the retention, once an hour at most, where this machine's clock is the store's.
        Raises BmqError.
        """
        if self._retention_ms is None or now_ms() - self._expired_ms < EXPIRY_INTERVAL_MS:
            return
        self._expired_ms = now_ms()
        if (why := why_not_by_age(self.location, self._clock)) is not None:
            say(f"warning: {why}")
            return
        before_ms = self._expired_ms - self._retention_ms
        expired = [(self._table, expire(self._table, before_ms=before_ms))]
        if self._dead:
            expired.append((self._dead, expire(self._dead, before_ms=before_ms, below=self._table.snapshot().offsets)))
        for table, gone in expired:
            if gone.files:
                say(f"retention took {gone.rows} rows in {gone.files} files out of {table.location.hadoop()}")

    def _publish(self) -> None:
        """For readers without the log. What goes wrong is the next one's: the commit stands."""
        try:
            for table in (self._table, self._dead):
                if table:
                    publish(table)
        except StoreError as error:
            say(f"warning: {self.location.hadoop()}: committed, and not yet in {DELTA_LOG}: {error}")

    def _begin(self, query_id: str) -> None:
        self._table.begin(query_id)
        if self._dead:
            self._dead.begin(query_id)
        self._query_id = query_id

    def _buried(self, before: Snapshot) -> Buried:
        if self._dead is None:
            return Buried()
        dead = self._dead.snapshot()
        return Buried.read(
            lambda: frame(self._spark, self._dead_location, dead), theirs=dead.offsets, table=before.offsets
        )

    def _write(self, batch: Batch, before: Snapshot, buried: Buried) -> tuple[list[DataFile], list[DataFile]]:
        """Again where values had something that is no column yet, or writers whose schema brings a newer version, or
        where records are of too many folders (`folders`): what was written without that is removed.

        A batch that was killed between its two commits may have made the columns which were lost with it: they are
        found first.
        """
        settled = not (self._infers and buried.places)
        tasks = tasks_for(batch.offsets, cores=self._spark.sparkContext.defaultParallelism, files=before.files)
        records = batch.records.coalesce(tasks)
        folders_max = None if self._partition_by is PartitionBy.NONE else self._folders_max
        only: frozenset[int] | None = None
        while True:
            task = ParquetTask(
                typing=self._typing,
                rows=self._layout(self.location, self._typing.schema, only),
                dead=replace(self._layout(self._dead_location, DEAD_LETTERS, only), buffer_bytes=DEAD_BYTES_MAX),
                buried=buried,
                infers=self._infers,
                settled=settled,
                name=FileName(query_id=batch.query_id, batch_id=batch.batch_id),
                folders_max=folders_max,
            )
            outcome = [row.asDict(recursive=True) for row in records.mapInArrow(task, OUTCOME).collect()]
            files = data_files([row for row in outcome if row["dead"] is False])
            letters = data_files([row for row in outcome if row["dead"]])
            if folders_max is not None and (
                any(row["many"] for row in outcome) or are_many(files, folders_max) or are_many(letters, folders_max)
            ):
                self._remove(files, letters)
                only = fullest(batch.records, self._partition_by, folders_max)
                records, folders_max = by_folder(batch.records, self._partition_by, tasks=tasks), None
                continue
            try:
                batch.require_all(counts_in(outcome))
            except JobStopped:
                self._remove(files, letters)
                raise
            writers = writers_in(outcome)
            if self._newest is not None and (typing := self._newest.after(self._typing, writers, self._typing.schema)):
                self._typing = typing
                self._remove(files, letters)
                continue
            self._left_out = left_out(self._typing, writers)
            seen = [found for row in outcome if (found := seen_in(row)) is not None]
            columns = settle(self._typing.columns, seen, rules=parquet_rules) if seen else self._typing.columns
            if columns == self._typing.columns and settled:
                return files, letters
            settled = settled or columns == self._typing.columns
            self._typing = inferred(self._typing, columns)
            self._remove(files, letters)

    def _remove(self, files: Sequence[DataFile], letters: Sequence[DataFile]) -> None:
        """What no commit will name."""
        for location, found in ((self.location, files), (self._dead_location, letters)):
            for file in found:
                location.delete(file.key)

    def _commit_letters(self, batch: Batch, letters: Sequence[DataFile]) -> None:
        """Their table's places rise to the batch's ends: batches between had none."""
        if self._dead is None:
            # No run begins here: that would take the files that were just written for what a killed run left.
            self._dead = Table.create(self._dead_location, {"id": secrets.token_hex(8), DEAD_LETTERS_OF: self.id})
        dead = self._dead.snapshot()
        # A table of before does not have it: it was seen by the files, and not at all while there were none.
        properties = None if "partition-by" in dead.properties else {"partition-by": self._partition_by.value}
        places = dead.offsets
        covered = [
            Covered(topic=part.topic, partition=part.partition, first=first, next=part.end)
            for part in batch.ranges
            if (first := _first(places, part)) <= part.end
        ]
        try:
            self._dead.commit_batch(
                (batch.query_id, batch.batch_id),
                added=letters,
                offsets=covered,
                schema=DEAD_LETTERS,
                properties=properties,
            )
        except CommitRefused as error:
            raise JobStopped(
                f"{self._dead_location.hadoop()}: {error}: does another job write to it? Let one of them go on alone"
            ) from error

    def _layout(self, location: Location, schema: Any, only: frozenset[int] | None) -> Layout:
        return Layout(
            location=location,
            schema=schema,
            partition_by=self._partition_by,
            target_bytes=self._target_bytes,
            only=only,
        )


def _dead_letters_at(location: Location, *, of: str) -> Table | None:
    """Those of the table of this id; None where there are none. A former table's would count for this one's: a record
    that is among them is no row.
    """
    if not Table.exists(location):
        return None
    table = Table.open(location)
    if is_of_rows(table):
        folder = location.hadoop()
        raise ConfigurationError(
            f"--output: its dead letters would go to {folder}, which is a table of its own: move that one, or name "
            "another folder"
        )
    if table.snapshot().properties.get(DEAD_LETTERS_OF, of) != of:
        raise ConfigurationError(
            f"--output: {location.hadoop()} has the dead letters of another table, which was there before: move or "
            "delete that folder, or name another --output"
        )
    return table


def tasks_for(offsets: int, *, cores: int, files: Sequence[DataFile]) -> int:
    """As few as are worth their while: each makes a file of its own for every folder that it has records of."""
    newest = files[-8:]
    rows, size_bytes = sum(file.rows for file in newest), sum(file.bytes for file in newest)
    each = min(TASK_RECORDS, max(1000, TASK_BYTES * rows // size_bytes)) if size_bytes else TASK_RECORDS
    return max(1, min(cores, math.ceil(offsets / each)))


def _covered(batch: Batch, table: Places) -> list[Covered]:
    """What a batch takes, and of partitions that the table knows nothing of, where they stand though they have nothing
    yet.

    Without that only Spark's checkpoint would know that their later records are due: were it lost, what retention takes
    of these meanwhile would be missed by nobody.
    """
    found = [
        Covered(topic=part.topic, partition=part.partition, first=part.start, next=part.end) for part in batch.ranges
    ]
    there = {(part.topic, part.partition) for part in batch.ranges}
    return found + [
        Covered(topic=topic, partition=partition, first=end, next=end)
        for topic, partition, end in each(batch.ends)
        if (topic, partition) not in there and place(table, topic, partition) is None
    ]


def _first(places: Places, part: Range) -> int:
    have = place(places, part.topic, part.partition)
    return part.start if have is None else have


def _gap(hole: Range) -> Gap:
    return Gap(
        topic=hole.topic,
        partition=hole.partition,
        first=hole.start,
        next=hole.end,
        reason="gone from the log before the job came to it",
    )

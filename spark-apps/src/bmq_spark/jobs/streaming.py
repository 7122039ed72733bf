"""A stream of batches into a table of some kind: where it begins, what of a batch is new to the table, and how it ends.

The sink commits a batch together with the places up to which it goes, and only those places count. So whatever is
killed at whatever moment: what is not committed comes again, and what is committed is cut off the batch that comes
again.
"""

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from bmq_spark.batches.above import from_places
from bmq_spark.batches.explaining import explained, is_worker_late
from bmq_spark.batches.places import Places, Range, ahead, each, ends_of, merged, place, to_add
from bmq_spark.ending import StopRequest, say
from bmq_spark.errors import BmqError
from bmq_spark.jobs.checkpoint import Checkpoint, Planned, Query, Reads, agrees, checkpoint_gone
from bmq_spark.jobs.cluster import Cluster, Topic
from bmq_spark.jobs.loss import check_ends, gone, overtaken, set_back, unseen, went_unseen
from bmq_spark.jobs.progress import Progress
from bmq_spark.jobs.reading import records_stream
from bmq_spark.jobs.sinks import Added, Batch, Sink, Total, fields_left_out, mib, too_many_files
from bmq_spark.options import JobOptions
from bmq_spark.session import SESSION_GONE

STOP_WAIT_S: Final = 120
LOOK_S: Final = 1
LATE_WORKERS_MAX: Final = 5
"""How often in a row a process of Python may start too late before the job ends."""


class Stream:
    """One run of a job."""

    def __init__(
        self,
        spark: SparkSession,
        options: JobOptions,
        sink: Sink,
        checkpoint: Checkpoint,
        *,
        stop: StopRequest | None = None,
    ) -> None:
        self._spark = spark
        self._options = options
        self._sink = sink
        self._checkpoint = checkpoint
        self._stop = StopRequest() if stop is None else stop  # one that did not come yet is false
        self._cluster = Cluster(options)
        self._progress = Progress(self._cluster, options.group)
        self._failure: BmqError | None = None
        self._cause: Exception | None = None
        self._query: Query | None = None
        self._adding = False
        self._late_workers = 0
        self._ranges: Sequence[Range] = ()
        self._dense: frozenset[str] = frozenset()
        """Topics of which a record has to come for each offset."""
        self._goal: Places | None = None
        self._have: Places = {}
        self.total = Total()

    def run(self) -> Total:
        """Until what is there is taken (`once`), or until it is told to stop. Raises BmqError, with the place kept."""
        while True:
            self._failure = self._cause = None
            self._query = self._prepare()
            frame = records_stream(self._spark, self._options, self._query.initial)
            writer = frame.writeStream.foreachBatch(self._on_batch).option("checkpointLocation", self._query.uri)
            if self._options.once and self._options.source == "bmq":
                # Spark 4.1 makes one batch of all that there is for AvailableNow from a source in Python, however much
                # that is.
                self._goal = self._cluster.ends(self._cluster.topics(self._options.topics))
                if self._is_there():
                    return self.total
                writer = writer.trigger(processingTime="0 seconds")
            elif self._options.once:
                writer = writer.trigger(availableNow=True)
            else:
                writer = writer.trigger(processingTime=f"{self._options.trigger_ms} milliseconds")
            query = writer.start()
            try:
                self._wait(query)
            except StreamingQueryException as error:
                if (self._stop or self._is_there()) and self._failure is None and self._cause is None:
                    return self.total
                self._explain(error)
                continue
            finally:
                with suppress(*SESSION_GONE):  # else it hides why the query ended
                    query.stop()
            self._progress.tell(
                {topic: places for topic, places in self._sink.places().items() if topic in self._options.topics}
            )
            return self.total

    def _prepare(self) -> Query:
        """The query to go on with, or a new one from the table's places."""
        topics = self._cluster.topics(self._options.topics)
        self._sink.check(topics)
        self._checkpoint.claim()
        table = {name: found for name, found in self._sink.places().items() if name in topics}
        starts, ends = self._cluster.starts(topics), self._cluster.ends(topics)
        if self._options.source == "kafka":  # the other one stops by itself, and says where
            self._dense = frozenset(topics) - self._cluster.parted(topics)
        check_ends(table, ends, what=self._sink.name)
        reads = Reads(
            source=self._options.source,
            lane=self._options.lane,
            topics={name: topic.id for name, topic in topics.items()},
        )
        query = self._checkpoint.newest()
        # Where nothing was committed yet, a partition begins where it did when the job first began, also if other
        # topics or another source are read now: what retention took since is missed. --starting-offsets latest means
        # the end of then, which the table says itself (`begin_at`). So it is where the table was rolled back to before
        # it had anything of a topic: the query that ran last began where the table was by then.
        begun_before = _begun(query, reads, table)
        job_began = merged(self._first(topics, starts, ends, merged(begun_before, table)), begun_before)
        have = merged(job_began, table)
        goes_on = False
        if query is not None and query.reads() == reads:
            planned = query.planned()
            goes_on = (
                agrees(planned, query.initial, table) and query.is_whole() and not _is_outgrown(query, planned, starts)
            )
            if goes_on and planned:
                have = merged(planned.end, table)
        holes = gone(have, starts)
        if holes and not self._options.accept_loss:
            raise overtaken(holes, what=self._sink.name)
        if holes:
            self._sink.pass_over(holes)
            say(f"warning: {', '.join(map(str, holes))}: gone from the log, passed over as --accept-loss says")
        self._tell_unseen(merged(begun_before, table), starts)
        self._have = have = merged(have, ends_of(holes))
        begun = {name: have[name] for name in topics if name not in table}
        if begun and self._options.starting_offsets == "latest":
            self._sink.begin_at(begun)
        if query is None or not goes_on or holes:
            if query is not None:
                self._sink.retire(query.id())
            query = self._checkpoint.begin(reads, have, job_began=job_began)
        return query

    def _first(
        self, topics: Mapping[str, Topic], starts: Places, ends: Places, known: Places
    ) -> dict[str, dict[int, int]]:
        """Where partitions begin: --starting-offsets is for topics of which nothing is known, later partitions of
        others begin at their start.
        """
        first: dict[str, dict[int, int]] = {}
        for name, topic in topics.items():
            chosen = ends if self._options.starting_offsets == "latest" and name not in known else starts
            first[name] = {partition: place(chosen, name, partition) or 0 for partition in topic.partitions}
        return first

    def _is_there(self) -> bool:
        """Whether everything is in the table that there was when a run of the source `bmq` with --once began."""
        return self._goal is not None and all(
            offset <= (place(self._have, topic, partition) or 0) for topic, partition, offset in each(self._goal)
        )

    def _wait(self, query: StreamingQuery) -> None:
        """Until it ends. Told to stop, it waits for the batch under way, though not for ever. Raises
        StreamingQueryException.
        """
        deadline: float | None = None
        while not query.awaitTermination(LOOK_S):
            if not self._stop and not self._is_there():
                continue
            deadline = deadline or time.monotonic() + STOP_WAIT_S
            if not self._adding or time.monotonic() > deadline:
                query.stop()
                return

    def _on_batch(self, frame: DataFrame, batch_id: int) -> None:
        if self._stop or self._is_there():
            raise _Stopped
        self._adding = True  # told to stop from here on, the run waits; told before, the line above ends it
        try:
            self._add(frame, batch_id)
        except BmqError as error:
            self._failure = error
            raise
        except (PySparkException, Py4JError) as error:
            self._cause = error
            raise
        finally:
            self._adding = False

    def _add(self, frame: DataFrame, batch_id: int) -> None:
        began = time.monotonic()
        assert self._query is not None
        start, end = self._query.end(batch_id - 1), self._query.end(batch_id)
        if end is None:
            raise checkpoint_gone(self._query.uri)
        table = merged(self._query.job_began or {}, self._sink.places())
        start = merged(self._query.initial, start or {})
        ranges, holes = to_add(start=start, end=end, table=table)
        if holes:
            lost = gone(table, self._cluster.starts(self._cluster.topics(self._options.topics)))
            raise overtaken(holes, what=self._sink.name) if lost else set_back(holes, what=self._sink.name)
        if not ranges:
            # Another job may have added all of it meanwhile: then no later batch says that what was there is taken.
            self._have = merged(self._have, ahead(self._have, end))
            return
        known = merged(start, table)
        if any(place(known, part.topic, part.partition) is None for part in ranges):
            self._tell_unseen(known, self._cluster.starts(self._cluster.topics(self._options.topics)))
        self._ranges = ranges
        batch = Batch(
            records=_cut(frame, start=start, end=end, table=table),
            ranges=ranges,
            ends=end,
            query_id=self._query.id(),
            batch_id=batch_id,
            verify=self._verify,
            dense=self._dense,
        )
        added = self._sink.add(batch)
        self._have = merged(self._have, batch.ends)
        self._count(added)
        self._late_workers = 0
        self._progress.tell(batch.ends)
        self._report(batch, added, time.monotonic() - began)

    def _tell_unseen(self, known: Places, starts: Places) -> None:
        """No loss that stops a job: nobody has promised the table what went before its partition was seen."""
        if lost := unseen(known, starts):
            say(f"warning: {went_unseen(lost, what=self._sink.name)}")

    def _verify(self) -> None:
        self._sink.check(self._cluster.topics(self._options.topics))

    def _count(self, added: Added) -> None:
        self.total.batches += 1
        self.total.rows += added.rows
        self.total.files += added.files
        self.total.size_bytes += added.size_bytes
        self.total.dead_letters += added.dead_letters

    def _report(self, batch: Batch, added: Added, seconds: float) -> None:
        try:
            ends = self._cluster.ends(self._cluster.topics(self._options.topics))
            lag = str(
                sum(max(0, end - (place(batch.ends, topic, partition) or 0)) for topic, partition, end in each(ends))
            )
        except BmqError:
            lag = "unknown"
        say(
            f"batch {batch.batch_id}: {added.rows} rows in {added.files} files of {mib(added.size_bytes)}, "
            f"{added.dead_letters} dead letters, lag {lag} records, {seconds:.1f} s"
        )
        for why in (too_many_files(added), fields_left_out(added)):
            if why is not None:
                say(f"warning: {why}")

    def _explain(self, error: StreamingQueryException) -> None:
        """Raises what stopped the query, in one line.

        Returns where the query is to begin anew: after loss that was accepted, where partitions were added which Spark
        does not read from where they begin, or where a process started too late.
        """
        if self._failure is not None:
            raise self._failure from None
        if is_worker_late(self._cause or error) and self._late_workers < LATE_WORKERS_MAX:
            self._late_workers += 1
            say("warning: a process of Python did not start within Spark's ten seconds: the query begins anew")
            return
        topics = self._cluster.topics(self._options.topics)
        self._sink.check(topics)
        table = {name: found for name, found in self._sink.places().items() if name in topics}
        # Where nothing was committed yet, the query's own beginning is what retention may have overtaken.
        holes = gone(merged(self._query.initial if self._query else {}, table), self._cluster.starts(topics))
        if holes and self._options.accept_loss:
            return
        if holes:
            raise overtaken(holes, what=self._sink.name) from None
        if self._query and _is_outgrown(self._query, self._query.planned(), self._cluster.starts(topics)):
            return
        if self._query and self._query.is_gone():
            raise checkpoint_gone(self._query.uri) from None
        checkpoint = self._query.uri if self._query else ""
        raise explained(
            self._cause or error, servers=self._options.bootstrap_servers, ranges=self._ranges, checkpoint=checkpoint
        ) from None


def _begun(query: Query | None, reads: Reads, table: Places) -> Places:
    """Where the job began in those topics of the query that ran last that are read now. Notes of before say it of what
    the table has nothing of.
    """
    if query is None or (before := query.reads()).lane != reads.lane:
        return {}
    told = query.job_began
    if told is None:
        told = {
            topic: {number: offset for number, offset in found.items() if place(table, topic, number) is None}
            for topic, found in query.initial.items()
        }
    return {
        name: places
        for name, places in told.items()
        if name in reads.topics and before.topics.get(name) == reads.topics[name]
    }


def _is_outgrown(query: Query, planned: Planned | None, starts: Places) -> bool:
    """Whether there are partitions of which Spark knows nothing and which it does not read from where they begin: it
    takes what is gone of them for a loss, and begins no query that does not say where each of them begins.
    """
    known = merged(query.initial, planned.end if planned else {})
    added = [start for topic, partition, start in each(starts) if place(known, topic, partition) is None]
    return any(start > 0 for start in added) or (bool(added) and not query.has_begun())


class _Stopped(Exception):
    """Ends the query between two batches."""


def _cut(frame: DataFrame, *, start: Places, end: Places, table: Places) -> DataFrame:
    """Without the records that the table has."""
    had: dict[str, dict[int, int]] = {}
    for topic, partition, _ in each(end):
        have = place(table, topic, partition)
        if have is not None and have > (place(start, topic, partition) or 0):
            had.setdefault(topic, {})[partition] = have
    return from_places(frame, had, others=True)

"""Reading on and on: `spark.readStream.format("bmq")`, and where a stream that is to end has to end.

Spark 4.1 tells a Python source neither where it is nor how much it wants. The reader keeps its place itself: Spark
calls `partitions` for every batch, and after a restart once with the checkpoint's newest offsets. But not with
Trigger.AvailableNow: there it asks for the newest offset, once, of a reader that cannot know whether there is a
checkpoint. So limits hold only once Spark has told the place; what is answered before is the end. A run that is to end
and has limits takes `end_of` and `reached` instead of AvailableNow.
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from bmq_spark.source.batch import read_task, tasks_of
from bmq_spark.source.failures import SourceFailed
from bmq_spark.source.options import SourceOptions, parse_options
from bmq_spark.source.positions import Backlog, Positions, check_ids, limited, offset_in, positions_of
from bmq_spark.source.slices import Piece, SourceTopic

if TYPE_CHECKING:  # executors import this module too: see batch
    from bmq_spark.source.planning import PartitionEnd, Planner


class StreamReader(DataSourceStreamReader):
    """Reads one query's stream. The driver keeps one for as long as the query runs; executors get another that has not
    been used.
    """

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._planner: Planner | None = None
        self._at: Positions | None = None
        self._is_told = False
        """Whether Spark has said where it is: before that, an offset short of the end could lie before the
        checkpoint's."""
        self._planned: tuple[Positions, list[SourceTopic], dict[tuple[str, int], PartitionEnd]] | None = None
        """From where on, which topics and which logs `latestOffset` saw last."""

    def initialOffset(self) -> dict[str, Any]:
        """Where a query without a checkpoint begins. Raises SourceFailed."""
        if self._at is None:
            planner = self._plan()
            topics = planner.topics()
            logs = planner.logs(topics)
            starts = {
                (t.name, p): planner.start_of(t, p, logs[t.name, p]) for t in topics for p in range(t.partition_count)
            }
            self._at = positions_of(topics, starts)
        return self._at

    def latestOffset(self) -> dict[str, Any]:
        """Up to where the next batch goes: to the end, or as far as the limits allow. Raises SourceFailed."""
        at: Positions = self.initialOffset()
        topics, logs = self._look(at)
        backlogs = []
        for topic in topics:
            for number in range(topic.partition_count):
                log = logs[topic.name, number]
                start = _start(at, topic.name, number, log)
                end = max(start, self._plan().end_of(topic, number, log))
                entries = [entry for entry in log.log.entries if entry.last_offset >= start and entry.base_offset < end]
                backlogs.append(
                    Backlog(topic=topic.name, partition=number, from_offset=start, end=end, segments=entries)
                )
        if not self._is_told:
            return positions_of(topics, {(each.topic, each.partition): each.end for each in backlogs})
        options = self._options
        ends = limited(backlogs, bytes_max=options.bytes_per_trigger, records_max=options.records_per_trigger)
        return positions_of(topics, ends)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """The tasks of one batch. Raises SourceFailed."""
        self._is_told = True
        if start == end:  # Spark says where it is after a restart
            self._at = end
            return []
        planned = self._planned
        topics, logs = planned[1:] if planned is not None and planned[0] == start else self._look(start)
        check_ids(end, topics)
        pieces: list[Piece] = []
        for topic in topics:
            for number in range(topic.partition_count):
                below, log = offset_in(end, topic.name, number), logs[topic.name, number]
                if below is not None and (from_offset := _start(start, topic.name, number, log)) < below:
                    pieces += self._pieces(topic, number, log, from_offset, below)
        self._at = end
        return tasks_of(self._options, pieces)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The records of one task."""
        return read_task(self._options, partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing to do: segments stay for as long as the topic keeps its records."""

    def stop(self) -> None:
        """Nothing to do: the process ends."""

    def _plan(self) -> "Planner":
        if self._planner is None:
            from bmq_spark.source.planning import Planner

            self._planner = Planner(self._options)
        return self._planner

    def _look(self, at: Positions) -> tuple[list[SourceTopic], dict[tuple[str, int], "PartitionEnd"]]:
        planner = self._plan()
        topics = planner.topics()
        check_ids(at, topics)
        after = {(t.name, p): offset_in(at, t.name, p) or 0 for t in topics for p in range(t.partition_count)}
        logs = planner.logs(topics, after=after)
        self._planned = (at, topics, logs)
        return topics, logs

    def _pieces(
        self, topic: SourceTopic, partition: int, log: "PartitionEnd", from_offset: int, below: int
    ) -> list[Piece]:
        if below > log.end:
            raise SourceFailed(
                f"topic {topic.name}, partition {partition}: the checkpoint goes to {below}, the store "
                f"{self._options.store} ends at {log.end}: it is another store, or an older copy: start with a new "
                "checkpoint"
            )
        return self._plan().pieces(topic, partition, log.log, from_offset, below)


def end_of(options: Mapping[str, str]) -> Positions:
    """Where the topics end now, for the options of a stream: what a run that is to end has to read. Raises
    ConfigurationError, SourceFailed.
    """
    from bmq_spark.source.planning import Planner

    parsed = parse_options(options)
    planner = Planner(parsed)
    topics = planner.topics()
    logs = planner.logs(topics)
    return positions_of(
        topics, {(t.name, p): planner.end_of(t, p, logs[t.name, p]) for t in topics for p in range(t.partition_count)}
    )


def _start(positions: Positions, topic: str, partition: int, log: "PartitionEnd") -> int:
    """A partition that is new begins with its first record: what was deleted before anybody knew of it is no loss."""
    found = offset_in(positions, topic, partition)
    return log.log.log_start if found is None else found

"""Reading once: `spark.read.format("bmq")`.

Executors import this module to read. What only plans is imported where it is needed: every worker would spend half a
second on it.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from bmq_spark.source.opening import opened
from bmq_spark.source.options import SourceOptions
from bmq_spark.source.reading import read_slice
from bmq_spark.source.sections import Scratch
from bmq_spark.source.slices import Narrowing, Piece, Slice, TailSlice, cut
from bmq_spark.source.spark_zips import forget_importers


class Task(InputPartition):
    """What one Spark task reads."""

    def __init__(self, pieces: tuple[Piece, ...]) -> None:
        super().__init__(pieces)


class BatchReader(DataSourceReader):
    """Reads for one query: planned on the driver, sent to executors."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._narrowing = Narrowing()

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Takes note of them; Spark applies all of them again."""
        from bmq_spark.source.pushdown import narrowed

        found = narrowed(filters)
        self._narrowing = found if self._options.trusts_batch_times else replace(found, min_timestamp_ms=None)
        return filters

    def partitions(self) -> list[InputPartition]:
        """Raises SourceFailed."""
        from bmq_spark.source.planning import Planner

        forget_importers()
        # Without any task Spark would ask for the records of None.
        return tasks_of(self._options, Planner(self._options).slices(self._narrowing)) or [Task(())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The records of one task."""
        return read_task(self._options, partition)


def tasks_of(options: SourceOptions, pieces: Sequence[Piece]) -> list[InputPartition]:
    """Tasks of about the wanted size each; the tail of each partition is a task of its own."""
    slices = [piece for piece in pieces if isinstance(piece, Slice)]
    tasks: list[InputPartition] = [
        Task(task)
        for task in cut(slices, target_bytes=options.target_partition_bytes, tasks_min=options.partitions_min)
    ]
    return tasks + [Task((piece,)) for piece in pieces if isinstance(piece, TailSlice)]


def read_task(options: SourceOptions, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """Raises SourceFailed. Runs on an executor."""
    assert isinstance(partition, Task)
    forget_importers()
    scratch = Scratch()
    for piece in partition.value:
        if isinstance(piece, TailSlice):
            yield from options.brokers.read(piece, options.columns)
        else:
            yield from read_slice(
                opened(options.store),
                piece,
                columns=options.columns,
                fail_on_data_loss=options.fail_on_data_loss,
                scratch=scratch,
            )

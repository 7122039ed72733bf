"""Reading once: `spark.read.format("bmq")`."""

from collections.abc import Iterable, Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from bmq_spark.source.opening import opened
from bmq_spark.source.options import SourceOptions
from bmq_spark.source.planning import Narrowing, Planner
from bmq_spark.source.pushdown import narrowed
from bmq_spark.source.reading import read_slice
from bmq_spark.source.slices import Slice, cut


class SliceTask(InputPartition):
    """What one Spark task reads."""

    def __init__(self, slices: tuple[Slice, ...]) -> None:
        super().__init__(slices)


class BatchReader(DataSourceReader):
    """Of one query: planned on the driver, sent to executors."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._narrowing = Narrowing()

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Takes note of them; Spark applies all of them again."""
        self._narrowing = narrowed(filters)
        return filters

    def partitions(self) -> list[InputPartition]:
        """Raises SourceFailed."""
        options = self._options
        slices = Planner(options).slices(self._narrowing)
        tasks = cut(slices, target_bytes=options.target_partition_bytes, tasks_min=options.partitions_min)
        # Without any task Spark would ask for the records of None.
        return [SliceTask(task) for task in tasks] or [SliceTask(())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The records of one task."""
        return read_task(self._options, partition)


def read_task(options: SourceOptions, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """Raises SourceFailed. Runs on an executor."""
    assert isinstance(partition, SliceTask)
    for piece in partition.value:
        yield from read_slice(opened(options.store), piece, columns=options.columns, fail_on_data_loss=options.fail_on_data_loss)

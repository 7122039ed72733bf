"""How many folders a batch may have records of: as many as `--max-partitions-per-batch`, and one for the records of all
the others.

A batch is written as it comes, and only counted meanwhile. Where that were too many folders, nothing of it stays, and
it is written again: the folders with the most records are chosen, and each is written by one task. So what an ordinary
batch pays is the counting.

Which folder a record lies in decides nothing else: a batch that comes again, after a kill and cut in another way, may
choose others.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sql

from bmq_spark.table import DataFile, PartitionBy
from bmq_spark.table.layout import folder_and_task, folder_numbers

FOLDERS_MAX: Final = 1_000
"""What --max-partitions-per-batch is by default: six weeks of hours."""


class TooManyFolders(Exception):
    """A task's records are of more folders than there may be; it has written none of them."""


class FolderCount:
    """The folders of a task's records, counted up to the most that there may be: no more are remembered."""

    def __init__(self, by: PartitionBy, most: int) -> None:
        self._by = by
        self._most = most
        self._seen: set[int] = set()

    def add(self, timestamps: pa.Array) -> None:
        """Raises TooManyFolders."""
        if not len(timestamps):
            return
        bounds = pc.min_max(timestamps)
        numbers = folder_numbers(pa.array([bounds["min"], bounds["max"]], timestamps.type), self._by)
        if timestamps.null_count or numbers[0] != numbers[1]:  # mostly all are of one hour
            numbers = folder_numbers(timestamps, self._by)
        self._seen.update(np.unique(numbers).tolist())
        if len(self._seen) > self._most:
            raise TooManyFolders


def are_many(files: Sequence[DataFile], most: int) -> bool:
    """Whether the tasks' folders come to more than there may be. What is divided by size alone is not counted."""
    return len({folder_and_task(file.key) for file in files}) > most


def number_of(by: PartitionBy) -> Column:
    """`layout.folder_numbers` for Spark, by whole numbers."""
    assert by.micros
    micros = sql.coalesce(sql.unix_micros("timestamp"), sql.lit(0))
    return sql.call_function("div", micros - sql.pmod(micros, sql.lit(by.micros)), sql.lit(by.micros))


def fullest(records: DataFrame, by: PartitionBy, most: int) -> frozenset[int]:
    """The folders with the most records, of those with as many the newest. Spark counts, on disk where memory does not
    do.
    """
    counted = records.groupBy(number_of(by).alias("number")).count()
    return frozenset(
        row["number"] for row in counted.orderBy(sql.desc("count"), sql.desc("number")).limit(most).collect()
    )


def by_folder(records: DataFrame, by: PartitionBy, *, tasks: int) -> DataFrame:
    """The same records, those of a folder in one task; of the folders that are not chosen each task gets some."""
    return records.coalesce(1) if tasks == 1 else records.repartition(tasks, number_of(by))

"""What a Spark task does with a batch's records: rows as files of the table, dead letters as files of theirs, in one
pass. Runs in Python workers.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import pyarrow as pa

from bmq_spark.batches.buried import Buried
from bmq_spark.batches.places import Counts
from bmq_spark.batches.records import Typing, dead_letters, observed
from bmq_spark.jobs.folders import FolderCount, TooManyFolders
from bmq_spark.table import FILE_COLUMNS, FILE_SCHEMA, FileName, Layout, write_batches
from bmq_spark.table.writing import BatchWriter
from bmq_spark.values import Observation

OUTCOME: Final = f"{FILE_COLUMNS}, dead boolean, seen binary, many boolean, writers binary, counts binary"
"""A row of each file that was written, and which table it is of, as Spark's DDL; a row without a file has what was
`seen` (`seen_in`), or by which schemas records were written (`writers_in`), or how many records there were
(`counts_in`), or says that the records are of too many folders (`many`): then the task wrote nothing."""
WRITERS_MAX: Final = 1000
"""Schemas that a task tells of."""
DEAD_BYTES_MAX: Final = 32 << 20
"""Dead letters that a task holds in memory; all records of a batch may be some."""
_MARKS: Final = [
    pa.field("dead", pa.bool_()),
    pa.field("seen", pa.binary()),
    pa.field("many", pa.bool_()),
    pa.field("writers", pa.binary()),
    pa.field("counts", pa.binary()),
]
_SCHEMA: Final = pa.schema([*FILE_SCHEMA, *_MARKS])


@dataclass(frozen=True, slots=True, kw_only=True)
class ParquetTask:
    """A value that is sent to the workers."""

    typing: Typing
    rows: Layout
    dead: Layout
    buried: Buried
    """The dead letters that are in their table already."""
    infers: bool
    """Whether values that do not fit may make columns: then what they have is told, also of those that are buried,
    which made columns then."""
    settled: bool
    """Whether the columns are known to be those that the batch needs: see Buried."""
    name: FileName
    folders_max: int | None = None
    """The most folders that there may be; None: any, or the layouts' own, which are chosen."""

    def __call__(self, records: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Takes records, gives OUTCOME."""
        records = iter(records)
        with ExitStack() as stack:
            letters = _Letters(self, stack)
            try:
                for files in write_batches(self._rows(records, letters), self.rows, self.name):
                    yield _marked(files, dead=False)
            except TooManyFolders:
                for _ in records:  # Spark keeps a worker only where it has taken all
                    pass
                yield pa.RecordBatch.from_pylist([{"many": True}], schema=_SCHEMA)
                return
            yield from letters.files()
            if letters.seen.size:
                yield _told("seen", letters.seen.packed())
            if letters.writers:
                yield _told("writers", msgspec.msgpack.encode(dict(letters.writers.most_common(WRITERS_MAX))))
            if letters.counts:
                yield _told("counts", msgspec.msgpack.encode([(*where, n) for where, n in letters.counts.items()]))

    def _rows(self, records: Iterable[pa.RecordBatch], letters: "_Letters") -> Iterator[pa.RecordBatch]:
        folders = None if self.folders_max is None else FolderCount(self.rows.partition_by, self.folders_max)
        for batch in records:
            if folders is not None:
                folders.add(batch.column("timestamp"))
            letters.counts.update(_counted(batch))
            rows, reasons = self.typing.rows(batch)
            fit, unfit = self.buried.split(batch, reasons, settled=self.settled)
            if self.typing.follows:
                letters.writers.update(self.typing.writers(batch).drop_null().to_pylist())
            if self.infers and reasons.null_count < len(reasons):
                letters.seen.take(observed(batch, reasons))
            if unfit.true_count:
                letters.add(dead_letters(batch, reasons, unfit))
            yield rows if fit.true_count == len(fit) else rows.filter(fit)


class _Letters:
    """The dead letters of a task, written together at its end, so that each folder has one file of them."""

    def __init__(self, task: ParquetTask, stack: ExitStack) -> None:
        self._task = task
        self._stack = stack
        self._writer: BatchWriter | None = None
        self.seen = Observation()
        self.writers: Counter[int] = Counter()
        self.counts: Counter[tuple[str, int]] = Counter()

    def add(self, letters: pa.RecordBatch) -> None:
        """Keeps them; most tasks have none, and no folder for them."""
        if self._writer is None:
            self._writer = self._stack.enter_context(BatchWriter(self._task.dead, self._task.name))
        self._writer.add(letters)

    def files(self) -> Iterator[pa.RecordBatch]:
        """Writes them; the rows of the files."""
        if self._writer is not None:
            for files in self._writer.files():
                yield _marked(files, dead=True)


def _marked(files: pa.RecordBatch, *, dead: bool) -> pa.RecordBatch:
    marks = [
        pa.array([dead] * files.num_rows, type=pa.bool_()),
        pa.nulls(files.num_rows, type=pa.binary()),
        pa.nulls(files.num_rows, type=pa.bool_()),
        pa.nulls(files.num_rows, type=pa.binary()),
        pa.nulls(files.num_rows, type=pa.binary()),
    ]
    return pa.RecordBatch.from_arrays([*files.columns, *marks], schema=_SCHEMA)


def _counted(records: pa.RecordBatch) -> dict[tuple[str, int], int]:
    found = pa.Table.from_batches([records.select(["topic", "partition"])]).group_by(["topic", "partition"])
    counted = found.aggregate([([], "count_all")]).to_pylist()
    return {(row["topic"], row["partition"]): row["count_all"] for row in counted}


def _told(column: str, packed: bytes) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{column: packed}], schema=_SCHEMA)


def seen_in(row: Mapping[str, Any]) -> Observation | None:
    """What a row of OUTCOME without a file tells; None where it is a file's."""
    return None if row["seen"] is None else Observation.unpacked(bytes(row["seen"]))


def writers_in(outcome: Iterable[Mapping[str, Any]]) -> dict[int, int]:
    """How many records of each schema the rows of OUTCOME tell of."""
    told: Counter[int] = Counter()
    for row in outcome:
        if row["writers"] is not None:
            told.update(msgspec.msgpack.decode(bytes(row["writers"]), type=dict[int, int]))
    return told


def counts_in(outcome: Iterable[Mapping[str, Any]]) -> Counts:
    """How many records the tasks were given, dead letters and buried ones among them."""
    told: Counter[tuple[str, int]] = Counter()
    for row in outcome:
        if row["counts"] is not None:
            found = msgspec.msgpack.decode(bytes(row["counts"]), type=list[tuple[str, int, int]])
            told.update({(topic, partition): count for topic, partition, count in found})
    return told

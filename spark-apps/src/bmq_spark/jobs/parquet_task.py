"""What a Spark task does with a batch's records: rows as files of the table, dead letters as files of theirs, in one pass. Runs in Python workers."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from bmq_spark.jobs.buried import Buried
from bmq_spark.jobs.records import Typing, dead_letters
from bmq_spark.table import FILE_COLUMNS, FILE_SCHEMA, FileName, Layout, write_batches
from bmq_spark.values import observe
from bmq_spark.values.inference import NOTHING, union

OUTCOME: Final = f"{FILE_COLUMNS}, dead boolean, seen binary"
"""A row of each file that was written, and which table it is of, as Spark's DDL; a row without a file has what was `seen` (`seen_in`)."""
DEAD_BYTES_MAX: Final = 32 << 20
"""Dead letters that are held before they become a file; all records of a batch may be some."""
_SCHEMA: Final = FILE_SCHEMA.append(pa.field("dead", pa.bool_())).append(pa.field("seen", pa.binary()))


@dataclass(frozen=True, slots=True, kw_only=True)
class ParquetTask:
    """A value that is sent to the workers."""

    typing: Typing
    rows: Layout
    dead: Layout
    buried: Buried
    """The dead letters that are in their table already."""
    infers: bool
    """Whether values that do not fit may make columns: then what they have is told, also of those that are buried, which made columns then."""
    settled: bool
    """Whether the columns are known to be those that the batch needs: see Buried."""
    name: FileName

    def __call__(self, records: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Takes records, gives OUTCOME."""
        letters = _Letters(self)
        for files in write_batches(self._rows(records, letters), self.rows, self.name):
            yield _marked(files, dead=False)
        letters.write()
        yield from letters.take()
        if letters.seen != NOTHING:
            yield _told(letters.seen)

    def _rows(self, records: Iterable[pa.RecordBatch], letters: "_Letters") -> Iterator[pa.RecordBatch]:
        for batch in records:
            rows, reasons = self.typing.rows(batch)
            fit, unfit = self.buried.split(batch, reasons, settled=self.settled)
            if self.infers and reasons.null_count < len(reasons):
                letters.seen = union(letters.seen, observe(batch.column("value").filter(reasons.is_valid()), known=self.typing.columns))
            if unfit.true_count:
                letters.add(dead_letters(batch, reasons, unfit))
            yield rows if fit.true_count == len(fit) else rows.filter(fit)


class _Letters:
    """The dead letters of a task, written whenever there are enough of them."""

    def __init__(self, task: ParquetTask) -> None:
        self._task = task
        self._held: list[pa.RecordBatch] = []
        self._held_bytes = 0
        self._files: list[pa.RecordBatch] = []
        self.seen: pa.DataType = NOTHING

    def add(self, letters: pa.RecordBatch) -> None:
        """Writes them when there are enough."""
        self._held.append(letters)
        self._held_bytes += letters.nbytes
        if self._held_bytes >= DEAD_BYTES_MAX:
            self.write()

    def write(self) -> None:
        """What is held, as files."""
        held, self._held, self._held_bytes = self._held, [], 0
        if held:
            self._files += [_marked(files, dead=True) for files in write_batches(held, self._task.dead, self._task.name)]

    def take(self) -> Iterator[pa.RecordBatch]:
        """The rows of the files."""
        yield from self._files


def _marked(files: pa.RecordBatch, *, dead: bool) -> pa.RecordBatch:
    marks = [pa.array([dead] * files.num_rows, type=pa.bool_()), pa.nulls(files.num_rows, type=pa.binary())]
    return pa.RecordBatch.from_arrays([*files.columns, *marks], schema=_SCHEMA)


def _told(seen: pa.DataType) -> pa.RecordBatch:
    content = pa.schema([pa.field("value", seen)]).serialize().to_pybytes()
    return pa.RecordBatch.from_pylist([{"seen": content}], schema=_SCHEMA)


def seen_in(row: Mapping[str, Any]) -> pa.DataType | None:
    """What a row of OUTCOME without a file tells; None where it is a file's."""
    return None if row["seen"] is None else pa.ipc.read_schema(pa.py_buffer(bytes(row["seen"]))).field("value").type

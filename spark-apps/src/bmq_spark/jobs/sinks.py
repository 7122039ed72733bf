"""What a table is to a stream: batches go into it together with their places, and it says how far it has come."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from pyspark.sql import DataFrame

from bmq_spark.batches.places import Counts, Places, Range
from bmq_spark.jobs.cluster import Topic
from bmq_spark.jobs.loss import check_counts
from bmq_spark.table.layout import NO_TIME

FILES_MANY: Final = 1_000
"""One batch that makes more files than these has records of as many times: whoever wrote them should be looked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """What a sink adds at once."""

    records: DataFrame
    """Records with the columns in reading.COLUMNS, in any order; the table has none of them."""
    ranges: Sequence[Range]
    """What the records are of."""
    ends: Places
    """The table's places afterwards; partitions without new records are among them."""
    query_id: str
    batch_id: int
    verify: Callable[[], None]
    """To be called when all is written and before it is committed: raises JobStopped where the topics are others by
    now."""
    dense: Collection[str] = ()
    """Topics that have to have a record for each offset of the ranges."""

    def require_all(self, counts: Counts) -> None:
        """To be called before anything is committed, dead letters among it: raises JobStopped where records did not
        come. `counts` are those that came, whatever became of them.
        """
        check_counts([part for part in self.ranges if part.topic in self.dense], counts)

    @property
    def offsets(self) -> int:
        """How many offsets the ranges have: at least as many as there are records."""
        return sum(part.count for part in self.ranges)


@dataclass(frozen=True, slots=True, kw_only=True)
class Added:
    """What a sink says of a batch that it committed."""

    rows: int
    files: int
    size_bytes: int
    dead_letters: int = 0
    apart: int = 0
    """Rows and dead letters that lie in no folder of their time, since the batch has records of too many."""
    left_out: int = 0
    """Records with fields that go into no column, since the newest version of the subject has not got them."""


def too_many_files(added: Added) -> str | None:
    """What to say of a batch whose records have times all over the calendar; None: they have not."""
    remedy = (
        "Let the topic refuse times that cannot be: message.timestamp.before.max.ms and "
        "message.timestamp.after.max.ms, with bmq.validation=records"
    )
    if added.apart:
        return (
            f"{added.apart} records of one batch are in a folder without a time (date={NO_TIME}): it has records "
            f"of more hours (or days) than --max-partitions-per-batch. {remedy}; where the times are right, allow "
            "more, or fewer records in a batch (--max-records-per-batch)"
        )
    if added.files <= FILES_MANY:
        return None
    return (
        f"{added.files} files in one batch: each hour (or day) that its records have times of gets one. {remedy}; "
        "where they are right, merge the files"
    )


def fields_left_out(added: Added) -> str | None:
    """What to say of a batch whose records have fields that are in no column; None: they have none."""
    if not added.left_out:
        return None
    return (
        f"{added.left_out} records of one batch have fields that are in no column: the newest version of the subject "
        "does not have them; a version that has them becomes columns where it is the newest when its records come"
    )


class Sink(Protocol):
    """A table that batches go into."""

    @property
    def name(self) -> str:
        """What messages call it."""

    def places(self) -> Places:
        """Up to where it has each partition, read anew."""

    def check(self, topics: Mapping[str, Topic]) -> None:
        """Raises JobStopped where it is of other topics than these, by id."""

    def retire(self, query_id: str) -> None:
        """This query adds nothing any more: what it left without a commit may go."""

    def pass_over(self, lost: Sequence[Range]) -> None:
        """Commits that these are gone, as somebody accepted, so that the table's places are where they end. Raises
        BmqError.
        """

    def begin_at(self, places: Places) -> None:
        """Commits that topics of which the table has nothing begin there, so that it is known whatever becomes of the
        checkpoint. Raises BmqError.
        """

    def add(self, batch: Batch) -> Added:
        """Writes and commits. Raises BmqError where nothing was committed."""


@dataclass(slots=True, kw_only=True)
class Total:
    """What a run added."""

    batches: int = 0
    rows: int = 0
    files: int = 0
    size_bytes: int = 0
    dead_letters: int = 0

    def summary(self, *, table: str, dead_letters: str) -> str:
        """The last line of a run; the arguments are their names."""
        line = f"{self.rows} rows in {self.files} files of {mib(self.size_bytes)} committed to {table}"
        return (
            f"{line}; {self.dead_letters} records did not fit and are in {dead_letters}" if self.dead_letters else line
        )


def mib(size_bytes: int) -> str:
    """For a line of text."""
    return f"{size_bytes / (1 << 20):.1f} MiB"

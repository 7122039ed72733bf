"""What a batch that comes again finds among the dead letters already: they are committed before the rows, and a kill
may lie between.

What was decided then stays decided, even if the schema is another one now: a record that is among the dead letters is
no row, and one that was a row then cannot become a dead letter below the place which their table has; but where the
table was rolled back it can, for nothing tells such a one from a dead letter that was deleted since.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from bmq_spark.batches.above import from_places
from bmq_spark.batches.places import Counts, Places, Range, each, place
from bmq_spark.errors import JobStopped

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True, kw_only=True)
class Buried:
    """Dead letters between the table's places and theirs; it is sent to the workers."""

    places: Places = field(default_factory=dict)
    """The places of the dead letters' table, where they are above the table's."""
    offsets: Mapping[tuple[str, int], frozenset[int]] = field(default_factory=dict)
    undone: Places = field(default_factory=dict)
    """Up to where the table had partitions before it was rolled back."""
    remedy: str = ""
    """What else helps where a record does not fit any more, for the message."""

    @classmethod
    def read(
        cls,
        letters: "Callable[[], DataFrame]",
        *,
        theirs: Places,
        table: Places,
        undone: Places | None = None,
        remedy: str = "",
    ) -> "Buried":
        """`letters` has the columns topic, partition, offset; it is asked only after a kill between two commits, or
        where the table was rolled back.
        """
        ahead: dict[str, dict[int, int]] = {}
        for topic, partition, end in each(theirs):
            if end > (place(table, topic, partition) or 0):
                ahead.setdefault(topic, {})[partition] = end
        if not ahead:
            return cls()
        begun = {
            topic: {number: place(table, topic, number) or 0 for number in partitions}
            for topic, partitions in ahead.items()
        }
        found: dict[tuple[str, int], set[int]] = {}
        for row in from_places(letters().select("topic", "partition", "offset"), begun, others=False).toLocalIterator():
            found.setdefault((row["topic"], row["partition"]), set()).add(row["offset"])
        return cls(
            places=ahead,
            offsets={where: frozenset(offsets) for where, offsets in found.items()},
            undone=undone or {},
            remedy=remedy,
        )

    def split(self, records: pa.RecordBatch, reasons: pa.Array, *, settled: bool = True) -> tuple[pa.Array, pa.Array]:
        """Which of the records are rows and which are dead letters, both as booleans; those that are buried are
        neither.

        Raises JobStopped where a record that was a row then does not fit now; unless the table was rolled back to
        before it, or columns are still to be found in the values (`settled` is false): then it counts as a dead letter,
        here for now.
        """
        rows, letters = reasons.is_null(), reasons.is_valid()
        if not self.places:
            return rows, letters
        there = [
            self._is_buried(*found, settled=settled)
            for found in zip(*_where(records), reasons.to_pylist(), strict=True)
        ]
        pairs = zip(rows.to_pylist(), letters.to_pylist(), there, strict=True)
        kept = [(row and not buried, letter and not buried) for row, letter, buried in pairs]
        return pa.array([row for row, _ in kept], type=pa.bool_()), pa.array(
            [letter for _, letter in kept], type=pa.bool_()
        )

    def added_to(self, counts: Counts, ranges: Sequence[Range]) -> Counts:
        """`counts` of records without those that are buried, with these."""
        return dict(counts) | {
            where: counts.get(where, 0) + sum(part.start <= offset < part.end for offset in self.offsets.get(where, ()))
            for part in ranges
            if (where := (part.topic, part.partition)) in self.offsets
        }

    def _is_buried(self, topic: str, partition: int, offset: int, reason: str | None, *, settled: bool) -> bool:
        below = offset < (place(self.places, topic, partition) or 0)
        buried = below and offset in self.offsets.get((topic, partition), ())
        undone = offset < (place(self.undone, topic, partition) or 0)
        if below and reason is not None and settled and not buried and not undone:
            raise JobStopped(
                f"topic {topic} partition {partition}, offset {offset}: it does not fit any more ({reason}), and "
                f"did when this batch was begun: run the job once with the schema that it had then{self.remedy}"
            )
        return buried


def _where(records: pa.RecordBatch) -> tuple[list[str], list[int], list[int]]:
    return (
        records.column("topic").to_pylist(),
        records.column("partition").to_pylist(),
        records.column("offset").to_pylist(),
    )

"""What a snapshot's summary says of the topics: which batch it is, and up to where the table has them.

It is committed with the rows, so the two never disagree.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from bmq_spark.errors import BmqError, TableBroken
from bmq_spark.jobs.places import Places, from_json, merged, to_json

PLACES: Final = "bmq.places"
QUERY: Final = "bmq.query-id"
BATCH: Final = "bmq.batch-id"
LOST: Final = "bmq.lost"


@dataclass(frozen=True, slots=True, kw_only=True)
class Notes:
    """Of one batch."""

    places: Places
    """Up to where the table has the batch's partitions with it."""
    query_id: str = ""
    """Empty, with no batch id, where maintenance carries places forward."""
    batch_id: int | None = None
    lost: str = ""
    """Ranges that were passed over because they are gone."""

    def properties(self) -> dict[str, str]:
        """Of a snapshot's summary."""
        found = {PLACES: to_json(self.places)}
        if self.batch_id is not None:
            found |= {QUERY: self.query_id, BATCH: str(self.batch_id)}
        return found | ({LOST: self.lost} if self.lost else {})


def places_of(summary: Mapping[str, str], *, table: str) -> Places:
    """Nothing where the snapshot is not a batch's. Raises TableBroken."""
    text = summary.get(PLACES)
    if text is None:
        return {}
    try:
        return from_json(text)
    except BmqError as error:
        raise TableBroken(f"table {table}: {PLACES} of a snapshot: {error}: roll the table back to a snapshot that a job wrote") from error


def newest(places: Iterable[Places]) -> dict[str, dict[int, int]]:
    """Of snapshots from the oldest to the newest: for each partition what the newest says that has it."""
    result: dict[str, dict[int, int]] = {}
    for found in places:
        result = merged(result, found)
    return result

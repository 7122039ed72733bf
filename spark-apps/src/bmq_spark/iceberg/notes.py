"""What a table says of the topics: up to where it has them, and by which batch.

A batch's snapshot says it in its summary, and the table in its properties, by the same commit as the rows, so the three never disagree. The
properties stay where snapshots expire, whoever has them expire; the summaries tell where a table was rolled back to. Nothing here talks to a catalog.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from bmq_spark.errors import BmqError, TableBroken
from bmq_spark.jobs.places import Places, from_json, merged, to_json

PLACES: Final = "bmq.places"
"""In a summary: the places of the table with this snapshot. As a property: those of the table."""
SNAPSHOT: Final = "bmq.places-snapshot"
"""The property ID:SEQUENCE of the snapshot that came with the places; a person who sets places by hand writes BY_HAND."""
BY_HAND: Final = "any"
QUERY: Final = "bmq.query-id"
BATCH: Final = "bmq.batch-id"
LOST: Final = "bmq.lost"


@dataclass(frozen=True, slots=True, kw_only=True)
class Notes:
    """Of one batch."""

    places: Places
    """Up to where the table has the batch's partitions with it."""
    query_id: str = ""
    """Empty, with no batch id, where there is no batch but places."""
    batch_id: int | None = None
    lost: str = ""
    """Ranges that were passed over because they are gone."""

    def summary(self) -> dict[str, str]:
        """Of the snapshot."""
        found = {PLACES: to_json(self.places)}
        if self.batch_id is not None:
            found |= {QUERY: self.query_id, BATCH: str(self.batch_id)}
        return found | ({LOST: self.lost} if self.lost else {})


@dataclass(frozen=True, slots=True, kw_only=True)
class Ancestor:
    """A snapshot that the newest one stands on, or the newest one itself."""

    snapshot_id: int
    sequence: int
    places: Places
    """Nothing where it is not a batch's."""


def properties(places: Places, *, snapshot_id: int, sequence: int) -> dict[str, str]:
    """Of the table, to be committed with that snapshot."""
    return {PLACES: to_json(places), SNAPSHOT: f"{snapshot_id}:{sequence}"}


def places_of(summary: Mapping[str, str], *, table: str) -> Places:
    """Nothing where there are none. Raises TableBroken."""
    text = summary.get(PLACES)
    if text is None:
        return {}
    try:
        return from_json(text)
    except BmqError as error:
        raise TableBroken(f"table {table}: {PLACES}: {error}: roll the table back to a snapshot that a job wrote") from error


def places_by(kept: Mapping[str, str], ancestors: Sequence[Ancestor], *, complete: bool, table: str) -> dict[str, dict[int, int]]:
    """A table's places, by its properties and the snapshots from the newest down to the one that the properties name, or to the oldest that is there;
    `complete`: that one is the table's first.

    The properties hold where their snapshot is among these, or has expired. Where the table was rolled back to before it, the summaries hold.
    Raises TableBroken.
    """
    noted = newest(reversed([found.places for found in ancestors]))
    by_properties = places_of(kept, table=table)
    at = kept.get(SNAPSHOT, "")
    if not by_properties:
        return noted
    if at == BY_HAND:
        return merged(by_properties, {})
    try:
        snapshot_id, sequence = (int(part) for part in at.split(":"))
    except ValueError as error:
        raise TableBroken(f"table {table}: property {SNAPSHOT} = {at!r}: not what a job wrote: write {BY_HAND} if {PLACES} is right") from error
    stands = any(found.snapshot_id == snapshot_id for found in ancestors)
    oldest_noted = min((found.sequence for found in ancestors if found.places), default=None)
    expired = not complete and bool(ancestors) and sequence < (ancestors[0].sequence if oldest_noted is None else oldest_noted)
    return merged(by_properties, noted) if stands or expired else noted


def newest(places: Iterable[Places]) -> dict[str, dict[int, int]]:
    """Of snapshots from the oldest to the newest: for each partition what the newest says that has it."""
    result: dict[str, dict[int, int]] = {}
    for found in places:
        result = merged(result, found)
    return result

"""What a table says of the topics: up to where it has them, and by which batch.

A batch's snapshot says it in its summary, and the table in its properties, by the same commit as the rows, so the three
never disagree. The properties stay where snapshots expire, whoever has them expire; the summaries tell where a table
was rolled back to. Nothing here talks to a catalog.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from bmq_spark.batches.places import Places, ahead, from_json, merged, place, to_json
from bmq_spark.errors import BmqError, TableBroken

PLACES: Final = "bmq.places"
"""In a summary: the places of the table with this snapshot. As a property: those of the table."""
SNAPSHOT: Final = "bmq.places-snapshot"
"""The property ID:SEQUENCE of the snapshot that came with the places; a person who sets places by hand writes
BY_HAND."""
BY_HAND: Final = "any"
UNDONE: Final = "bmq.places-undone"
"""The property of a table that was rolled back: up to where it had the partitions that it has not as far again."""
QUERY: Final = "bmq.query-id"
BATCH: Final = "bmq.batch-id"
LOST: Final = "bmq.lost"


@dataclass(frozen=True, slots=True, kw_only=True)
class Notes:
    """What one batch's commit says of the topics."""

    places: Places
    """Up to where the table has the batch's partitions with it."""
    query_id: str = ""
    """Empty, with no batch id, where there is no batch but places."""
    batch_id: int | None = None
    lost: str = ""
    """Ranges that were passed over because they are gone."""

    def summary(self) -> dict[str, str]:
        """What the snapshot's summary says of the topics."""
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
    """The table's properties that say its places, to be committed with that snapshot."""
    return {PLACES: to_json(places), SNAPSHOT: f"{snapshot_id}:{sequence}"}


def places_of(summary: Mapping[str, str], *, table: str) -> Places:
    """Nothing where there are none. Raises TableBroken."""
    text = summary.get(PLACES)
    if text is None:
        return {}
    try:
        return from_json(text)
    except BmqError as error:
        raise TableBroken(
            f"table {table}: {PLACES}: {error}: roll the table back to a snapshot that a job wrote"
        ) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Lineage:
    """What the newest snapshot stands on, and what does not count any more where the table was rolled back."""

    ancestors: Sequence[Ancestor]
    """From the newest down to the one that the properties name, or as far as anything is known."""
    complete: bool
    """Whether the last of these is the table's first."""
    stands: bool | None
    """Whether the snapshot that the properties name is among those that the newest stands on, or was; None: nothing
    tells."""
    undone: Sequence[Places] = ()
    """The places of the snapshots that the one named stands on, or is, and the newest does not."""


def places_by(kept: Mapping[str, str], lineage: Lineage, *, table: str) -> dict[str, dict[int, int]]:
    """A table's places. The properties hold where their snapshot counts. Where the table was rolled back to before it,
    the summaries do; of a partition that none of these has, since it had nothing new for longer than snapshots are
    kept, what the properties say, unless that was undone.

    Raises TableBroken.
    """
    ancestors = lineage.ancestors
    noted = newest(reversed([found.places for found in ancestors]))
    by_properties = places_of(kept, table=table)
    at = kept.get(SNAPSHOT, "")
    if not by_properties:
        return noted
    if at == BY_HAND:
        return merged(by_properties, {})
    named = named_by(kept)
    if named is None:
        raise TableBroken(
            f"table {table}: property {SNAPSHOT} = {at!r}: not what a job wrote: write {BY_HAND} if {PLACES} is right"
        )
    stands = lineage.stands
    if stands is None:
        oldest_noted = min((found.sequence for found in ancestors if found.places), default=None)
        stands = (
            not lineage.complete
            and bool(ancestors)
            and named[1] < (ancestors[0].sequence if oldest_noted is None else oldest_noted)
        )
    if stands:
        return merged(by_properties, noted)
    if lineage.complete:
        return noted
    undone = newest(lineage.undone)
    quiet = {
        topic: {number: offset for number, offset in partitions.items() if number not in undone.get(topic, {})}
        for topic, partitions in by_properties.items()
    }
    return merged({topic: partitions for topic, partitions in quiet.items() if partitions}, noted)


def undone_by(kept: Mapping[str, str], places: Places, *, table: str) -> dict[str, dict[int, int]]:
    """Up to where a table with these properties had partitions that it has up to `places` now: what is above these.

    Raises TableBroken.
    """
    noted = places_of({PLACES: kept[UNDONE]} if UNDONE in kept else {}, table=table)
    said = {} if kept.get(SNAPSHOT) == BY_HAND else places_of(kept, table=table)
    return {
        topic: above
        for topic, partitions in ahead(said, merged(said, noted)).items()
        if (above := {number: end for number, end in partitions.items() if end > (place(places, topic, number) or 0)})
    }


def named_by(kept: Mapping[str, str]) -> tuple[int, int] | None:
    """Id and sequence number of the snapshot that came with the places of the properties; None where they do not say
    it.
    """
    try:
        snapshot_id, sequence = (int(part) for part in kept.get(SNAPSHOT, "").split(":"))
    except ValueError:
        return None
    return snapshot_id, sequence


def newest(places: Iterable[Places]) -> dict[str, dict[int, int]]:
    """The places that snapshots from the oldest to the newest come to: for each partition what the newest says that has
    it.
    """
    result: dict[str, dict[int, int]] = {}
    for found in places:
        result = merged(result, found)
    return result

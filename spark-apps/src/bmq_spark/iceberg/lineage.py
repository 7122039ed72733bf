"""What an Iceberg table's newest snapshot stands on, as its metadata tell it, and metadata of before where these do
not: rollbacks and expiries by others leave no other trace.

Who expires snapshots leaves those that stand on them in one of two ways. Iceberg's own procedures leave the parent's
id, which then is nobody's. pyiceberg takes it out, so that a snapshot looks like a table's first, which it is by its
sequence number alone.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from bmq_spark.batches.places import Places
from bmq_spark.iceberg.notes import PLACES, Ancestor, Lineage, places_of

FIRST_SEQUENCE: Final = 1

Named = tuple[int, int]
"""Id and sequence number of the snapshot that the properties name."""


class _Parent(NamedTuple):
    """`number` None: there is none, or, where that is not `certain`, nothing tells."""

    number: int | None
    certain: bool = True


class _Past:
    """A table's metadata, from the newest backwards, read as far as somebody looks."""

    def __init__(self, newest: Any, read: Callable[[str], Any]) -> None:
        self._known = [newest]
        self._files = [str(each.file()) for each in newest.previousFiles()]
        self._read = read

    def __iter__(self) -> Iterator[Any]:
        at = 0
        while at < len(self._known) or self._has_more():
            yield self._known[at]
            at += 1

    def snapshot(self, number: int) -> Any:
        """None where there is none any more."""
        return next((found for known in self if (found := known.snapshot(number)) is not None), None)

    def parent(self, snapshot: Any) -> _Parent:
        """Also where somebody has taken it out since."""
        if (own := _parent_of(snapshot)) is not None or int(snapshot.sequenceNumber()) <= FIRST_SEQUENCE:
            return _Parent(own)
        was_there = False
        for known in self:
            found = known.snapshot(int(snapshot.snapshotId()))
            if found is None:
                if was_there:  # it was made after that, without one
                    return _Parent(None)
                continue  # it had expired by then itself
            was_there = True
            if (parent := _parent_of(found)) is not None:
                return _Parent(parent)
        return _Parent(None, certain=False)

    def _has_more(self) -> bool:
        if not self._files:
            return False
        found = self._read(self._files.pop())
        if found is None:  # somebody has deleted it, and what is older
            self._files.clear()
            return False
        self._known.append(found)
        return True


class Lineages:
    """One table's. What was found last is kept: metadata of before are read once for each newest snapshot."""

    def __init__(self, read: Callable[[str], Any], *, table: str) -> None:
        """`read` gives the metadata of a file; None where it is gone. There are 100 of them at most (`tables`)."""
        self._read = read
        self._table = table
        self._ancestors: dict[int, Ancestor] = {}
        self._former: tuple[tuple[int, int], Lineage] | None = None

    def of(self, metadata: Any, named: Named | None) -> Lineage:
        """`named`: by the properties; None: they name none. Raises TableBroken."""
        newest = metadata.currentSnapshot()
        if newest is None:
            return Lineage(ancestors=(), complete=True, stands=False if named else None)
        found, parent = self._walk(newest, metadata.snapshot, lambda one: _Parent(_parent_of(one)), named)
        if named is None:
            return Lineage(ancestors=found, complete=parent.number is None, stands=None)
        if named[0] in (found[-1].snapshot_id, parent.number):
            return Lineage(ancestors=found, complete=parent.number is None, stands=True)
        key = (named[0], found[0].snapshot_id)
        if self._former is None or self._former[0] != key:
            self._former = (key, self._by_former(_Past(metadata, self._read), newest, named))
        return self._former[1]

    def _by_former(self, past: _Past, newest: Any, named: Named) -> Lineage:
        found, parent = self._walk(newest, past.snapshot, past.parent, named)
        if named[0] in (found[-1].snapshot_id, parent.number):
            return Lineage(ancestors=found, complete=False, stands=True)
        is_first = parent.number is None and parent.certain
        # A snapshot's sequence number is above its parent's: below the one that is named it is not found any more.
        stands = False if is_first or found[-1].sequence < named[1] else None
        undone = self._undone(past, named, found) if stands is False and not is_first else ()
        return Lineage(ancestors=found, complete=is_first, stands=stands, undone=undone)

    def _walk(
        self, newest: Any, snapshot: Callable[[int], Any], parent_of: Callable[[Any], _Parent], named: Named | None
    ) -> tuple[list[Ancestor], _Parent]:
        """From the newest to the one named, or as far as there are any; with the parent of the last."""
        found: list[Ancestor] = []
        at: Any = newest
        while True:
            found.append(self._ancestor(at))
            parent = parent_of(at)
            if parent.number is None or (named is not None and found[-1].snapshot_id == named[0]):
                return found, parent
            at = snapshot(parent.number)
            if at is None:
                return found, parent

    def _undone(self, past: _Past, named: Named, ancestors: Sequence[Ancestor]) -> list[Places]:
        """From the snapshot that the properties name down to one that counts."""
        counts = {each.snapshot_id for each in ancestors}
        found: list[Places] = []
        at = past.snapshot(named[0])
        while at is not None and int(at.snapshotId()) not in counts:
            found.append(self._ancestor(at).places)
            parent = past.parent(at).number
            at = None if parent is None else past.snapshot(parent)
        return found[::-1]

    def _ancestor(self, snapshot: Any) -> Ancestor:
        """Each is asked for its summary once."""
        number = int(snapshot.snapshotId())
        if number not in self._ancestors:
            text = snapshot.summary().get(PLACES)
            places = places_of({PLACES: text} if text else {}, table=self._table)
            self._ancestors[number] = Ancestor(
                snapshot_id=number, sequence=int(snapshot.sequenceNumber()), places=places
            )
        return self._ancestors[number]


def _parent_of(snapshot: Any) -> int | None:
    """As the snapshot says it."""
    parent = snapshot.parentId()
    return None if parent is None else int(parent)

"""What orders records of one key, and why one state for each key is enough: a model of upserts, without Spark and
without a table.

Each rule has the *else* that loses data:

- A partition's records of a key go by offset. E of a partition is the greatest time of that key that the partition has
  told so far; the last record of the partition with the greatest (E, topic, partition) is what is left of the key.
  *Else* (the record's own time decides between partitions): a partition whose times do not rise replaces its row by one
  with an older time, and a row of another partition that lost before the replacement wins after it, or does not, by
  what was in one batch.
- E never falls. So who lost needs not be kept: to win later a partition has to tell a greater time, which then is its
  E. *Else* (E falls with the last record): the loser's state would be needed again.
- A partition's deletion is kept with E, beside the table. *Else* a record of another partition that is older than E
  brings the key back.
- What a batch has of a key is joined with its row before partitions are compared. *Else* the partition of the row is
  compared by the times of the batch alone, which may be below its E.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

BATCH, ROW, TOMBSTONE = 2, 1, 0
"""Where an entry is from; of two with one offset, which are one record, the batch's counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """A record of a key; `partition` stands for topic and partition."""

    key: str
    partition: int
    offset: int
    time: int
    value: str | None
    """None: a tombstone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """The last record of a key in one partition, as far as it is known, with its E."""

    last: Told
    greatest: int
    source: int


def left(told: Iterable[Told]) -> dict[str, tuple[str, int, int]]:
    """By definition, record by record: value, partition and E of each key that is left. Records of one partition come
    in order.
    """
    states: dict[tuple[str, int], tuple[int, Told]] = {}
    for record in told:
        at = record.key, record.partition
        states[at] = max(states[at][0] if at in states else record.time, record.time), record
    winners: dict[str, tuple[int, int, Told]] = {}
    for (key, partition), (greatest, last) in states.items():
        if key not in winners or (greatest, partition) > winners[key][:2]:
            winners[key] = greatest, partition, last
    return {
        key: (last.value, partition, greatest)
        for key, (greatest, partition, last) in winners.items()
        if last.value is not None
    }


@dataclass(slots=True)
class Upserted:
    """A table with one row for each key, and the tombstones beside it, which are written first and never go back."""

    rows: dict[str, Entry] = field(default_factory=dict)
    tombstones: dict[tuple[str, int], Entry] = field(default_factory=dict)

    def add(self, batch: Sequence[Told], *, dies: bool = False) -> None:
        """`dies`: with the tombstones kept, and the rows not."""
        rows = dict(self.rows)
        for key in {record.key for record in batch}:
            winner = self._winner(key, [record for record in batch if record.key == key])
            if winner.last.value is None:
                self._keep(winner)
                rows.pop(key, None)
            else:
                rows[key] = replace(winner, source=ROW)
        if not dies:
            self.rows = rows

    def _winner(self, key: str, batch: Sequence[Told]) -> Entry:
        entries = [Entry(last=record, greatest=record.time, source=BATCH) for record in batch]
        entries += [row for row in [self.rows.get(key)] if row]
        entries += [kept for (of, _), kept in self.tombstones.items() if of == key]
        last: dict[int, Entry] = {}
        for entry in sorted(entries, key=lambda entry: (entry.last.offset, entry.source)):
            former = last.get(entry.last.partition, entry)
            last[entry.last.partition] = replace(entry, greatest=max(entry.greatest, former.greatest))
        return max(last.values(), key=lambda entry: (entry.greatest, entry.last.partition))

    def _keep(self, winner: Entry) -> None:
        at = winner.last.key, winner.last.partition
        kept = self.tombstones.get(at)
        if kept is None or (winner.last.offset, winner.greatest) > (kept.last.offset, kept.greatest):
            self.tombstones[at] = replace(winner, source=TOMBSTONE)

    def left(self) -> dict[str, tuple[str, int, int]]:
        """As the definition says it."""
        return {key: (row.last.value or "", row.last.partition, row.greatest) for key, row in self.rows.items()}


class ByOwnTime(Upserted):
    """The *else* of the first rule: what the tables did. Not to be imitated."""

    def add(self, batch: Sequence[Told], *, dies: bool = False) -> None:
        """Each record counts by its own time between partitions."""
        last = {(record.key, record.partition): record for record in batch}
        for key in {record.key for record in batch}:
            new = max(
                (record for (of, _), record in last.items() if of == key),
                key=lambda record: (record.time, record.partition),
            )
            for record in (record for (of, _), record in last.items() if of == key and record.value is None):
                self.tombstones[key, record.partition] = Entry(last=record, greatest=record.time, source=TOMBSTONE)
            others = [
                kept.last
                for (of, partition), kept in self.tombstones.items()
                if of == key and partition != new.partition
            ]
            row = self.rows.get(key)
            if any((other.time, other.partition) > (new.time, new.partition) for other in others):
                continue
            if (
                row
                and row.last.partition != new.partition
                and (row.last.time, row.last.partition) > (new.time, new.partition)
            ):
                continue
            if new.value is None:
                self.rows.pop(key, None)
            else:
                self.rows[key] = Entry(last=new, greatest=new.time, source=ROW)


KEYS: Final = ("a", "b")


def logs(times: Sequence[Sequence[tuple[str, int, bool]]]) -> list[list[Told]]:
    """One log for each partition, of (key, time, whether it is a tombstone)."""
    return [
        [
            Told(key=key, partition=partition, offset=n, time=time, value=None if gone else f"{partition}-{n}")
            for n, (key, time, gone) in enumerate(log)
        ]
        for partition, log in enumerate(times)
    ]

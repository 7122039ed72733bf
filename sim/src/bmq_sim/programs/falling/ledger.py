"""What became of each message of a lane that falls back.

A message is handled in the lane, or in the one that it is nested in, when a commit behind it was acknowledged there; in
the base when it is in the base's topic.
What was written without an answer may be nowhere; a commit without an answer may count or not; what was deleted is
nowhere, or was handled before.
"""

from collections import Counter
from collections.abc import Collection, Iterable
from typing import Final

TOPIC: Final = "handed"
LANE: Final = "back"
PARENT: Final = "between"
"""The lane that it is nested in, where it is."""
PARENTS_GROUP: Final = "consumers-between"
PARTITIONS: Final = 2


class Ledger:
    """One run's."""

    def __init__(self) -> None:
        self._number = 0
        self._offsets: dict[bytes, tuple[int, int]] = {}
        """Partition and offset of messages whose write was acknowledged."""
        self._handled: dict[bytes, Counter[str]] = {}
        """Messages behind which a commit was acknowledged: by which group, and how often."""
        self._maybe: set[bytes] = set()
        """Messages of which nobody can tell whether they are handled, or gone."""
        self._deleted_below = [0] * PARTITIONS
        self.base_stays = True
        """Whether the base's topic is the first one."""

    def next_value(self) -> bytes:
        """A new message's."""
        self._number += 1
        return f"#{self._number}".encode()

    def written(self, values: Iterable[bytes], partition: int, base_offset: int) -> None:
        """Acknowledged, in this order."""
        for offset, value in enumerate(values, base_offset):
            self._offsets[value] = partition, offset
            if offset < self._deleted_below[partition]:
                self._maybe.add(value)

    def written_somewhere(self, values: Iterable[bytes], partition: int) -> None:
        """Acknowledged, and nobody was told where."""
        for value in values:
            self._offsets[value] = partition, -1
            if self._deleted_below[partition]:
                self._maybe.add(value)

    def handled(self, values: Iterable[bytes], group: str) -> None:
        """A commit of the group behind them was acknowledged."""
        for value in values:
            self._handled.setdefault(value, Counter())[group] += 1

    def maybe_handled(self, values: Iterable[bytes]) -> None:
        """A commit behind them was sent, or was taken when they may have gone on."""
        self._maybe.update(values)

    def some_offset(self, partition: int, share: float) -> int:
        """Where a message is that was written there: about so large a share of them comes before it."""
        offsets = [offset for at, offset in self._offsets.values() if at == partition and offset >= 0]
        return offsets[int(share * len(offsets))] if offsets else 0

    def deleted_below(self, partition: int, offset: int) -> None:
        """What lies below in the lane is being deleted."""
        self._deleted_below[partition] = max(offset, self._deleted_below[partition])
        self._maybe.update(value for value, (at, found) in self._offsets.items() if at == partition and found < offset)

    def base_deleted(self) -> None:
        """All that went on so far is being deleted, or was."""
        self.base_stays = False
        self._maybe.update(self._offsets)

    def missing(self, base: Collection[bytes]) -> list[bytes]:
        """What nobody handled."""
        return sorted(self._offsets.keys() - set(base) - self._handled.keys() - self._maybe)

    def wrong(self, base: Counter[bytes]) -> Iterable[str]:
        """What is wrong with what each handled, as text."""
        missing = self.missing(base.keys())
        if missing:
            yield f"nobody's: {len(missing)} messages of lane {LANE}, of which one is {self._said(missing[0])}"
        for value, count in base.items():
            if count > 1:
                yield f"{self._said(value)} went on from lane {LANE} to the base {count} times"
            if value in self._handled:
                yield f"{self._said(value)} was handled in lane {LANE}, and is in the base"
        for value, groups in self._handled.items():
            if len(groups) > 1 and PARENTS_GROUP in groups:
                yield f"{self._said(value)} was handled in lane {LANE}, and in lane {PARENT}"
            for group, count in groups.items():
                if count > 1:
                    yield f"{self._said(value)} was handled {count} times in lane {LANE} by {group}"

    def _said(self, value: bytes) -> str:
        partition, offset = self._offsets.get(value, (-1, -1))
        return f"{value!r} (partition {partition}, offset {offset})"

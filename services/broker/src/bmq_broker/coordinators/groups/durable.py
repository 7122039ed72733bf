"""What the log says: the stored generation of each group and the committed offsets. Changes in `replay` alone.

Values are immutable, so a copy of the two levels of dictionaries is a view of one moment (see `snapshot`).
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from bmq_broker.coordinators.groups.records import GroupKey, GroupValue, Key, OffsetKey, OffsetValue, Value
from bmq_broker.coordinators.groups.tally import Tally, text_bytes

OFFSET_BYTES: Final = 400
"""About what a committed offset takes in memory beside its metadata: its place, its numbers, the topic's id, and their
places in tables."""
STORED_GROUP_BYTES: Final = 900
STORED_MEMBER_BYTES: Final = 400
"""The same of a stored generation, and of each member in it."""


def stored_bytes(key: Key, value: Value | None) -> int:
    """About what a record's value takes in memory."""
    match value:
        case None:
            return 0
        case OffsetValue():
            return (
                OFFSET_BYTES + text_bytes(value.metadata) + (text_bytes(key.topic) if isinstance(key, OffsetKey) else 0)
            )
        case GroupValue():
            return (
                STORED_GROUP_BYTES
                + text_bytes(key.group_id)
                + sum(
                    STORED_MEMBER_BYTES
                    + sum(map(text_bytes, (member.member_id, member.instance_id, member.client_id, member.client_host)))
                    + len(member.subscription)
                    + len(member.assignment)
                    for member in value.members
                )
            )


@dataclass(slots=True)
class DurableState:
    """Equal to another one that replayed the same records."""

    groups: dict[str, GroupValue] = field(default_factory=dict)
    offsets: dict[str, dict[tuple[str, int], OffsetValue]] = field(default_factory=dict)
    """By group, then by (topic, partition). No group's dictionary is empty."""
    tally: Tally = field(default_factory=Tally, compare=False)
    """About what all of it takes in memory, and for whom: what was loaded is nobody's."""
    _metadata: Counter[str] = field(default_factory=Counter, compare=False)
    """By group, the characters of its offsets' metadata, of those that have some."""
    _writers: dict[str, Counter[str]] = field(default_factory=dict, compare=False)
    """By group, how many of its bytes clients at which addresses had stored."""

    def replay(self, key: Key, value: Value | None, *, address: str = "") -> None:
        """Takes one record in, of a client there. None is a tombstone."""
        self._count(key.group_id, self.growth_bytes(key, value), address)
        if metadata_growth := self.metadata_growth(key, value):
            self._metadata[key.group_id] += metadata_growth
            if not self._metadata[key.group_id]:
                del self._metadata[key.group_id]
        match key:
            case GroupKey(group_id):
                if value is None:
                    self.groups.pop(group_id, None)
                else:
                    assert isinstance(value, GroupValue)
                    self.groups[group_id] = value
            case OffsetKey(group_id, topic, partition):
                if value is None:
                    self._remove(group_id, (topic, partition))
                else:
                    assert isinstance(value, OffsetValue)
                    self.offsets.setdefault(group_id, {})[topic, partition] = value

    def growth_bytes(self, key: Key, value: Value | None) -> int:
        """How much more it takes with this record; below 0: less."""
        grown = stored_bytes(key, value) - stored_bytes(key, self.value_of(key))
        if isinstance(key, OffsetKey):
            offsets = self.offsets.get(key.group_id)
            if offsets is None:
                grown += 0 if value is None else STORED_GROUP_BYTES + text_bytes(key.group_id)
            elif value is None and len(offsets) == 1 and (key.topic, key.partition) in offsets:
                grown -= STORED_GROUP_BYTES + text_bytes(key.group_id)
        return grown

    def value_of(self, key: Key) -> Value | None:
        """What the key has now; None: nothing, or a tombstone."""
        match key:
            case GroupKey(group_id):
                return self.groups.get(group_id)
            case OffsetKey(group_id, topic, partition):
                return self.offsets.get(group_id, {}).get((topic, partition))

    def offset_count(self, group_id: str) -> int:
        """How many offsets the group has."""
        return len(self.offsets.get(group_id, ()))

    def metadata_chars(self, group_id: str) -> int:
        """How many characters of metadata the group's offsets have together."""
        return self._metadata.get(group_id, 0)

    def metadata_growth(self, key: Key, value: Value | None) -> int:
        """How many more they have with this record; below 0: fewer."""
        before = self.value_of(key)
        return (len(value.metadata) if isinstance(value, OffsetValue) else 0) - (
            len(before.metadata) if isinstance(before, OffsetValue) else 0
        )

    def generation_bytes(self, group_id: str) -> int:
        """About what the group's stored generation takes in memory; 0: it has none."""
        return stored_bytes(GroupKey(group_id), self.groups.get(group_id))

    def knows(self, group_id: str) -> bool:
        """Whether the log has anything of the group."""
        return group_id in self.groups or group_id in self.offsets

    def all_offsets(self) -> Iterator[tuple[str, str, int, OffsetValue]]:
        """(group, topic, partition, offset)."""
        for group_id, offsets in self.offsets.items():
            for (topic, partition), value in offsets.items():
                yield group_id, topic, partition, value

    def copy(self) -> "DurableState":
        """This moment's state; shares the values."""
        offsets = {group_id: dict(offsets) for group_id, offsets in self.offsets.items()}
        return DurableState(groups=dict(self.groups), offsets=offsets, tally=Tally(self.tally.size_bytes))

    def _count(self, group_id: str, grown_bytes: int, address: str) -> None:
        """What goes is taken off who has most of the group: nobody knows of each offset whose it was."""
        if grown_bytes > 0:
            if address:
                self._writers.setdefault(group_id, Counter())[address] += grown_bytes
            self.tally.add(grown_bytes, address=address)
            return
        gone_bytes = -grown_bytes
        writers = self._writers.get(group_id, Counter())
        while gone_bytes and writers:
            most = max(writers, key=writers.__getitem__)
            taken_bytes = min(writers[most], gone_bytes)
            writers[most] -= taken_bytes
            if not writers[most]:
                del writers[most]
            gone_bytes -= taken_bytes
            self.tally.add(-taken_bytes, address=most)
        if not writers:
            self._writers.pop(group_id, None)
        self.tally.add(-gone_bytes)

    def _remove(self, group_id: str, place: tuple[str, int]) -> None:
        offsets = self.offsets.get(group_id)
        if offsets is None:
            return
        offsets.pop(place, None)
        if not offsets:
            del self.offsets[group_id]

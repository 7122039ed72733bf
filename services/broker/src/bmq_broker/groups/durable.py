"""What the log says: the stored generation of each group and the committed offsets. Changes in `replay` alone.

Values are immutable, so a copy of the two levels of dictionaries is a view of one moment (see `snapshot`).
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from bmq_broker.groups.records import GroupKey, GroupValue, Key, OffsetKey, OffsetValue, Value


@dataclass(slots=True)
class DurableState:
    """Equal to another one that replayed the same records."""

    groups: dict[str, GroupValue] = field(default_factory=dict)
    offsets: dict[str, dict[tuple[str, int], OffsetValue]] = field(default_factory=dict)
    """By group, then by (topic, partition). No group's dictionary is empty."""

    def replay(self, key: Key, value: Value | None) -> None:
        """Takes one record in. None is a tombstone."""
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

    def value_of(self, key: Key) -> Value | None:
        """What the key has now; None: nothing, or a tombstone."""
        match key:
            case GroupKey(group_id):
                return self.groups.get(group_id)
            case OffsetKey(group_id, topic, partition):
                return self.offsets.get(group_id, {}).get((topic, partition))

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
        return DurableState(groups=dict(self.groups), offsets={group_id: dict(offsets) for group_id, offsets in self.offsets.items()})

    def _remove(self, group_id: str, place: tuple[str, int]) -> None:
        offsets = self.offsets.get(group_id)
        if offsets is None:
            return
        offsets.pop(place, None)
        if not offsets:
            del self.offsets[group_id]

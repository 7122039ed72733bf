"""Deadlines by key, kept in a heap. Pure: the caller brings the time and asks what is due.

Moving a deadline later (each heartbeat does) costs one dictionary write: the heap's entry stays and is looked at again
when it comes up.
"""

import heapq
from typing import Final, NamedTuple

_SLACK: Final = 64
"""Entries of cancelled keys that may lie in the heap before it is built anew."""


class TimerKey(NamedTuple):
    """`kind` is "session" (of a member, or of an id given out but not yet used), "join" or "sync" (of a group;
    `member_id` "").
    """

    kind: str
    group_id: str
    member_id: str = ""


class Timers:
    """At most one deadline per key."""

    def __init__(self) -> None:
        self._deadlines: dict[TimerKey, int] = {}
        self._armed: dict[TimerKey, int] = {}
        self._heap: list[tuple[int, TimerKey]] = []

    def __len__(self) -> int:
        return len(self._deadlines)

    def __contains__(self, key: TimerKey) -> bool:
        return key in self._deadlines

    def set(self, key: TimerKey, at_ms: int) -> None:
        """Sets or moves the key's deadline."""
        self._deadlines[key] = at_ms
        armed_ms = self._armed.get(key)
        if armed_ms is None or at_ms < armed_ms:
            self._arm(key, at_ms)

    def cancel(self, key: TimerKey) -> None:
        """A key without a deadline is fine."""
        self._deadlines.pop(key, None)
        if len(self._heap) > _SLACK + 4 * len(self._deadlines):
            self._armed = dict(self._deadlines)
            self._heap = [(at_ms, key) for key, at_ms in self._armed.items()]
            heapq.heapify(self._heap)

    def pop_due(self, now_ms: int) -> TimerKey | None:
        """One key whose deadline is at or before `now_ms`, the earliest first; it has no deadline afterwards."""
        while self._heap and self._heap[0][0] <= now_ms:
            at_ms, key = heapq.heappop(self._heap)
            if self._armed.get(key) != at_ms:
                continue
            del self._armed[key]
            deadline_ms = self._deadlines.get(key)
            if deadline_ms is None:
                continue
            if deadline_ms <= now_ms:
                del self._deadlines[key]
                return key
            self._arm(key, deadline_ms)
        return None

    def next_ms(self) -> int | None:
        """When to look again: never later than the earliest deadline. None where there is none."""
        return self._heap[0][0] if self._heap else None

    def _arm(self, key: TimerKey, at_ms: int) -> None:
        self._armed[key] = at_ms
        heapq.heappush(self._heap, (at_ms, key))

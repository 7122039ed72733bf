"""The names of all topics in order, from one image to the next: a page of them costs no look at the others."""

from bisect import bisect_left, insort
from collections.abc import Mapping, Sequence
from heapq import nsmallest
from typing import Final

from bmq.metadata.shared_map import SharedMap, differences
from bmq.values import TopicId

ONE_BY_ONE_MAX: Final = 64
"""Each name that is put in, or taken out, moves those behind it; of more than so many all are put in order anew."""


class OrderedNames:
    """Those that one proxy's clients see."""

    def __init__(self) -> None:
        self._of: SharedMap[str, TopicId] = SharedMap()
        self._names: list[str] = []

    def page(self, topic_ids: Mapping[str, TopicId], *, start: str, count: int) -> Sequence[str]:
        """The first so many names that are not before `start`."""
        if not isinstance(topic_ids, SharedMap):  # a lane's, which is worked out as it is looked at
            return nsmallest(count, (name for name in topic_ids if name >= start))
        self._follow(topic_ids)
        first = bisect_left(self._names, start)
        return self._names[first : first + count]

    def _follow(self, topic_ids: SharedMap[str, TopicId]) -> None:
        found = differences(self._of, topic_ids)
        self._of = topic_ids
        new = [name for name, before, _ in found.changed if before is None]
        gone = [name for name, _ in found.gone]
        if len(new) + len(gone) > ONE_BY_ONE_MAX:
            left_out = set(gone)
            self._names = [name for name in self._names if name not in left_out] + new
            self._names.sort()  # what is in order already is only looked through
            return
        for name in gone:
            del self._names[bisect_left(self._names, name)]
        for name in new:
            insort(self._names, name)

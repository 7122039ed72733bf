"""The names of all topics in order, from one image to the next: a page of them costs no look at the others.

What a lane sees are its own names and some of the base's: two orders, read side by side.
"""

from abc import abstractmethod
from bisect import bisect_left, insort
from collections.abc import Awaitable, Callable, Mapping
from itertools import islice
from typing import Any, Final

from bmq.metadata.shared_map import SharedMap, differences
from bmq.values import TopicId

ONE_BY_ONE_MAX: Final = 64
"""Each name that is put in, or taken out, moves those behind it; of more than so many all are put in order anew."""
LOOKED_AT_PER_TURN: Final = 500
"""Names beneath a lane's own: whether the lane lists each is told by patterns, in a millisecond or two for so many."""


class OrderedNames:
    """Those of one mapping's versions, none of which has None as a value."""

    def __init__(self) -> None:
        self._of: SharedMap[str, Any] = SharedMap()
        self._names: list[str] = []

    def page(self, names: SharedMap[str, Any], *, start: str, count: int) -> list[str]:
        """The first so many names that are not before `start`."""
        self._follow(names)
        first = bisect_left(self._names, start)
        return self._names[first : first + count]

    def _follow(self, names: SharedMap[str, Any]) -> None:
        found = differences(self._of, names)
        self._of = names
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


class LaidOver(Mapping[str, TopicId]):
    """What a lane sees: all of its own, and of those beneath some."""

    __slots__ = ()

    @property
    @abstractmethod
    def own(self) -> SharedMap[str, TopicId]:
        """Those of its own."""

    @abstractmethod
    def beneath(self) -> tuple[SharedMap[str, Any], OrderedNames] | None:
        """Among which those are that it lists of others, with their order, which whoever sees the same shares. None:
        it lists no others.
        """

    @abstractmethod
    def lists(self, name: str) -> bool:
        """Whether it lists this one of those beneath."""


async def listed_page(
    own: OrderedNames,
    topic_ids: Mapping[str, TopicId],
    *,
    start: str,
    count: int,
    turn: Callable[[], Awaitable[None]],
) -> list[str]:
    """The first so many names of a view's that are not before `start`. `own` is the order of its own, or of all where
    it is no lane's. It waits for a turn after each LOOKED_AT_PER_TURN of those that may have to be passed over.
    """
    if not isinstance(topic_ids, LaidOver):
        return own.page(SharedMap.of(topic_ids), start=start, count=count)
    found = own.page(topic_ids.own, start=start, count=count)
    if (beneath := topic_ids.beneath()) is None:
        return found
    last = found[-1] if len(found) == count else None  # what is behind it is on no page with all of these
    others: list[str] = []
    while True:
        names = beneath[1].page(beneath[0], start=start, count=LOOKED_AT_PER_TURN)
        near = names if last is None else names[: bisect_left(names, last)]
        others += islice(filter(topic_ids.lists, near), count - len(others))
        if len(near) < LOOKED_AT_PER_TURN or len(others) == count:
            return sorted(found + others)[:count]
        start = names[-1] + "\0"  # the next name that there could be
        await turn()

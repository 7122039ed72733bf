"""Who took a thing of which others may not be told yet: what is listed from the API server is read once for all that
ask within seconds.

One operator leads, so who asks and takes without awaiting anything in between is the only one.
"""

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from bmq_operator.rivals import Rival

REMEMBERED_S: Final = 180.0
"""Longer than a list is used that was begun before: it takes a look's time at most, and is used for a while."""

Thing = TypeVar("Thing", bound=Hashable)


@dataclass(slots=True, kw_only=True)
class Takers(Generic[Thing]):
    """By thing, the last one that took it. Times are the loop's."""

    kept_s: float
    """For lists read how long after it counts who took a thing: until every list that is read tells it."""
    _taken: OrderedDict[Thing, tuple[float, Rival]] = field(default_factory=OrderedDict)
    """The one that was taken last at the end."""

    def add_to(self, rivals: dict[str, Rival], thing: Thing, *, read_s: float) -> None:
        """Adds who took it to those that a list read at `read_s` tells, by uid.

        A list that is read later tells it itself, or that the taker has nothing after all.
        """
        taken_s, taker = self._taken.get(thing, (0.0, None))
        if taker is not None and read_s - taken_s <= self.kept_s and (taker.uid in rivals or taken_s >= read_s):
            rivals[taker.uid] = taker

    def take(self, thing: Thing, taker: Rival, *, now_s: float) -> None:
        """It is the taker's from now on. Forgets what is told by all lists."""
        self._taken[thing] = now_s, taker
        self._taken.move_to_end(thing)
        while now_s - next(iter(self._taken.values()))[0] > REMEMBERED_S:
            self._taken.popitem(last=False)

    def let_go(self, thing: Thing, uid: str) -> None:
        """Nothing came of it: where this one took it last, it is nobody's."""
        _, taker = self._taken.get(thing, (0.0, None))
        if taker is not None and taker.uid == uid:
            del self._taken[thing]

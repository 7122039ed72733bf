"""Tells which lane each topic is of: worked out once for all lanes when topics came or went, so that no lane's first
look costs what all names cost.

Bounded: nothing here grows with how many lanes there are but what they read of the base, and of that there is as much
as NAMES_KEPT_MAX says.
"""

from collections import OrderedDict
from collections.abc import Mapping
from typing import Final, Protocol

from bmq.metadata.image import Image, PartitionMeta, Topic
from bmq.naming.lanes import BASE, id_end, lane_of, matches, name_in_lane
from bmq.naming.names import is_internal
from bmq.values import LeaderEpoch, TopicId

NAMES_KEPT_MAX: Final = 500_000
"""Names that are remembered as matched with patterns, all lanes together; beyond it they are matched anew when they are
listed."""
_EVERYTHING: Final = "*"


class Names:
    """Those of one moment."""

    def __init__(self, topic_ids: Mapping[str, TopicId], covered: "_Covered") -> None:
        self._topic_ids = topic_ids
        self._covered = covered
        self.base: Final[Mapping[str, TopicId]] = {
            name: topic_id for name, topic_id in topic_ids.items() if lane_of(name) == BASE
        }
        self._lanes: dict[str, dict[str, TopicId]] | None = None
        self._by_end: dict[int, TopicId] | None = None
        self._epochs: dict[TopicId, tuple[tuple[PartitionMeta, ...], LeaderEpoch]] = {}

    def of(self, lane: str) -> Mapping[str, TopicId]:
        """A lane's own topics, as its clients call them."""
        if self._lanes is None:
            self._lanes = {}
            if len(self.base) < len(self._topic_ids):
                for name, topic_id in self._topic_ids.items():
                    if (found := lane_of(name)) != BASE:
                        self._lanes.setdefault(found, {})[name_in_lane(name)] = topic_id
        return self._lanes.get(lane, {})

    def base_id_like(self, topic_id: TopicId) -> TopicId | None:
        """The topic of the base of which this is the id that it will have in a lane, if it is one."""
        if self._by_end is None:
            self._by_end = {id_end(base_id): base_id for base_id in self.base.values()}
        return self._by_end.get(id_end(topic_id))

    def epoch_above(self, base: Topic) -> LeaderEpoch:
        """Above those that all partitions of a topic of the base have. Kept for all lanes: each partition that a
        request names asks for it.
        """
        partitions, epoch = self._epochs.get(base.topic_id, ((), LeaderEpoch(0)))
        if partitions is not base.partitions:
            epoch = LeaderEpoch(1 + max(meta.leader_epoch for meta in base.partitions))
            self._epochs[base.topic_id] = base.partitions, epoch
        return epoch

    def covered_by(self, globs: tuple[str, ...]) -> Mapping[str, object]:
        """Which of the base's names (and perhaps internal ones) patterns cover."""
        if _EVERYTHING in globs:
            return self.base
        return self._covered.by(globs, self.base) if globs else {}


class Looker(Protocol):
    """Who holds what it made of an image, and so the image."""

    def let_go(self, image: Image) -> bool:
        """Holds nothing any more but what it would make of this image, too. False: that is nothing."""
        ...


class ByLane:
    """One proxy's."""

    def __init__(self) -> None:
        self._lookers: list[Looker] = []
        self._covered = _Covered()
        self._now: Names | None = None
        self._of: object = None

    def names(self, image: Image) -> Names:
        """The names in this image; the same object as long as no topic came or went."""
        if self._now is None or self._of is not image.topic_ids:
            self._now, self._of = Names(image.topic_ids, self._covered), image.topic_ids
        return self._now

    def looked(self, looker: Looker) -> None:
        """To be told of the next image. Of lanes there are many, and each that nobody asks would hold all names of when
        it was asked last.
        """
        self._lookers.append(looker)

    def changed(self, image: Image) -> None:
        """There is a newer one."""
        self._lookers = [looker for looker in self._lookers if looker.let_go(image)]


class _Covered:
    """What patterns cover, with the names that it was looked for in: of others than those only what is new is
    matched.
    """

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[str, ...], tuple[Mapping[str, TopicId], Mapping[str, object]]] = OrderedDict()
        self._names = 0

    def by(self, globs: tuple[str, ...], base: Mapping[str, TopicId]) -> Mapping[str, object]:
        """The names in `base` that they cover."""
        seen_in, before = self._kept.pop(globs, ({}, {}))
        self._names -= len(seen_in)
        if seen_in is base:
            found = before
        else:
            # As long as one looks at an image, what was seen in it stays as it was: so it is copied.
            found = {name: None for name in before if name in base}
            found.update(
                (name, None) for name in base.keys() - seen_in.keys() if not is_internal(name) and matches(name, globs)
            )
        self._kept[globs] = base, found
        self._names += len(base)
        while self._names > NAMES_KEPT_MAX and len(self._kept) > 1:
            _, (names, _) = self._kept.popitem(last=False)
            self._names -= len(names)
        return found

"""Tells which lane each topic is of: worked out once for all lanes when topics came or went, from what was known
before, so that neither a lane's first look nor one topic more costs what all names cost.

Bounded: nothing here grows with how many lanes there are but what they read of the base, of which there is as much as
NAMES_KEPT_MAX says, and the ids of the topics of lanes that others are nested in.
"""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

from bmq.metadata.image import Image, PartitionMeta, Topic
from bmq.metadata.shared_map import SharedMap, Successor, changed, differences
from bmq.naming.lanes import BASE, id_end, lane_of, matches, name_in_lane
from bmq.naming.names import is_internal
from bmq.values import LeaderEpoch, TopicId
from bmq_proxy.ordered_names import OrderedNames

NAMES_KEPT_MAX: Final = 500_000
"""Names that are remembered as matched with patterns, all lanes together; beyond it they are matched anew when they are
listed."""
_EVERYTHING: Final = "*"
_NO_NAMES: Final = SharedMap[str, TopicId]()


class Names:
    """Those of one moment."""

    def __init__(self, covered: "_Covered") -> None:
        """Those of no topics."""
        self._covered = covered
        self._topic_ids: Mapping[str, TopicId] = SharedMap()
        self.base: SharedMap[str, TopicId] = SharedMap()
        self._lanes: SharedMap[str, SharedMap[str, TopicId]] = SharedMap()
        self._by_end: dict[str, tuple[Mapping[str, TopicId], SharedMap[int, TopicId]]] = {}
        """Topics by how their ids end, of the base and of lanes that others are nested in, as far as somebody asked."""
        self._epochs: dict[TopicId, tuple[tuple[PartitionMeta, ...], LeaderEpoch]] = {}

    def after(self, topic_ids: Mapping[str, TopicId]) -> "Names":
        """Those of another moment. It costs what is different, and no look at all names."""
        found = differences(self._topic_ids, topic_ids)
        changes: dict[str, list[tuple[str, TopicId | None]]] = {BASE: []}
        for name, _ in found.gone:
            changes.setdefault(lane_of(name), []).append((name, None))
        for name, _, topic_id in found.changed:
            changes.setdefault(lane_of(name), []).append((name, topic_id))
        then = Names(self._covered)
        then._topic_ids = topic_ids
        then.base = changed(self.base, changes.pop(BASE))
        then._lanes = self._lanes_after(changes)
        then._by_end = {
            lane: (now, _by_end_after(by_end, names, now))
            for lane, (names, by_end) in self._by_end.items()
            if (now := then.of(lane))
        }
        then._epochs = self._epochs
        for topic_id in (topic_id for _, topic_id in found.gone if topic_id in self._epochs):
            del then._epochs[topic_id]
        return then

    def _lanes_after(
        self, changes: Mapping[str, Sequence[tuple[str, TopicId | None]]]
    ) -> SharedMap[str, SharedMap[str, TopicId]]:
        lanes = Successor(self._lanes)
        for lane, theirs in changes.items():
            names = changed(lanes.get(lane) or SharedMap(), [(name_in_lane(name), one) for name, one in theirs])
            if names:
                lanes[lane] = names
            else:
                lanes.pop(lane)
        return lanes.version()

    def of(self, lane: str) -> SharedMap[str, TopicId]:
        """A lane's own topics, as its clients call them; the base's."""
        return self._lanes.get(lane, _NO_NAMES) if lane else self.base

    def id_like(self, lane: str, topic_id: TopicId) -> TopicId | None:
        """The topic of the base, or of a lane, of which this is the id that it will have in a lane above, if it is
        one.
        """
        kept = self._by_end.get(lane)
        if kept is None:
            names = self.of(lane)
            kept = self._by_end[lane] = names, SharedMap({id_end(found): found for found in names.values()})
        return kept[1].get(id_end(topic_id))

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
        return self._covered.by(globs, self.base)[0] if globs else {}

    def in_order(self, globs: tuple[str, ...]) -> tuple[SharedMap[str, Any], OrderedNames] | None:
        """Among which of the base's names those are that patterns cover, with their order: all of them, where what
        these cover is not remembered and there is no room for it. None: they cover nothing.
        """
        if not globs:
            return None
        if _EVERYTHING in globs or not self._covered.has_room(globs, self.base):
            return self.base, self._covered.order
        return self._covered.by(globs, self.base)


def _by_end_after(
    by_end: SharedMap[int, TopicId], before: Mapping[str, TopicId], names: Mapping[str, TopicId]
) -> SharedMap[int, TopicId]:
    found = differences(before, names)
    gone = (*(one for _, one in found.gone), *(one for _, one, _ in found.changed if one is not None))
    here = [(id_end(topic_id), topic_id) for _, _, topic_id in found.changed]
    return changed(by_end, [*((id_end(topic_id), None) for topic_id in gone), *here])


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
        self._now = Names(self._covered)
        self._of: object = None

    def names(self, image: Image) -> Names:
        """The names in this image; the same object as long as no topic came or went."""
        if self._of is not image.topic_ids:
            self._now, self._of = self._now.after(image.topic_ids), image.topic_ids
        return self._now

    def looked(self, looker: Looker) -> None:
        """To be told of the next image. Of lanes there are many, and each that nobody asks would hold all names of when
        it was asked last.
        """
        self._lookers.append(looker)

    def changed(self, image: Image) -> None:
        """There is a newer one."""
        self._lookers = [looker for looker in self._lookers if looker.let_go(image)]


_Kept = tuple[Mapping[str, TopicId], SharedMap[str, bool], OrderedNames]
"""What was matched, and what of it is covered, with its order."""


class _Covered:
    """What patterns cover, with the names that it was looked for in: of others than those only what is new is
    matched.
    """

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[str, ...], _Kept] = OrderedDict()
        self._names = 0
        self.order: Final = OrderedNames()
        """That of all the base's names, for every lane."""

    def has_room(self, globs: tuple[str, ...], base: Mapping[str, TopicId]) -> bool:
        """Whether what they cover is remembered, or can be without another's being forgotten."""
        return globs in self._kept or self._names + len(base) <= NAMES_KEPT_MAX

    def by(self, globs: tuple[str, ...], base: Mapping[str, TopicId]) -> tuple[SharedMap[str, bool], OrderedNames]:
        """The names in `base` that they cover, each with True, and their order."""
        seen_in, found, order = self._kept.pop(globs, (SharedMap(), SharedMap(), OrderedNames()))
        self._names -= len(seen_in)
        if seen_in is not base:
            # As long as one looks at an image, what was seen in it stays as it was.
            after, changes = Successor(found), differences(seen_in, base)
            for name, _ in changes.gone:
                after.pop(name)
            for name, before, _ in changes.changed:
                if before is None and not is_internal(name) and matches(name, globs):
                    after[name] = True
            found = after.version()
        self._kept[globs] = base, found, order
        self._names += len(base)
        while self._names > NAMES_KEPT_MAX and len(self._kept) > 1:
            _, (names, _, _) = self._kept.popitem(last=False)
            self._names -= len(names)
        return found, order

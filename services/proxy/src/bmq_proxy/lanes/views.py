"""The metadata as those in a lane see it, and as those in the base do: images in which nothing else is.

A handler that looks into a lane's image finds the lane's topics under the names that its clients use, and cannot find
another's: so no handler knows of lanes. What a lane sees of a topic of the base that nobody in it has written to yet:
its shape, as the topic that the first write makes, under the id that it will have. Such topics are found by name or id
and are in no list.
"""

from collections.abc import Callable, Iterator, Mapping, ValuesView
from dataclasses import replace
from typing import Any, Final

from bmq.config.topic_config import POOL, first_offset_of, overlay_first_offset
from bmq.metadata.image import Image, Lane, PartitionMeta, Topic
from bmq.metadata.shared_map import SharedMap, changed, differences
from bmq.naming.lanes import BASE, lane_of, matches, name_in_lane, overlay_id, overlay_name
from bmq.naming.names import is_internal
from bmq.roles.controller import Metadata
from bmq.values import TopicId
from bmq_proxy.lanes.by_lane import ByLane, Names
from bmq_proxy.ordered_names import LaidOver, OrderedNames


class BaseView:
    """The base's metadata: all but what belongs to lanes. Without lanes it is the node's own image.

    Worked out when the image changes, and not when somebody looks: every request of the base looks.
    """

    def __init__(self, real: Metadata) -> None:
        self.real = real
        self.by_lane: Final = ByLane()
        """For the views of lanes, too."""
        self._topics_of: Mapping[TopicId, Topic] = SharedMap()
        self._topics: SharedMap[TopicId, Topic] = SharedMap()
        self.image = self._seen(real.image)
        real.subscribe(self._real_changed)

    def subscribe(self, changed: Callable[[Image, Image], None]) -> Callable[[], None]:
        """Calls `changed(old, new)` with what is seen here, after each change; returns the unsubscriber."""
        # A change that was published, and of which nobody was told yet, is one that `changed` is not told of either.
        self._real_changed(self.image, self.real.image)
        before = self.image

        def real_changed(_: Image, __: Image) -> None:
            nonlocal before
            then, before = before, self.image
            changed(then, before)

        return self.real.subscribe(real_changed)

    async def wait_for(self, position: int) -> Image:
        """What the base sees once the node's image covers the metadata log's entry `position`."""
        self._real_changed(self.real.image, await self.real.wait_for(position))
        return self.image

    def _real_changed(self, _: Image, new: Image) -> None:
        if new.position >= self.image.position:
            self.image = self._seen(new)
            self.by_lane.changed(new)

    def _seen(self, image: Image) -> Image:
        if not image.lanes:
            return image
        base = self.by_lane.names(image).base
        if len(base) == len(image.topic_ids):
            return image
        found = differences(self._topics_of, image.topics)
        if found.changed or found.gone:
            gone = [(topic_id, None) for topic_id, _ in found.gone]
            here = [(topic_id, topic) for topic_id, _, topic in found.changed if lane_of(topic.name) == BASE]
            self._topics = changed(self._topics, [*gone, *here])
        self._topics_of = image.topics
        return _restricted(image, self._topics, base)


class LaneView:
    """One lane's. With `own_only`, what its clients may write to and nothing else; otherwise also what they may read of
    the base, and what the base has and a first write would make theirs."""

    def __init__(self, real: Metadata, name: str, by_lane: ByLane, *, own_only: bool) -> None:
        """`by_lane` is the proxy's."""
        self.real = real
        self._of: Image | None = None
        self._shown = Image()
        self.name: Final = name
        self._by_lane = by_lane
        self._own_only = own_only
        self._is_looking = False
        self._maps_from: tuple[object, object, Lane | None] = (None, None, None)
        self._maps: tuple[Mapping[TopicId, Topic], Mapping[str, TopicId]] = ({}, {})

    @property
    def image(self) -> Image:
        """The newest, as it is seen here."""
        now = self.real.image
        if now is not self._of:
            self._shown = self._seen(now)
            self._of = now
            if not self._is_looking:
                self._is_looking = True
                self._by_lane.looked(self)
        return self._shown

    def let_go(self, image: Image) -> bool:
        """Holds nothing any more but what it would make of this image, too. False: that is nothing."""
        if self._of is not image:
            self._of, self._shown = None, Image()
        names, topics, lane = self._maps_from
        if topics is not image.topics or names is not self._by_lane.names(image) or lane != image.lanes.get(self.name):
            self._maps_from, self._maps = (None, None, None), ({}, {})
            self._is_looking = self._of is image
        return self._is_looking

    def subscribe(self, changed: Callable[[Image, Image], None]) -> Callable[[], None]:
        """Calls `changed(old, new)` with what is seen here, after each change; returns the unsubscriber."""
        before = self.image

        def real_changed(_: Image, __: Image) -> None:
            nonlocal before
            then, before = before, self.image
            changed(then, before)

        return self.real.subscribe(real_changed)

    async def wait_for(self, position: int) -> Image:
        """What the lane sees once the node's image covers the metadata log's entry `position`."""
        await self.real.wait_for(position)
        return self.image

    def base_name_of(self, key: object) -> str | None:
        """What the base calls a topic of which this lane has none of its own; `key` is a name or an id as the lane's
        clients know it.
        """
        topic = self.image.topic(key) if isinstance(key, str) else self.image.topics.get(key)  # type: ignore[call-overload]
        return None if topic is None or self.is_own(topic.topic_id) else topic.name

    def stored_name(self, name: str) -> str | None:
        """What the topic is called in the cluster that its clients mean by this name and may read; None: there is none.
        No topic is made for it.
        """
        image = self.real.image
        own = overlay_name(self.name, name)
        if own in image.topic_ids:
            return own
        lane = image.lanes.get(self.name)
        return name if lane is not None and self._is_bases(image, name) and matches(name, lane.reads_base) else None

    def is_unwritten(self, name: str) -> bool:
        """Whether a first write would make a topic of this name."""
        image = self.real.image
        lane = image.lanes.get(self.name)
        return lane is not None and self._is_beneath(image, lane, name) and self.stored_name(name) is None

    @staticmethod
    def _is_bases(image: Image, name: str) -> bool:
        return name in image.topic_ids and lane_of(name) == BASE and not is_internal(name)

    @staticmethod
    def _is_beneath(image: Image, lane: Lane, name: str) -> bool:
        return lane_of(name) == BASE and not is_internal(name) and image.beneath(lane, name) is not None

    @property
    def falls_back(self) -> bool:
        """Whether what nobody in the lane consumes goes on to what is beneath."""
        lane = self.real.image.lanes.get(self.name)
        return lane is not None and lane.falls_back

    def is_own(self, topic_id: TopicId) -> bool:
        """Whether it is a topic of this lane that there is."""
        topic = self.real.image.topics.get(topic_id)
        return topic is not None and lane_of(topic.name) == self.name

    def first_offset(self, topic_id: TopicId) -> int:
        """Where a topic that the lane's clients see begins, or will begin."""
        topic = self.image.topics.get(topic_id)
        return 0 if topic is None else first_offset_of(topic.configs)

    def is_written(self, topic_id: TopicId) -> bool:
        """Whether there is such a topic, of whomever."""
        return topic_id in self.real.image.topics

    def _seen(self, image: Image) -> Image:
        lane = image.lanes.get(self.name)
        if lane is None:
            return _restricted(image, {}, {})
        names = self._by_lane.names(image)
        seen, topics, before = self._maps_from
        if names is not seen or image.topics is not topics or before != lane:
            # Those that did not change stay the same objects: answers made of them may be kept.
            self._maps = self._made(image, lane, names)
            self._maps_from = names, image.topics, lane
        return _restricted(image, *self._maps)

    def _made(self, image: Image, lane: Lane, names: Names) -> tuple[Mapping[TopicId, Topic], Mapping[str, TopicId]]:
        own_ids = names.of(lane.name)
        own = {topic_id: _as_named(image.topics[topic_id], name) for name, topic_id in own_ids.items()}
        if self._own_only:
            return own, own_ids
        seen = _Seen(image, lane, names, own_ids)
        return _Topics(own, seen), _TopicIds(own_ids, seen)


class _Seen:
    """What a lane sees of the base's topics, of which it has none of its own. Nothing is worked out before somebody
    looks.
    """

    def __init__(self, image: Image, lane: Lane, names: Names, own: Mapping[str, TopicId]) -> None:
        self.image: Final = image
        self._lane = lane
        self._names = names
        self._own = own

    def listed(self) -> Iterator[tuple[str, TopicId]]:
        """What the lane may read."""
        base = self._names.base
        for name in self._names.covered_by(self._lane.reads_base):
            if name not in self._own and not is_internal(name):
                yield name, base[name]

    def in_order(self) -> tuple[SharedMap[str, Any], OrderedNames] | None:
        """Among which names of the base those are that the lane may read, with their order. None: it reads none."""
        return self._names.in_order(self._lane.reads_base)

    def lists(self, name: str) -> bool:
        """Whether the lane may read this one of the base, and has none of its own."""
        return name not in self._own and not is_internal(name) and matches(name, self._lane.reads_base)

    def id_of(self, name: str) -> TopicId | None:
        """That of the base where the lane may read it; else the one that the first write will give it."""
        root = None if lane_of(name) or is_internal(name) else self.image.rooted_in(self._lane, name)
        if root is None:
            return None
        return root.topic_id if matches(name, self._lane.reads_base) else self._unwritten_id(name, root.topic_id)

    def topic(self, topic_id: TopicId) -> Topic | None:
        """The topic that has this id here: one that the lane may read, or that the first write will make. Any proxy may
        have told the id.
        """
        found = self.image.topics.get(topic_id)
        if found is not None:
            return found if found.name not in self._own and self.id_of(found.name) == topic_id else None
        root_id = self._names.id_like(BASE, topic_id)
        for parent in self.image.parents(self._lane):
            root_id = root_id or self._names.id_like(parent.name, topic_id)
        if root_id is None:
            return None
        name = name_in_lane(self.image.topics[root_id].name)
        return self._unwritten(name, topic_id) if name not in self._own and self.id_of(name) == topic_id else None

    def _unwritten_id(self, name: str, root_id: TopicId) -> TopicId:
        epoch = self.image.next_leader_epoch(overlay_name(self._lane.name, name))
        return TopicId(overlay_id(self.image.cluster_id, self._lane.number, name, epoch, base_id=root_id))

    def _unwritten(self, name: str, topic_id: TopicId) -> Topic:
        beneath = self.image.beneath(self._lane, name)
        assert beneath is not None, f"there is nothing beneath {name!r} that has an id"
        start = self.image.next_leader_epoch(overlay_name(self._lane.name, name))
        epoch = max(start, self._names.epoch_above(beneath))
        configs = {key: value for key, value in beneath.configs.items() if key != POOL}
        return Topic(
            topic_id=topic_id,
            name=name,
            partitions=(PartitionMeta(leader_epoch=epoch),) * len(beneath.partitions),
            configs={**configs, **overlay_first_offset(name, self._lane.has_read_base)},
        )


class _TopicIds(LaidOver):
    """More is found than is listed."""

    __slots__ = ("__weakref__", "_own", "_seen")

    def __init__(self, own: SharedMap[str, TopicId], seen: _Seen) -> None:
        self._own = own
        self._seen = seen

    @property
    def own(self) -> SharedMap[str, TopicId]:
        """The lane's topics."""
        return self._own

    def beneath(self) -> tuple[SharedMap[str, Any], OrderedNames] | None:
        """Among which names of the base those are that are listed."""
        return self._seen.in_order()

    def lists(self, name: str) -> bool:
        """Whether this one of the base is."""
        return self._seen.lists(name)

    def __getitem__(self, name: str) -> TopicId:
        found = self._own.get(name) or self._seen.id_of(name)
        if found is None:
            raise KeyError(name)
        return found

    def __iter__(self) -> Iterator[str]:
        yield from self._own
        for name, _ in self._seen.listed():
            yield name

    def __len__(self) -> int:
        return sum(1 for _ in self)


class _Topics(Mapping[TopicId, Topic]):
    """More is found than is listed."""

    __slots__ = ("__weakref__", "_own", "_seen")

    def __init__(self, own: Mapping[TopicId, Topic], seen: _Seen) -> None:
        self._own = own
        self._seen = seen

    def __getitem__(self, topic_id: TopicId) -> Topic:
        found = self._own.get(topic_id) or self._seen.topic(topic_id)
        if found is None:
            raise KeyError(topic_id)
        return found

    def __iter__(self) -> Iterator[TopicId]:
        yield from self._own
        for _, topic_id in self._seen.listed():
            yield topic_id

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def values(self) -> ValuesView[Topic]:
        """What is listed is not looked for once more."""
        return _Listed(self, self._own, self._seen)


class _Listed(ValuesView[Topic]):
    def __init__(self, topics: _Topics, own: Mapping[TopicId, Topic], seen: _Seen) -> None:
        super().__init__(topics)
        self._own = own
        self._seen = seen

    def __iter__(self) -> Iterator[Topic]:
        yield from self._own.values()
        for _, topic_id in self._seen.listed():
            yield self._seen.image.topics[topic_id]


def _restricted(image: Image, topics: Mapping[TopicId, Topic], topic_ids: Mapping[str, TopicId]) -> Image:
    moving = {tp: to for tp, to in image.moving.items() if tp.topic_id in topics} if image.moving else image.moving
    return replace(
        image, topics=topics, topic_ids=topic_ids, moving=moving, lanes={}, tombstones={}, deleted={}, colliding={}
    )


def _as_named(topic: Topic, name: str) -> Topic:
    return topic if topic.name == name else replace(topic, name=name)

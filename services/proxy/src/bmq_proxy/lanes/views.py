"""The metadata as those in a lane see it, and as those in the base do: images in which nothing else is.

A handler that looks into a lane's image finds the lane's topics under the names that its clients use, and cannot find another's: so no handler
knows of lanes. What a lane sees of a topic of the base that nobody in it has written to yet: its shape, as the topic that the first write makes,
under the id that it will have. Such topics are found by name or id and are in no list.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Final, Generic, TypeVar

from bmq.lanes import BASE, lane_of, matches, name_in_lane, overlay_id, overlay_name
from bmq.metadata.image import Image, Lane, PartitionMeta, Topic
from bmq.names import is_internal
from bmq.roles.controller import Metadata
from bmq.topic_config import POOL, first_offset_of, overlay_first_offset
from bmq.values import LeaderEpoch, TopicId

_Maps = tuple[Mapping[TopicId, Topic], Mapping[str, TopicId]]

K = TypeVar("K")
V = TypeVar("V")


class _WithUnlisted(Mapping[K, V], Generic[K, V]):
    """A mapping in which more is found than is listed."""

    __slots__ = ("_listed", "_unlisted")

    def __init__(self, listed: Mapping[K, V], unlisted: Callable[[K], V | None]) -> None:
        self._listed = listed
        self._unlisted = unlisted

    def __getitem__(self, key: K) -> V:
        found = self._listed.get(key)
        if found is None:
            found = self._unlisted(key)
            if found is None:
                raise KeyError(key)
        return found

    def __iter__(self) -> Iterator[K]:
        return iter(self._listed)

    def __len__(self) -> int:
        return len(self._listed)


class BaseView:
    """The base's metadata: all but what belongs to lanes. Without lanes it is the node's own image.

    Worked out when the image changes, and not when somebody looks: every request of the base looks.
    """

    def __init__(self, real: Metadata) -> None:
        self.real = real
        self._topic_ids_of: object = None
        self._topics_of: object = None
        self._topics: Mapping[TopicId, Topic] = {}
        self._topic_ids: Mapping[str, TopicId] = {}
        self.image = self._seen(real.image)
        real.subscribe(self._real_changed)

    def subscribe(self, changed: Callable[[Image, Image], None]) -> Callable[[], None]:
        """See the protocol; `changed` gets what is seen here."""
        # A change that was published, and of which nobody was told yet, is one that `changed` is not told of either.
        self._real_changed(self.image, self.real.image)
        before = self.image

        def real_changed(_: Image, __: Image) -> None:
            nonlocal before
            then, before = before, self.image
            changed(then, before)

        return self.real.subscribe(real_changed)

    async def wait_for(self, position: int) -> Image:
        """See the protocol."""
        self._real_changed(self.real.image, await self.real.wait_for(position))
        return self.image

    def _real_changed(self, _: Image, new: Image) -> None:
        if new.position >= self.image.position:
            self.image = self._seen(new)

    def _seen(self, image: Image) -> Image:
        if not image.lanes:
            return image
        same_names = self._topic_ids_of is image.topic_ids
        if not same_names:
            self._topic_ids = {name: topic_id for name, topic_id in image.topic_ids.items() if lane_of(name) == BASE}
            self._topic_ids_of = image.topic_ids
        if len(self._topic_ids) == len(image.topic_ids):
            return image
        if not same_names or self._topics_of is not image.topics:
            self._topics = {topic_id: image.topics[topic_id] for topic_id in self._topic_ids.values()}
            self._topics_of = image.topics
        return _restricted(image, self._topics, self._topic_ids)


class LaneView:
    """One lane's. With `own_only`, what its clients may write to and nothing else; otherwise also what they may read of the base, and
    what the base has and a first write would make theirs."""

    def __init__(self, real: Metadata, name: str, *, own_only: bool) -> None:
        self.real = real
        self._of: Image | None = None
        self._shown = Image()
        self.name: Final = name
        self._own_only = own_only
        self._ids_from: tuple[object, Lane | None] = (None, None)
        self._topic_ids: dict[str, TopicId] = {}
        self._maps_from: object = None
        self._maps: _Maps = ({}, {})
        self._foretold: dict[TopicId, str] = {}
        """Ids of topics that nobody has written to yet, as they were told."""
        self._foretold_from: tuple[object, object, int] = (None, None, -1)

    @property
    def image(self) -> Image:
        """The newest, as it is seen here."""
        now = self.real.image
        if now is not self._of:
            self._shown = self._seen(now)
            self._of = now
        return self._shown

    def subscribe(self, changed: Callable[[Image, Image], None]) -> Callable[[], None]:
        """See the protocol; `changed` gets what is seen here."""
        before = self.image

        def real_changed(_: Image, __: Image) -> None:
            nonlocal before
            then, before = before, self.image
            changed(then, before)

        return self.real.subscribe(real_changed)

    async def wait_for(self, position: int) -> Image:
        """See the protocol."""
        await self.real.wait_for(position)
        return self.image

    def base_name_of(self, key: object) -> str | None:
        """What the base calls a topic of which this lane has none of its own; `key` is a name or an id as the lane's clients know it."""
        topic = self.image.topic(key) if isinstance(key, str) else self.image.topics.get(key)  # type: ignore[call-overload]
        return None if topic is None or self.is_own(topic.topic_id) else topic.name

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
        if self._ids_from[0] is not image.topic_ids or self._ids_from[1] != lane:
            self._topic_ids = self._listed(image, lane)
            self._ids_from = (image.topic_ids, lane)
            self._maps_from = None
        if self._maps_from is not image.topics:  # those that did not change stay the same objects: answers made of them may be kept
            self._maps = self._made(image, lane)
            self._maps_from = image.topics
        return _restricted(image, *self._maps)

    def _made(self, image: Image, lane: Lane) -> _Maps:
        topics = {topic_id: _as_named(image.topics[topic_id], name) for name, topic_id in self._topic_ids.items()}
        if self._own_only:
            return topics, self._topic_ids
        return (
            _WithUnlisted(topics, lambda topic_id: self._unwritten_by_id(image, lane, topic_id)),
            _WithUnlisted(self._topic_ids, lambda name: self._unwritten_id(image, lane, name)),
        )

    def _listed(self, image: Image, lane: Lane) -> dict[str, TopicId]:
        found = {name_in_lane(name): topic_id for name, topic_id in image.topic_ids.items() if lane_of(name) == self.name}
        if lane.reads_base and not self._own_only:
            for name, topic_id in image.topic_ids.items():
                if lane_of(name) == BASE and name not in found and not is_internal(name) and matches(name, lane.reads_base):
                    found[name] = topic_id
        return found

    def _unwritten_id(self, image: Image, lane: Lane, name: str) -> TopicId | None:
        base_id = image.topic_ids.get(name)
        if base_id is None or lane_of(name) != BASE or is_internal(name):
            return None
        epoch = image.next_leader_epoch(overlay_name(lane.name, name))
        topic_id = TopicId(overlay_id(image.cluster_id, lane.number, name, epoch))
        self._foretold[topic_id] = name
        return topic_id

    def _unwritten_by_id(self, image: Image, lane: Lane, topic_id: TopicId) -> Topic | None:
        if topic_id not in self._foretold:
            self._foretell(image, lane)  # another proxy may have told it
        name = self._foretold.get(topic_id)
        if name is None or name in self._topic_ids or self._unwritten_id(image, lane, name) != topic_id:
            return None
        base = image.topics[image.topic_ids[name]]
        epoch = max(image.next_leader_epoch(overlay_name(lane.name, name)), *(meta.leader_epoch + 1 for meta in base.partitions))
        return Topic(
            topic_id=topic_id,
            name=name,
            partitions=(PartitionMeta(leader_epoch=LeaderEpoch(epoch)),) * len(base.partitions),
            configs={**{key: value for key, value in base.configs.items() if key != POOL}, **overlay_first_offset(name, lane.has_read_base)},
        )

    def _foretell(self, image: Image, lane: Lane) -> None:
        """All ids that this lane's proxies may have told. Once for each set of names."""
        names = (image.topic_ids, image.tombstones, lane.number)
        if all(now is before for now, before in zip(names[:2], self._foretold_from[:2], strict=True)) and self._foretold_from[2] == lane.number:
            return
        self._foretold_from = names
        self._foretold.clear()
        for name in image.topic_ids:
            if name not in self._topic_ids:
                self._unwritten_id(image, lane, name)


def _restricted(image: Image, topics: Mapping[TopicId, Topic], topic_ids: Mapping[str, TopicId]) -> Image:
    moving = {tp: to for tp, to in image.moving.items() if tp.topic_id in topics} if image.moving else image.moving
    return replace(image, topics=topics, topic_ids=topic_ids, moving=moving, lanes={}, tombstones={}, deleted={}, colliding={})


def _as_named(topic: Topic, name: str) -> Topic:
    return topic if topic.name == name else replace(topic, name=name)

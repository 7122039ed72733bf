"""Consumer groups of the base and of lanes: what their ids and the topics in them are called on the way to their
coordinators and back.

The one place where names in requests are changed. A lane's groups are others than the base's under the same ids, and
neither side sees the other's.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from typing import Any, Final

from bmq.errors import InvalidGroupId
from bmq.metadata.image import Topic
from bmq.naming.group_partition import partition_of_group
from bmq.naming.lanes import BASE, lane_group, lane_of, matches, name_in_lane, overlay_name, stored_group
from bmq.roles.owner import Owner, let_go
from bmq.values import TopicPartition
from bmq.wire.apis import ApiKey
from bmq.wire.message import Message
from bmq_proxy.bulk import TURN_ELEMENTS, Bulk
from bmq_proxy.calls import Call
from bmq_proxy.coordinators import Coordinators
from bmq_proxy.lanes.stale_commits import joined, take_out_stale, told_apart, with_stale
from bmq_proxy.lanes.views import LaneView

_MAY_BE_EMPTY: Final = (ApiKey.OFFSET_COMMIT, ApiKey.OFFSET_FETCH)
_GROUP_LISTS: Final = ("groups", "groups_names")
_NAMELESS_LISTS: Final = ("members", "assignments", "protocols")
"""What members say names neither groups nor topics, and there may be very many."""
LISTED_PER_TURN: Final = 1_000
NOBODYS: Final = ":"
"""Before the name of a lane's topic that the base asks for: no lane has an empty name, so nobody has such a topic."""


class BaseGroups:
    """The coordinators of the base's groups: `Coordinators` for whom lanes' groups do not exist."""

    def __init__(self, real: Coordinators) -> None:
        self.real = real

    async def call(self, group_id: str, api_key: int, request: Any, call: Call) -> Any:
        """The answer of the group's coordinator, in which lanes' topics do not exist. Raises InvalidGroupId for the id
        of a lane's group.
        """
        _check_base(group_id)
        return _told_outwards(await self.real.call(group_id, api_key, _kept_inwards(request), call))

    async def call_all(
        self, api_key: int, request: Any, call: Call, *, only: Callable[[TopicPartition], bool] = lambda _: True
    ) -> list[Any]:
        """The lists of groups that the coordinators of all partitions have, or of some only, without lanes' groups."""
        answers = await self.real.call_all(api_key, request, call, only=only)
        return [
            await _listing(answer, lambda group_id: group_id if lane_group(group_id) is None else None)
            for answer in answers
        ]

    async def call_each(
        self, group_ids: Iterable[str], api_key: int, request_for: Callable[[list[str]], Any], call: Call
    ) -> list[tuple[list[str], Any]]:
        """One call per partition that any of the base's groups lives in; InvalidGroupId for all groups of lanes
        together.
        """
        allowed: list[str] = []
        refused: list[str] = []
        for number, group_id in enumerate(dict.fromkeys(group_ids), start=1):
            (allowed if lane_group(group_id) is None else refused).append(group_id)
            if number % LISTED_PER_TURN == 0:
                await asyncio.sleep(0)
        answers = await self.real.call_each(
            allowed, api_key, lambda group_ids: _kept_inwards(request_for(group_ids)), call
        )
        told = [
            (groups, answer if isinstance(answer, BaseException) else _told_outwards(answer))
            for groups, answer in answers
        ]
        return [*told, (refused, _not_the_bases(refused[0]))] if refused else told

    async def offsets_topic(self, call: Call) -> Topic:
        """`__consumer_offsets`, in which the base's groups and lanes' live, made now where it does not exist."""
        return await self.real.offsets_topic(call)

    def partition_of(self, group_id: str, topic: Topic) -> int:
        """In which partition of `topic` the group lives."""
        return self.real.partition_of(group_id, topic)


class LaneGroups:
    """The coordinators of one lane's groups, for requests that name them as the lane's clients do."""

    def __init__(
        self,
        real: Coordinators,
        view: LaneView,
        number: int,
        make_topics: Callable[[Collection[str], str], Awaitable[object]],
        owner_for: Callable[[TopicPartition], Owner],
        *,
        bulk: Bulk,
    ) -> None:
        """`make_topics`: a commit to what nobody in the lane has written to yet makes the lane's topic, so that the
        offset means that one.
        """
        self._real = real
        self._view = view
        self._number = number
        self._make_topics = make_topics
        self._owner_for = owner_for
        self._bulk = bulk

    async def call(self, group_id: str, api_key: int, request: Any, call: Call) -> Any:
        """The answer of the group's coordinator, by the names that the lane's clients use. A commit makes the lane's
        topics that nobody has written to yet. Raises InvalidGroupId for an empty id, where the request may not have
        one.
        """
        if not group_id and api_key not in _MAY_BE_EMPTY:
            raise InvalidGroupId("the group id is empty: give the group a name")
        if api_key == ApiKey.OFFSET_COMMIT:
            named = self._bulk.paced(call, request.topics)
            unwritten = [topic.name async for topic in named if topic.name and self._view.is_unwritten(topic.name)]
            await self._make_topics(unwritten, call.client_host)
            return await self._commit(group_id, request, call)
        return await self._passed_on(self._stored(group_id), api_key, request, call)

    async def _passed_on(self, stored: str, api_key: int, request: Any, call: Call) -> Any:
        inwards = await self._in_turns(request, call, group=self._stored, topic=self._stored_topic)
        let_go(api_key, request)  # which has an own copy of what is passed on
        return await self._in_turns(
            await self._real.call(stored, api_key, inwards, call), call, group=self._shown, topic=self._shown_topic
        )

    async def _in_turns(
        self, value: Any, call: Call, *, group: Callable[[str], str | None], topic: Callable[[str], str | None]
    ) -> Any:
        """A copy of a request or an answer with the names changed, as `_mapped` makes it; of many topics some in each
        turn of the loop.
        """
        fields = _fields(value)
        topics = fields.pop("topics", None)
        if topics is None or len(topics) <= TURN_ELEMENTS:
            return _mapped(value, group=group, topic=topic)
        found: list[Any] = []
        for first in range(0, len(topics), TURN_ELEMENTS):
            found += _mapped(topics[first : first + TURN_ELEMENTS], group=group, topic=topic, at="topics")
            await self._bulk.turn(call)
        mapped = {**_mapped(fields, group=group, topic=topic), "topics": found}
        return mapped if isinstance(value, Mapping) else Message(**mapped)

    async def _commit(self, group_id: str, request: Any, call: Call) -> Any:
        asked, patience = request, self._real.patience
        step = self._bulk.pace(call).step
        request, stale = await patience.answered(
            call, lambda: take_out_stale(asked, self._own_topic, self._owner_for, step=step)
        )
        fresh = request
        own, bases = await patience.answered(
            call, lambda: told_apart(fresh, self._own_topic, self._base_topic, self._owner_for, step=step)
        )
        stored = self._stored(group_id)
        if bases is None:
            reply = await self._passed_on(stored, ApiKey.OFFSET_COMMIT, request, call)
        else:
            as_named = _mapped(bases, group=self._stored, topic=_as_it_is)
            reply = _fields(
                _mapped(
                    await self._real.call(stored, ApiKey.OFFSET_COMMIT, as_named, call),
                    group=self._shown,
                    topic=_as_it_is,
                )
            )
            if own is not None:
                reply = joined(_fields(await self._passed_on(stored, ApiKey.OFFSET_COMMIT, own, call)), reply)
        return with_stale(_fields(reply), stale) if stale else reply

    def _own_topic(self, name: str) -> Topic | None:
        return self._view.real.image.topic(overlay_name(self._view.name, name))

    def _base_topic(self, name: str) -> Topic | None:
        """The base's topic of that name, where the lane's clients may read it, or could."""
        image = self._view.real.image
        lane = image.lanes.get(self._view.name)
        may_read = lane is not None and matches(name, lane.has_read_base)
        return image.topic(name) if may_read and lane_of(name) == BASE else None

    async def call_all(
        self, api_key: int, request: Any, call: Call, *, only: Callable[[TopicPartition], bool] = lambda _: True
    ) -> list[Any]:
        """The lists of groups that the coordinators of all partitions have, or of some only: the lane's own, as its
        clients know them.
        """
        answers = await self._real.call_all(api_key, self._inwards(request), call, only=only)
        return [await _listing(answer, self._shown) for answer in answers]

    async def call_each(
        self, group_ids: Iterable[str], api_key: int, request_for: Callable[[list[str]], Any], call: Call
    ) -> list[tuple[list[str], Any]]:
        """One call per partition that any of the lane's groups lives in, by the names that the lane's clients use."""
        names = {self._stored(group_id): group_id for group_id in group_ids}
        answers = await self._real.call_each(
            names, api_key, lambda stored: self._inwards(request_for([names[group_id] for group_id in stored])), call
        )
        return [
            (
                [names[group_id] for group_id in stored],
                answer if isinstance(answer, BaseException) else self._outwards(answer),
            )
            for stored, answer in answers
        ]

    async def offsets_topic(self, call: Call) -> Topic:
        """`__consumer_offsets`, in which the base's groups and lanes' live, made now where it does not exist."""
        return await self._real.offsets_topic(call)

    def partition_of(self, group_id: str, topic: Topic) -> int:
        """In which partition of `topic` the lane's group lives."""
        return partition_of_group(self._stored(group_id), len(topic.partitions))

    def _stored(self, group_id: str) -> str:
        return stored_group(self._view.name, self._number, group_id)

    def _shown(self, stored: str) -> str | None:
        """The group as the lane's clients know it; None: it is not this lane's."""
        found = lane_group(stored)
        return (
            found.group_id
            if found is not None and (found.lane, found.number) == (self._view.name, self._number)
            else None
        )

    def _stored_topic(self, name: str) -> str:
        """The base's where that is what the lane reads, else the lane's own, whether or not there is one."""
        return self._view.stored_name(name) or overlay_name(self._view.name, name)

    def _shown_topic(self, stored: str) -> str | None:
        """None: not what this name means in the lane any more, or nothing of the lane's."""
        name = name_in_lane(stored)
        return name if lane_of(stored) in (self._view.name, BASE) and self._stored_topic(name) == stored else None

    def _inwards(self, request: Any) -> Any:
        return _mapped(request, group=self._stored, topic=self._stored_topic)

    def _outwards(self, reply: Any) -> Any:
        return _mapped(reply, group=self._shown, topic=self._shown_topic)


def _check_base(group_id: str) -> None:
    if lane_group(group_id) is not None:
        raise _not_the_bases(group_id)


def _not_the_bases(group_id: str) -> InvalidGroupId:
    return InvalidGroupId(f"the group id {group_id[:80]!r} is a lane's: connect to the lane, or choose another one")


def _kept_inwards(request: Any) -> Any:
    """A request of the base's. A name that is a lane's topic's becomes one that no topic can have: whether there is
    such a topic must not show.
    """
    return _mapped(request, group=_as_it_is, topic=_nobodys) if _names_a_lane(request) else request


def _told_outwards(reply: Any) -> Any:
    """The answer by the names that were asked for, without what an earlier version let the base commit for lanes'
    topics.
    """
    return _mapped(reply, group=_as_it_is, topic=_anybodys) if _names_a_lane(reply) else reply


def _names_a_lane(message: Any) -> bool:
    return any(NOBODYS in (_fields(topic).get("name") or "") for topic in _topics_in(_fields(message)))


def _topics_in(fields: Mapping[str, Any]) -> Iterable[Any]:
    for holder in (fields, *(_fields(group) for group in fields.get("groups") or () if not isinstance(group, str))):
        yield from holder.get("topics") or ()


def _as_it_is(group_id: str) -> str:
    return group_id


def _nobodys(topic: str) -> str:
    return topic if lane_of(topic) == BASE else f"{NOBODYS}{topic}"


def _anybodys(topic: str) -> str | None:
    """None: a lane's, of which nothing is told."""
    if topic.startswith(NOBODYS):
        return topic[len(NOBODYS) :]
    return topic if lane_of(topic) == BASE else None


async def _listing(answer: Any, shown: Callable[[str], str | None]) -> dict[str, Any]:
    """A list of groups without those that are not shown. Others have their turn after a few of them."""
    fields = _fields(answer)
    groups: list[dict[str, Any]] = []
    for number, one in enumerate(fields.get("groups") or [], start=1):
        group = _fields(one)
        if (name := shown(group["group_id"])) is not None:
            group["group_id"] = name
            groups.append(group)
        if number % LISTED_PER_TURN == 0:
            await asyncio.sleep(0)
    return {**fields, "groups": groups}


def _fields(value: Any) -> dict[str, Any]:
    return dict(value if isinstance(value, Mapping) else vars(value))


def _mapped(value: Any, *, group: Callable[[str], str | None], topic: Callable[[str], str | None], at: str = "") -> Any:
    """A copy with the ids of groups and, in lists of topics, their names changed; a topic whose name becomes None is
    left out.
    """
    match value:
        case str() if at == "group_id" or at in _GROUP_LISTS:
            return group(value)
        case Message():
            return Message(**_mapped(vars(value), group=group, topic=topic, at=at))
        case Mapping():
            return {name: _mapped(one, group=group, topic=topic, at=name) for name, one in value.items()}
        case list() | tuple() if at == "topics":
            return [one for one in (_renamed(one, topic) for one in value) if one is not None]
        case list() | tuple() if at in _NAMELESS_LISTS:
            return list(value)
        case list() | tuple():
            return [_mapped(one, group=group, topic=topic, at=at) for one in value]
        case _:
            return value


def _renamed(one: Any, topic: Callable[[str], str | None]) -> Any:
    """A topic in such a list: with the partitions that it has, which there may be very many of."""
    fields = one if isinstance(one, Mapping) else vars(one)
    name = fields.get("name")
    if not name:
        return one if name is not None or "name" not in fields else None
    found = topic(name)
    if found is None:
        return None
    return {**fields, "name": found} if isinstance(one, Mapping) else Message(**{**fields, "name": found})

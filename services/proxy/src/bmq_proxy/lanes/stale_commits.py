"""Offsets that a lane's client read in one topic and commits when the name means another to it: the base's, and the
lane's own.

What was read in the base's and is committed when the lane has its own would skip what is in that one.

The topic of a lane that reads the base's begins above every offset of the base's (`bmq.first.offset`). One that was
made before the lane read the base's begins at 0: there the leader epoch tells, which starts above every epoch that the
base's had, so that an epoch of the base's ends where the topic begins. Who sends an epoch is refused, and finds out
what happened. Many clients send none: theirs are stored for the base's topic, of which they are, and answered as such:
nothing of the lane's is skipped, and no client fails. (Of a topic that begins at 0 these are the offsets beyond its end
and within the base's.)

The other way round, where the lane's own was deleted and its clients read the base's again, an offset at which no topic
of the base ever is would take the place of what the group had committed there. It is of a topic that is gone, and
refused so.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

from bmq.config.topic_config import READING_LANES_FIRST_OFFSET, first_offset_of
from bmq.errors import BmqError
from bmq.metadata.image import Topic
from bmq.roles.owner import Owner
from bmq.values import TopicPartition
from bmq.wire.error_codes import ErrorCode
from bmq.wire.message import Message
from bmq.wire.special_timestamps import LATEST

OwnTopic = Callable[[str], Topic | None]
"""The lane's own topic of a name."""
BaseTopic = Callable[[str], Topic | None]
"""The base's."""
Step = Callable[[int], Awaitable[None]]
"""Told how much was looked at; returns when it is this request's turn again."""
OWNERS_AT_ONCE: Final = 16
CODE: Final = int(ErrorCode.unknown_topic_or_partition)


async def take_out_stale(
    request: Any, own_topic: OwnTopic, owner_for: Callable[[TopicPartition], Owner], *, step: Step
) -> tuple[Message, dict[str, list[int]]]:
    """The commit without them, and their partitions by topic. Asks owners only where an offset's epoch is not the
    newest.
    """
    stale: dict[str, list[int]] = {}
    for asked in request.topics:
        if not asked.name:
            continue
        await step(1 + len(asked.partitions))
        topic = own_topic(asked.name)
        for one in asked.partitions:
            if topic is None:
                is_stale = int(one.committed_offset) >= READING_LANES_FIRST_OFFSET
            else:
                tp = TopicPartition(topic.topic_id, one.partition_index)
                is_stale = 0 <= one.partition_index < len(topic.partitions) and await _is_stale(
                    topic, tp, one, owner_for
                )
            if is_stale:
                stale.setdefault(asked.name, []).append(one.partition_index)
    if not stale:
        return request, stale
    gone = {name: frozenset(indexes) for name, indexes in stale.items()}
    topics = []
    for asked in request.topics:
        await step(1 + len(asked.partitions))
        left = [one for one in asked.partitions if one.partition_index not in gone.get(asked.name, ())]
        if left:
            topics.append(Message(**{**vars(asked), "partitions": left}))
    return Message(**{**vars(request), "topics": topics}), stale


async def told_apart(
    request: Any,
    own_topic: OwnTopic,
    base_topic: BaseTopic,
    owner_for: Callable[[TopicPartition], Owner],
    *,
    step: Step,
) -> tuple[Message | None, Message | None]:
    """What of a commit is for the lane's topics, and what without an epoch can only be of the base's; None: nothing."""
    places: list[tuple[Any, Topic, Topic]] = []
    for asked in request.topics:
        await step(1 + len(asked.partitions))
        if asked.name and (own := own_topic(asked.name)) is not None and (base := base_topic(asked.name)) is not None:
            count = min(len(own.partitions), len(base.partitions))
            places += [
                (one, own, base)
                for one in asked.partitions
                if one.committed_leader_epoch < 0 and 0 <= one.partition_index < count
            ]
    if not places:
        return request, None

    async def is_the_bases(one: Any, own: Topic, base: Topic) -> bool:
        offset, index = int(one.committed_offset), int(one.partition_index)
        if first_offset_of(own.configs) or not offset:
            return offset < first_offset_of(own.configs)
        try:
            return 0 <= await _end(own, index, owner_for) < offset <= await _end(base, index, owner_for)
        except BmqError:
            return False  # nobody can say now

    taken: set[int] = set()
    left = iter(places)

    async def ask() -> None:
        for place in left:
            if await is_the_bases(*place):
                taken.add(id(place[0]))
            await step(1)

    await asyncio.gather(*(ask() for _ in range(min(OWNERS_AT_ONCE, len(places)))))  # no task for each of thousands
    if not taken:
        return request, None
    return _only(request, lambda one: id(one) not in taken), _only(request, lambda one: id(one) in taken, topic_id=None)


async def _end(topic: Topic, partition: int, owner_for: Callable[[TopicPartition], Owner]) -> int:
    """Where the log ends, whichever epoch it is in: not where an epoch ends that this proxy takes for the newest."""
    tp = TopicPartition(topic.topic_id, partition)
    return (await owner_for(tp).offset_for_time(tp, LATEST)).offset


def _only(request: Any, wanted: Callable[[Any], bool], **changed: None) -> Message | None:
    parts = [(asked, [one for one in asked.partitions if wanted(one)]) for asked in request.topics]
    topics = [Message(**{**vars(asked), "partitions": left, **changed}) for asked, left in parts if left]
    return Message(**{**vars(request), "topics": topics}) if topics else None


async def _is_stale(topic: Topic, tp: TopicPartition, one: Any, owner_for: Callable[[TopicPartition], Owner]) -> bool:
    epoch = one.committed_leader_epoch
    if epoch >= 0 and int(one.committed_offset) < first_offset_of(topic.configs):
        return True
    if not 0 <= epoch < topic.partitions[tp.partition].leader_epoch:
        return False
    try:
        end = await owner_for(tp).epoch_end(tp, epoch)
    except BmqError:
        return False  # nobody can say now; it is as likely the lane's own, of before a move
    return 0 <= end.end_offset < int(one.committed_offset)


def joined(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    """Two answers to parts of one commit as one, topic by topic."""
    topics = {
        _field(topic, "name"): {"name": _field(topic, "name"), "topic_id": None, "partitions": []}
        for topic in first["topics"]
    }
    for topic in (*first["topics"], *second["topics"]):
        name = _field(topic, "name")
        whole = topics.setdefault(name, {"name": name, "topic_id": None, "partitions": []})
        whole["partitions"] += _field(topic, "partitions")
    return {**first, "topics": list(topics.values())}


def _field(value: Any, name: str) -> Any:
    return value[name] if isinstance(value, dict) else getattr(value, name)


def with_stale(reply: dict[str, Any], stale: dict[str, list[int]]) -> dict[str, Any]:
    """The answer, with those that were taken out refused."""
    topics = {topic["name"]: {**topic, "partitions": list(topic["partitions"])} for topic in reply["topics"]}
    for name, indexes in stale.items():
        topic = topics.setdefault(name, {"name": name, "topic_id": None, "partitions": []})
        topic["partitions"] += [{"partition_index": index, "error_code": CODE} for index in indexes]
    return {**reply, "topics": list(topics.values())}

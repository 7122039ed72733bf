"""Offsets that a lane's client read in the base's topic and commits when the lane has its own: they would skip what is in that one.

Told by their leader epoch: a lane's topic starts above every epoch that the base's had, so in it an epoch of the base's ends where the topic begins.
"""

from collections.abc import Callable
from typing import Any, Final

from bmq.errors import BmqError
from bmq.metadata.image import Topic
from bmq.roles.owner import Owner
from bmq.values import TopicPartition
from bmq.wire.error_codes import ErrorCode
from bmq.wire.message import Message

OwnTopic = Callable[[str], Topic | None]
"""The lane's own topic of a name."""
CODE: Final = int(ErrorCode.unknown_topic_or_partition)


async def take_out_stale(request: Any, own_topic: OwnTopic, owner_for: Callable[[TopicPartition], Owner]) -> tuple[Message, dict[str, list[int]]]:
    """The commit without them, and their partitions by topic. Asks owners only where an offset's epoch is not the newest."""
    stale: dict[str, list[int]] = {}
    for asked in request.topics:
        topic = own_topic(asked.name) if asked.name else None
        if topic is None:
            continue
        for one in asked.partitions:
            tp = TopicPartition(topic.topic_id, one.partition_index)
            if 0 <= one.partition_index < len(topic.partitions) and await _is_stale(topic, tp, one, owner_for):
                stale.setdefault(asked.name, []).append(one.partition_index)
    if not stale:
        return request, stale
    topics = []
    for asked in request.topics:
        left = [one for one in asked.partitions if one.partition_index not in stale.get(asked.name, ())]
        if left:
            topics.append(Message(**{**vars(asked), "partitions": left}))
    return Message(**{**vars(request), "topics": topics}), stale


async def _is_stale(topic: Topic, tp: TopicPartition, one: Any, owner_for: Callable[[TopicPartition], Owner]) -> bool:
    epoch = one.committed_leader_epoch
    if not 0 <= epoch < topic.partitions[tp.partition].leader_epoch:
        return False
    try:
        end = await owner_for(tp).epoch_end(tp, epoch)
    except BmqError:
        return False  # nobody can say now; it is as likely the lane's own, of before a move
    return 0 <= end.end_offset < int(one.committed_offset)


def with_stale(reply: dict[str, Any], stale: dict[str, list[int]]) -> dict[str, Any]:
    """The answer, with those that were taken out refused."""
    topics = {topic["name"]: {**topic, "partitions": list(topic["partitions"])} for topic in reply["topics"]}
    for name, indexes in stale.items():
        topic = topics.setdefault(name, {"name": name, "topic_id": None, "partitions": []})
        topic["partitions"] += [{"partition_index": index, "error_code": CODE} for index in indexes]
    return {**reply, "topics": list(topics.values())}

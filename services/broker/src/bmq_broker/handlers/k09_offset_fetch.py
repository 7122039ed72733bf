"""OffsetFetch, versions 1 to 10 (several groups from 8 on, topic ids from 10 on).

Every group of a request must live in this coordinator's partition: who routes requests splits them. Missing: the member epochs of the
consumer protocol (KIP-848) are not looked at; `require_stable` finds everything stable, because there are no transactional offsets yet.
"""

from typing import Any, Final, NamedTuple

from bmq.roles.owner import Caller
from bmq.values import TopicId
from bmq.wire.error_codes import ErrorCode
from bmq.wire.message import Message
from bmq_broker.groups.machine import Effects, GroupMachine
from bmq_broker.groups.offsets import fetch, fetch_all
from bmq_broker.groups.records import OffsetValue
from bmq_broker.groups.requests import Now
from bmq_broker.groups.service import GroupCoordinatorShard, TopicNames
from bmq_broker.handlers.group_errors import group_id_error, is_at_least

_GROUPS_VERSION: Final = 8
_TOPIC_ID_VERSION: Final = 10
_ALL_TOPICS_VERSION: Final = 2


class _Topic(NamedTuple):
    """A topic that is asked for. `name` and `topic_id` are as asked; `known` is the name it has, None where there is no such id."""

    name: str
    topic_id: TopicId | None
    known: str | None
    known_id: TopicId | None
    partitions: list[int]


async def handle(shard: GroupCoordinatorShard, request: Message, caller: Caller) -> dict[str, Any]:
    """-1 where nothing is committed, also for groups that do not exist."""
    by_id = is_at_least(caller, _TOPIC_ID_VERSION)
    names = shard.topics
    if is_at_least(caller, _GROUPS_VERSION):
        asked = [(group.group_id, _topics(group.topics, names, by_id)) for group in request.groups]
    else:
        topics = [] if request.topics is None and not is_at_least(caller, _ALL_TOPICS_VERSION) else request.topics
        asked = [(request.group_id, _topics(topics, names, by_id))]

    def query(machine: GroupMachine, now: Now) -> tuple[Effects, list[dict[str, Any]]]:
        return Effects(), [_group(machine, names, group_id, topics, by_id) for group_id, topics in asked]

    groups = await shard.look(query, fence_check=True)
    if is_at_least(caller, _GROUPS_VERSION):
        return {"throttle_time_ms": 0, "groups": groups}
    found = [{"name": topic["name"], "partitions": topic["partitions"]} for topic in groups[0]["topics"]]
    return {"throttle_time_ms": 0, "topics": found, "error_code": groups[0]["error_code"]}


def failed(request: Message, error: ErrorCode) -> dict[str, Any]:
    """The reply of a coordinator that cannot serve it. The oldest versions have errors of partitions alone."""
    return {
        "throttle_time_ms": 0,
        "error_code": error,
        "topics": [
            {"name": topic.name, "partitions": [_partition(index, None, error) for index in topic.partition_indexes]}
            for topic in request.topics or []
        ],
        "groups": [{"group_id": group.group_id, "topics": [], "error_code": error} for group in request.groups],
    }


def _topics(topics: list[Message] | None, names: TopicNames, by_id: bool) -> list[_Topic] | None:
    if topics is None:
        return None
    if not by_id:
        return [_Topic(topic.name, None, topic.name, names.id_of(topic.name), topic.partition_indexes) for topic in topics]
    return [
        _Topic("", topic.topic_id, None if topic.topic_id is None else names.name_of(topic.topic_id), topic.topic_id, topic.partition_indexes)
        for topic in topics
    ]


def _group(machine: GroupMachine, names: TopicNames, group_id: str, topics: list[_Topic] | None, by_id: bool) -> dict[str, Any]:
    error = group_id_error(group_id, may_be_empty=True)
    if error is not None:
        return {"group_id": group_id, "topics": [], "error_code": error}
    found = _all_topics(machine, names, group_id, by_id) if topics is None else [_topic(machine, group_id, topic) for topic in topics]
    return {"group_id": group_id, "topics": found, "error_code": ErrorCode.none}


def _topic(machine: GroupMachine, group_id: str, topic: _Topic) -> dict[str, Any]:
    if topic.known is None:
        partitions = [_partition(index, None, ErrorCode.unknown_topic_id) for index in topic.partitions]
    else:
        partitions = [_partition(index, fetch(machine, group_id, topic.known, index, topic.known_id)) for index in topic.partitions]
    return {"name": topic.name, "topic_id": topic.topic_id, "partitions": partitions}


def _all_topics(machine: GroupMachine, names: TopicNames, group_id: str, by_id: bool) -> list[dict[str, Any]]:
    topics: dict[str, dict[str, Any]] = {}
    for name, index, value in fetch_all(machine, group_id):
        topic_id = names.id_of(name)
        if (by_id and topic_id is None) or (value.topic_id is not None and topic_id is not None and value.topic_id != topic_id):
            continue
        topic = topics.setdefault(name, {"name": name, "topic_id": topic_id, "partitions": []})
        topic["partitions"].append(_partition(index, value))
    return list(topics.values())


def _partition(index: int, value: OffsetValue | None, error: ErrorCode = ErrorCode.none) -> dict[str, Any]:
    return {
        "partition_index": index,
        "committed_offset": -1 if value is None else value.offset,
        "committed_leader_epoch": -1 if value is None else value.leader_epoch,
        "metadata": "" if value is None else value.metadata,
        "error_code": error,
    }

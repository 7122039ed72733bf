"""OffsetFetch, versions 1 to 10 (several groups from 8 on, topic ids from 10 on).

Every group of a request must live in this coordinator's partition: who routes requests splits them. Missing: the member epochs of the
consumer protocol (KIP-848) are not looked at; `require_stable` finds everything stable, because there are no transactional offsets yet.
"""

from typing import Any, Final

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


async def handle(shard: GroupCoordinatorShard, request: Message, caller: Caller) -> dict[str, Any]:
    """-1 where nothing is committed, also for groups that do not exist."""
    by_id = is_at_least(caller, _TOPIC_ID_VERSION)
    if not is_at_least(caller, _GROUPS_VERSION):
        wants_all = request.topics is None and is_at_least(caller, _ALL_TOPICS_VERSION)
        asked = [(request.group_id, None if wants_all else request.topics or [])]
    else:
        asked = [(group.group_id, group.topics) for group in request.groups]

    def query(machine: GroupMachine, now: Now) -> tuple[Effects, list[dict[str, Any]]]:
        return Effects(), [_group(machine, shard.topics, group_id, topics, by_id) for group_id, topics in asked]

    groups = await shard.look(query, fence_check=True)
    if is_at_least(caller, _GROUPS_VERSION):
        return {"throttle_time_ms": 0, "groups": groups}
    return {"throttle_time_ms": 0, "topics": groups[0]["topics"], "error_code": groups[0]["error_code"]}


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


def _group(machine: GroupMachine, names: TopicNames, group_id: str, topics: list[Message] | None, by_id: bool) -> dict[str, Any]:
    error = group_id_error(group_id, may_be_empty=True)
    if error is not None:
        return {"group_id": group_id, "topics": [], "error_code": error}
    everything = topics is None
    found = _all_topics(machine, names, group_id, by_id) if everything else [_topic(machine, names, group_id, topic, by_id) for topic in topics or ()]
    return {"group_id": group_id, "topics": found, "error_code": ErrorCode.none}


def _topic(machine: GroupMachine, names: TopicNames, group_id: str, topic: Message, by_id: bool) -> dict[str, Any]:
    topic_id: TopicId | None = topic.topic_id if by_id else names.id_of(topic.name)
    name = (None if topic_id is None else names.name_of(topic_id)) if by_id else topic.name
    if name is None:
        partitions = [_partition(index, None, ErrorCode.unknown_topic_id) for index in topic.partition_indexes]
    else:
        partitions = [_partition(index, fetch(machine, group_id, name, index, topic_id)) for index in topic.partition_indexes]
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

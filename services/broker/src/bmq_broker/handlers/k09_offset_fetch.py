"""OffsetFetch, versions 1 to 10 (several groups from 8 on, topic ids from 10 on).

Every group of a request must live in this coordinator's partition: who routes requests splits them. Missing: the member epochs of the
consumer protocol (KIP-848) are not looked at; `require_stable` finds everything stable, because there are no transactional offsets yet.
"""

from typing import Any, Final, NamedTuple

from bmq.roles.owner import Caller
from bmq.wire.error_codes import ErrorCode
from bmq.wire.message import Message
from bmq_broker.groups.machine import GroupMachine
from bmq_broker.groups.offsets import fetch, fetch_all
from bmq_broker.groups.records import OffsetValue
from bmq_broker.groups.service import GroupCoordinatorShard, TopicNames
from bmq_broker.groups.tally import ELEMENT_WORK_BYTES
from bmq_broker.handlers.group_errors import group_id_error, is_at_least
from bmq_broker.handlers.group_topics import BY_ID_VERSION, AskedTopic, disagreement, look_up

_GROUPS_VERSION: Final = 8
_ALL_TOPICS_VERSION: Final = 2


class _Group(NamedTuple):
    """`topics` None: all of the group's; otherwise (as asked, as known, partitions)."""

    group_id: str
    topics: list[tuple[Message, AskedTopic]] | None


async def handle(shard: GroupCoordinatorShard, request: Message, caller: Caller) -> dict[str, Any]:
    """-1 where nothing is committed, also for groups that do not exist. Asked about a list of groups, in any version, it answers with one."""
    names = shard.topics
    fields = vars(request)
    is_list = bool(fields.get("groups")) or is_at_least(caller, _GROUPS_VERSION)
    if is_list:
        asked = request.groups
    else:
        topics = [] if request.topics is None and not is_at_least(caller, _ALL_TOPICS_VERSION) else request.topics
        asked = [Message(group_id=request.group_id, topics=topics)]

    def query(machine: GroupMachine, group: Message) -> dict[str, Any]:
        return _group(machine, names, _Group(group.group_id, _look_up(names, group.topics)), caller)

    groups = await shard.look_each(asked, query, party=caller.client_host, work_bytes=_work_bytes, fence_check=True)
    if is_list:
        return {"throttle_time_ms": 0, "groups": groups}
    found = [{"name": topic["name"], "partitions": topic["partitions"]} for topic in groups[0]["topics"]]
    return {"throttle_time_ms": 0, "topics": found, "error_code": groups[0]["error_code"]}


def failed(request: Message, error: ErrorCode) -> dict[str, Any]:
    """The reply of a coordinator that cannot serve it. The oldest versions have errors of partitions alone."""
    fields = vars(request)
    return {
        "throttle_time_ms": 0,
        "error_code": error,
        "topics": [
            {"name": topic.name, "partitions": [_partition(index, None, error) for index in topic.partition_indexes]}
            for topic in fields.get("topics") or []
        ],
        "groups": [{"group_id": group.group_id, "topics": [], "error_code": error} for group in fields.get("groups") or []],
    }


def _work_bytes(machine: GroupMachine, group: Message) -> int:
    count = machine.durable.offset_count(group.group_id) if group.topics is None else sum(len(one.partition_indexes) for one in group.topics)
    return ELEMENT_WORK_BYTES * (1 + count)


def _look_up(names: TopicNames, topics: list[Message] | None) -> list[tuple[Message, AskedTopic]] | None:
    return None if topics is None else [(topic, look_up(names, topic)) for topic in topics]


def _group(machine: GroupMachine, names: TopicNames, group: _Group, caller: Caller) -> dict[str, Any]:
    error = group_id_error(group.group_id, may_be_empty=True)
    if error is None and not is_at_least(caller, BY_ID_VERSION) and any(known.disagrees for _, known in group.topics or ()):
        error = disagreement(caller)
    if error is not None:
        return {"group_id": group.group_id, "topics": [], "error_code": error}
    if group.topics is None:
        return {"group_id": group.group_id, "topics": _all_topics(machine, names, group.group_id), "error_code": ErrorCode.none}
    topics = [_topic(machine, group.group_id, asked, known) for asked, known in group.topics]
    return {"group_id": group.group_id, "topics": topics, "error_code": ErrorCode.none}


def _topic(machine: GroupMachine, group_id: str, asked: Message, known: AskedTopic) -> dict[str, Any]:
    if known.name is None or known.disagrees:
        partitions = [_partition(index, None, ErrorCode.unknown_topic_id) for index in asked.partition_indexes]
    else:
        partitions = [_partition(index, fetch(machine, group_id, known.name, index, known.topic_id)) for index in asked.partition_indexes]
    return {**known.fields(asked), "partitions": partitions}


def _all_topics(machine: GroupMachine, names: TopicNames, group_id: str) -> list[dict[str, Any]]:
    """Without those of topics that were deleted, of whose offsets the tombstones are still to come."""
    topics: dict[str, dict[str, Any]] = {}
    for name, index, value in fetch_all(machine, group_id):
        topic_id = names.id_of(name)
        if topic_id is None or (value.topic_id is not None and value.topic_id != topic_id):
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

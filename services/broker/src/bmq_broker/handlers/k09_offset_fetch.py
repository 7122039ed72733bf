"""OffsetFetch, versions 1 to 10 (several groups from 8 on, topic ids from 10 on).

Every group of a request must live in this coordinator's partition: who routes requests splits them. Missing: the member
epochs of the consumer protocol (KIP-848) are not looked at; `require_stable` finds everything stable, because there are
no transactional offsets yet.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from bmq.fairness.grouping import in_groups
from bmq.roles.owner import Caller
from bmq.values import TopicId
from bmq.wire.error_codes import ErrorCode
from bmq.wire.message import Message
from bmq_broker.coordinators.groups.durable import OFFSET_BYTES
from bmq_broker.coordinators.groups.lane_commits import LaneCommits
from bmq_broker.coordinators.groups.machine import GroupMachine
from bmq_broker.coordinators.groups.offsets import fetch
from bmq_broker.coordinators.groups.records import OffsetValue
from bmq_broker.coordinators.groups.service import GroupCoordinatorShard, TopicNames
from bmq_broker.coordinators.groups.tally import ELEMENT_WORK_BYTES
from bmq_broker.coordinators.groups.walks import OFFSETS_PER_TURN
from bmq_broker.handlers.group_errors import group_id_error, is_at_least
from bmq_broker.handlers.group_topics import BY_ID_VERSION, disagreement, look_up

_GROUPS_VERSION: Final = 8
_ALL_TOPICS_VERSION: Final = 2


class _Part(NamedTuple):
    """So many `partitions` of a topic (`name` None: unknown) are looked at, and added to its answer; of all offsets
    only those that there are.
    """

    group_id: str
    name: str | None = None
    topic_id: TopicId | None = None
    partitions: Sequence[int] = ()
    into: list[dict[str, Any]] | None = None
    is_all: bool = False
    elements: int = 0


async def handle(shard: GroupCoordinatorShard, request: Message, caller: Caller) -> dict[str, Any]:
    """-1 where nothing is committed, also for groups that do not exist. Asked about a list of groups, in any version,
    it answers with one. Of very many offsets some are looked at in each turn of the loop. Groups for which an answer
    has no room are to be asked for again.
    """
    fields = vars(request)
    is_list = bool(fields.get("groups")) or is_at_least(caller, _GROUPS_VERSION)
    if is_list:
        asked = request.groups
    else:
        topics = [] if request.topics is None and not is_at_least(caller, _ALL_TOPICS_VERSION) else request.topics
        asked = [Message(group_id=request.group_id, topics=topics)]
    groups: list[dict[str, Any]] = []
    parts = _parts(shard, asked, caller, groups)
    await shard.look_each(
        parts, partial(_look, shard.lane_commits), party=caller.client_host, work_bytes=_work_bytes, fence_check=True
    )
    for group, answer in zip(asked, groups, strict=True):
        if group.topics is None:
            answer["topics"] = [topic for topic in answer["topics"] if topic["partitions"]]
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
        "groups": [
            {"group_id": group.group_id, "topics": [], "error_code": error} for group in fields.get("groups") or []
        ],
    }


def _parts(
    shard: GroupCoordinatorShard, asked: Iterable[Message], caller: Caller, groups: list[dict[str, Any]]
) -> Iterator[_Part]:
    """Adds an answer for each group, whose partitions come as the parts are looked at. A group is looked up when it is
    its turn.
    """
    left_bytes = most_bytes = shard.settings.fetched_bytes_max
    for group in asked:
        answer: dict[str, Any] = {"group_id": group.group_id, "topics": [], "error_code": ErrorCode.none}
        groups.append(answer)
        yield _Part(group.group_id)
        answer["error_code"] = group_id_error(group.group_id, may_be_empty=True) or ErrorCode.none
        size_bytes = _said_bytes(shard, group)
        if size_bytes > left_bytes < most_bytes:
            answer["error_code"] = ErrorCode.coordinator_load_in_progress
        if answer["error_code"] == ErrorCode.none:
            left_bytes -= size_bytes
            yield from (
                _all_of(shard, group.group_id, answer)
                if group.topics is None
                else _asked_of(shard.topics, group, caller, answer)
            )


def _said_bytes(shard: GroupCoordinatorShard, group: Message) -> int:
    """About what an answer holds of a group's offsets, at most."""
    count = (
        shard.offset_count(group.group_id)
        if group.topics is None
        else sum(len(topic.partition_indexes) for topic in group.topics)
    )
    return count * OFFSET_BYTES + (shard.metadata_chars(group.group_id) if count else 0)


def _asked_of(names: TopicNames, group: Message, caller: Caller, answer: dict[str, Any]) -> Iterator[_Part]:
    topics = [(topic, look_up(names, topic)) for topic in group.topics]
    if not is_at_least(caller, BY_ID_VERSION) and any(known.disagrees for _, known in topics):
        answer["error_code"] = disagreement(caller)
        return
    for topic, known in topics:
        into: list[dict[str, Any]] = []
        answer["topics"].append({**known.fields(topic), "partitions": into})
        name = None if known.disagrees else known.name
        for some in in_groups(topic.partition_indexes, OFFSETS_PER_TURN):
            yield _Part(group.group_id, name, known.topic_id, some, into, elements=len(some))


def _all_of(shard: GroupCoordinatorShard, group_id: str, answer: dict[str, Any]) -> Iterator[_Part]:
    """By topic and partition; without those of topics that were deleted, of whose offsets the tombstones are still to
    come.
    """
    indexes: dict[str, list[int]] = {}
    for places in in_groups(shard.places(group_id), OFFSETS_PER_TURN):
        yield _Part(group_id, elements=len(places))
        for name, index in places:
            indexes.setdefault(name, []).append(index)
    for name in sorted(indexes):
        topic_id = shard.topics.id_of(name)
        if topic_id is not None:
            into: list[dict[str, Any]] = []
            answer["topics"].append({"name": name, "topic_id": topic_id, "partitions": into})
            for some in in_groups(sorted(indexes[name]), OFFSETS_PER_TURN):
                yield _Part(group_id, name, topic_id, some, into, is_all=True, elements=len(some))


def _work_bytes(_machine: GroupMachine, part: _Part) -> int:
    return ELEMENT_WORK_BYTES * (1 + part.elements)


def _look(lanes: LaneCommits | None, machine: GroupMachine, part: _Part) -> None:
    if part.into is None:
        return
    if part.name is None:
        part.into.extend(_partition(index, None, ErrorCode.unknown_topic_id) for index in part.partitions)
        return
    for index in part.partitions:
        value = fetch(machine, part.group_id, part.name, index, part.topic_id)
        if lanes is not None and part.topic_id is not None:
            begin = lanes.begin(part.topic_id, index)
            if begin > (-1 if value is None else value.offset) and not (part.is_all and value is None):
                value = OffsetValue(begin)
        if value is not None or not part.is_all:
            part.into.append(_partition(index, value))


def _partition(index: int, value: OffsetValue | None, error: ErrorCode = ErrorCode.none) -> dict[str, Any]:
    return {
        "partition_index": index,
        "committed_offset": -1 if value is None else value.offset,
        "committed_leader_epoch": -1 if value is None else value.leader_epoch,
        "metadata": "" if value is None else value.metadata,
        "error_code": error,
    }

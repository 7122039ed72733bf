"""OffsetCommit, versions 2 to 10 (topic ids from 10 on). Missing: the member epochs of the consumer protocol (KIP-848)."""

from typing import Any, Final

from bmq.roles.owner import Caller
from bmq.wire.error_codes import ErrorCode
from bmq.wire.message import Message
from bmq_broker.groups.offsets import commit
from bmq_broker.groups.requests import Commit, CommitReply, NewOffset, Refusal
from bmq_broker.groups.service import GroupCoordinatorShard
from bmq_broker.handlers.group_errors import code_of, group_id_error, is_at_least

_GROUP_NOT_FOUND_VERSION: Final = 9
_TOPIC_ID_VERSION: Final = 10


async def handle(shard: GroupCoordinatorShard, request: Message, caller: Caller) -> dict[str, Any]:
    """Each partition has its own error; topics that do not exist refuse theirs alone."""
    error = group_id_error(request.group_id, may_be_empty=True)
    if error is not None:
        return failed(request, error)
    by_id = is_at_least(caller, _TOPIC_ID_VERSION)
    offsets = []
    for topic in request.topics:
        topic_id = topic.topic_id if by_id else shard.topics.id_of(topic.name)
        name = (None if topic_id is None else shard.topics.name_of(topic_id)) if by_id else topic.name
        offsets += [
            NewOffset(
                topic=name or "",
                topic_id=None if name is None else topic_id,
                partition=one.partition_index,
                offset=one.committed_offset,
                leader_epoch=one.committed_leader_epoch,
                metadata=one.committed_metadata,
            )
            for one in topic.partitions
        ]
    asked = Commit(
        group_id=request.group_id,
        generation=request.generation_id_or_member_epoch,
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        retention_ms=request.retention_time_ms,
        offsets=offsets,
    )
    reply = await shard.ask(lambda machine, now, ticket: commit(machine, now, asked, ticket), CommitReply)
    return _encode(request, [_code(refusal, caller, by_id) for refusal in _refusals(reply, offsets)])


def failed(request: Message, error: ErrorCode) -> dict[str, Any]:
    """The reply of a coordinator that cannot serve it."""
    return _encode(request, [error] * sum(len(topic.partitions) for topic in request.topics))


def _refusals(reply: CommitReply, offsets: list[NewOffset]) -> list[Refusal | None]:
    if reply.refusal is None:
        return list(reply.refusals)
    return [Refusal.UNKNOWN_TOPIC if one.topic_id is None else reply.refusal for one in offsets]


def _code(refusal: Refusal | None, caller: Caller, by_id: bool) -> ErrorCode:
    if refusal is Refusal.UNKNOWN_TOPIC and by_id:
        return ErrorCode.unknown_topic_id
    if refusal is Refusal.GROUP_NOT_FOUND and not is_at_least(caller, _GROUP_NOT_FOUND_VERSION):
        return ErrorCode.illegal_generation
    return code_of(refusal)


def _encode(request: Message, codes: list[ErrorCode]) -> dict[str, Any]:
    left = iter(codes)
    return {
        "throttle_time_ms": 0,
        "topics": [
            {
                "name": topic.name,
                "topic_id": topic.topic_id,
                "partitions": [{"partition_index": one.partition_index, "error_code": next(left)} for one in topic.partitions],
            }
            for topic in request.topics
        ],
    }

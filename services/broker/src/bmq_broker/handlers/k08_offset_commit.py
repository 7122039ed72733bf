"""OffsetCommit, versions 2 to 10 (topic ids from 10 on). Missing: the member epochs of the consumer protocol
(KIP-848).
"""

import asyncio
from functools import partial
from typing import Any, Final

from bmq.roles.owner import Caller
from bmq.wire.error_codes import ErrorCode
from bmq.wire.message import Message
from bmq_broker.coordinators.groups.machine import GroupMachine
from bmq_broker.coordinators.groups.offsets import commit, fetch
from bmq_broker.coordinators.groups.requests import Commit, CommitReply, NewOffset, Refusal
from bmq_broker.coordinators.groups.service import GroupCoordinatorShard
from bmq_broker.handlers.group_errors import code_of, group_id_error, is_at_least
from bmq_broker.handlers.group_topics import AskedTopic, disagreement, look_up

_GROUP_NOT_FOUND_VERSION: Final = 9
_OFFSETS_PER_TURN: Final = 2_000


async def handle(shard: GroupCoordinatorShard, request: Message, caller: Caller) -> dict[str, Any]:
    """Each partition has its own error; topics that do not exist refuse theirs alone."""
    error = group_id_error(request.group_id, may_be_empty=True)
    if error is not None:
        return failed(request, error)
    topics = [look_up(shard.topics, topic) for topic in request.topics]
    offsets = [
        NewOffset(
            topic=known.name or "",
            topic_id=known.topic_id if known.has(one.partition_index) and not known.disagrees else None,
            partition=one.partition_index,
            offset=one.committed_offset,
            leader_epoch=one.committed_leader_epoch,
            metadata=one.committed_metadata,
        )
        for topic, known in zip(request.topics, topics, strict=True)
        for one in topic.partitions
    ]
    if shard.lane_commits is not None:
        await shard.lane_commits.wait(known.topic_id for known in topics if known.topic_id is not None)
    await _others_turn(offsets)
    parts = [offsets[at : at + _OFFSETS_PER_TURN] for at in range(0, len(offsets), _OFFSETS_PER_TURN)] or [offsets]
    refusals = [refusal for part in await _in_turns(shard, request, caller, parts) for refusal in part]
    await _others_turn(offsets)
    disagree = [known.disagrees for topic, known in zip(request.topics, topics, strict=True) for _ in topic.partitions]
    codes = [
        disagreement(caller) if disagrees else _code(refusal, caller, new)
        for refusal, new, disagrees in zip(refusals, offsets, disagree, strict=True)
    ]
    await _others_turn(offsets)
    return _encode(request, topics, codes)


async def _others_turn(offsets: list[NewOffset]) -> None:
    """Between two steps that each look at all offsets of a wide commit, some ten ms."""
    if len(offsets) > _OFFSETS_PER_TURN:
        await asyncio.sleep(0)


async def _in_turns(
    shard: GroupCoordinatorShard, request: Message, caller: Caller, parts: list[list[NewOffset]]
) -> list[list[Refusal | None]]:
    """What became of each part of a commit, in order. Others have their turn between two parts, and all of them wait
    for the store together.
    """
    if len(parts) == 1:
        return [await _store(shard, request, caller, parts[0])]
    asking: list[asyncio.Task[list[Refusal | None]]] = []
    try:
        for part in parts:
            asking.append(asyncio.get_running_loop().create_task(_store(shard, request, caller, part)))
            await asyncio.sleep(0)
        return [await one for one in asking]
    finally:
        for one in asking:
            one.cancel()
        await asyncio.gather(*asking, return_exceptions=True)


async def _store(
    shard: GroupCoordinatorShard, request: Message, caller: Caller, offsets: list[NewOffset]
) -> list[Refusal | None]:
    gone = {one.topic_id for one in offsets if one.topic_id is not None and shard.topics.name_of(one.topic_id) is None}
    # deleted since the first part of the commit was stored: what comes to stand after that is in nobody's way to drop
    # it
    if gone:
        offsets = [one._replace(topic_id=None) if one.topic_id in gone else one for one in offsets]
    asked = Commit(
        group_id=request.group_id,
        generation=request.generation_id_or_member_epoch,
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        client_host=caller.client_host,
        retention_ms=request.retention_time_ms,
        offsets=offsets,
    )

    def refusal_of(machine: GroupMachine, new: NewOffset) -> Refusal | None:
        if shard.lane_commits is None:
            return None

        def had() -> int:
            value = fetch(machine, asked.group_id, new.topic, new.partition, new.topic_id)
            return -1 if value is None else value.offset

        return shard.lane_commits.refusal(new, had=had, is_member=asked.generation >= 0)

    reply = await shard.ask(
        lambda machine, now, ticket: commit(machine, now, asked, ticket, refusal_of=partial(refusal_of, machine)),
        CommitReply,
    )
    refusals = _refusals(reply, offsets)
    if Refusal.STORED_TOO_MUCH in refusals or Refusal.STORED_TOO_FAST in refusals:
        shard.tell_full(caller.client_host)
    return refusals


def failed(request: Message, error: ErrorCode) -> dict[str, Any]:
    """The reply of a coordinator that cannot serve it."""
    nothing_known = [AskedTopic(None, None, 0)] * len(request.topics)
    return _encode(request, nothing_known, [error] * sum(len(topic.partitions) for topic in request.topics))


def _refusals(reply: CommitReply, offsets: list[NewOffset]) -> list[Refusal | None]:
    if reply.refusal is None:
        return list(reply.refusals)
    return [Refusal.UNKNOWN_TOPIC if one.topic_id is None else reply.refusal for one in offsets]


def _code(refusal: Refusal | None, caller: Caller, new: NewOffset) -> ErrorCode:
    if refusal is Refusal.UNKNOWN_TOPIC and not new.topic:
        return ErrorCode.unknown_topic_id
    if refusal is Refusal.GROUP_NOT_FOUND and not is_at_least(caller, _GROUP_NOT_FOUND_VERSION):
        return ErrorCode.illegal_generation
    return code_of(refusal)


def _encode(request: Message, topics: list[AskedTopic], codes: list[ErrorCode]) -> dict[str, Any]:
    left = iter(codes)
    return {
        "throttle_time_ms": 0,
        "topics": [
            {
                **known.fields(topic),
                "partitions": [
                    {"partition_index": one.partition_index, "error_code": next(left)} for one in topic.partitions
                ],
            }
            for topic, known in zip(request.topics, topics, strict=True)
        ],
    }

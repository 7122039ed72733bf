"""OffsetDelete, version 0. Nothing is missing."""

from typing import Any

from bmq.roles.owner import Caller
from bmq.wire.error_codes import ErrorCode
from bmq.wire.message import Message
from bmq_broker.groups.machine import Effects, GroupMachine
from bmq_broker.groups.offsets import delete_offsets
from bmq_broker.groups.requests import DeleteOffsets, Now, Refusal
from bmq_broker.groups.service import GroupCoordinatorShard
from bmq_broker.handlers.group_errors import code_of, group_id_error

_Results = tuple[Refusal | None, list[Refusal | None]]


async def handle(shard: GroupCoordinatorShard, request: Message, caller: Caller) -> dict[str, Any]:
    """Offsets of topics that the group consumes now are left alone, each with an error of its own."""
    error = group_id_error(request.group_id)
    if error is not None:
        return failed(request, error)
    asked = DeleteOffsets(
        group_id=request.group_id,
        partitions=[
            (topic.name, shard.topics.id_of(topic.name) is not None, one.partition_index) for topic in request.topics for one in topic.partitions
        ],
    )

    def query(machine: GroupMachine, now: Now) -> tuple[Effects, _Results]:
        effects, refusal, refusals = delete_offsets(machine, asked)
        return effects, (refusal, refusals)

    refusal, refusals = await shard.look(query)
    if refusal is not None:
        return failed(request, code_of(refusal))
    left = iter(refusals)
    return {
        "throttle_time_ms": 0,
        "error_code": ErrorCode.none,
        "topics": [
            {
                "name": topic.name,
                "partitions": [{"partition_index": one.partition_index, "error_code": code_of(next(left))} for one in topic.partitions],
            }
            for topic in request.topics
        ],
    }


def failed(request: Message, error: ErrorCode) -> dict[str, Any]:
    """The reply of a coordinator that cannot serve it."""
    return {"throttle_time_ms": 0, "error_code": error, "topics": []}

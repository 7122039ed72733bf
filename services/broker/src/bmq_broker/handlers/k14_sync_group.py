"""SyncGroup, versions 0 to 5. Nothing is missing."""

from typing import Any

from bmq.roles.owner import Caller
from bmq.wire.error_codes import ErrorCode
from bmq.wire.message import Message
from bmq_broker.groups.membership import sync
from bmq_broker.groups.requests import Sync, SyncReply
from bmq_broker.groups.service import GroupCoordinatorShard
from bmq_broker.handlers.group_errors import code_of, group_id_error


async def handle(shard: GroupCoordinatorShard, request: Message, caller: Caller) -> dict[str, Any]:
    """Held until the leader has brought the assignment and it is durable."""
    error = group_id_error(request.group_id)
    if error is not None:
        return failed(request, error)
    asked = Sync(
        group_id=request.group_id,
        generation=request.generation_id,
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        protocol_type=request.protocol_type,
        protocol_name=request.protocol_name,
        assignments={one.member_id: bytes(one.assignment) for one in request.assignments},
    )
    reply = await shard.ask(lambda machine, now, ticket: sync(machine, now, asked, ticket), SyncReply)
    return {
        "throttle_time_ms": 0,
        "error_code": code_of(reply.refusal),
        "protocol_type": reply.protocol_type,
        "protocol_name": reply.protocol_name,
        "assignment": reply.assignment,
    }


def failed(request: Message, error: ErrorCode) -> dict[str, Any]:
    """The reply of a coordinator that cannot serve it."""
    return {"throttle_time_ms": 0, "error_code": error, "protocol_type": None, "protocol_name": None, "assignment": b""}

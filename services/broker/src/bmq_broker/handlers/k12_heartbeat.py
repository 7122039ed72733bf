"""Heartbeat, versions 0 to 4. Nothing is missing."""

from typing import Any

from bmq.roles.owner import Caller
from bmq.wire.error_codes import ErrorCode
from bmq.wire.message import Message
from bmq_broker.coordinators.groups.membership import heartbeat
from bmq_broker.coordinators.groups.requests import Heartbeat, HeartbeatReply
from bmq_broker.coordinators.groups.service import GroupCoordinatorShard
from bmq_broker.handlers.group_errors import code_of, group_id_error


async def handle(shard: GroupCoordinatorShard, request: Message, caller: Caller) -> dict[str, Any]:
    """Waits for the record of the group's generation at most, not for other groups' offsets."""
    error = group_id_error(request.group_id)
    if error is not None:
        return failed(request, error)
    asked = Heartbeat(
        group_id=request.group_id,
        generation=request.generation_id,
        member_id=request.member_id,
        instance_id=request.group_instance_id,
    )
    reply = await shard.ask_session(
        request.group_id, lambda machine, now, ticket: heartbeat(machine, now, asked, ticket), HeartbeatReply
    )
    return {"throttle_time_ms": 0, "error_code": code_of(reply.refusal)}


def failed(request: Message, error: ErrorCode) -> dict[str, Any]:
    """The reply of a coordinator that cannot serve it."""
    return {"throttle_time_ms": 0, "error_code": error}

"""SyncGroup, versions 0 to 5. Nothing is missing."""

from typing import Any

from bmq.roles.owner import Caller, let_go
from bmq.wire.apis import ApiKey
from bmq.wire.error_codes import ErrorCode
from bmq.wire.message import Message
from bmq_broker.coordinators.groups.machine import Effects, GroupMachine
from bmq_broker.coordinators.groups.membership import give_up_sync, sync
from bmq_broker.coordinators.groups.requests import Now, Sync, SyncReply, Ticket
from bmq_broker.coordinators.groups.service import GroupCoordinatorShard
from bmq_broker.handlers.group_errors import code_of, group_id_error


async def handle(shard: GroupCoordinatorShard, request: Message, caller: Caller) -> dict[str, Any]:
    """Held until the leader has brought the assignment and it is durable."""
    error = group_id_error(request.group_id)
    if error is not None:
        return failed(request, error)
    assignments = {one.member_id: bytes(one.assignment) for one in request.assignments}
    let_go(ApiKey.SYNC_GROUP, request)
    asked = Sync(
        group_id=request.group_id,
        generation=request.generation_id,
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        protocol_type=request.protocol_type,
        protocol_name=request.protocol_name,
        assignments=assignments,
    )

    def operation(machine: GroupMachine, now: Now, ticket: Ticket) -> Effects:
        effects = sync(machine, now, asked, ticket)
        caller.taken()
        # the generation has what it took of them, and who waits for the leader's has no use for its own
        assignments.clear()
        return effects

    await shard.turn(asked.group_id, party=caller.client_host, member_id=asked.member_id)
    reply = await shard.ask_others(
        operation,
        SyncReply,
        party=caller.client_host,
        given_up=lambda machine, now, ticket: give_up_sync(machine, now, asked, ticket),
    )
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

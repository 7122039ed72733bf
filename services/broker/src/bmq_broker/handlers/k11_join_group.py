"""JoinGroup, versions 0 to 9. Nothing is missing. The reason (version 8 on) is for people and goes into the log
alone.
"""

import logging
from typing import Any, Final

from bmq.roles.owner import Caller, let_go
from bmq.wire.apis import ApiKey
from bmq.wire.error_codes import ErrorCode
from bmq.wire.message import Message
from bmq_broker.coordinators.groups.machine import Effects, GroupMachine
from bmq_broker.coordinators.groups.membership import give_up_join, join
from bmq_broker.coordinators.groups.requests import Join, JoinReply, Now, Ticket
from bmq_broker.coordinators.groups.service import GroupCoordinatorShard
from bmq_broker.handlers.group_errors import code_of, fits_record, group_id_error, is_at_least

_log = logging.getLogger(__name__)
_KNOWN_MEMBER_VERSION: Final = 4
_SKIP_ASSIGNMENT_VERSION: Final = 9
_ID_PREFIX_MAX: Final = 1_000
_CLIENT_ID_MAX: Final = 255
"""Characters of it that a group remembers of a member, which every description of the group shows."""


async def handle(shard: GroupCoordinatorShard, request: Message, caller: Caller) -> dict[str, Any]:
    """Held until the rebalance ends."""
    error = group_id_error(request.group_id)
    if error is not None:
        return failed(request, error)
    if len(request.protocols) > shard.settings.protocols_max:
        return failed(request, ErrorCode.invalid_request)
    protocols = tuple((protocol.name, bytes(protocol.metadata)) for protocol in request.protocols)
    if not fits_record(request.group_instance_id, request.protocol_type, *(name for name, _ in protocols)):
        return failed(request, ErrorCode.invalid_request)
    if request.reason:
        _log.debug("member %r joins group %r: %s", request.member_id, request.group_id, request.reason[:255])
    let_go(ApiKey.JOIN_GROUP, request)
    client_id = caller.client_id[:_CLIENT_ID_MAX]
    prefix = request.group_instance_id or client_id
    asked = Join(
        group_id=request.group_id,
        member_id=request.member_id,
        fresh_id="" if request.member_id else shard.fresh_member_id(prefix[:_ID_PREFIX_MAX]),
        instance_id=request.group_instance_id,
        client_id=client_id,
        client_host=caller.client_host,
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=request.rebalance_timeout_ms
        if request.rebalance_timeout_ms >= 0
        else request.session_timeout_ms,
        protocol_type=request.protocol_type,
        protocols=protocols,
        requires_known_member=is_at_least(caller, _KNOWN_MEMBER_VERSION),
        can_skip_assignment=is_at_least(caller, _SKIP_ASSIGNMENT_VERSION),
    )
    await shard.turn(asked.group_id, party=caller.client_host, member_id=asked.member_id, instance_id=asked.instance_id)

    def operation(machine: GroupMachine, now: Now, ticket: Ticket) -> Effects:
        effects = join(machine, now, asked, ticket)
        caller.taken()
        return effects

    reply = await shard.ask_others(
        operation,
        JoinReply,
        party=caller.client_host,
        given_up=lambda machine, now, ticket: give_up_join(machine, now, asked, ticket),
    )
    return _encode(reply)


def failed(request: Message, error: ErrorCode) -> dict[str, Any]:
    """The reply of a coordinator that cannot serve it."""
    return _fields(error, request.member_id)


def _encode(reply: JoinReply) -> dict[str, Any]:
    if reply.refusal is not None:
        return _fields(code_of(reply.refusal), reply.member_id)
    return {
        **_fields(ErrorCode.none, reply.member_id),
        "generation_id": reply.generation,
        "protocol_type": reply.protocol_type,
        "protocol_name": reply.protocol_name,
        "leader": reply.leader,
        "skip_assignment": reply.skip_assignment,
        "members": [
            {"member_id": member.member_id, "group_instance_id": member.instance_id, "metadata": member.metadata}
            for member in reply.members
        ],
    }


def _fields(error: ErrorCode, member_id: str) -> dict[str, Any]:
    return {
        "throttle_time_ms": 0,
        "error_code": error,
        "generation_id": -1,
        "protocol_type": None,
        "protocol_name": None,
        "leader": "",
        "skip_assignment": False,
        "member_id": member_id,
        "members": [],
    }

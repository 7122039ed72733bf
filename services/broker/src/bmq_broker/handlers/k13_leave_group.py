"""LeaveGroup, versions 0 to 5. Nothing is missing. Up to version 2 a request names one member and the reply has one error.

The reasons (version 5) are for people and go into the log alone.
"""

import logging
from typing import Any, Final

from bmq.roles.owner import Caller
from bmq.wire.error_codes import ErrorCode
from bmq.wire.message import Message
from bmq_broker.groups.membership import leave
from bmq_broker.groups.requests import Leave, Leaver, LeaveReply
from bmq_broker.groups.service import GroupCoordinatorShard
from bmq_broker.handlers.group_errors import code_of, group_id_error, is_at_least

_log = logging.getLogger(__name__)
_BATCH_VERSION: Final = 3


async def handle(shard: GroupCoordinatorShard, request: Message, caller: Caller) -> dict[str, Any]:
    """One result per member."""
    error = group_id_error(request.group_id)
    if error is not None:
        return failed(request, error)
    is_batch = bool(request.members) or is_at_least(caller, _BATCH_VERSION)
    if is_batch:
        leavers = tuple(Leaver(member.member_id, member.group_instance_id) for member in request.members)
        for member in request.members:
            if vars(member).get("reason"):
                _log.debug("member %r leaves group %r: %s", member.member_id, request.group_id, member.reason[:255])
    else:
        leavers = (Leaver(request.member_id, None),)
    asked = Leave(group_id=request.group_id, leavers=leavers)
    reply = await shard.ask(lambda machine, now, ticket: leave(machine, now, asked, ticket), LeaveReply)
    if not is_batch:
        return {"throttle_time_ms": 0, "error_code": code_of(reply.results[0][1]), "members": []}
    return {
        "throttle_time_ms": 0,
        "error_code": ErrorCode.none,
        "members": [
            {"member_id": leaver.member_id, "group_instance_id": leaver.instance_id, "error_code": code_of(refusal)}
            for leaver, refusal in reply.results
        ],
    }


def failed(request: Message, error: ErrorCode) -> dict[str, Any]:
    """The reply of a coordinator that cannot serve it."""
    return {"throttle_time_ms": 0, "error_code": error, "members": []}

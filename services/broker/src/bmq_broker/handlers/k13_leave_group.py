"""LeaveGroup, versions 0 to 5. Nothing is missing. Up to version 2 a request names one member and the reply has one
error.

The reasons (version 5) are for people and go into the log alone.
"""

import logging
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, Final

from bmq.fairness.grouping import in_groups
from bmq.roles.owner import Caller
from bmq.wire.error_codes import ErrorCode
from bmq.wire.message import Message
from bmq_broker.coordinators.groups.machine import Effects, GroupMachine
from bmq_broker.coordinators.groups.membership import leave
from bmq_broker.coordinators.groups.requests import Leave, Leaver, Now
from bmq_broker.coordinators.groups.service import GroupCoordinatorShard
from bmq_broker.coordinators.groups.tally import ELEMENT_WORK_BYTES
from bmq_broker.handlers.group_errors import code_of, group_id_error, is_at_least

_log = logging.getLogger(__name__)
_BATCH_VERSION: Final = 3
_LEAVERS_PER_TURN: Final = 1_000
"""Who leave together, with one rebalance for all of them: some ms."""

_Left = list[dict[str, Any]]


async def handle(shard: GroupCoordinatorShard, request: Message, caller: Caller) -> dict[str, Any]:
    """One result per member. Of very many those that are named first go first, and others have their turn before the
    next go.
    """
    error = group_id_error(request.group_id)
    if error is not None:
        return failed(request, error)
    is_batch = bool(request.members) or is_at_least(caller, _BATCH_VERSION)
    members = request.members if is_batch else [Message(member_id=request.member_id, group_instance_id=None)]
    departures = await shard.look_in_turns(_departures(shard, request.group_id, members), party=caller.client_host)
    left = [one for some in departures for one in some]
    if not is_batch:
        return {"throttle_time_ms": 0, "error_code": left[0]["error_code"], "members": []}
    return {"throttle_time_ms": 0, "error_code": ErrorCode.none, "members": left}


def _departures(shard: GroupCoordinatorShard, group_id: str, members: Sequence[Message]) -> Iterator[tuple[int, Any]]:
    for some in in_groups(members, _LEAVERS_PER_TURN):
        yield ELEMENT_WORK_BYTES * len(some) + shard.completing_bytes(group_id), partial(_leave, group_id, some)


def _leave(group_id: str, members: Sequence[Message], machine: GroupMachine, now: Now) -> tuple[Effects, _Left]:
    for member in members:
        if vars(member).get("reason"):
            _log.debug("member %r leaves group %r: %s", member.member_id, group_id, member.reason[:255])
    leavers = tuple(Leaver(member.member_id, member.group_instance_id) for member in members)
    effects, refusals = leave(machine, now, Leave(group_id=group_id, leavers=leavers))
    return effects, [
        {"member_id": leaver.member_id, "group_instance_id": leaver.instance_id, "error_code": code_of(refusal)}
        for leaver, refusal in zip(leavers, refusals, strict=True)
    ]


def failed(request: Message, error: ErrorCode) -> dict[str, Any]:
    """The reply of a coordinator that cannot serve it."""
    return {"throttle_time_ms": 0, "error_code": error, "members": []}

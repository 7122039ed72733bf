"""DeleteGroups, versions 0 to 3."""

from typing import Any, Final

from bmq.roles.owner import Caller
from bmq.wire.error_codes import ErrorCode
from bmq.wire.message import Message
from bmq_broker.groups.admin import delete_group
from bmq_broker.groups.machine import Effects, GroupMachine
from bmq_broker.groups.requests import Now
from bmq_broker.groups.service import GroupCoordinatorShard
from bmq_broker.handlers.group_errors import code_of

_MESSAGES: Final = {
    ErrorCode.group_id_not_found: "No such group",
    ErrorCode.non_empty_group: "The group has members: stop them first",
}


async def handle(shard: GroupCoordinatorShard, request: Message, caller: Caller) -> dict[str, Any]:
    """Only empty groups can go; their offsets go with them."""

    def query(machine: GroupMachine, now: Now) -> tuple[Effects, list[ErrorCode]]:
        effects, codes = Effects(), []
        for group_id in request.groups_names:
            deleted, refusal = delete_group(machine, now, group_id)
            effects.records += deleted.records
            codes.append(code_of(refusal))
        return effects, codes

    return _encode(request, await shard.look(query))


def failed(request: Message, error: ErrorCode) -> dict[str, Any]:
    """The reply of a coordinator that cannot serve it."""
    return _encode(request, [error] * len(request.groups_names))


def _encode(request: Message, codes: list[ErrorCode]) -> dict[str, Any]:
    return {
        "throttle_time_ms": 0,
        "results": [
            {"group_id": group_id, "error_code": code, "error_message": _MESSAGES.get(code)}
            for group_id, code in zip(request.groups_names, codes, strict=True)
        ],
    }

"""ListGroups, versions 0 to 5: the groups of one coordinator; who serves clients joins those of all. Nothing is missing."""

from typing import Any

from bmq.roles.owner import Caller
from bmq.wire.error_codes import ErrorCode
from bmq.wire.message import Message
from bmq_broker.groups.admin import listing
from bmq_broker.groups.machine import GroupMachine
from bmq_broker.groups.service import GroupCoordinatorShard

_TYPE = "Classic"


async def handle(shard: GroupCoordinatorShard, request: Message, caller: Caller) -> dict[str, Any]:
    """Filters compare without case; an empty one lets everything through, an unknown word matches nothing."""
    states = {state.lower() for state in request.states_filter}
    types = {kind.lower() for kind in request.types_filter}

    def query(machine: GroupMachine, group_id: str) -> dict[str, Any] | None:
        group = listing(machine, group_id)
        if group is None or (states and group.state.value.lower() not in states):
            return None
        return {"group_id": group.group_id, "protocol_type": group.protocol_type, "group_state": group.state.value, "group_type": _TYPE}

    group_ids = [] if types and _TYPE.lower() not in types else shard.group_ids()
    found = await shard.look_each(group_ids, query, party=caller.client_host)
    return {"throttle_time_ms": 0, "error_code": ErrorCode.none, "groups": [group for group in found if group is not None]}


def failed(request: Message, error: ErrorCode) -> dict[str, Any]:
    """The reply of a coordinator that cannot serve it."""
    return {"throttle_time_ms": 0, "error_code": error, "groups": []}

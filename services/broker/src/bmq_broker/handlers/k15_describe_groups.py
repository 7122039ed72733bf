"""DescribeGroups, versions 0 to 6. Nothing is missing. Authorised operations, where asked for, are all: who authorises
narrows them.
"""

from typing import Any, Final

from bmq.roles.owner import Caller
from bmq.wire.error_codes import ErrorCode
from bmq.wire.message import Message
from bmq_broker.coordinators.groups.admin import describe, described_bytes, describing_bytes
from bmq_broker.coordinators.groups.machine import GroupMachine
from bmq_broker.coordinators.groups.requests import GroupDescription
from bmq_broker.coordinators.groups.service import GroupCoordinatorShard
from bmq_broker.coordinators.groups.states import GroupState
from bmq_broker.handlers.group_errors import is_at_least

_NOT_FOUND_VERSION: Final = 6
_NOT_ASKED: Final = -(2**31)
_ALL_OPERATIONS: Final = 1 << 3 | 1 << 6 | 1 << 8 | 1 << 10 | 1 << 11
"""Kafka's bits of Read, Delete, Describe, DescribeConfigs and AlterConfigs."""


async def handle(shard: GroupCoordinatorShard, request: Message, caller: Caller) -> dict[str, Any]:
    """A group that does not exist is Dead, from version 6 on with an error. Those for which an answer has no room are
    to be asked for again.
    """
    operations = _ALL_OPERATIONS if request.include_authorized_operations else _NOT_ASKED
    left_bytes = described_max = shard.settings.described_bytes_max

    def query(machine: GroupMachine, group_id: str) -> dict[str, Any]:
        nonlocal left_bytes
        size_bytes = described_bytes(machine, group_id)
        if size_bytes > (
            left_bytes if left_bytes < described_max else max(described_max, shard.settings.record_size_bytes_max)
        ):
            return _nothing(group_id, ErrorCode.coordinator_load_in_progress, "")
        left_bytes -= size_bytes
        group = describe(machine, group_id)
        return _missing(group_id, caller) if group is None else _encode(group, operations)

    groups = await shard.look_each(
        request.groups, query, party=caller.client_host, work_bytes=describing_bytes, fence_check=True
    )
    return {"throttle_time_ms": 0, "groups": groups}


def failed(request: Message, error: ErrorCode) -> dict[str, Any]:
    """The reply of a coordinator that cannot serve it."""
    return {"throttle_time_ms": 0, "groups": [_nothing(group_id, error, "") for group_id in request.groups]}


def _missing(group_id: str, caller: Caller) -> dict[str, Any]:
    if not is_at_least(caller, _NOT_FOUND_VERSION):
        return _nothing(group_id, ErrorCode.none, GroupState.DEAD.value)
    return {
        **_nothing(group_id, ErrorCode.group_id_not_found, GroupState.DEAD.value),
        "error_message": f"Group {group_id} not found.",
    }


def _nothing(group_id: str, error: ErrorCode, state: str) -> dict[str, Any]:
    return {
        "error_code": error,
        "group_id": group_id,
        "group_state": state,
        "protocol_type": "",
        "protocol_data": "",
        "members": [],
    }


def _encode(group: GroupDescription, operations: int) -> dict[str, Any]:
    return {
        "error_code": ErrorCode.none,
        "group_id": group.group_id,
        "group_state": group.state.value,
        "protocol_type": group.protocol_type,
        "protocol_data": group.protocol,
        "members": [
            {
                "member_id": member.member_id,
                "group_instance_id": member.instance_id,
                "client_id": member.client_id,
                "client_host": member.client_host,
                "member_metadata": member.metadata,
                "member_assignment": member.assignment,
            }
            for member in group.members
        ],
        "authorized_operations": operations,
    }

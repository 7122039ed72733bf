"""DeleteGroups, versions 0 to 3."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final

from bmq.roles.owner import Caller
from bmq.wire.error_codes import ErrorCode
from bmq.wire.message import Message
from bmq_broker.coordinators.groups.admin import delete_group
from bmq_broker.coordinators.groups.machine import Effects, GroupMachine
from bmq_broker.coordinators.groups.offsets import drop_some
from bmq_broker.coordinators.groups.requests import Now
from bmq_broker.coordinators.groups.service import GroupCoordinatorShard
from bmq_broker.coordinators.groups.tally import ELEMENT_WORK_BYTES
from bmq_broker.coordinators.groups.walks import OFFSETS_PER_TURN
from bmq_broker.handlers.group_errors import code_of

_MESSAGES: Final = {
    ErrorCode.group_id_not_found: "No such group",
    ErrorCode.non_empty_group: "The group has members: stop them first",
}

_Deletion = tuple[int, Callable[[GroupMachine, Now], tuple[Effects, list[ErrorCode]]]]


async def handle(shard: GroupCoordinatorShard, request: Message, caller: Caller) -> dict[str, Any]:
    """Only empty groups can go; their offsets go with them, many of them in several turns: whoever joins between two
    keeps those that are left.
    """
    codes = await shard.look_in_turns(_deletions(shard, request.groups_names), party=caller.client_host)
    return _encode(request, [code for some in codes for code in some])


def _deletions(shard: GroupCoordinatorShard, group_ids: Sequence[str]) -> Iterator[_Deletion]:
    """As many groups together as one turn takes, and what there is too much for one before. A group is looked at when
    it is its turn.
    """
    together: list[str] = []
    elements = 0
    for group_id in group_ids:
        count = shard.offset_count(group_id)
        if together and elements + 1 + count > OFFSETS_PER_TURN:
            yield ELEMENT_WORK_BYTES * elements, partial(_delete, together)
            together, elements = [], 0
        while shard.offset_count(group_id) > OFFSETS_PER_TURN and shard.is_empty(group_id):
            yield ELEMENT_WORK_BYTES * OFFSETS_PER_TURN, partial(_begin, group_id)
        together.append(group_id)
        elements += 1 + min(count, OFFSETS_PER_TURN)
    if together:
        yield ELEMENT_WORK_BYTES * elements, partial(_delete, together)


def _begin(group_id: str, machine: GroupMachine, now: Now) -> tuple[Effects, list[ErrorCode]]:
    """Some of the offsets of a group that has very many."""
    return drop_some(machine, group_id, OFFSETS_PER_TURN) if machine.is_empty(group_id) else Effects(), []


def _delete(group_ids: list[str], machine: GroupMachine, now: Now) -> tuple[Effects, list[ErrorCode]]:
    effects, codes = Effects(), []
    for group_id in group_ids:
        deleted, refusal = delete_group(machine, now, group_id)
        effects.records += deleted.records
        codes.append(code_of(refusal))
    return effects, codes


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

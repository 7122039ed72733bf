"""DescribeGroups, key 15, versions 0 to 6. Split among the coordinators of its groups."""

from collections.abc import Iterator
from functools import partial
from typing import Any, Final

from bmq.errors import BmqError
from bmq.wire.apis import ApiKey
from bmq.wire.chosen_codes import coordinator_code
from bmq.wire.error_codes import ErrorCode
from bmq.wire.message import Message
from bmq_proxy.api import Reply, Route, plain
from bmq_proxy.calls import Call
from bmq_proxy.coordinators import CALLS_AT_ONCE
from bmq_proxy.group_calls import fields_of
from bmq_proxy.handlers.groups_apart import by_coordinators
from bmq_proxy.proxy import Proxy

GROUP_BYTES_MAX: Final = 1 << 20
"""What the description of one group has at most: it is a record of its coordinator's log."""


def route(proxy: Proxy) -> Route:
    """Serves DescribeGroups, split among the coordinators of its groups."""
    return plain(proxy, ApiKey.DESCRIBE_GROUPS, partial(handle, proxy))


async def handle(proxy: Proxy, call: Call, request: Message) -> Reply:
    """In the order of the request, each group once. Those for which the answer has no room are to be asked for again:
    tools do that by themselves.
    """
    asked: list[str] = request.groups
    limit_bytes = proxy.bulk.limits.described_groups_bytes_max
    at_most = min(len(asked) * GROUP_BYTES_MAX, CALLS_AT_ONCE * (limit_bytes + GROUP_BYTES_MAX))
    admitted = await proxy.bulk.collecting(call, at_most)

    def request_for(group_ids: list[str]) -> Message:
        return Message(groups=group_ids, include_authorized_operations=request.include_authorized_operations)

    found: dict[str, dict[str, Any]] = {}
    left_bytes = limit_bytes
    async for groups in by_coordinators(proxy, call, asked, at_once=CALLS_AT_ONCE):
        if left_bytes <= 0:
            break
        answers = await proxy.coordinators.call_each(groups, call.api_key, request_for, call)
        pace = proxy.bulk.pace(call)
        for group_ids, answer in answers:
            for one in (
                _failed(group_ids, answer)
                if isinstance(answer, BmqError)
                else map(fields_of, fields_of(answer)["groups"])
            ):
                size_bytes = _said_bytes(one)
                if size_bytes <= left_bytes or left_bytes == limit_bytes:
                    found[one["group_id"]] = one
                    left_bytes -= size_bytes
                await pace.step(1 + len(one.get("members") or ()))
    call.answer_bytes = limit_bytes - left_bytes
    admitted.keep(call.answer_bytes)
    return {"groups": [found.get(group_id) or _later(group_id) async for group_id in proxy.bulk.paced(call, asked)]}


def _failed(group_ids: list[str], error: BmqError) -> Iterator[dict[str, Any]]:
    code, text = coordinator_code(error), str(error)
    return ({"error_code": code, "error_message": text, "group_id": group_id} for group_id in group_ids)


def _later(group_id: str) -> dict[str, Any]:
    text = "the answer has no room for more groups (described_groups_bytes_max): ask for this one again"
    return {"error_code": int(ErrorCode.coordinator_load_in_progress), "error_message": text, "group_id": group_id}


def _said_bytes(group: dict[str, Any]) -> int:
    """What the description of a group holds of its members' metadata and assignments."""
    members = map(fields_of, group.get("members") or ())
    return sum(len(member["member_metadata"]) + len(member["member_assignment"]) for member in members)

"""DescribeGroups, key 15, versions 0 to 6. Split among the coordinators of its groups."""

from functools import partial
from typing import Any

from bmq.errors import BmqError
from bmq.wire.apis import ApiKey
from bmq.wire.message import Message
from bmq_proxy.api import Reply, Route, plain
from bmq_proxy.calls import Call
from bmq_proxy.failures import coordinator_code
from bmq_proxy.group_calls import fields_of
from bmq_proxy.proxy import Proxy


def route(proxy: Proxy) -> Route:
    """See the module."""
    return plain(proxy, ApiKey.DESCRIBE_GROUPS, partial(handle, proxy))


async def handle(proxy: Proxy, call: Call, request: Message) -> Reply:
    """In the order of the request, each group once."""
    asked = list(dict.fromkeys(request.groups))

    def request_for(group_ids: list[str]) -> Message:
        return Message(groups=group_ids, include_authorized_operations=request.include_authorized_operations)

    try:
        answers = await proxy.coordinators.call_each(asked, call.api_key, request_for, call)
    except BmqError as error:
        answers = [(asked, error)]
    found: dict[str, dict[str, Any]] = {}
    for group_ids, answer in answers:
        if isinstance(answer, BmqError):
            found |= {
                group_id: {"error_code": coordinator_code(answer), "error_message": str(answer), "group_id": group_id} for group_id in group_ids
            }
        else:
            found |= {one["group_id"]: one for one in map(fields_of, fields_of(answer)["groups"])}
    return {"groups": [found[group_id] for group_id in asked]}

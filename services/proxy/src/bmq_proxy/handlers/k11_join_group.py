"""JoinGroup, key 11, versions 0 to 9. Forwarded to the group's coordinator, which holds it until the group is
complete.
"""

from functools import partial
from typing import Any

from bmq.wire.apis import ApiKey
from bmq_proxy.api import Reply, Route, plain
from bmq_proxy.calls import Call
from bmq_proxy.group_calls import fields_of, forward, one_by_one
from bmq_proxy.proxy import Proxy


def route(proxy: Proxy) -> Route:
    """Serves JoinGroup, by the group's coordinator."""
    return plain(proxy, ApiKey.JOIN_GROUP, partial(handle, proxy))


async def handle(proxy: Proxy, call: Call, request: Any) -> Reply:
    """Version 0 has one timeout for both purposes. Who leads is told what all members said, as often as it asks: its
    next question waits until that is the client's to take.
    """
    if request.rebalance_timeout_ms < 0:
        request.rebalance_timeout_ms = request.session_timeout_ms
    async with one_by_one(proxy, call, request):
        reply = await forward(proxy, call, request.group_id, request)
        reply.setdefault("member_id", request.member_id)
        await proxy.bulk.large(call, sum(_said_bytes(fields_of(member)) for member in reply.get("members") or ()))
    return reply


def _said_bytes(member: dict[str, Any]) -> int:
    return len(member["metadata"]) + len(member["member_id"]) + len(member["group_instance_id"] or "")

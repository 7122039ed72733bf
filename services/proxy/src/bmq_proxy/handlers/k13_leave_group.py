"""LeaveGroup, key 13, versions 0 to 5. Forwarded to the group's coordinator; before version 3 one member leaves."""

from functools import partial
from typing import Any

from bmq.wire.apis import ApiKey
from bmq.wire.message import Message
from bmq_proxy.api import Reply, Route, plain
from bmq_proxy.calls import Call
from bmq_proxy.group_calls import fields_of, forward
from bmq_proxy.proxy import Proxy

_SEVERAL_FROM = 3


def route(proxy: Proxy) -> Route:
    """Serves LeaveGroup, by the group's coordinator."""
    return plain(proxy, ApiKey.LEAVE_GROUP, partial(handle, proxy))


async def handle(proxy: Proxy, call: Call, request: Any) -> Reply:
    """The coordinator is always asked about a list of members."""
    single = call.version < _SEVERAL_FROM
    if single:
        request.members = [Message(member_id=request.member_id, group_instance_id=None, reason=None)]
    reply = await forward(proxy, call, request.group_id, request)
    members = reply.get("members") or []
    if single and not reply.get("error_code") and members:
        reply["error_code"] = fields_of(members[0])["error_code"]
    return reply

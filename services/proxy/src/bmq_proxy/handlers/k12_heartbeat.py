"""Heartbeat, key 12, versions 0 to 4. Forwarded to the group's coordinator."""

from functools import partial

from bmq.wire.apis import ApiKey
from bmq.wire.error_codes import ErrorCode
from bmq.wire.message import Message
from bmq_proxy.api import Reply, Route, plain
from bmq_proxy.calls import Call
from bmq_proxy.group_calls import forward
from bmq_proxy.proxy import Proxy


def route(proxy: Proxy) -> Route:
    """Serves Heartbeat, by the group's coordinator."""
    return plain(proxy, ApiKey.HEARTBEAT, partial(handle, proxy))


async def handle(proxy: Proxy, call: Call, request: Message) -> Reply:
    """As it is, but for a coordinator that loads: it does not know yet who is in the group, and most clients leave
    theirs at an error that they do not know. Kafka's own coordinator says that all is well, too.
    """
    reply = await forward(proxy, call, request.group_id, request)
    if reply["error_code"] == ErrorCode.coordinator_load_in_progress:
        reply["error_code"] = int(ErrorCode.none)
    return reply

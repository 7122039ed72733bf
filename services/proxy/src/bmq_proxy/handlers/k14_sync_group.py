"""SyncGroup, key 14, versions 0 to 5. Forwarded to the group's coordinator."""

from functools import partial

from bmq.wire.apis import ApiKey
from bmq.wire.message import Message
from bmq_proxy.api import Reply, Route, plain
from bmq_proxy.calls import Call
from bmq_proxy.group_calls import forward
from bmq_proxy.proxy import Proxy


def route(proxy: Proxy) -> Route:
    """See the module."""
    return plain(proxy, ApiKey.SYNC_GROUP, partial(handle, proxy))


async def handle(proxy: Proxy, call: Call, request: Message) -> Reply:
    """As it is; an assignment may be large."""
    reply = await forward(proxy, call, request.group_id, request)
    await proxy.bulk.large(call, len(reply.get("assignment") or b""))
    return reply

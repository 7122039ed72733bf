"""OffsetDelete, key 47, version 0. Forwarded to the group's coordinator."""

from functools import partial

from bmq.wire.apis import ApiKey
from bmq.wire.message import Message
from bmq_proxy.api import Reply, Route, plain
from bmq_proxy.calls import Call
from bmq_proxy.group_calls import forward
from bmq_proxy.proxy import Proxy
from bmq_proxy.topics import name_topic


def route(proxy: Proxy) -> Route:
    """Serves OffsetDelete, by the group's coordinator."""
    return plain(proxy, ApiKey.OFFSET_DELETE, partial(handle, proxy))


async def handle(proxy: Proxy, call: Call, request: Message) -> Reply:
    """Topics go with their ids, too: a coordinator knows both."""
    for topic in request.topics:
        name_topic(proxy.image, topic, by_id=False)
    return await forward(proxy, call, request.group_id, request)

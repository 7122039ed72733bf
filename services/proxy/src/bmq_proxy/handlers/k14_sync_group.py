"""SyncGroup, key 14, versions 0 to 5. Forwarded to the group's coordinator."""

from functools import partial

from bmq.wire.apis import ApiKey
from bmq.wire.error_codes import ErrorCode
from bmq.wire.message import Message
from bmq_proxy.api import Reply, Route, plain
from bmq_proxy.calls import Call
from bmq_proxy.group_calls import forward, one_by_one
from bmq_proxy.proxy import Proxy


def route(proxy: Proxy) -> Route:
    """Serves SyncGroup, by the group's coordinator."""
    return plain(proxy, ApiKey.SYNC_GROUP, partial(handle, proxy))


async def handle(proxy: Proxy, call: Call, request: Message) -> Reply:
    """As it is; an assignment may be large. While the coordinator loads the member is to join again, as Kafka's own has
    it: the Java consumer ends at COORDINATOR_LOAD_IN_PROGRESS here.
    """
    async with one_by_one(proxy, call, request):
        reply = await forward(proxy, call, request.group_id, request)
        if reply["error_code"] == ErrorCode.coordinator_load_in_progress:
            reply["error_code"] = int(ErrorCode.rebalance_in_progress)
        await proxy.bulk.large(call, len(reply.get("assignment") or b""))
    return reply

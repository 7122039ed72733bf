"""DescribeCluster, key 60, versions 0 to 2. Missing: controller endpoints."""

from functools import partial

from bmq.wire.apis import ApiKey
from bmq.wire.error_codes import ErrorCode
from bmq.wire.message import Message
from bmq_proxy.api import Reply, Route, plain
from bmq_proxy.authorized import NOT_ASKED, ON_CLUSTER
from bmq_proxy.calls import Call
from bmq_proxy.proxy import Proxy
from bmq_proxy.topics import controller_among, proxies_of

BROKERS = 1


def route(proxy: Proxy) -> Route:
    """Serves DescribeCluster: the proxies as the brokers."""
    return plain(proxy, ApiKey.DESCRIBE_CLUSTER, partial(handle, proxy))


async def handle(proxy: Proxy, call: Call, request: Message) -> Reply:
    """The proxies as the brokers."""
    proxies = proxies_of(proxy, proxy.image, call)
    nodes = [
        {"broker_id": one.node_id, "host": one.host, "port": one.port, "rack": one.rack, "is_fenced": False}
        for one in proxies.by_id.values()
    ]
    served = request.endpoint_type == BROKERS
    return {
        "error_code": 0 if served else int(ErrorCode.unsupported_endpoint_type),
        "error_message": None if served else "Controllers have no endpoint for clients: ask the brokers",
        "endpoint_type": request.endpoint_type,
        "cluster_id": proxy.image.cluster_id,
        "controller_id": controller_among(proxy, proxies),
        "brokers": nodes if served else [],
        "cluster_authorized_operations": ON_CLUSTER
        if served and request.include_cluster_authorized_operations
        else NOT_ASKED,
    }

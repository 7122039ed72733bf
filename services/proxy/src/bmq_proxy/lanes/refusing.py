"""What clients of a lane that does not exist are told: an error that their applications see, and never anything of the
base.
"""

from collections.abc import Mapping
from typing import Any, Final

from typing_extensions import Buffer

from bmq.errors import WireError
from bmq.wire.apis import ApiKey
from bmq.wire.error_codes import ErrorCode
from bmq.wire.message import Message
from bmq_proxy.api import Reply, Route, plain
from bmq_proxy.authorized import NOT_ASKED
from bmq_proxy.calls import Call, Pending
from bmq_proxy.proxy import Proxy
from bmq_proxy.topics import controller_among, proxies_of

REASON: Final = (
    "The lane that this client is in does not exist, or is not served here: create it (bmq lanes create), or "
    "correct lane=NAME in its client.id. Where a framework appends to the client.id, end the name with a comma: "
    "lane=NAME,APP"
)


def refusing_routes(proxy: Proxy, served: Mapping[int, Route]) -> dict[int, Route]:
    """One for each API that is served; those that have no fitting error close the connection."""
    routes = {
        key: Route(api=route.api, begin=_close, overlaps=route.overlaps, any_version=True)
        for key, route in served.items()
    }
    routes[ApiKey.API_VERSIONS] = served[ApiKey.API_VERSIONS]
    for key, reply in _REPLIES.items():

        async def handle(call: Call, request: Message, reply: Any = reply) -> Reply:
            found: Reply = reply(proxy, call, request)
            return found

        routes[key] = plain(proxy, key, handle)
    return routes


def _close(call: Call, body: Buffer) -> Pending:
    raise WireError(REASON)


def _metadata(proxy: Proxy, call: Call, request: Any) -> Reply:
    proxies = proxies_of(proxy, proxy.image, call)
    return {
        "brokers": [one.described() for one in proxies.by_id.values()],
        "cluster_id": proxy.image.cluster_id,
        "controller_id": controller_among(proxy, proxies),
        "topics": [
            {
                "error_code": int(ErrorCode.topic_authorization_failed),
                "name": one.name,
                "topic_id": one.topic_id,
                "is_internal": False,
                "partitions": [],
                "topic_authorized_operations": NOT_ASKED,
            }
            for one in request.topics or []
        ],
        "cluster_authorized_operations": NOT_ASKED,
    }


def _find_coordinator(proxy: Proxy, call: Call, request: Any) -> Reply:
    refused = {
        "node_id": -1,
        "host": "",
        "port": -1,
        "error_code": int(ErrorCode.group_authorization_failed),
        "error_message": REASON,
    }
    return {**refused, "coordinators": [{"key": key, **refused} for key in request.coordinator_keys or []]}


def _init_producer_id(proxy: Proxy, call: Call, request: Any) -> Reply:
    return {"error_code": int(ErrorCode.cluster_authorization_failed), "producer_id": -1, "producer_epoch": -1}


def _describe_cluster(proxy: Proxy, call: Call, request: Any) -> Reply:
    return {
        "error_code": int(ErrorCode.cluster_authorization_failed),
        "error_message": REASON,
        "endpoint_type": request.endpoint_type,
        "cluster_id": proxy.image.cluster_id,
        "controller_id": -1,
        "brokers": [],
        "cluster_authorized_operations": NOT_ASKED,
    }


def _create_topics(proxy: Proxy, call: Call, request: Any) -> Reply:
    code = int(ErrorCode.topic_authorization_failed)
    return {
        "topics": [
            {"name": one.name, "error_code": code, "error_message": REASON, "configs": []} for one in request.topics
        ]
    }


def _list_groups(proxy: Proxy, call: Call, request: Any) -> Reply:
    return {"error_code": int(ErrorCode.group_authorization_failed), "groups": []}


_REPLIES: Final = {
    ApiKey.METADATA: _metadata,
    ApiKey.FIND_COORDINATOR: _find_coordinator,
    ApiKey.INIT_PRODUCER_ID: _init_producer_id,
    ApiKey.DESCRIBE_CLUSTER: _describe_cluster,
    ApiKey.CREATE_TOPICS: _create_topics,
    ApiKey.LIST_GROUPS: _list_groups,
}

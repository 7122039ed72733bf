"""DescribeConfigs, key 32, versions 1 to 4: topics, the cluster (as every broker), groups. Missing: broker loggers."""

from functools import partial
from typing import Any, Final

from bmq.config.cluster_config import describe_cluster
from bmq.config.config_keys import DescribedConfig
from bmq.config.kafka_keys import describe_node
from bmq.config.topic_config import describe_topic, pinned
from bmq.errors import BmqError, PolicyViolation, RequestError
from bmq.values import NodeId
from bmq.wire.apis import ApiKey
from bmq.wire.chosen_codes import code_for
from bmq.wire.message import Message
from bmq.wire.messages import Encoded, encode_element
from bmq_proxy.api import Reply, Route, plain
from bmq_proxy.bulk import TURN_ELEMENTS
from bmq_proxy.calls import Call
from bmq_proxy.config_resources import config_resource
from bmq_proxy.proxy import Proxy
from bmq_proxy.spreading import PROXY_ROLE
from bmq_proxy.topics import find_topic, proxies_of

LONG_TEXTS_BYTES_MAX: Final = 1 << 20
"""What one answer has of long texts, beyond its first resource: a request of a few bytes may name thousands that have
some."""
_LONG: Final = 64
"""Characters of a value that is a long one: none is that has an effect."""
RESOURCE_BYTES: Final = 12 << 10
"""What is said of a resource, but for long texts, with the synonyms and the documentation of all its keys."""
_RESOURCES_PER_TURN: Final = 2
"""To describe and encode one takes half a millisecond to two."""


def route(proxy: Proxy) -> Route:
    """Serves DescribeConfigs: the configurations of topics, the cluster and groups."""
    return plain(proxy, ApiKey.DESCRIBE_CONFIGS, partial(handle, proxy))


async def handle(proxy: Proxy, call: Call, request: Message) -> Reply:
    """All keys of a resource, or those asked for; each resource once."""
    resources = request.resources
    admitted = await proxy.bulk.collecting(call, len(resources) * RESOURCE_BYTES + LONG_TEXTS_BYTES_MAX)
    await proxy.bulk.turn(call)  # of many requests that come at once each is worked on in a turn of its own
    results: list[dict[str, Any] | Encoded] = []
    long_bytes, most_bytes = 0, proxy.bulk.limits.answer_memory_bytes // 2
    async for asked in proxy.bulk.paced(call, resources, each=TURN_ELEMENTS // _RESOURCES_PER_TURN):
        result = _describe(proxy, asked, request)
        more_bytes = _long_bytes(result)
        if more_bytes and results and long_bytes + more_bytes > LONG_TEXTS_BYTES_MAX:
            result = _failed(
                asked,
                PolicyViolation(
                    f"The answer has {long_bytes} bytes of long values of other resources: describe fewer at a time"
                ),
            )
        else:
            long_bytes += more_bytes
        if result["error_code"]:
            results.append(result)
            continue
        one = encode_element(call.api_key, call.version, "results", result)  # a fifth of what it is before
        if call.answer_bytes + len(one) > most_bytes:
            why = f"The answer has {call.answer_bytes} bytes about other resources: describe fewer at a time"
            results.append(_failed(asked, PolicyViolation(why)))
        else:
            call.answer_bytes += len(one)
            results.append(one)
    admitted.keep(call.answer_bytes)
    return {"results": results}


def _describe(proxy: Proxy, asked: Any, request: Message) -> dict[str, Any]:
    try:
        rows = _rows(proxy, asked)
    except BmqError as error:
        return _failed(asked, error)
    keys = set(asked.configuration_keys or ())
    configs = [_row(row, request) for row in rows if not keys or row.name in keys]
    return {
        "error_code": 0,
        "error_message": None,
        "resource_type": asked.resource_type,
        "resource_name": asked.resource_name,
        "configs": configs,
    }


def _failed(asked: Any, error: BmqError) -> dict[str, Any]:
    code, named = int(code_for(error)), {"resource_type": asked.resource_type, "resource_name": asked.resource_name}
    return {"error_code": code, "error_message": str(error), **named, "configs": []}


def _long_bytes(result: dict[str, Any]) -> int:
    texts = (text for row in result["configs"] for text in (row["value"], *(one["value"] for one in row["synonyms"])))
    return sum(len(text.encode()) for text in texts if text is not None and len(text) > _LONG)


def _rows(proxy: Proxy, asked: Any) -> list[DescribedConfig]:
    image = proxy.image
    resource = config_resource(proxy, asked.resource_type, asked.resource_name)
    match resource.kind:
        case "topic":
            topic = find_topic(image, resource.name)
            return describe_topic(
                pinned(topic.name, topic.configs),
                dynamic_defaults=proxy.dynamic_configs,
                static_defaults=proxy.static_configs,
            )
        case "broker":
            rows = describe_cluster(dynamic=proxy.dynamic_configs, static=proxy.static_configs)
            return (
                sorted([*rows, *_of_node(proxy, int(asked.resource_name))], key=lambda row: row.name)
                if asked.resource_name
                else rows
            )
        case "group":
            return []
        case _:
            raise RequestError(f"configurations of a {resource.kind} are not described")


def _of_node(proxy: Proxy, node_id: int) -> list[DescribedConfig]:
    """What one of the nodes that Metadata names is, beside the configuration that all share."""
    address = proxies_of(proxy, proxy.image).by_id[node_id]
    node = proxy.image.nodes.get(NodeId(node_id))
    return describe_node(
        node_id=node_id,
        roles=node.roles if node is not None else (PROXY_ROLE,),
        rack=address.rack or "",
        log_dir=proxy.log_dir,
        listeners={"PLAINTEXT": (address.host, address.port), **(node.listeners if node is not None else {})},
    )


def _row(row: DescribedConfig, request: Message) -> dict[str, Any]:
    synonyms = (
        [{"name": one.name, "value": one.value, "source": int(one.source)} for one in row.synonyms]
        if request.include_synonyms
        else []
    )
    return {
        "name": row.name,
        "value": None if row.sensitive else row.value,
        "read_only": row.read_only,
        "config_source": int(row.source),
        "is_sensitive": row.sensitive,
        "synonyms": synonyms,
        "config_type": int(row.type),
        "documentation": row.documentation if request.include_documentation else None,
    }

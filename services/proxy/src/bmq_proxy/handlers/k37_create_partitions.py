"""CreatePartitions, key 37, versions 0 to 3. A manual assignment says where partitions begin (bmq_proxy.assigned)."""

from collections import Counter
from functools import partial
from typing import Any

from bmq.errors import BmqError, PolicyViolation
from bmq.names import is_internal
from bmq.wire.apis import ApiKey
from bmq.wire.error_codes import ErrorCode
from bmq.wire.message import Message
from bmq_proxy.api import Reply, Route, plain
from bmq_proxy.assigned import assigned_in_order
from bmq_proxy.calls import Call
from bmq_proxy.failures import controller_code
from bmq_proxy.images import image_with
from bmq_proxy.proxy import Proxy

SHOWN_WITHIN_S = 5.0


def route(proxy: Proxy) -> Route:
    """See the module."""
    return plain(proxy, ApiKey.CREATE_PARTITIONS, partial(handle, proxy))


async def handle(proxy: Proxy, call: Call, request: Message) -> Reply:
    """Topic by topic; a name that occurs twice is refused."""
    count = Counter(topic.name for topic in request.topics)
    results = [await _grow(proxy, topic, request.validate_only) for topic in request.topics if count[topic.name] == 1]
    results += [
        {"name": name, "error_code": int(ErrorCode.invalid_request), "error_message": "The request names this topic more than once"}
        for name, n in count.items()
        if n > 1
    ]
    return {"results": results}


async def _grow(proxy: Proxy, topic: Any, validate_only: bool) -> dict[str, Any]:
    name, total = topic.name, topic.count
    try:
        if is_internal(name):
            raise PolicyViolation(f"{name} keeps its number of partitions: groups are found by it")
        assignments = assigned_in_order(proxy.image, topic.assignments)
        result = await proxy.controller.create_partitions(name, total, assignments=assignments, validate_only=validate_only)
        if result.error is not None:
            raise result.error
    except BmqError as error:
        return {"name": name, "error_code": controller_code(error), "error_message": str(error)}
    if not validate_only:

        def grown(image: Any) -> bool | None:
            found = image.topic(name)
            return True if found is None or len(found.partitions) >= total else None

        await image_with(proxy.metadata, grown, SHOWN_WITHIN_S)
    return {"name": name, "error_code": 0, "error_message": None}

"""CreatePartitions, key 37, versions 0 to 3. A manual assignment says where partitions begin (bmq_proxy.assigned)."""

from collections import Counter
from functools import partial
from typing import Any

from bmq.config.cluster_config import PARTITIONS_PER_TOPIC_MAX
from bmq.errors import BmqError, PolicyViolation, QuotaExceeded
from bmq.naming.names import is_internal
from bmq.wire.apis import ApiKey
from bmq.wire.chosen_codes import controller_code
from bmq.wire.error_codes import ErrorCode
from bmq.wire.message import Message
from bmq_proxy.api import Reply, Route, plain
from bmq_proxy.assigned import assigned_in_order
from bmq_proxy.calls import Call
from bmq_proxy.creation import check_request
from bmq_proxy.images import image_with
from bmq_proxy.led import when_led
from bmq_proxy.proxy import Proxy

QUOTAS_FROM = 3
THROTTLE_MS_MAX = 60_000


def route(proxy: Proxy) -> Route:
    """Serves CreatePartitions: grows topics."""
    return plain(proxy, ApiKey.CREATE_PARTITIONS, partial(handle, proxy))


async def handle(proxy: Proxy, call: Call, request: Message) -> Reply:
    """Topic by topic; a name that occurs twice is refused."""
    count = Counter(topic.name for topic in request.topics)
    grown = [topic for topic in request.topics if count[topic.name] == 1]
    throttle_ms = 0
    try:
        new = sum(_added(proxy, topic) for topic in grown)
        check_request(proxy.settings.limits, topics=len(request.topics), partitions=new)
        if not request.validate_only:
            proxy.quota.take(call.client_host, new, proxy.loop.time())
    except BmqError as error:
        throttle_ms = round(error.wait_s * 1000) if isinstance(error, QuotaExceeded) else 0
        code = controller_code(error, knows_quotas=call.version >= QUOTAS_FROM)
        results = [{"name": topic.name, "error_code": code, "error_message": str(error)} for topic in grown]
    else:
        results = [await _grow(proxy, call, request, topic) async for topic in proxy.bulk.paced(call, grown)]
    results += [
        {
            "name": name,
            "error_code": int(ErrorCode.invalid_request),
            "error_message": "The request names this topic more than once",
        }
        for name, n in count.items()
        if n > 1
    ]
    return {"throttle_time_ms": min(throttle_ms, THROTTLE_MS_MAX), "results": results}


def _added(proxy: Proxy, asked: Any) -> int:
    """How many partitions come to a topic; what is no possible number is refused by the controller."""
    topic = proxy.image.topic(asked.name)
    return 0 if topic is None or asked.count > PARTITIONS_PER_TOPIC_MAX else max(0, asked.count - len(topic.partitions))


async def _grow(proxy: Proxy, call: Call, request: Message, topic: Any) -> dict[str, Any]:
    name, total = topic.name, topic.count
    try:
        if is_internal(name):
            raise PolicyViolation(f"{name} keeps its number of partitions: groups are found by it")
        assignments = assigned_in_order(proxy.image, topic.assignments)
        create = partial(
            proxy.controller.create_partitions,
            name,
            total,
            assignments=assignments,
            validate_only=request.validate_only,
        )
        result = await when_led(proxy, call, create, timeout_ms=request.timeout_ms)
        if result.error is not None:
            return _refused(name, result.error)
    except BmqError as error:
        return _refused(name, error)
    if not request.validate_only:

        def grown(image: Any) -> bool | None:
            found = image.topic(name)
            return True if found is None or len(found.partitions) >= total else None

        await image_with(proxy.metadata, grown)
    return {"name": name, "error_code": 0, "error_message": None}


def _refused(name: str, error: BmqError) -> dict[str, Any]:
    return {"name": name, "error_code": controller_code(error), "error_message": str(error)}

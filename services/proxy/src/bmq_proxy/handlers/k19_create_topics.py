"""CreateTopics, key 19, versions 2 to 7. A manual assignment says where partitions begin; bmq moves them when that is
better (bmq_proxy.assigned).
"""

import asyncio
from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Any

from bmq.config.topic_config import describe_topic
from bmq.errors import BmqError, QuotaExceeded
from bmq.roles.controller import NewTopic, TopicResult
from bmq.wire.apis import ApiKey
from bmq.wire.chosen_codes import controller_code
from bmq.wire.error_codes import ErrorCode
from bmq.wire.message import Message
from bmq.wire.messages import Encoded, encode_element
from bmq_proxy.api import Reply, Route, plain
from bmq_proxy.assigned import assigned_by_number
from bmq_proxy.bulk import COUNTED_ANSWER_BYTES
from bmq_proxy.calls import Call
from bmq_proxy.creation import check_request, partitions_of, pieces, texts_count
from bmq_proxy.images import image_with
from bmq_proxy.led import when_led
from bmq_proxy.proxy import Proxy

QUOTAS_FROM = 6
THROTTLE_MS_MAX = 60_000
"""How long a client is told to be quiet, at most."""
DESCRIBED_COUNTS = 40
"""A topic's answer has about so many configurations…"""
DESCRIBED_BYTES = 4 << 10
"""…and is not as long as this."""


def route(proxy: Proxy) -> Route:
    """Serves CreateTopics: has the controller make topics."""
    return plain(proxy, ApiKey.CREATE_TOPICS, partial(handle, proxy))


async def handle(proxy: Proxy, call: Call, request: Message) -> Reply:
    """A name that occurs twice is refused, the others are made. Answered once this node knows them."""
    count = Counter(topic.name for topic in request.topics)
    wanted: list[NewTopic] = []
    found: dict[str, dict[str, Any] | Encoded] = {
        name: _failed(name, int(ErrorCode.invalid_request), "The request names this topic more than once")
        for name, n in count.items()
        if n > 1
    }
    async for topic in proxy.bulk.paced(call, request.topics):
        if count[topic.name] == 1:
            try:
                wanted.append(_new_topic(proxy, topic))
            except BmqError as error:
                found[topic.name] = _failed(topic.name, controller_code(error), str(error))
    throttle_ms = 0
    try:
        _admit(proxy, call, request, wanted)
    except BmqError as error:
        throttle_ms = round(error.wait_s * 1000) if isinstance(error, QuotaExceeded) else 0
        code = controller_code(error, knows_quotas=call.version >= QUOTAS_FROM)
        found |= {topic.name: _failed(topic.name, code, str(error)) for topic in wanted}
    else:
        done = [
            result
            for piece in pieces(wanted, default_partitions=proxy.default_partitions)
            for result in await _create(proxy, call, request, piece)
        ]
        call.is_carried_through = False  # what is to change has changed
        if call.is_gone:
            return {"throttle_time_ms": 0, "topics": []}
        found |= await _told(proxy, call, done)
    return {"throttle_time_ms": min(throttle_ms, THROTTLE_MS_MAX), "topics": [found[name] for name in count]}


async def _told(proxy: Proxy, call: Call, done: Sequence[TopicResult]) -> dict[str, dict[str, Any] | Encoded]:
    """What is said of each topic. Of few that is said at once, whatever their client has yet to take."""
    found: dict[str, dict[str, Any] | Encoded] = {}
    most_bytes = sum(result.error is None for result in done) * DESCRIBED_BYTES
    admitted = await proxy.bulk.collecting(call, most_bytes) if most_bytes > COUNTED_ANSWER_BYTES else None
    await proxy.bulk.turn(call)
    async for result in proxy.bulk.paced(call, done, each=DESCRIBED_COUNTS):
        found[result.name] = one = _described(proxy, result)
        if not one["error_code"]:  # encoded it is a tenth of what it is before
            found[result.name] = element = encode_element(call.api_key, call.version, "topics", one)
            call.answer_bytes += len(element)
    if admitted is not None:
        admitted.keep(call.answer_bytes)
    return found


def _admit(proxy: Proxy, call: Call, request: Message, wanted: Sequence[NewTopic]) -> None:
    """Raises PolicyViolation, QuotaExceeded."""
    default = proxy.default_partitions
    partitions = sum(partitions_of(topic, default) for topic in wanted)
    check_request(proxy.settings.limits, topics=len(request.topics), partitions=partitions)
    if not request.validate_only:
        # What is refused for another reason costs nothing: who creates what is there already makes nothing.
        made = [topic for topic in wanted if proxy.image.topic(topic.name) is None]
        new = sum(partitions_of(topic, default) + texts_count(topic.configs.values()) for topic in made)
        proxy.quota.take(call.client_host, new, proxy.loop.time())


async def _create(proxy: Proxy, call: Call, request: Message, piece: Sequence[NewTopic]) -> Sequence[TopicResult]:
    create = partial(proxy.controller.create_topics, piece, validate_only=request.validate_only)
    try:
        results = await when_led(proxy, call, create, timeout_ms=request.timeout_ms)
    except BmqError as error:
        return [TopicResult(name=topic.name, error=error) for topic in piece]
    if not request.validate_only:
        await asyncio.gather(*(_shown(proxy, result) for result in results))
    return results


def _new_topic(proxy: Proxy, topic: Any) -> NewTopic:
    assignments = assigned_by_number(proxy.image, topic.assignments)
    return NewTopic(
        name=topic.name,
        partitions=topic.num_partitions,
        replication_factor=topic.replication_factor,
        configs={config.name: config.value for config in topic.configs},
        manual_assignment=assignments is not None,
        assignments=assignments,
    )


async def _shown(proxy: Proxy, result: TopicResult) -> None:
    if result.error is None and result.topic_id is not None:
        topic_id = result.topic_id
        await image_with(proxy.metadata, lambda image: image.topics.get(topic_id))


def _described(proxy: Proxy, result: TopicResult) -> dict[str, Any]:
    if result.error is not None:
        return _failed(result.name, controller_code(result.error), str(result.error))
    rows = describe_topic(result.configs, dynamic_defaults=proxy.dynamic_configs, static_defaults=proxy.static_configs)
    return {
        "name": result.name,
        "topic_id": result.topic_id,
        "error_code": 0,
        "error_message": None,
        "topic_config_error_code": 0,
        "num_partitions": result.partitions,
        "replication_factor": result.replication_factor,
        "configs": [
            {
                "name": row.name,
                "value": row.value,
                "read_only": row.read_only,
                "config_source": int(row.source),
                "is_sensitive": row.sensitive,
            }
            for row in rows
        ],
    }


def _failed(name: str, code: int, message: str) -> dict[str, Any]:
    return {"name": name, "error_code": code, "error_message": message, "configs": []}

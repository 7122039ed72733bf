"""CreateTopics, key 19, versions 2 to 7. A manual assignment says where partitions begin; bmq moves them when that is better (bmq_proxy.assigned)."""

import asyncio
from collections import Counter
from functools import partial
from typing import Any

from bmq.errors import BmqError
from bmq.roles.controller import NewTopic, TopicResult
from bmq.topic_config import describe_topic
from bmq.wire.apis import ApiKey
from bmq.wire.error_codes import ErrorCode
from bmq.wire.message import Message
from bmq_proxy.api import Reply, Route, plain
from bmq_proxy.assigned import assigned_by_number
from bmq_proxy.calls import Call
from bmq_proxy.failures import controller_code
from bmq_proxy.images import image_with
from bmq_proxy.proxy import Proxy

SHOWN_WITHIN_S = 5.0


def route(proxy: Proxy) -> Route:
    """See the module."""
    return plain(proxy, ApiKey.CREATE_TOPICS, partial(handle, proxy))


async def handle(proxy: Proxy, call: Call, request: Message) -> Reply:
    """A name that occurs twice is refused, the others are made. Answered once this node knows them."""
    count = Counter(topic.name for topic in request.topics)
    wanted: list[NewTopic] = []
    found: dict[str, dict[str, Any]] = {
        name: _failed(name, int(ErrorCode.invalid_request), "The request names this topic more than once") for name, n in count.items() if n > 1
    }
    for topic in request.topics:
        if count[topic.name] == 1:
            try:
                wanted.append(_new_topic(proxy, topic))
            except BmqError as error:
                found[topic.name] = _failed(topic.name, controller_code(error), str(error))
    if wanted:
        try:
            results = await proxy.controller.create_topics(wanted, validate_only=request.validate_only)
        except BmqError as error:
            found |= {topic.name: _failed(topic.name, controller_code(error), str(error)) for topic in wanted}
        else:
            found |= {result.name: _described(proxy, result) for result in results}
            if not request.validate_only:
                await asyncio.gather(*(_shown(proxy, result) for result in results))
    return {"topics": [found[name] for name in count]}


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
        await image_with(proxy.metadata, lambda image: image.topics.get(topic_id), SHOWN_WITHIN_S)


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
            {"name": row.name, "value": row.value, "read_only": row.read_only, "config_source": int(row.source), "is_sensitive": row.sensitive}
            for row in rows
        ],
    }


def _failed(name: str, code: int, message: str) -> dict[str, Any]:
    return {"name": name, "error_code": code, "error_message": message, "configs": []}

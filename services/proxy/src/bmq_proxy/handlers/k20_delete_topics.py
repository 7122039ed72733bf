"""DeleteTopics, key 20, versions 1 to 6. bmq's internal topics are not deleted: the offsets of all groups would go with
them.
"""

from functools import partial
from typing import Any
from uuid import UUID

from bmq.errors import BmqError, PolicyViolation, UnknownTopic, UnknownTopicId
from bmq.metadata.image import Topic
from bmq.naming.names import is_internal
from bmq.wire.apis import ApiKey
from bmq.wire.chosen_codes import controller_code
from bmq.wire.error_codes import ErrorCode
from bmq.wire.message import Message
from bmq_proxy.api import Reply, Route, plain
from bmq_proxy.calls import Call
from bmq_proxy.creation import PIECE_TOPICS, check_request
from bmq_proxy.led import when_led
from bmq_proxy.proxy import Proxy
from bmq_proxy.topics import find_topic

_NAME_OR_ID_FROM = 6


def route(proxy: Proxy) -> Route:
    """Serves DeleteTopics, by name or by id."""
    return plain(proxy, ApiKey.DELETE_TOPICS, partial(handle, proxy))


async def handle(proxy: Proxy, call: Call, request: Message) -> Reply:
    """By name, or from version 6 on by name or id."""
    answers: list[dict[str, Any]] = []
    if call.version >= _NAME_OR_ID_FROM:
        keys: list[str | UUID | None] = []
        for one in request.topics:
            if one.name is not None and one.topic_id:
                answers.append(_named_twice(one))
            else:
                keys.append(one.topic_id if one.name is None else one.name)
    else:
        keys = list(request.topic_names)
    topics: dict[str, Topic] = {}
    by_id = {key for key in keys if isinstance(key, UUID)}
    async for key in proxy.bulk.paced(call, list(dict.fromkeys(keys))):
        try:
            check_request(proxy.settings.limits, topics=len(keys), partitions=0)
            topic = find_topic(proxy.image, key)
            if is_internal(topic.name):
                raise PolicyViolation(f"{topic.name} is bmq's own: deleting it would lose the offsets of all groups")
        except BmqError as error:
            answers.append(_failed(key, controller_code(error), str(error)))
        else:
            topics[topic.name] = topic
    found = list(topics.items())
    for first in range(0, len(found), PIECE_TOPICS):
        answers += await _delete(
            proxy, call, dict(found[first : first + PIECE_TOPICS]), by_id, timeout_ms=request.timeout_ms
        )
    return {"responses": answers}


async def _delete(
    proxy: Proxy, call: Call, topics: dict[str, Topic], by_id: set[UUID], *, timeout_ms: int
) -> list[dict[str, Any]]:
    delete = partial(proxy.controller.delete_topics, [topic.topic_id for topic in topics.values()])
    try:
        results = await when_led(proxy, call, delete, timeout_ms=timeout_ms)
    except BmqError as error:
        return [
            {**_named(topic), "error_code": controller_code(error), "error_message": str(error)}
            for topic in topics.values()
        ]
    answers = []
    for topic, result in zip(topics.values(), results, strict=True):
        why: BmqError | None = result.error
        if isinstance(why, UnknownTopic) and topic.topic_id in by_id:
            why = UnknownTopicId(f"topic id {topic.topic_id} does not exist")
        code = 0 if why is None else controller_code(why)
        answers.append({**_named(topic), "error_code": code, "error_message": None if why is None else str(why)})
    return answers


def _named_twice(asked: Message) -> dict[str, Any]:
    """As in Kafka: which of the two is meant nobody can tell where the name was given to another topic since."""
    why = f"topic {asked.name} is named by its id {asked.topic_id}, too: give one of them"
    return {
        "name": asked.name,
        "topic_id": asked.topic_id,
        "error_code": int(ErrorCode.invalid_request),
        "error_message": why,
    }


def _named(topic: Topic) -> dict[str, Any]:
    return {"name": topic.name, "topic_id": topic.topic_id}


def _failed(key: str | UUID | None, code: int, message: str) -> dict[str, Any]:
    if key is None:
        code, message = int(ErrorCode.invalid_request), "Neither name nor id is given"
    by_name = isinstance(key, str)
    return {
        "name": key if by_name else None,
        "topic_id": None if by_name else key,
        "error_code": code,
        "error_message": message,
    }

"""OffsetCommit, key 8, versions 2 to 10. Forwarded to the group's coordinator; topic ids of version 10 become names on
the way.
"""

from functools import partial
from typing import Any

from bmq.wire.apis import ApiKey
from bmq.wire.error_codes import ErrorCode
from bmq_proxy.api import Reply, Route, plain
from bmq_proxy.calls import Call
from bmq_proxy.group_calls import fields_of, forward
from bmq_proxy.proxy import Proxy
from bmq_proxy.topics import name_topic

_BY_ID_FROM = 10


def route(proxy: Proxy) -> Route:
    """Serves OffsetCommit, by the group's coordinator."""
    return plain(proxy, ApiKey.OFFSET_COMMIT, partial(handle, proxy))


async def handle(proxy: Proxy, call: Call, request: Any) -> Reply:
    """Topics whose id is unknown are answered here, the others by the coordinator."""
    known, refused = await _named(proxy, call, request.topics)
    if not known and refused:
        return {"topics": refused}
    request.topics = known
    reply = await forward(proxy, call, request.group_id, request)
    code = reply.get("error_code", 0)
    if code:
        return {"topics": [_answer(topic, code) for topic in known] + refused}
    ids = {topic.name: topic.topic_id for topic in known}
    answered = [fields_of(topic) async for topic in proxy.bulk.paced(call, reply["topics"])]
    return {
        "topics": [{**topic, "topic_id": ids.get(topic["name"])} async for topic in proxy.bulk.paced(call, answered)]
        + refused
    }


async def _named(proxy: Proxy, call: Call, topics: list[Any]) -> tuple[list[Any], list[dict[str, Any]]]:
    known, refused = [], []
    image, by_id = proxy.image, call.version >= _BY_ID_FROM
    async for topic in proxy.bulk.paced(call, topics):
        if name_topic(image, topic, by_id=by_id):
            known.append(topic)
        else:
            refused.append(_answer(topic, int(ErrorCode.unknown_topic_id)))
    return known, refused


def _answer(topic: Any, code: int) -> dict[str, Any]:
    return {
        "name": topic.name,
        "topic_id": topic.topic_id,
        "partitions": [{"partition_index": one.partition_index, "error_code": code} for one in topic.partitions],
    }

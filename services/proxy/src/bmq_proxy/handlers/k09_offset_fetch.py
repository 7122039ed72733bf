"""OffsetFetch, key 9, versions 1 to 10. Split among the coordinators of its groups; topic ids of version 10 become
names on the way.
"""

import asyncio
from functools import partial
from typing import Any, Final

from bmq.errors import BmqError
from bmq.metadata.image import Image
from bmq.wire.apis import ApiKey
from bmq.wire.chosen_codes import coordinator_code
from bmq.wire.error_codes import ErrorCode
from bmq.wire.message import Message
from bmq_proxy.api import Reply, Route, plain
from bmq_proxy.calls import Call
from bmq_proxy.group_calls import fields_of
from bmq_proxy.handlers.groups_apart import by_coordinators
from bmq_proxy.proxy import Proxy
from bmq_proxy.topics import name_topic

_SEVERAL_FROM = 8
_BY_ID_FROM = 10
_GROUP_ERROR_FROM = 2
ALL_COUNTS = 6_000
"""As so many elements counts a question for all offsets of a group."""
ELEMENT_BYTES: Final = 450
"""What an offset without metadata takes while an answer is put together."""
ASKED_FOR_S: Final = 1.0
"""Where several groups are asked about, one coordinator that does not answer keeps the others' for so long; it is to be
asked again."""
COORDINATORS_AT_ONCE: Final = 1
"""So many are asked at a time where several groups are asked about: each may say as much as an answer has."""


def route(proxy: Proxy) -> Route:
    """Serves OffsetFetch, split among the coordinators of its groups."""
    return plain(proxy, ApiKey.OFFSET_FETCH, partial(handle, proxy))


async def handle(proxy: Proxy, call: Call, request: Any) -> Reply:
    """Always asks about a list of groups; versions before 8 have one."""
    if call.version < _SEVERAL_FROM:
        topics = None if call.version >= _GROUP_ERROR_FROM and request.topics is None else request.topics or []
        request.groups = [Message(group_id=request.group_id, member_id=None, member_epoch=-1, topics=topics)]
    async with proxy.bulk.building(call, _elements_of_all(proxy, request.groups)):
        groups, size_bytes = await _fetch(proxy, call, request)
    await proxy.bulk.large(call, size_bytes)
    return {"groups": groups} if call.version >= _SEVERAL_FROM else _flat(call, request.groups[0], groups[0])


def _elements(proxy: Proxy, group: Any) -> int:
    """Nobody knows how many all offsets of a group are before they are there, nor what they say: as much as last time,
    it is taken to be.
    """
    count = ALL_COUNTS if group.topics is None else sum(len(topic.partition_indexes) for topic in group.topics)
    return max(count, proxy.bulk.said.of(group.group_id) // ELEMENT_BYTES)


def _elements_of_all(proxy: Proxy, groups: list[Any]) -> int:
    """Each coordinator says what it may say of several groups at most, and of the first one whatever there is."""
    each = [_elements(proxy, group) for group in groups]
    limit_bytes = proxy.bulk.limits.fetched_offsets_bytes_max
    return min(sum(each), max(each, default=0) + (1 + COORDINATORS_AT_ONCE) * limit_bytes // ELEMENT_BYTES)


async def _said(proxy: Proxy, call: Call, group: dict[str, Any]) -> tuple[int, int]:
    """(offsets, what their metadata comes to, which a request of a few bytes may ask for)."""
    count, text_bytes, pace = 0, 0, proxy.bulk.pace(call)
    for topic in group["topics"]:
        partitions = topic["partitions"]
        count += len(partitions)
        text_bytes += sum(len(fields_of(one)["metadata"] or "") for one in partitions)
        await pace.step(1 + len(partitions))
    proxy.bulk.said.keep(group["group_id"], text_bytes)
    return count, text_bytes


async def _fetch(proxy: Proxy, call: Call, request: Any) -> tuple[list[dict[str, Any]], int]:
    """(each group's answer, what the metadata of all comes to). Those for which there is no room in the answer are to
    be asked for again: tools do that by themselves.
    """
    by_id = call.version >= _BY_ID_FROM
    image = proxy.image
    refused: dict[str, list[dict[str, Any]]] = {}
    asked: dict[str, Any] = {}
    pace = proxy.bulk.pace(call)
    for group in request.groups:
        asked[group.group_id] = group
        await pace.step(1 + len(group.topics or ()))
        if group.topics is not None:
            named = [(topic, name_topic(image, topic, by_id=by_id)) for topic in group.topics]
            group.topics = [topic for topic, known in named if known]
            refused[group.group_id] = [_unknown(topic) for topic, known in named if not known]

    def request_for(group_ids: list[str]) -> Message:
        return Message(groups=[asked[group_id] for group_id in group_ids], require_stable=request.require_stable)

    found: dict[str, dict[str, Any]] = {}
    left_bytes, text_bytes = proxy.bulk.limits.fetched_offsets_bytes_max, 0
    async for some in by_coordinators(proxy, call, list(asked), at_once=COORDINATORS_AT_ONCE):
        if left_bytes <= 0:
            break
        try:
            async with asyncio.timeout(ASKED_FOR_S if len(some) < len(asked) else None):
                answers = await proxy.coordinators.call_each(some, call.api_key, request_for, call)
        except TimeoutError:
            continue
        for group_ids, answer in answers:
            if isinstance(answer, BmqError):
                code = coordinator_code(answer)
                async for group_id in proxy.bulk.paced(call, group_ids):
                    found[group_id] = {"group_id": group_id, "topics": refused.get(group_id, []), "error_code": code}
                continue
            for one in map(fields_of, fields_of(answer)["groups"]):
                topics = [fields_of(topic) for topic in one.get("topics") or []]
                one["topics"] = (_with_ids(image, topics) if by_id else topics) + refused.get(one["group_id"], [])
                found[one["group_id"]] = one
                count, said_bytes = await _said(proxy, call, one)
                text_bytes += said_bytes
                left_bytes -= said_bytes + count * ELEMENT_BYTES
                await pace.step(1 + len(topics))
    later = int(ErrorCode.coordinator_load_in_progress)
    return [
        found.get(group_id) or {"group_id": group_id, "topics": refused.get(group_id, []), "error_code": later}
        async for group_id in proxy.bulk.paced(call, asked)
    ], text_bytes


def _with_ids(image: Image, topics: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Topics that were deleted have no id any more, and their offsets mean nothing."""
    return [
        {**topic, "topic_id": image.topic_ids[topic["name"]]} for topic in topics if topic["name"] in image.topic_ids
    ]


def _unknown(topic: Any) -> dict[str, Any]:
    code = int(ErrorCode.unknown_topic_id)
    return {
        "name": topic.name,
        "topic_id": topic.topic_id,
        "partitions": [_no_offset(partition, code) for partition in topic.partition_indexes],
    }


def _no_offset(partition: int, code: int) -> dict[str, Any]:
    return {
        "partition_index": partition,
        "committed_offset": -1,
        "committed_leader_epoch": -1,
        "metadata": "",
        "error_code": code,
    }


def _flat(call: Call, asked: Any, group: dict[str, Any]) -> Reply:
    code = group.get("error_code", 0)
    if code and call.version < _GROUP_ERROR_FROM:
        topics = [
            {"name": one.name, "partitions": [_no_offset(partition, code) for partition in one.partition_indexes]}
            for one in asked.topics
        ]
        return {"topics": topics}
    return {"topics": [_without_id(topic) for topic in group["topics"]], "error_code": code}


def _without_id(topic: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in topic.items() if name != "topic_id"}

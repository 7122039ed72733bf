"""DescribeTopicPartitions, key 75, version 0. Topics by name, in pages of partitions with a cursor."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from bmq.errors import BmqError
from bmq.metadata.image import Image
from bmq.wire.apis import ApiKey
from bmq.wire.chosen_codes import code_for
from bmq.wire.message import Message
from bmq_proxy.api import Reply, Route, plain
from bmq_proxy.authorized import NOT_ASKED, ON_TOPIC
from bmq_proxy.calls import Call
from bmq_proxy.ordered_names import OrderedNames, listed_page
from bmq_proxy.proxy import Proxy
from bmq_proxy.spreading import Proxies
from bmq_proxy.topics import described_partition, described_topic, find_topic, proxies_of

PARTITIONS_MAX = 2_000
"""How many partitions one answer has at most (max.request.partition.size.limit)."""
_PARTITION_COUNTS = 3
"""Elements of one partition: itself, its replica, and that as one in sync."""


def route(proxy: Proxy) -> Route:
    """Serves DescribeTopicPartitions: topics by name, in pages of partitions."""
    return plain(proxy, ApiKey.DESCRIBE_TOPIC_PARTITIONS, partial(handle, proxy, OrderedNames()))


async def handle(proxy: Proxy, ordered: OrderedNames, call: Call, request: Message) -> Reply:
    """Goes on at the cursor, which names the first topic and partition that the last answer had no room for."""
    left = min(max(request.response_partition_limit, 1), PARTITIONS_MAX)
    seen, names = await _names(proxy, ordered, call, request, left)
    count = await _partitions(proxy, call, seen, names, left)
    await proxy.bulk.built(call, len(request.topics) + count * _PARTITION_COUNTS)
    image, cursor = proxy.image, request.cursor
    if image.topic_ids is not seen.topic_ids:  # topics came or went while it waited
        image, names = await _names(proxy, ordered, call, request, left)
    proxies = proxies_of(proxy, image, call)
    first = 0 if cursor is None or not names or names[0] != cursor.topic_name else cursor.partition_index
    topics: list[dict[str, Any]] = []
    pace = proxy.bulk.pace(call)
    for name in names:
        if left <= 0:
            return {"topics": topics, "next_cursor": {"topic_name": name, "partition_index": 0}}
        described, stopped_at = _described(proxies, image, name, first, left)
        topics.append(described)
        if stopped_at is not None:
            return {"topics": topics, "next_cursor": {"topic_name": name, "partition_index": stopped_at}}
        left -= len(described["partitions"])
        first = 0
        await pace.step(1 + len(described["partitions"]) * _PARTITION_COUNTS)
    return {"topics": topics, "next_cursor": None}


async def _partitions(proxy: Proxy, call: Call, image: Image, names: Sequence[str], at_most: int) -> int:
    """How many these topics have; it stops counting at what one page has."""
    count = 0
    async for name in proxy.bulk.paced(call, names):
        topic = image.topic(name)
        count += 0 if topic is None else len(topic.partitions)
        if count >= at_most:
            return at_most
    return count


async def _names(
    proxy: Proxy, ordered: OrderedNames, call: Call, request: Message, at_most: int
) -> tuple[Image, Sequence[str]]:
    """In order, from the cursor's on: all that are named, or as many of all that there are as one page can have, and
    the next; and the image in which. It begins in a turn of its own.
    """
    await proxy.bulk.turn(call)
    image, start = proxy.image, "" if request.cursor is None else request.cursor.topic_name
    if request.topics:
        return image, sorted({topic.name for topic in request.topics if topic.name >= start})
    turn = partial(proxy.bulk.turn, call)
    return image, await listed_page(ordered, image.topic_ids, start=start, count=at_most + 1, turn=turn)


def _described(proxies: Proxies, image: Image, name: str, first: int, left: int) -> tuple[dict[str, Any], int | None]:
    """The topic's partitions from `first` on, and where it had to stop."""
    try:
        topic = find_topic(image, name)
    except BmqError as error:
        refused = {
            "error_code": code_for(error),
            "name": name,
            "partitions": [],
            "topic_authorized_operations": NOT_ASKED,
        }
        return refused, None
    described = described_topic(topic, operations=ON_TOPIC)
    end = min(len(topic.partitions), max(first, 0) + left)
    # Empty, not null: Java's admin client takes these two lists without looking.
    no_elr: dict[str, list[int]] = {"eligible_leader_replicas": [], "last_known_elr": []}
    described["partitions"] = [
        {**described_partition(proxies, topic, index), **no_elr} for index in range(max(first, 0), end)
    ]
    return described, end if end < len(topic.partitions) else None

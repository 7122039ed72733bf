"""DescribeTopicPartitions, key 75, version 0. Topics by name, in pages of partitions with a cursor."""

from functools import partial
from typing import Any

from bmq.errors import BmqError
from bmq.metadata.image import Image
from bmq.wire.apis import ApiKey
from bmq.wire.error_codes import code_for
from bmq.wire.message import Message
from bmq_proxy.api import Reply, Route, plain
from bmq_proxy.authorized import NOT_ASKED, ON_TOPIC
from bmq_proxy.calls import Call
from bmq_proxy.proxy import Proxy
from bmq_proxy.spreading import Proxies
from bmq_proxy.topics import described_partition, described_topic, find_topic, proxies_of

PARTITIONS_MAX = 2_000
"""Of one answer (max.request.partition.size.limit)."""
_PARTITION_COUNTS = 3
"""Elements of one partition: itself, its replica, and that as one in sync."""


def route(proxy: Proxy) -> Route:
    """See the module."""
    return plain(proxy, ApiKey.DESCRIBE_TOPIC_PARTITIONS, partial(handle, proxy))


async def handle(proxy: Proxy, call: Call, request: Message) -> Reply:
    """Goes on at the cursor, which names the first topic and partition that the last answer had no room for."""
    left = min(max(request.response_partition_limit, 1), PARTITIONS_MAX)
    await proxy.bulk.built(call, len(request.topics) + min(left, _partitions(proxy.image, request)) * _PARTITION_COUNTS)
    image = proxy.image
    proxies = proxies_of(proxy, image, call)
    names = sorted({topic.name for topic in request.topics} or image.topic_ids)
    cursor = request.cursor
    first = 0
    if cursor is not None:
        names = [name for name in names if name >= cursor.topic_name]
        first = cursor.partition_index if names and names[0] == cursor.topic_name else 0
    topics: list[dict[str, Any]] = []
    for name in names:
        if left <= 0:
            return {"topics": topics, "next_cursor": {"topic_name": name, "partition_index": 0}}
        described, stopped_at = _described(proxies, image, name, first, left)
        topics.append(described)
        if stopped_at is not None:
            return {"topics": topics, "next_cursor": {"topic_name": name, "partition_index": stopped_at}}
        left -= len(described["partitions"])
        first = 0
    return {"topics": topics, "next_cursor": None}


def _partitions(image: Image, request: Message) -> int:
    """How many there are of what is asked for, all pages together."""
    asked = (image.topic(one.name) for one in request.topics) if request.topics else image.topics.values()
    return sum(len(topic.partitions) for topic in asked if topic is not None)


def _described(proxies: Proxies, image: Image, name: str, first: int, left: int) -> tuple[dict[str, Any], int | None]:
    """The topic's partitions from `first` on, and where it had to stop."""
    try:
        topic = find_topic(image, name)
    except BmqError as error:
        refused = {"error_code": code_for(error), "name": name, "partitions": [], "topic_authorized_operations": NOT_ASKED}
        return refused, None
    described = described_topic(topic, operations=ON_TOPIC)
    end = min(len(topic.partitions), max(first, 0) + left)
    # Empty, not null: Java's admin client takes these two lists without looking.
    no_elr: dict[str, list[int]] = {"eligible_leader_replicas": [], "last_known_elr": []}
    described["partitions"] = [{**described_partition(proxies, topic, index), **no_elr} for index in range(max(first, 0), end)]
    return described, end if end < len(topic.partitions) else None

"""DescribeLogDirs, key 35, versions 1 to 5. The one "log directory" is the object store; its total and free bytes are
not known.
"""

from collections.abc import AsyncIterator, Iterable
from functools import partial
from typing import Any

from bmq.errors import BmqError
from bmq.metadata.image import Image, Topic
from bmq.roles.owner import Owner, PartitionStatus
from bmq.values import TopicPartition
from bmq.wire.apis import ApiKey
from bmq.wire.message import Message
from bmq_proxy.api import Reply, Route, plain
from bmq_proxy.calls import Call
from bmq_proxy.proxy import Proxy
from bmq_proxy.topics import proxies_of, stands_for

ASKED_AT_ONCE = 500
"""Partitions in one question to an owner."""


def route(proxy: Proxy) -> Route:
    """Serves DescribeLogDirs: the object store as the one "log directory", with its partitions."""
    return plain(proxy, ApiKey.DESCRIBE_LOG_DIRS, partial(handle, proxy))


async def handle(proxy: Proxy, call: Call, request: Message) -> Reply:
    """All partitions that this proxy stands for, or those asked for; what no owner answers for at present is left
    out.
    """
    if request.topics is None:
        count = 0
        await proxy.bulk.turn(call)
        async for topic in proxy.bulk.paced(call, proxy.image.topics.values()):
            count += len(topic.partitions)
    else:
        count = sum(len(one.partitions) for one in request.topics)
    await proxy.bulk.built(call, count)  # before there is a list of them
    image, wanted = proxy.image, list[tuple[Topic, int]]()
    proxies = proxies_of(proxy, image, call, in_zone=False)
    pace = proxy.bulk.pace(call)
    async for topic, indexes in _asked(proxy, call, image, request):
        for index in indexes:
            await pace.step()
            if stands_for(proxy, proxies, TopicPartition(topic.topic_id, index)):
                wanted.append((topic, index))
    return {"error_code": 0, "results": [await _described(proxy, call, wanted)]}


async def _asked(
    proxy: Proxy, call: Call, image: Image, request: Message
) -> AsyncIterator[tuple[Topic, Iterable[int]]]:
    """Topics that there are, and which partitions of each that it has: in turns, as a lane finds them one by one."""
    if request.topics is None:
        async for topic in proxy.bulk.paced(call, image.topics.values()):
            yield topic, range(len(topic.partitions))
        return
    async for one in proxy.bulk.paced(call, request.topics):
        found = image.topic(one.topic)
        if found is not None:
            yield found, [index for index in one.partitions if 0 <= index < len(found.partitions)]


async def _described(proxy: Proxy, call: Call, wanted: list[tuple[Topic, int]]) -> dict[str, Any]:
    statuses = await partition_statuses(proxy, call, wanted)
    topics: dict[str, list[dict[str, Any]]] = {}
    async for topic, index in proxy.bulk.paced(call, wanted):
        status = statuses.get(TopicPartition(topic.topic_id, index))
        if status is not None:
            size_bytes = status.tail_bytes + status.segment_bytes
            topics.setdefault(topic.name, []).append(
                {"partition_index": index, "partition_size": size_bytes, "offset_lag": 0, "is_future_key": False}
            )
    return {
        "error_code": 0,
        "log_dir": proxy.log_dir,
        "topics": [{"name": name, "partitions": partitions} for name, partitions in topics.items()],
        "total_bytes": -1,
        "usable_bytes": -1,
        "is_cordoned": False,
    }


async def partition_statuses(
    proxy: Proxy, call: Call, wanted: list[tuple[Topic, int]]
) -> dict[TopicPartition, PartitionStatus]:
    """What the owners say of these partitions, as few questions to each as may be."""
    shares: dict[int, tuple[Owner, list[TopicPartition]]] = {}
    async for topic, index in proxy.bulk.paced(call, wanted):
        tp = TopicPartition(topic.topic_id, index)
        try:
            owner = proxy.owner_for(tp)
        except BmqError:
            continue
        shares.setdefault(id(owner), (owner, []))[1].append(tp)
    found: dict[TopicPartition, PartitionStatus] = {}
    for owner, tps in shares.values():
        for first in range(0, len(tps), ASKED_AT_ONCE):
            try:
                some = partial(owner.status, tps[first : first + ASKED_AT_ONCE])
                found |= {status.tp: status for status in await proxy.patience.answered(call, some)}
            except BmqError as error:
                proxy.tell("owner does not answer for its partitions", error=str(error))
                break
            await proxy.bulk.turn(call)
    return found

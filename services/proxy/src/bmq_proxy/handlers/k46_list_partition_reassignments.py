"""ListPartitionReassignments, key 46, version 0: the planned moves that are under way, whoever began them (the
balancer, a drain, a tool).

The ids are those of the brokers that own the partitions, which Metadata does not show: it names proxies. A move that
was taken back, and so leads to the owner itself, changes nothing and is not listed.
"""

from collections.abc import Iterable
from functools import partial
from typing import Any

from bmq.metadata.image import Image, Topic
from bmq.values import TopicPartition
from bmq.wire.apis import ApiKey
from bmq.wire.message import Message
from bmq_proxy.api import Reply, Route, plain
from bmq_proxy.calls import Call
from bmq_proxy.proxy import Proxy


def route(proxy: Proxy) -> Route:
    """Serves ListPartitionReassignments: the planned moves that are under way."""
    return plain(proxy, ApiKey.LIST_PARTITION_REASSIGNMENTS, partial(handle, proxy))


async def handle(proxy: Proxy, call: Call, request: Message) -> Reply:
    """All of them, or those of the partitions asked for."""
    if request.topics is None:
        await proxy.bulk.built(call, len(proxy.image.moving))  # before there is a list of them
    await proxy.bulk.turn(call)
    image = proxy.image
    asked = image.moving if request.topics is None else _asked(image, request)
    topics: dict[str, list[dict[str, Any]]] = {}
    async for tp in proxy.bulk.paced(call, sorted(set(asked) & image.moving.keys())):
        topic = image.topics[tp.topic_id]
        described = _described(topic, tp.partition)
        if described is not None:
            topics.setdefault(topic.name, []).append(described)
    return {
        "error_code": 0,
        "error_message": None,
        "topics": [{"name": name, "partitions": partitions} for name, partitions in topics.items()],
    }


def _asked(image: Image, request: Message) -> Iterable[TopicPartition]:
    for one in request.topics:
        topic = image.topic(one.name)
        if topic is not None:
            yield from (TopicPartition(topic.topic_id, index) for index in one.partition_indexes)


def _described(topic: Topic, index: int) -> dict[str, Any] | None:
    """As Kafka describes it: the new owner first."""
    meta = topic.partitions[index]
    if meta.moving_to == meta.node_id:
        return None
    return {
        "partition_index": index,
        "replicas": [meta.moving_to, meta.node_id],
        "adding_replicas": [meta.moving_to],
        "removing_replicas": [meta.node_id],
    }

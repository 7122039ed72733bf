"""Topics as clients name them, by name or by id, and partitions as their clients see them."""

from typing import Any
from uuid import UUID

from bmq.errors import RequestError, UnknownTopic
from bmq.metadata.image import Image, Topic
from bmq.names import is_internal
from bmq.values import TopicId, TopicPartition
from bmq_proxy.proxy import Proxy
from bmq_proxy.spreading import Proxies, ProxyAddress, zone_of

AUTHORIZED_OPERATIONS_UNKNOWN = -(2**31)


class UnknownTopicId(RequestError):
    """No topic has this id (any more)."""


def find_topic(image: Image, key: object) -> Topic:
    """Raises UnknownTopic for a name, UnknownTopicId for an id."""
    if isinstance(key, str):
        topic = image.topic(key)
        if topic is None:
            raise UnknownTopic(f"topic {key!r} does not exist")
        return topic
    topic = image.topics.get(TopicId(key)) if isinstance(key, UUID) else None
    if topic is None:
        raise UnknownTopicId(f"topic id {key} does not exist")
    return topic


def find_partition(image: Image, key: object, partition: int) -> TopicPartition:
    """Raises as `find_topic`, and UnknownTopic where the topic has no such partition."""
    topic = find_topic(image, key)
    if not 0 <= partition < len(topic.partitions):
        raise UnknownTopic(f"topic {topic.name!r} has no partition {partition}")
    return TopicPartition(topic.topic_id, partition)


def described_partition(proxies: Proxies, topic: Topic, index: int) -> dict[str, Any]:
    """A partition in Metadata and DescribeTopicPartitions: a proxy stands for whoever owns it."""
    node_id = proxies.standing_for(TopicPartition(topic.topic_id, index), owner=topic.partitions[index].node_id).node_id
    return {
        "error_code": 0,
        "partition_index": index,
        "leader_id": node_id,
        "leader_epoch": topic.partitions[index].leader_epoch,
        "replica_nodes": [node_id],
        "isr_nodes": [node_id],
        "offline_replicas": [],
    }


def described_topic(topic: Topic) -> dict[str, Any]:
    """A topic without its partitions."""
    return {
        "error_code": 0,
        "name": topic.name,
        "topic_id": topic.topic_id,
        "is_internal": is_internal(topic.name),
        "topic_authorized_operations": AUTHORIZED_OPERATIONS_UNKNOWN,
    }


def proxies_of(proxy: Proxy, image: Image, *, client_id: str = "") -> Proxies:
    """The proxies that clients are told of; those of the client's zone stand for partitions, where it says one."""
    own = ProxyAddress(node_id=proxy.settings.node_id, host=proxy.settings.advertised_host, port=proxy.advertised_port)
    return Proxies.of(image, own, zone=zone_of(client_id))


def stands_for(proxy: Proxy, proxies: Proxies, tp: TopicPartition) -> bool:
    """Whether clients are told that the partition is here. What each proxy is asked for its share of, nobody counts twice."""
    meta = proxy.image.partition(tp)
    return proxies.standing_for(tp, owner=-1 if meta is None else meta.node_id).node_id == proxy.settings.node_id


def name_topic(image: Image, asked: Any, *, by_id: bool) -> bool:
    """Gives a topic of a request both its `name` and its `topic_id`; a name may be unknown (id None), for an unknown id it says False."""
    if by_id:
        topic = image.topics.get(TopicId(asked.topic_id)) if asked.topic_id is not None else None
        if topic is None:
            return False
        asked.name = topic.name
    else:
        asked.topic_id = image.topic_ids.get(asked.name)
    return True

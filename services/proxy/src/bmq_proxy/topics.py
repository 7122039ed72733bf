"""Topics as clients name them, by name or by id, and partitions as their clients see them."""

from typing import Any
from uuid import UUID

from bmq.errors import UnknownTopic, UnknownTopicId
from bmq.metadata.image import Image, Topic
from bmq.naming.listeners import DEFAULT_LISTENER
from bmq.naming.names import is_internal, shown
from bmq.values import TopicId, TopicPartition
from bmq.wire.error_codes import ErrorCode
from bmq_proxy.authorized import NOT_ASKED
from bmq_proxy.calls import Call
from bmq_proxy.proxy import Proxy
from bmq_proxy.spreading import Proxies, ProxyAddress, zone_of


def find_topic(image: Image, key: object) -> Topic:
    """Raises UnknownTopic for a name, UnknownTopicId for an id."""
    if isinstance(key, str):
        topic = image.topic(key)
        if topic is None:
            raise UnknownTopic(f"topic {shown(key)} does not exist")
        return topic
    topic = image.topics.get(TopicId(key)) if isinstance(key, UUID) else None
    if topic is None:
        raise UnknownTopicId(f"topic id {key} does not exist")
    return topic


def find_partition(image: Image, key: object, partition: int) -> TopicPartition:
    """Raises as `find_topic`, and UnknownTopic where the topic has no such partition."""
    return partition_of(find_topic(image, key), partition)


def partition_of(topic: Topic, partition: int) -> TopicPartition:
    """Raises UnknownTopic where the topic has no such partition."""
    if not 0 <= partition < len(topic.partitions):
        raise UnknownTopic(f"topic {shown(topic.name)} has no partition {partition}")
    return TopicPartition(topic.topic_id, partition)


def described_partition(proxies: Proxies, topic: Topic, index: int) -> dict[str, Any]:
    """A partition in Metadata and DescribeTopicPartitions: a proxy stands for whoever owns it."""
    standing = proxies.standing_for(TopicPartition(topic.topic_id, index), owner=topic.partitions[index].node_id)
    nodes = [] if standing is None else [standing.node_id]
    return {
        "error_code": int(ErrorCode.none if nodes else ErrorCode.listener_not_found),
        "partition_index": index,
        "leader_id": nodes[0] if nodes else -1,
        "leader_epoch": topic.partitions[index].leader_epoch,
        "replica_nodes": nodes,
        "isr_nodes": nodes,
        "offline_replicas": [],
    }


def described_topic(topic: Topic, *, operations: int = NOT_ASKED) -> dict[str, Any]:
    """A topic without its partitions. `operations`: what the client may do with it."""
    return {
        "error_code": 0,
        "name": topic.name,
        "topic_id": topic.topic_id,
        "is_internal": is_internal(topic.name),
        "topic_authorized_operations": operations,
    }


def proxies_of(proxy: Proxy, image: Image, call: Call | None = None, *, in_zone: bool = True) -> Proxies:
    """The proxies that this client is told of: those of its listener. Those of its zone stand for partitions, where it
    says one.

    Without a `call`: those of the default listener, which are all.
    """
    listener = DEFAULT_LISTENER if call is None else call.listener
    host, port = proxy.address_of(listener)
    own = ProxyAddress(node_id=proxy.settings.node_id, host=host, port=port)
    return Proxies.of(
        image,
        own,
        zone=zone_of(call.client_id) if call is not None and in_zone else None,
        listener=listener,
        lane=proxy.settings.lane,
    )


def controller_among(proxy: Proxy, proxies: Proxies) -> int:
    """The node that clients send to what is the controller's: this one, where they are told of it; -1: there is
    none.
    """
    own = proxy.settings.node_id
    return own if own in proxies.by_id else next(iter(proxies.by_id), -1)


def stands_for(proxy: Proxy, proxies: Proxies, tp: TopicPartition) -> bool:
    """Whether clients are told that the partition is here. What each proxy is asked for its share of, nobody counts
    twice.
    """
    meta = proxy.image.partition(tp)
    standing = proxies.standing_for(tp, owner=-1 if meta is None else meta.node_id)
    return standing is not None and standing.node_id == proxy.settings.node_id


def name_topic(image: Image, asked: Any, *, by_id: bool) -> bool:
    """Gives a topic of a request both its `name` and its `topic_id`; a name may be unknown (id None), for an unknown id
    it says False.
    """
    if by_id:
        topic = image.topics.get(TopicId(asked.topic_id)) if asked.topic_id is not None else None
        if topic is None:
            return False
        asked.name = topic.name
    else:
        asked.topic_id = image.topic_ids.get(asked.name)
    return True

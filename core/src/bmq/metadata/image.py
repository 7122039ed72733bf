"""The image: a node's copy of the cluster's metadata. A pure fold over the records; readers treat it as immutable.

`apply` returns a new Image that shares what did not change with the old one, so a reader keeps a consistent view without a lock.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from bmq.metadata.records import Range
from bmq.values import BrokerEpoch, LeaderEpoch, NodeId, StreamId, TopicId, TopicPartition


@dataclass(frozen=True, slots=True)
class PartitionMeta:
    """Who owns a partition. node_id -1: nobody."""

    node_id: NodeId = NodeId(-1)
    broker_epoch: BrokerEpoch = BrokerEpoch(-1)
    leader_epoch: LeaderEpoch = LeaderEpoch(0)
    ranges: tuple[Range, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """A topic; `configs` holds only what was set."""

    topic_id: TopicId
    name: str
    partitions: tuple[PartitionMeta, ...]
    configs: Mapping[str, str] = field(default_factory=dict)
    created_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A registered node."""

    node_id: NodeId
    broker_epoch: BrokerEpoch
    boot: UUID
    roles: tuple[str, ...]
    host: str
    port: int
    rack: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """Everything. `position` is the number of the newest metadata log entry that it covers, 0 before the first."""

    position: int = 0
    cluster_id: str = ""
    controller_epoch: int = 0
    controller_id: NodeId = NodeId(-1)
    nodes: Mapping[NodeId, Node] = field(default_factory=dict)
    topics: Mapping[TopicId, Topic] = field(default_factory=dict)
    topic_ids: Mapping[str, TopicId] = field(default_factory=dict)
    tombstones: Mapping[str, LeaderEpoch] = field(default_factory=dict)
    """Last leader epoch of deleted topics, by name."""
    sealed: Mapping[StreamId, int] = field(default_factory=dict)
    """Sealed streams whose data may still be needed, with their ends."""
    last_epochs: Mapping[NodeId, BrokerEpoch] = field(default_factory=dict)
    """The newest epoch ever given to a node id."""
    configs: Mapping[tuple[str, str], Mapping[str, str]] = field(default_factory=dict)
    """Of brokers and groups, by (kind, name)."""
    next_producer_id: int = 0
    features: Mapping[str, int] = field(default_factory=dict)

    def topic(self, name: str) -> Topic | None:
        """The topic of this name."""
        topic_id = self.topic_ids.get(name)
        return None if topic_id is None else self.topics[topic_id]

    def partition(self, tp: TopicPartition) -> PartitionMeta | None:
        """Who owns it; None where it does not exist."""
        topic = self.topics.get(tp.topic_id)
        if topic is None or not 0 <= tp.partition < len(topic.partitions):
            return None
        return topic.partitions[tp.partition]


def apply(image: Image, position: int, records: Sequence[object]) -> Image:
    """The image after the log entry `position`. Raises FormatTooNew for a record that it does not know."""
    raise NotImplementedError

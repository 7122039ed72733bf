"""From the image, and what the leader knows besides it, to the balancer's input. Pure."""

from collections import deque
from collections.abc import Collection, Iterable, Mapping
from math import inf
from typing import TypeVar

from bmq.config.topic_config import pool_of
from bmq.metadata.image import Image
from bmq.metadata.records import AnyRecord, PartitionChange
from bmq.values import NodeId, TopicId, TopicPartition
from bmq_controller.machine.balance_model import BrokerLoad, ClusterLoad, TopicLoad
from bmq_controller.machine.placement import living_brokers

_V = TypeVar("_V")
_NO_MOVES: Mapping[int, NodeId] = {}
_LONG_AGO: Mapping[int, int] = {}


def cluster_load(
    image: Image,
    loads: Mapping[TopicPartition, float],
    *,
    now_ms: int = 0,
    since_ms: Mapping[TopicPartition, int] | None = None,
    draining: Collection[NodeId] = (),
    stopping: Collection[NodeId] = (),
    balancing: frozenset[str] = frozenset(),
) -> ClusterLoad:
    """What `plan` plans from. Brokers that are being fenced are not there.

    `loads`: the bytes per second written to partitions, as their owners reported them; a partition that is not there
    takes none. `stopping` brokers hand everything over at once, soon: they keep what they have and get nothing.
    `since_ms`: when partitions that moved lately came to their owner, on the clock of `now_ms` (`RecentMoves`).
    """
    brokers = [
        BrokerLoad(
            node_id=node.node_id,
            rack=node.rack,
            cordoned=node.node_id in image.cordoned or node.node_id in stopping,
            draining=node.node_id in draining,
            pool=node.pool,
        )
        for node in living_brokers(image)
    ]
    moving = _by_topic(image.moving)
    since = _by_topic(since_ms or {})
    rates = _by_topic(loads)
    topics = []
    for topic in image.topics.values():
        bytes_per_s = [0] * len(topic.partitions)
        for index, rate in rates.get(topic.topic_id, {}).items():
            # What came over the wire may be of a partition that is gone, or no number at all.
            if 0 <= index < len(bytes_per_s) and 0 < rate < inf:
                bytes_per_s[index] = int(rate)
        topics.append(
            TopicLoad(
                topic_id=topic.topic_id,
                name=topic.name,
                owners=[meta.node_id for meta in topic.partitions],
                bytes_per_s=bytes_per_s,
                moving=moving.get(topic.topic_id, _NO_MOVES),
                since_ms=since.get(topic.topic_id, _LONG_AGO),
                pool=pool_of(topic.configs),
            )
        )
    return ClusterLoad(brokers=brokers, topics=topics, now_ms=now_ms, balancing=balancing)


class RecentMoves:
    """Which partitions came to their owner within the last while. Held by the leader beside the image; a new leader
    starts with none.
    """

    def __init__(self, *, remember_ms: int) -> None:
        """`remember_ms` is `BalanceSettings.rest_ms`. The clock of `now_ms` must not go back: the event loop's."""
        self._remember_ms = remember_ms
        self._since_ms: dict[TopicPartition, int] = {}
        self._order: deque[tuple[int, TopicPartition]] = deque()

    def committed(self, records: Iterable[AnyRecord], now_ms: int) -> None:
        """To be called with the records of every entry that the leader commits."""
        for record in records:
            if isinstance(record, PartitionChange):
                tp = TopicPartition(TopicId(record.topic_id), record.partition)
                self._since_ms[tp] = now_ms
                self._order.append((now_ms, tp))

    def since_ms(self, now_ms: int) -> Mapping[TopicPartition, int]:
        """For `cluster_load`; what is older than `remember_ms` is forgotten."""
        while self._order and self._order[0][0] < now_ms - self._remember_ms:
            then_ms, tp = self._order.popleft()
            if self._since_ms.get(tp) == then_ms:
                del self._since_ms[tp]
        return self._since_ms


def _by_topic(values: Mapping[TopicPartition, _V]) -> dict[TopicId, dict[int, _V]]:
    found: dict[TopicId, dict[int, _V]] = {}
    for (topic_id, index), value in values.items():
        partitions = found.get(topic_id)
        if partitions is None:
            partitions = found[topic_id] = {}
        partitions[index] = value
    return found

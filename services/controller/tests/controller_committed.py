"""A cluster's metadata without a store: decisions of the machine, committed to an image one after the other, checked at
each step.
"""

from collections.abc import Mapping
from uuid import UUID

from bmq.metadata.fold import apply
from bmq.metadata.image import Image, PartitionMeta
from bmq.metadata.invariants import check_step
from bmq.metadata.records import AnyRecord
from bmq.roles.controller import NewTopic, Registration
from bmq.values import BrokerEpoch, NodeId, TopicPartition
from bmq_controller.machine.limits import Limits
from bmq_controller.machine.nodes import consequences, register, stream_to_seal
from bmq_controller.machine.topics import create_topics


class Committed:
    """An image, and the records of every entry that led to it."""

    def __init__(
        self, *, brokers: int = 0, limits: Limits | None = None, cluster: Mapping[str, str] | None = None
    ) -> None:
        self.image = Image()
        self.entries: list[list[AnyRecord]] = []
        self.limits = limits or Limits()
        self.cluster = cluster or {}
        self._ids = 0
        for node_id in range(1, brokers + 1):
            self.register(node_id)

    def commit(self, records: tuple[AnyRecord, ...]) -> None:
        position = self.image.position + 1
        then = apply(self.image, position, records)
        following = consequences(then)
        then = apply(then, position, following)
        check_step(self.image, then)
        self.image = then
        self.entries.append([*records, *following])

    def new_id(self) -> UUID:
        self._ids += 1
        return UUID(int=self._ids)

    def create(self, *topics: NewTopic, validate_only: bool = False) -> list[object]:
        """The error of each topic, or its result."""
        decision = create_topics(
            self.image,
            5,
            topics,
            new_id=self.new_id,
            cluster=self.cluster,
            limits=self.limits,
            validate_only=validate_only,
        )
        self.commit(decision.records)
        return [result.error or result for result in decision.result]

    def register(
        self, node_id: int, *, boot: int = 1, end: int = 0, roles: tuple[str, ...] = ("broker",), pool: str = ""
    ) -> BrokerEpoch:
        wanted = Registration(node_id=NodeId(node_id), boot=UUID(int=boot), roles=roles, host="h", port=1, pool=pool)
        decision = register(self.image, wanted, sealed=stream_to_seal(self.image, wanted), end=end)
        self.commit(decision.records)
        assert decision.result is not None
        return decision.result

    def owners(self, name: str) -> list[int]:
        topic = self.image.topic(name)
        assert topic is not None
        return [meta.node_id for meta in topic.partitions]

    def tp(self, name: str, partition: int = 0) -> TopicPartition:
        return TopicPartition(self.image.topic_ids[name], partition)

    def partition(self, name: str, partition: int = 0) -> PartitionMeta:
        meta = self.image.partition(self.tp(name, partition))
        assert meta is not None
        return meta

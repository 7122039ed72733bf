"""The controller of a process that leads at times: whoever holds it calls the leader's part of this process, or is told
who leads.
"""

from collections.abc import Mapping, Sequence

from bmq.errors import BmqError, NoLeader
from bmq.roles.controller import (
    ConfigChange,
    ConfigResource,
    Heartbeat,
    HeartbeatReply,
    Metadata,
    NewTopic,
    Reassignment,
    Registration,
    TopicResult,
)
from bmq.roles.lane_turns import LaneLease, NextTurn, Unconsumed
from bmq.values import BrokerEpoch, NodeId, TopicId, TopicPartition
from bmq_controller.controller import LeadingController


class CurrentController:
    """`bmq.roles.controller.Controller`, `BrokerControl`, `ClusterControl` and `MetadataSource`: NoLeader where another
    one leads.
    """

    def __init__(self, metadata: Metadata, *, node_id: NodeId) -> None:
        self._metadata = metadata
        self._node_id = node_id
        self._leading: LeadingController | None = None

    @property
    def leading(self) -> LeadingController | None:
        """The leader's part, while this process leads as far as it knows."""
        return self._leading

    def leads(self, controller: LeadingController | None) -> None:
        """This process leads from now on, or no more."""
        self._leading = controller

    def _leader(self) -> LeadingController:
        if self._leading is None:
            image = self._metadata.image
            where = (
                f"node {image.controller_id} at {image.controller_host}:{image.controller_port}"
                if image.controller_host
                else "nobody"
            )
            raise NoLeader(f"This controller, node {self._node_id}, does not lead; as far as it knows {where} does")
        return self._leading

    async def create_topics(self, topics: Sequence[NewTopic], *, validate_only: bool = False) -> list[TopicResult]:
        """Has this process's leader create topics, or say what would come of it."""
        return await self._leader().create_topics(topics, validate_only=validate_only)

    async def delete_topics(self, topics: Sequence[TopicId]) -> list[TopicResult]:
        """Has this process's leader delete topics."""
        return await self._leader().delete_topics(topics)

    async def create_partitions(
        self, topic: str, total: int, *, assignments: Sequence[Sequence[int]] | None = None, validate_only: bool = False
    ) -> TopicResult:
        """Has this process's leader grow a topic to `total` partitions. Raises RequestError."""
        return await self._leader().create_partitions(
            topic, total, assignments=assignments, validate_only=validate_only
        )

    async def alter_configs(
        self, resource: ConfigResource, changes: Sequence[ConfigChange], *, validate_only: bool = False
    ) -> None:
        """Has this process's leader change keys of a resource's configuration. Raises RequestError."""
        await self._leader().alter_configs(resource, changes, validate_only=validate_only)

    async def replace_configs(
        self, resource: ConfigResource, configs: Mapping[str, str | None], *, validate_only: bool = False
    ) -> None:
        """Has this process's leader replace a resource's configuration. Raises RequestError."""
        await self._leader().replace_configs(resource, configs, validate_only=validate_only)

    async def allocate_producer_ids(self, count: int) -> range:
        """Has this process's leader give producer ids that were never given before."""
        return await self._leader().allocate_producer_ids(count)

    async def reassign(self, changes: Sequence[Reassignment]) -> list[BmqError | None]:
        """Has this process's leader begin planned moves, or take them back."""
        return await self._leader().reassign(changes)

    async def consumed(self, topic_ids: Sequence[TopicId]) -> LaneLease:
        """Has this process's leader know that somebody in a lane consumes topics of its."""
        return await self._leader().consumed(topic_ids)

    async def unconsumed(self, topic_ids: Sequence[TopicId]) -> list[Unconsumed | None]:
        """Has this process's leader say which topics of lanes nobody consumes."""
        return await self._leader().unconsumed(topic_ids)

    async def turned(self, turns: Sequence[NextTurn]) -> list[BmqError | None]:
        """Has this process's leader begin turns of lanes' messages."""
        return await self._leader().turned(turns)

    async def register(self, registration: Registration) -> BrokerEpoch:
        """Has this process's leader register a node that starts. Raises Fenced for a process that lost its node id to
        another one.
        """
        return await self._leader().register(registration)

    async def report_stopped(self, node_id: NodeId, broker_epoch: BrokerEpoch, end: int) -> None:
        """Has this process's leader take up that a node sealed its own stream at `end` and is gone."""
        await self._leader().report_stopped(node_id, broker_epoch, end)

    async def heartbeat(self, beat: Heartbeat) -> HeartbeatReply:
        """Has this process's leader renew a node's lease, and take up what the node reports."""
        return await self._leader().heartbeat(beat)

    async def move(self, tp: TopicPartition, to: NodeId) -> None:
        """Has this process's leader begin to move a partition to the broker `to`."""
        await self._leader().move(tp, to)

    async def drain(self, node_id: NodeId) -> None:
        """Has this process's leader cordon a node and begin to move all its partitions away."""
        await self._leader().drain(node_id)

    async def cordon(self, node_id: NodeId, cordoned: bool) -> None:
        """Has this process's leader give a node no new partitions, or do so again."""
        await self._leader().cordon(node_id, cordoned)

    async def metadata_poll(self, after_position: int, wait_ms: int) -> list[bytes]:
        """Has this process's leader tell the metadata log's entries above `after_position`."""
        return await self._leader().metadata_poll(after_position, wait_ms)

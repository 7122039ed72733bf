"""The controller as the other roles see it: each method is one decision of the machine, committed by the leader."""

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import partial

import structlog

from bmq.errors import ControllerUnavailable
from bmq.metadata.image import Image
from bmq.metadata.records import Range
from bmq.ports import Clock, ObjectStore, Rng
from bmq.roles.controller import ConfigChange, ConfigResource, Heartbeat, HeartbeatReply, NewTopic, Registration, TopicResult
from bmq.storage.stream import seal_stream
from bmq.values import BrokerEpoch, NodeId, StreamId, TopicId, TopicPartition
from bmq_controller.leader import ControllerLeader
from bmq_controller.machine import configs as config_machine
from bmq_controller.machine import nodes as node_machine
from bmq_controller.machine import topics as topic_machine
from bmq_controller.machine.producer_ids import allocate_producer_ids

REGISTRATION_TRIES_MAX = 10

_log = structlog.get_logger(__name__)


class LeadingController:
    """`bmq.roles.controller.Controller` and `BrokerControl`."""

    def __init__(self, leader: ControllerLeader, *, store: ObjectStore, clock: Clock, rng: Rng) -> None:
        self._leader = leader
        self._store = store
        self._clock = clock
        self._rng = rng
        self._limits = leader.settings.limits
        self._registering: defaultdict[NodeId, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def create_topics(self, topics: Sequence[NewTopic], *, validate_only: bool = False) -> list[TopicResult]:
        """See the protocol."""
        return await self._leader.operate(
            "create_topics",
            lambda image: topic_machine.create_topics(
                image,
                self._clock.now_ms(),
                topics,
                new_id=self._rng.uuid,
                cluster=self._cluster(image),
                limits=self._limits,
                validate_only=validate_only,
            ),
        )

    async def delete_topics(self, topics: Sequence[TopicId]) -> list[TopicResult]:
        """See the protocol."""
        return await self._leader.operate("delete_topics", lambda image: topic_machine.delete_topics(image, topics, cluster=self._cluster(image)))

    async def create_partitions(self, topic: str, total: int, *, manual_assignment: bool = False, validate_only: bool = False) -> TopicResult:
        """See the protocol. Raises RequestError."""
        return await self._leader.operate(
            "create_partitions",
            lambda image: topic_machine.create_partitions(
                image, topic, total, limits=self._limits, manual_assignment=manual_assignment, validate_only=validate_only
            ),
        )

    async def alter_configs(self, resource: ConfigResource, changes: Sequence[ConfigChange], *, validate_only: bool = False) -> None:
        """See the protocol. Raises RequestError."""
        await self._leader.operate(
            "alter_configs",
            lambda image: config_machine.alter_configs(image, resource, changes, cluster=self._cluster(image), validate_only=validate_only),
        )

    async def replace_configs(self, resource: ConfigResource, configs: Mapping[str, str | None], *, validate_only: bool = False) -> None:
        """See the protocol. Raises RequestError."""
        await self._leader.operate(
            "replace_configs", lambda image: config_machine.replace_configs(image, resource, configs, validate_only=validate_only)
        )

    async def allocate_producer_ids(self, count: int) -> range:
        """See the protocol."""
        return await self._leader.operate("allocate_producer_ids", lambda image: allocate_producer_ids(image, count))

    async def register(self, registration: Registration) -> BrokerEpoch:
        """See the protocol. Raises Fenced for a process that lost its node id to another one."""
        async with self._registering[registration.node_id]:
            for _ in range(REGISTRATION_TRIES_MAX):
                stream = node_machine.stream_to_seal(self._leader.image, registration)
                end = 0 if stream is None else await self._seal(stream)
                decide = partial(node_machine.register, registration=registration, sealed=stream, end=end)
                epoch = await self._leader.operate("register", decide)
                if epoch is not None:
                    _log.info("node registered", node_id=registration.node_id, broker_epoch=epoch, roles=registration.roles, sealed_end=end)
                    return epoch
        raise ControllerUnavailable(f"node {registration.node_id} is registered again and again from elsewhere: give each node its own id")

    async def report_covered(self, node_id: NodeId, broker_epoch: BrokerEpoch, covered: Sequence[tuple[TopicPartition, Sequence[Range]]]) -> None:
        """See the protocol."""
        await self._leader.operate("report_covered", lambda image: node_machine.report_covered(image, node_id, broker_epoch, covered))

    async def report_stopped(self, node_id: NodeId, broker_epoch: BrokerEpoch, end: int) -> None:
        """See the protocol."""
        await self._leader.operate("report_stopped", lambda image: node_machine.report_stopped(image, node_id, broker_epoch, end=end))
        _log.info("node stopped", node_id=node_id, broker_epoch=broker_epoch, sealed_end=end)

    async def heartbeat(self, beat: Heartbeat) -> HeartbeatReply:
        """See the protocol."""
        await self._leader.operate("heartbeat", lambda image: node_machine.heartbeat(image, beat))
        return HeartbeatReply(lease_ms=int(self._leader.settings.lease_s * 1000), position=self._leader.image.position)

    async def _seal(self, stream: StreamId) -> int:
        timeout_s = self._leader.settings.operation_timeout_s
        try:
            async with asyncio.timeout(timeout_s):
                return await seal_stream(self._store, stream, cluster_id=self._leader.image.cluster_id, rng=self._rng)
        except TimeoutError:
            raise ControllerUnavailable(
                f"the stream {stream.prefix} could not be sealed within {timeout_s:g} s: the object store is slow or down; look, and try again"
            ) from None

    def _cluster(self, image: Image) -> dict[str, str]:
        """The cluster's configuration that was set: while it runs before the command line's."""
        return {**self._leader.settings.cluster_configs, **image.configs.get(("broker", ""), {})}

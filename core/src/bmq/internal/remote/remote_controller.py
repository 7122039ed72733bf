"""The leading controller, wherever it is: `Controller`, `BrokerControl`, `ClusterControl` and `MetadataSource` of
bmq.roles.controller.

Owns the connections to whoever the image says leads, and changes them when it says somebody else does.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from bmq.errors import BmqError, ControllerUnavailable, NoLeader, NotOwner, NotReady, UnknownOutcome
from bmq.internal import limits
from bmq.internal.calls.admin_calls import ADMIN, ADMIN_TIMEOUT_S, decode_admin_reply
from bmq.internal.calls.controller_calls import (
    ALTER_CONFIGS,
    CORDON,
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_TOPICS,
    HEARTBEAT,
    HEARTBEAT_REPLY,
    LEASE,
    MOVE,
    NOTHING,
    NUMBER,
    NUMBERS,
    POLL,
    REASSIGN,
    REGISTER,
    REPLACE_CONFIGS,
    REPORT_STOPPED,
    TOPICS,
    TURNED,
    UNCONSUMED_REPLY,
    AlterConfigs,
    Cordon,
    CreatePartitions,
    CreateTopics,
    Move,
    Poll,
    ReplaceConfigs,
    ReportStopped,
    decode_entries,
    decode_refusals,
    decode_result,
    decode_results,
)
from bmq.internal.framing.apis import Api, Purpose
from bmq.internal.framing.failures import ConnectionLost, NotSent
from bmq.internal.framing.frames import Frame
from bmq.internal.framing.hello import Identity
from bmq.internal.framing.packing import Packed
from bmq.internal.links.client import InternalClient
from bmq.metadata.image import Image
from bmq.roles.admin import AdminReply, AdminRequest
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

T = TypeVar("T")

HEARTBEAT_TIMEOUT_S = 3.0
POLL_GRACE_S = 3.0
COMMIT_TIMEOUT_S = 30.0
TURN_TIMEOUT_S = 5.0
REGISTER_TIMEOUT_S = 60.0
"""A registration seals the stream of the node's earlier incarnation first."""


class _Leader(NamedTuple):
    node_id: NodeId
    host: str
    port: int


class RemoteController:
    """Calls go to whoever the image names as the leader at that moment. NoLeader where nobody is, or it was not
    reached: nothing was applied.

    ControllerUnavailable after a lost connection means that the change may have been made all the same: its text says
    so.
    """

    def __init__(self, metadata: Metadata, *, me: Identity) -> None:
        self._metadata = metadata
        self._me = me
        self._leader: _Leader | None = None
        self._clients: dict[Purpose, InternalClient] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._is_closed = False

    async def close(self) -> None:
        """Ends the connections; what was not answered fails."""
        self._is_closed = True
        self._drop_clients()
        await asyncio.gather(*self._closing)

    async def create_topics(self, topics: Sequence[NewTopic], *, validate_only: bool = False) -> list[TopicResult]:
        """Asks the leader to create topics, or with `validate_only` only whether it would."""
        return await self._ask(
            Api.CREATE_TOPICS, CREATE_TOPICS.encode(CreateTopics(list(topics), validate_only)), decode_results
        )

    async def delete_topics(self, topics: Sequence[TopicId]) -> list[TopicResult]:
        """Asks the leader to delete topics."""
        return await self._ask(Api.DELETE_TOPICS, DELETE_TOPICS.encode(list(topics)), decode_results)

    async def create_partitions(
        self, topic: str, total: int, *, assignments: Sequence[Sequence[int]] | None = None, validate_only: bool = False
    ) -> TopicResult:
        """Asks the leader to grow a topic to `total` partitions; `assignments` as in NewTopic, for the new ones."""
        call = CreatePartitions(
            topic,
            total,
            assignments is not None,
            validate_only,
            None if assignments is None else [list(node_ids) for node_ids in assignments],
        )
        return await self._ask(Api.CREATE_PARTITIONS, CREATE_PARTITIONS.encode(call), decode_result)

    async def alter_configs(
        self, resource: ConfigResource, changes: Sequence[ConfigChange], *, validate_only: bool = False
    ) -> None:
        """Asks the leader to change some keys of a resource's configuration. Raises RequestError."""
        await self._ask(
            Api.ALTER_CONFIGS,
            ALTER_CONFIGS.encode(AlterConfigs(resource, list(changes), validate_only)),
            _header(NOTHING),
        )

    async def replace_configs(
        self, resource: ConfigResource, configs: Mapping[str, str | None], *, validate_only: bool = False
    ) -> None:
        """Asks the leader to replace a resource's configuration: everything not named goes back to its default. Raises
        RequestError.
        """
        await self._ask(
            Api.REPLACE_CONFIGS,
            REPLACE_CONFIGS.encode(ReplaceConfigs(resource, dict(configs), validate_only)),
            _header(NOTHING),
        )

    async def allocate_producer_ids(self, count: int) -> range:
        """Asks the leader for `count` ids never given before."""
        return range(*await self._ask(Api.ALLOCATE_PRODUCER_IDS, NUMBER.encode(count), _header(NUMBERS)))

    async def reassign(self, changes: Sequence[Reassignment]) -> list[BmqError | None]:
        """Asks the leader to begin planned moves, or to take them back. For each in order: None (begun, or there
        already), or why not.
        """
        return await self._ask(Api.REASSIGN, REASSIGN.encode(list(changes)), decode_refusals)

    async def consumed(self, topic_ids: Sequence[TopicId]) -> LaneLease:
        """Tells the leader that somebody in a lane consumes these topics of its."""
        return await self._ask(Api.CONSUMED, TOPICS.encode(list(topic_ids)), _header(LEASE), timeout_s=TURN_TIMEOUT_S)

    async def unconsumed(self, topic_ids: Sequence[TopicId]) -> list[Unconsumed | None]:
        """Asks the leader which topics of lanes nobody consumes."""
        header = TOPICS.encode(list(topic_ids))
        return await self._ask(Api.UNCONSUMED, header, _header(UNCONSUMED_REPLY), timeout_s=TURN_TIMEOUT_S)

    async def turned(self, turns: Sequence[NextTurn]) -> list[BmqError | None]:
        """Asks the leader to begin turns of lanes' messages. For each in order: None, or why it does not begin."""
        return await self._ask(Api.TURNED, TURNED.encode(list(turns)), decode_refusals)

    async def register(self, registration: Registration) -> BrokerEpoch:
        """Asks the leader to seal the stream of the node's earlier incarnation and to give the new one its epoch, which
        is returned.
        """
        header = REGISTER.encode(registration)
        return BrokerEpoch(await self._ask(Api.REGISTER, header, _header(NUMBER), timeout_s=REGISTER_TIMEOUT_S))

    async def report_stopped(self, node_id: NodeId, broker_epoch: BrokerEpoch, end: int) -> None:
        """Tells the leader of a clean stop: the node sealed its own stream at `end` and is gone."""
        await self._ask(
            Api.REPORT_STOPPED, REPORT_STOPPED.encode(ReportStopped(node_id, broker_epoch, end)), _header(NOTHING)
        )

    async def heartbeat(self, beat: Heartbeat) -> HeartbeatReply:
        """Renews the lease at the leader, and reports what the beat carries. Raises Fenced, ControllerUnavailable."""
        return await self._ask(
            Api.HEARTBEAT, HEARTBEAT.encode(beat), _header(HEARTBEAT_REPLY), timeout_s=HEARTBEAT_TIMEOUT_S
        )

    async def move(self, tp: TopicPartition, to: NodeId) -> None:
        """Asks the leader to begin to move a partition; done once the image names the new owner. Raises UnknownTopic,
        InvalidRequest.
        """
        await self._ask(Api.MOVE, MOVE.encode(Move(tp.topic_id, tp.partition, to)), _header(NOTHING))

    async def drain(self, node_id: NodeId) -> None:
        """Asks the leader to cordon a node and to begin to move all its partitions away. Raises InvalidRequest."""
        await self._ask(Api.DRAIN, NUMBER.encode(node_id), _header(NOTHING))

    async def cordon(self, node_id: NodeId, cordoned: bool) -> None:
        """Asks the leader to give the node no new partitions, or to do so again. Idempotent."""
        await self._ask(Api.CORDON, CORDON.encode(Cordon(node_id, cordoned)), _header(NOTHING))

    async def admin(self, request: AdminRequest) -> AdminReply:
        """What the leader answers to a request of the admin API."""
        return await self._ask(Api.ADMIN, ADMIN.encode(request), decode_admin_reply, timeout_s=ADMIN_TIMEOUT_S)

    async def metadata_poll(self, after_position: int, wait_ms: int) -> list[bytes]:
        """Asks the leader for the metadata log's entries above `after_position`; it waits for one, not longer than
        `wait_ms`. Travels on a connection of its own, so that no heartbeat waits behind it. Raises
        ControllerUnavailable, NotReady.
        """
        client = self._client(Purpose.TAIL)
        header = POLL.encode(Poll(after_position, wait_ms))
        try:
            return await client.call(Api.METADATA_POLL, header, decode_entries, timeout_s=wait_ms / 1000 + POLL_GRACE_S)
        except (NotSent, ConnectionLost, NotOwner) as error:
            raise ControllerUnavailable(str(error)) from error

    async def _ask(
        self, api: Api, header: bytes, decode: Callable[[Frame], T], *, timeout_s: float = COMMIT_TIMEOUT_S
    ) -> T:
        call: Awaitable[T] = self._client(Purpose.CONTROL).call(api, header, decode, timeout_s=timeout_s)
        try:
            return await call
        except (NotSent, NotOwner) as error:
            raise NoLeader(str(error)) from error
        except (NotReady, UnknownOutcome) as error:
            raise ControllerUnavailable(str(error)) from error

    def _client(self, purpose: Purpose) -> InternalClient:
        """Raises NoLeader; ControllerUnavailable once it was closed."""
        image = self._metadata.image
        if self._is_closed:
            raise ControllerUnavailable("this node is stopping")
        if not image.controller_host:
            raise NoLeader(_nobody(image))
        leader = _Leader(image.controller_id, image.controller_host, image.controller_port)
        if leader != self._leader:
            self._drop_clients()
            self._leader = leader
        client = self._clients.get(purpose)
        if client is None:
            client = self._clients[purpose] = InternalClient(
                leader.host,
                leader.port,
                peer=leader.node_id,
                purpose=purpose,
                me=self._me,
                scratch=bytearray(limits.SMALL_BUFFER_BYTES),
            )
        return client

    def _drop_clients(self) -> None:
        """What is under way with the old leader fails now: it cannot commit any more."""
        clients, self._clients = self._clients, {}
        for client in clients.values():
            task = asyncio.get_running_loop().create_task(
                client.close(), name="close the connection to the old controller"
            )
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)


def _nobody(image: Image) -> str:
    """Why there is no address of a leader."""
    if image.controller_id < 0:
        return "no controller leads that this node knows of"
    return (
        f"node {image.controller_id} led last, by a `bmq up` of one process, which takes no other nodes: "
        "stop it and start a cluster over its store, by `bmq up --nodes` or by `bmq server` with a controller"
    )


def _header(reply: Packed[T]) -> Callable[[Frame], T]:
    def decode(frame: Frame) -> T:
        return reply.decode(frame.header)

    return decode

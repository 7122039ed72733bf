"""What the tests of bmq.internal share: a served node, an owner and a controller that keep what they were asked, both
kinds of loop.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

import uvloop
from typing_extensions import Buffer

from bmq.errors import BmqError, NoMoveUnderWay, NotReady
from bmq.fairness.turns import NOBODY, Party
from bmq.internal import Identity, InternalClient, InternalServer, Purpose
from bmq.internal.framing.routes import Handlers
from bmq.metadata.feed import MetadataFeed
from bmq.metadata.image import Image
from bmq.roles.controller import (
    ConfigChange,
    ConfigResource,
    Heartbeat,
    HeartbeatReply,
    NewTopic,
    Reassignment,
    Registration,
    TopicResult,
)
from bmq.roles.owner import (
    Appended,
    Caller,
    EpochEnd,
    OffsetForTime,
    PartitionStatus,
    Position,
    TailAnswer,
    TailRequest,
    TailRoom,
    Unread,
    let_go,
)
from bmq.values import BrokerEpoch, LeaderEpoch, NodeId, Offset, TopicId, TopicPartition
from bmq_sim.loop import run as run_in_virtual_time

CLUSTER = "uKQKcMhZTbqOPHpHLNzwHw"
CLIENT = Identity(cluster_id=CLUSTER, node_id=NodeId(1))
SERVER = Identity(cluster_id=CLUSTER, node_id=NodeId(7))
TOPIC = TopicId(UUID("0192b5a4-2f6e-7d3c-8c5b-5a1f9c0e7d11"))

Runner = Callable[[Coroutine[Any, Any, Any]], Any]
RUNNERS: Sequence[Runner] = (asyncio.run, uvloop.run, run_in_virtual_time)
"""Loopback sockets in real time, by asyncio's loop and by the one that servers run on, and the simulator's network in
virtual time."""
RUNNER_IDS = ("asyncio", "uvloop", "simulated")


def tp(partition: int) -> TopicPartition:
    return TopicPartition(TOPIC, partition)


@asynccontextmanager
async def serving(
    handlers: Handlers, *, me: Identity = SERVER, port: int = 0, grace_s: float = 0.2, **settings: Any
) -> AsyncIterator[tuple[InternalServer, str, int]]:
    """A started server and where it listens."""
    server = InternalServer(handlers, me, **settings)
    host, port = await server.start("127.0.0.1", port)
    try:
        yield server, host, port
    finally:
        await server.stop(grace_s=grace_s)


@asynccontextmanager
async def calling(
    host: str, port: int, purpose: Purpose, *, me: Identity = CLIENT, peer: NodeId = SERVER.node_id
) -> AsyncIterator[InternalClient]:
    """A client, closed in the end."""
    client = InternalClient(host, port, peer=peer, purpose=purpose, me=me)
    try:
        yield client
    finally:
        await client.close()


class MemoryOwner:
    """Implements Owner over lists: batches get offsets in the order of their coming.

    `refuse` is raised by every call while it is set; so many next appends as `appends_refused` says are refused.
    """

    def __init__(self) -> None:
        self.batches: dict[TopicPartition, list[bytes]] = {}
        self.refuse: BmqError | None = None
        self.appends_refused = 0
        self.appends_error: BmqError = NotReady("buffers are full")
        self.hold = False
        self.held: list[tuple[asyncio.Future[Appended], Appended]] = []
        self.asked: list[tuple[Any, ...]] = []
        self.parties: list[Party] = []
        """Whose the appends and the reads of tails were."""
        self.answers: list[TailAnswer] = []
        self.hold_reads: asyncio.Event | None = None
        self.hold_calls: asyncio.Event | None = None
        self.reply: Any = None

    def append(
        self, tp: TopicPartition, records: Buffer, *, produce_version: int, party: Party = NOBODY
    ) -> "asyncio.Future[Appended]":
        future: asyncio.Future[Appended] = asyncio.get_running_loop().create_future()
        self.parties.append(party)
        if self.refuse is not None:
            future.set_exception(self.refuse)
            return future
        if self.appends_refused:
            self.appends_refused -= 1
            future.set_exception(self.appends_error)
            return future
        taken = self.batches.setdefault(tp, [])
        answer = Appended(base_offset=Offset(len(taken)), log_append_time_ms=produce_version, log_start=Offset(0))
        taken.append(bytes(records))
        if self.hold:
            self.held.append((future, answer))
        else:
            future.set_result(answer)
        return future

    def is_open(self, tp: TopicPartition) -> bool:
        return True

    def release(self) -> None:
        """Everything held is durable."""
        held, self.held = self.held, []
        for future, answer in held:
            if not future.done():
                future.set_result(answer)

    async def read_tail(
        self,
        requests: Sequence[TailRequest],
        *,
        min_bytes: int,
        max_bytes: int,
        max_wait_ms: int,
        room: TailRoom | None = None,
        party: Party = NOBODY,
    ) -> list[TailAnswer]:
        self.asked.append((list(requests), min_bytes, max_bytes, max_wait_ms))
        self.parties.append(party)
        self._check()
        if self.hold_reads is not None:
            await self.hold_reads.wait()
        return self.answers

    async def offset_for_time(
        self,
        tp: TopicPartition,
        timestamp_ms: int,
        *,
        current_leader_epoch: int = -1,
        committed: bool = False,
        address: str = "",
    ) -> OffsetForTime:
        self.asked.append((tp, timestamp_ms, current_leader_epoch, committed, address))
        self._check()
        return OffsetForTime(offset=Offset(5), timestamp_ms=timestamp_ms, leader_epoch=LeaderEpoch(2))

    async def epoch_end(self, tp: TopicPartition, leader_epoch: int, *, current_leader_epoch: int = -1) -> EpochEnd:
        self.asked.append((tp, leader_epoch, current_leader_epoch))
        self._check()
        return EpochEnd(leader_epoch=LeaderEpoch(leader_epoch), end_offset=Offset(77))

    async def delete_records(self, tp: TopicPartition, before: Offset) -> Offset:
        self.asked.append((tp, before))
        self._check()
        return before

    async def status(self, tps: Sequence[TopicPartition]) -> list[PartitionStatus]:
        self.asked.append((list(tps),))
        self._check()
        return [
            PartitionStatus(
                tp=one, log_start=Offset(1), high_watermark=Offset(2), tail_bytes=3, segment_bytes=4, segment_count=5
            )
            for one in tps
        ]

    async def unread(self, positions: Sequence[Position]) -> list[Unread | None]:
        self.asked.append((list(positions),))
        self._check()
        return [Unread(records=3, seconds=0.5) if one.tp.partition else None for one in positions]

    async def group_call(self, partition: int, api_key: int, request: Any, caller: Caller) -> Any:
        self.asked.append((partition, api_key, request, caller))
        self._check()
        if self.hold_calls is not None:
            let_go(api_key, request)
            await self.hold_calls.wait()
        return self.reply

    def _check(self) -> None:
        if self.refuse is not None:
            raise self.refuse


class MemoryController:
    """Implements Controller, BrokerControl, ClusterControl and MetadataSource: keeps what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []
        self.refuse: BmqError | None = None
        self.results: list[TopicResult] = []
        self.entries: list[bytes] = []

    def _note(self, *asked: Any) -> None:
        self.asked.append(asked)
        if self.refuse is not None:
            raise self.refuse

    async def create_topics(self, topics: Sequence[NewTopic], *, validate_only: bool = False) -> list[TopicResult]:
        self._note("create_topics", list(topics), validate_only)
        return self.results

    async def delete_topics(self, topics: Sequence[TopicId]) -> list[TopicResult]:
        self._note("delete_topics", list(topics))
        return self.results

    async def create_partitions(
        self, topic: str, total: int, *, assignments: Sequence[Sequence[int]] | None = None, validate_only: bool = False
    ) -> TopicResult:
        self._note("create_partitions", topic, total, assignments, validate_only)
        return self.results[0]

    async def alter_configs(
        self, resource: ConfigResource, changes: Sequence[ConfigChange], *, validate_only: bool = False
    ) -> None:
        self._note("alter_configs", resource, list(changes), validate_only)

    async def replace_configs(
        self, resource: ConfigResource, configs: Mapping[str, str | None], *, validate_only: bool = False
    ) -> None:
        self._note("replace_configs", resource, dict(configs), validate_only)

    async def allocate_producer_ids(self, count: int) -> range:
        self._note("allocate_producer_ids", count)
        return range(1000, 1000 + count)

    async def reassign(self, changes: Sequence[Reassignment]) -> list[BmqError | None]:
        self._note("reassign", list(changes))
        return [NoMoveUnderWay("nothing to take back") if change.to is None else None for change in changes]

    async def register(self, registration: Registration) -> BrokerEpoch:
        self._note("register", registration)
        return BrokerEpoch(9)

    async def report_stopped(self, node_id: NodeId, broker_epoch: BrokerEpoch, end: int) -> None:
        self._note("report_stopped", node_id, broker_epoch, end)

    async def heartbeat(self, beat: Heartbeat) -> HeartbeatReply:
        self._note("heartbeat", beat)
        return HeartbeatReply(lease_ms=6000, position=12)

    async def move(self, tp: TopicPartition, to: NodeId) -> None:
        self._note("move", tp, to)

    async def drain(self, node_id: NodeId) -> None:
        self._note("drain", node_id)

    async def cordon(self, node_id: NodeId, cordoned: bool) -> None:
        self._note("cordon", node_id, cordoned)

    async def metadata_poll(self, after_position: int, wait_ms: int) -> list[bytes]:
        self._note("metadata_poll", after_position, wait_ms)
        return self.entries


def led_by(host: str, port: int, *, node_id: NodeId = SERVER.node_id, position: int = 1) -> Image:
    """An image that says who leads."""
    return Image(
        position=position, cluster_id=CLUSTER, controller_id=node_id, controller_host=host, controller_port=port
    )


def feed_of(image: Image) -> MetadataFeed:
    return MetadataFeed(image)

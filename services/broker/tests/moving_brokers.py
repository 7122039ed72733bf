"""Several brokers over one simulated store, under a controller whose decisions the test makes: real brokers, in virtual
time.
"""

import asyncio
from collections.abc import Callable, Mapping

from broker_under_test import records_of
from tests.waiting import until_async

from bmq.clocks.clock_guard import ClockGuard
from bmq.errors import BmqError, ControllerUnavailable, Fenced, NotOwner, NotReady
from bmq.metadata.codec import LOG_PREFIX
from bmq.metadata.feed import MetadataFeed
from bmq.metadata.fold import apply
from bmq.metadata.image import Image, PartitionMeta
from bmq.metadata.invariants import check_step
from bmq.metadata.records import (
    AnyRecord,
    ClusterCreated,
    FencingBegun,
    NodeRegistered,
    NodeUnregistered,
    PartitionChange,
    PartitionMoveBegun,
    Range,
    RangesCovered,
    StreamCollected,
    StreamDropped,
    StreamSealed,
    TopicCreated,
    TopicDeleted,
)
from bmq.ports import ObjectStore
from bmq.roles.controller import ClosedPartition, Heartbeat, HeartbeatReply, Registration
from bmq.roles.owner import Appended, TailAnswer, TailRequest
from bmq.storage.numbered import numbered_key
from bmq.storage.stream import drop_stream, seal_stream
from bmq.values import BrokerEpoch, LeaderEpoch, NodeId, Offset, StreamId, TopicId, TopicPartition
from bmq.wire.batches import Record, build_batch
from bmq_broker.coordinators.groups.settings import GroupSettings
from bmq_broker.main import BrokerRole
from bmq_broker.settings import BrokerSettings
from bmq_sim.clock import SimClock, SimRng
from bmq_sim.store import SimStore

CLUSTER_ID = "scripted"
NOBODY = (NodeId(-1), BrokerEpoch(-1))


class ScriptedController:
    """BrokerControl: registers and fences as the real one does; moves are begun by the test and finished when the owner
    reports.
    """

    def __init__(self, store: ObjectStore, rng: SimRng, *, entered: Callable[[int], None]) -> None:
        """`entered` hears of each entry of the metadata log before anybody has it in an image, but for the first: a
        real one may begin there.
        """
        self._store = store
        self._entered: Callable[[int], None] = lambda _: None
        self._rng = rng
        self._lock = asyncio.Lock()
        self._collecting: list[asyncio.Task[None]] = []
        self.image = Image()
        self.lag_s: Callable[[], float] = lambda: 0.0
        """How long a node's image is behind this time."""
        self._feeds: dict[int, MetadataFeed] = {}
        self.beats: list[Heartbeat] = []
        self.reachable = True
        self.finishes_moves = True
        self.commit(ClusterCreated(cluster_id=CLUSTER_ID))
        self._entered = entered

    async def register(self, registration: Registration) -> BrokerEpoch:
        self._check_reachable()
        async with self._lock:
            node_id = registration.node_id
            if registration.boot in self.image.past_boots.get(node_id, ()):
                raise Fenced(f"node {node_id} is another process's now")
            left, end = await self._seal(node_id)
            epoch = BrokerEpoch(self.image.last_epochs.get(node_id, 0) + 1)
            sealed = [] if left is None else [StreamSealed(node_id=node_id, broker_epoch=left.broker_epoch, end=end)]
            self.commit(
                *sealed,
                NodeRegistered(
                    node_id=node_id,
                    broker_epoch=epoch,
                    boot=registration.boot,
                    roles=registration.roles,
                    host="localhost",
                    port=9092,
                ),
                *self._handed_over(left, end, (node_id, epoch)),
                *self._handed_over(StreamId(*NOBODY), 0, (node_id, epoch)),
            )
            return epoch

    async def heartbeat(self, beat: Heartbeat) -> HeartbeatReply:
        self._check_reachable()
        self.beats.append(beat)
        node = self.image.nodes.get(beat.node_id)
        if node is None or node.broker_epoch != beat.broker_epoch or beat.node_id in self.image.fencing:
            raise Fenced(f"node {beat.node_id} of epoch {beat.broker_epoch} is not registered any more")
        stream = StreamId(beat.node_id, beat.broker_epoch)
        records: list[AnyRecord] = []
        for tp, ranges in beat.covered:
            meta = self.image.partition(tp)
            if (
                meta is not None
                and (meta.node_id, meta.broker_epoch) == stream
                and (known := tuple(set(ranges) & set(meta.ranges)))
            ):
                records.append(RangesCovered(topic_id=tp.topic_id, partition=tp.partition, ranges=known))
        self.commit(*records)
        if self.finishes_moves:
            self.commit(*(change for closed in beat.closed if (change := self._finished(stream, closed)) is not None))
        return HeartbeatReply(lease_ms=6000, position=self.image.position)

    async def report_stopped(self, node_id: NodeId, broker_epoch: BrokerEpoch, end: int) -> None:
        self._check_reachable()
        self._unregister(StreamId(node_id, broker_epoch), end)

    def commit(self, *records: AnyRecord) -> None:
        """One entry, if there is anything in it."""
        if not records:
            return
        image = apply(self.image, self.image.position + 1, records)
        dropped = [stream for stream in image.sealed if stream not in image.range_counts]
        image = apply(
            image, image.position, [StreamDropped(node_id=node_id, broker_epoch=epoch) for node_id, epoch in dropped]
        )
        check_step(self.image, image)
        self.image = image
        self._entered(image.position)
        for feed in self._feeds.values():
            if lag_s := self.lag_s():
                # one that comes too late is passed over
                asyncio.get_running_loop().call_later(lag_s, feed.publish, image)
            else:
                feed.publish(image)
        for stream in dropped:
            self._collecting.append(asyncio.get_running_loop().create_task(self._collect(stream)))

    def create_topic(
        self, name: str, *, partitions: int, owner: int, configs: Mapping[str, str] | None = None
    ) -> list[TopicPartition]:
        """All of it is one broker's."""
        topic_id = TopicId(self._rng.uuid())
        node = self.image.nodes[NodeId(owner)]
        epoch = self.image.next_leader_epoch(name)
        self.commit(
            TopicCreated(
                topic_id=topic_id, name=name, partitions=partitions, leader_epoch=epoch, configs=dict(configs or {})
            ),
            *(
                PartitionChange(
                    topic_id=topic_id,
                    partition=index,
                    node_id=owner,
                    broker_epoch=node.broker_epoch,
                    leader_epoch=epoch + 1,
                )
                for index in range(partitions)
            ),
        )
        return [TopicPartition(topic_id, index) for index in range(partitions)]

    def delete_topic(self, topic_id: TopicId) -> None:
        topic = self.image.topics[topic_id]
        last = max(meta.leader_epoch for meta in topic.partitions)
        self.commit(TopicDeleted(topic_id=topic_id, name=topic.name, last_leader_epoch=last))

    def move(self, *tps: TopicPartition, to: int) -> None:
        """Begins to."""
        self.commit(*(PartitionMoveBegun(topic_id=tp.topic_id, partition=tp.partition, to_node_id=to) for tp in tps))

    def finish(self, closed: ClosedPartition, *, node: int) -> None:
        """As reported by `node`."""
        change = self._finished(self._stream_of(NodeId(node)), closed)
        assert change is not None
        self.commit(change)

    async def fence(self, node: int) -> None:
        """As after an expired lease: its partitions go to the broker with the lowest number, or to nobody."""
        async with self._lock:
            stream = self._stream_of(NodeId(node))
            self.commit(FencingBegun(node_id=stream.node_id, broker_epoch=stream.broker_epoch))
            _, end = await self._seal(stream.node_id)
            self._unregister(stream, end)

    def feed(self, node: int) -> MetadataFeed:
        """A node's image."""
        if node not in self._feeds:
            self._feeds[node] = MetadataFeed(self.image)
        return self._feeds[node]

    def meta(self, tp: TopicPartition) -> PartitionMeta:
        """What the image says of it."""
        meta = self.image.partition(tp)
        assert meta is not None
        return meta

    async def close(self) -> None:
        """Ends what it collects."""
        for task in self._collecting:
            task.cancel()
        await asyncio.gather(*self._collecting, return_exceptions=True)

    def _check_reachable(self) -> None:
        if not self.reachable:
            raise ControllerUnavailable("cut off")

    def _stream_of(self, node_id: NodeId) -> StreamId:
        return StreamId(node_id, self.image.nodes[node_id].broker_epoch)

    async def _seal(self, node_id: NodeId) -> tuple[StreamId | None, int]:
        if node_id not in self.image.nodes:
            return None, 0
        stream = self._stream_of(node_id)
        return stream, await seal_stream(self._store, stream, cluster_id=CLUSTER_ID, rng=self._rng)

    def _unregister(self, stream: StreamId, end: int) -> None:
        heirs = sorted(
            node_id for node_id in self.image.nodes if node_id != stream.node_id and node_id not in self.image.fencing
        )
        heir = self._stream_of(heirs[0]) if heirs else NOBODY
        self.commit(
            NodeUnregistered(node_id=stream.node_id, broker_epoch=stream.broker_epoch),
            StreamSealed(node_id=stream.node_id, broker_epoch=stream.broker_epoch, end=end),
            *self._handed_over(stream, end, heir),
        )

    def _handed_over(self, left: StreamId | None, end: int, heir: tuple[NodeId, BrokerEpoch]) -> list[PartitionChange]:
        return [
            _change(TopicPartition(topic.topic_id, index), meta, heir, end=end)
            for topic in self.image.topics.values()
            for index, meta in enumerate(topic.partitions)
            if (meta.node_id, meta.broker_epoch) == left
        ]

    def _finished(self, stream: StreamId, closed: ClosedPartition) -> PartitionChange | None:
        meta = self.image.partition(closed.tp)
        if meta is None or (meta.node_id, meta.broker_epoch, meta.leader_epoch) != (*stream, closed.leader_epoch):
            return None
        target = (
            meta.moving_to
            if meta.moving_to in self.image.nodes and meta.moving_to not in self.image.fencing
            else stream.node_id
        )
        return _change(closed.tp, meta, self._stream_of(target), end=closed.end, start=closed.start)

    async def _collect(self, stream: StreamId) -> None:
        await drop_stream(self._store, stream, rng=self._rng)
        self.commit(StreamCollected(node_id=stream.node_id, broker_epoch=stream.broker_epoch))


def _change(
    tp: TopicPartition, meta: PartitionMeta, heir: tuple[NodeId, BrokerEpoch], *, end: int, start: int = 0
) -> PartitionChange:
    own = (Range(meta.node_id, meta.broker_epoch, meta.leader_epoch, end, start),) if end else ()
    return PartitionChange(
        topic_id=tp.topic_id,
        partition=tp.partition,
        node_id=heir[0],
        broker_epoch=heir[1],
        leader_epoch=LeaderEpoch(meta.leader_epoch + 1),
        ranges=(*meta.ranges, *own),
    )


class Brokers:
    """Some brokers, by node id."""

    def __init__(self, store: SimStore | None = None, *, settings: BrokerSettings | None = None, seed: int = 0) -> None:
        self.store = store or SimStore()
        self.settings = settings or BrokerSettings()
        self.rng = SimRng(seed)
        self.clock = SimClock()
        self.controller = ScriptedController(self.store.for_node("controller"), self.rng, entered=self._enter)
        self.roles: dict[int, BrokerRole] = {}
        self.fenced: list[tuple[int, BmqError]] = []

    def _enter(self, position: int) -> None:
        """Of the metadata log that is there, not what is in it: nobody reads that here."""
        self.store.apply_create("controller", numbered_key(LOG_PREFIX, position), b"")

    async def start(self, *nodes: int) -> None:
        """New incarnations."""
        for node in nodes:
            role = await self.make(node)
            await role.start()
            self.roles[node] = role

    async def make(self, node: int) -> BrokerRole:
        """One that is not started."""
        store = self.store.for_node(f"node-{node}")
        guard = ClockGuard(store, self.clock, self.rng, node_id=NodeId(node))
        await guard.check()
        return BrokerRole(
            store=store,
            control=self.controller,
            metadata=self.controller.feed(node),
            registration=Registration(
                node_id=NodeId(node), boot=self.rng.uuid(), roles=("broker",), host="localhost", port=9092
            ),
            rng=self.rng,
            clock_guard=guard,
            settings=self.settings,
            group_settings=GroupSettings(),
            cluster_configs={},
            on_fenced=lambda error: self.fenced.append((node, error)),
        )

    async def stop(self) -> None:
        """All of them, at once as a crash would."""
        for role in self.roles.values():
            await role.kill()
        await self.controller.close()

    def owner(self, tp: TopicPartition) -> int:
        """The node that the image names."""
        return int(self.controller.meta(tp).node_id)

    def append(
        self, tp: TopicPartition, *values: bytes, node: int | None = None, **batch: int
    ) -> "asyncio.Future[Appended]":
        """Submits one batch to the owner, or to `node`."""
        role = self.roles[self.owner(tp) if node is None else node]
        records = [
            Record(offset=0, timestamp_ms=self.clock.now_ms(), key=None, value=value, headers=()) for value in values
        ]
        return role.owner.append(tp, build_batch(records, **batch), produce_version=9)  # type: ignore[arg-type]

    async def append_wherever(self, tp: TopicPartition, *values: bytes, **batch: int) -> Appended:
        """Follows the partition as a proxy does: what was certainly not applied is sent again."""
        return await until_async(
            lambda: self.append(tp, *values, **batch),
            f"an owner of {tp}",
            3_600,
            holds=lambda _: True,
            not_yet=(NotOwner, NotReady, KeyError),
            every_s=0.005,
        )

    async def tail(self, tp: TopicPartition, offset: int, *, node: int, max_wait_ms: int = 0) -> TailAnswer:
        """What `node` answers."""
        request = TailRequest(tp=tp, offset=Offset(offset), max_bytes=1 << 20)
        (answer,) = await self.roles[node].owner.read_tail(
            [request], min_bytes=1, max_bytes=1 << 20, max_wait_ms=max_wait_ms
        )
        return answer

    async def read_all(self, tp: TopicPartition) -> list[tuple[int, bytes]]:
        """(offset, value) of everything, from the owner."""
        return await records_of(self.roles[self.owner(tp)], tp)

    async def roll(self, tp: TopicPartition) -> None:
        """Everything durable into segments, at the owner."""
        role = self.roles[self.owner(tp)]
        partition = await role._ownership.open(tp)
        await role._roller.roll_to(partition, partition.high_watermark, "test")

    async def moved(self, *tps: TopicPartition, to: int) -> None:
        """Moves them and waits until the image names `to`."""
        self.controller.move(*tps, to=to)
        await self.until_owned(*tps, by=to)

    async def until_owned(self, *tps: TopicPartition, by: int) -> None:
        """Waits for the image."""
        await until_async(lambda: all(self.owner(tp) == by for tp in tps), f"all to be owned by {by}", 600)

    def wal_keys(self, node: int, epoch: int = 1) -> list[str]:
        """Of one incarnation's stream."""
        return self.store.keys(StreamId(NodeId(node), BrokerEpoch(epoch)).prefix)


def closed_of(brokers: Brokers, tp: TopicPartition) -> list[ClosedPartition]:
    """What heartbeats reported of it, oldest first."""
    return [closed for beat in brokers.controller.beats for closed in beat.closed if closed.tp == tp]


async def until_closed(brokers: Brokers, tp: TopicPartition, *, times: int = 1) -> ClosedPartition:
    await until_async(
        lambda: len({closed.leader_epoch for closed in closed_of(brokers, tp)}) >= times,
        f"{tp} to be closed {times} times",
        600,
    )
    return closed_of(brokers, tp)[-1]

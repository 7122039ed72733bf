"""The coordinators that this broker hosts: one per partition of `__consumer_offsets` that it owns."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import structlog

from bmq.clocks.clock_guard import ClockGuard
from bmq.clocks.in_time import in_time
from bmq.errors import BmqError, NotOwner, NotReady, ObjectMissing, UnknownTopic
from bmq.fairness.crowd import Crowd
from bmq.metadata.image import Image, PartitionMeta, Topic
from bmq.metadata.shared_map import differences
from bmq.naming.lanes import lane_group
from bmq.naming.names import CONSUMER_OFFSETS
from bmq.ports import Rng
from bmq.roles.controller import Metadata
from bmq.roles.lane_leases import LaneLeases
from bmq.roles.owner import Caller
from bmq.values import NO_NODE, NodeId, TopicId, TopicPartition
from bmq_broker.cluster_values import ClusterValues
from bmq_broker.coordinators.groups.lane_commits import LaneCommits
from bmq_broker.coordinators.groups.machine import Memory
from bmq_broker.coordinators.groups.service import GroupCoordinatorShard
from bmq_broker.coordinators.groups.turns import Turns
from bmq_broker.coordinators.log import PartitionLog
from bmq_broker.coordinators.snapshots import CoordinatorSnapshots
from bmq_broker.handlers.group_calls import handle_group_call
from bmq_broker.ownership.opening_turns import COORDINATORS
from bmq_broker.ownership.ownership import Ownership
from bmq_broker.partitions.partition import Partition
from bmq_broker.partitions.states import PartitionState
from bmq_broker.segments.manifests import Manifests
from bmq_broker.segments.reading import Segments
from bmq_broker.segments.roll_writing import PATIENCE_S, within
from bmq_broker.wal.commit import GroupCommit

log = structlog.get_logger()

_LOAD_PATIENCE_S = 3.0
_OPEN_PATIENCE_S = 10.0
"""What a coordinator's partition needs of the store to be opened is waited for so long: clients wait for no more than a
minute, some for less."""


def is_abandoned(image: Image, group_id: str) -> bool:
    """Whether the group's lane is gone. Not before the image knows the lane's number: a lane may be newer than an
    image.
    """
    found = lane_group(group_id)
    if found is None or found.number >= image.next_lane:
        return False
    lane = image.lanes.get(found.lane)
    return lane is None or lane.number != found.number


class _Names:
    """The newest image, as the coordinators look at it."""

    def __init__(self, metadata: Metadata) -> None:
        self._metadata = metadata

    def id_of(self, name: str) -> TopicId | None:
        return self._metadata.image.topic_ids.get(name)

    def name_of(self, topic_id: TopicId) -> str | None:
        topic = self._metadata.image.topics.get(topic_id)
        return None if topic is None else topic.name

    def partitions_of(self, topic_id: TopicId) -> int:
        topic = self._metadata.image.topics.get(topic_id)
        return 0 if topic is None else len(topic.partitions)


@dataclass(frozen=True, slots=True, eq=False)
class _Loading:
    """A coordinator that is being loaded, and who waits for it: thousands of members, where a broker died."""

    task: "asyncio.Task[None]"
    waiting: Crowd = field(default_factory=lambda: Crowd(patience_s=_LOAD_PATIENCE_S))


class Coordinators:
    """Loads a coordinator when it is first needed (or at the start), ends it when its partition leaves."""

    def __init__(
        self,
        *,
        node_id: NodeId,
        ownership: Ownership,
        metadata: Metadata,
        manifests: Manifests,
        commit: GroupCommit,
        segments: Segments,
        snapshots: CoordinatorSnapshots,
        clock: ClockGuard,
        rng: Rng,
        values: ClusterValues,
        verify_not_sealed: Callable[[], Awaitable[None]],
        expiry_allowed: Callable[[], bool],
        lane_leases: LaneLeases,
    ) -> None:
        self._node_id = node_id
        self._ownership = ownership
        self._metadata = metadata
        self._names = _Names(metadata)
        self._manifests = manifests
        self._commit = commit
        self._segments = segments
        self._snapshots = snapshots
        self._clock = clock
        self._rng = rng
        self._values = values
        self._memory = Memory()
        self._turns = Turns()
        self._verify_not_sealed = verify_not_sealed
        self._expiry_allowed = expiry_allowed
        self._lane_commits = LaneCommits(metadata, lane_leases)
        self._shards: dict[TopicPartition, GroupCoordinatorShard] = {}
        self._loading: dict[TopicPartition, _Loading] = {}
        self._background: set[asyncio.Task[None]] = set()
        self._closing: set[asyncio.Task[None]] = set()

    async def group_call(self, partition: int, api_key: int, request: Any, caller: Caller) -> Any:
        """The answer of the coordinator that lives in this partition of `__consumer_offsets`. A coordinator that is
        being loaded is waited for a moment: not every client asks again.
        """
        topic_id = self._metadata.image.topic_ids.get(CONSUMER_OFFSETS)
        if topic_id is None:
            raise UnknownTopic(f"{CONSUMER_OFFSETS} does not exist")
        shard = await self._shard(await self._open(TopicPartition(topic_id, partition)))
        return await handle_group_call(shard, api_key, request, caller)

    async def _open(self, tp: TopicPartition) -> Partition:
        partition = self._ownership.appending(tp)
        if partition is not None:
            return partition
        why = f"partition {tp.partition} of {CONSUMER_OFFSETS} was not opened within {_OPEN_PATIENCE_S:g} s"
        until_s = asyncio.get_running_loop().time() + _OPEN_PATIENCE_S
        return await in_time(until_s, lambda: self._ownership.open(tp, party=COORDINATORS), lambda: NotReady(why))

    async def load_all(self) -> None:
        """Loads every coordinator of this node, so that sessions expire and lag shows though nobody asks."""
        topic = self._metadata.image.topic(CONSUMER_OFFSETS)
        if topic is not None:
            await self._load_each(
                [
                    TopicPartition(topic.topic_id, index)
                    for index, meta in enumerate(topic.partitions)
                    if self._is_mine(meta)
                ]
            )

    async def _load_each(self, tps: Sequence[TopicPartition]) -> None:
        for tp in tps:
            try:
                await self._shard(await self._ownership.open(tp, party=COORDINATORS))
            except BmqError as error:
                log.warning("coordinator not loaded", partition=tp.partition, error=str(error))

    def _load_those_that_came(self, before: Topic | None, after: Topic | None) -> None:
        if before is None or after is None or before is after:
            return
        came = [
            TopicPartition(after.topic_id, index)
            for index, (was, meta) in enumerate(zip(before.partitions, after.partitions, strict=False))
            if self._is_mine(meta) and was.leader_epoch != meta.leader_epoch
        ]
        if came:
            task = asyncio.get_running_loop().create_task(self._load_each(came), name=f"load {len(came)} coordinators")
            self._background.add(task)
            task.add_done_callback(self._background.discard)

    def _is_mine(self, meta: PartitionMeta) -> bool:
        return meta.node_id == self._node_id and meta.moving_to == NO_NODE

    def group_offsets(self, at_once: int) -> Iterator[dict[tuple[str, str, int], int]]:
        """{(group, topic, partition): committed offset} of all groups here, so many at a time.

        Others may have their turn between two of them.
        """
        for shard in tuple(self._shards.values()):
            yield from shard.group_offsets(at_once)

    def group_states(self, at_once: int) -> Iterator[Counter[str]]:
        """How many of the groups here are in each state, by Kafka's names: of so many at a time, others may have their
        turn between two parts.
        """
        for shard in tuple(self._shards.values()):
            yield from shard.state_counts(at_once)

    def image_changed(self, old: Image, new: Image) -> None:
        """Deleted topics take their committed offsets along; coordinators that were elsewhere are loaded here before
        anybody asks.
        """
        if old.lanes.keys() - new.lanes.keys() or any(
            lane.number != old.lanes[name].number for name, lane in new.lanes.items() if name in old.lanes
        ):
            for shard in self._shards.values():
                shard.drop_abandoned()
        if old.configs is not new.configs:
            for shard in self._shards.values():
                shard.configure(self._values.groups)
        if old.topics is new.topics:
            return
        self._load_those_that_came(old.topic(CONSUMER_OFFSETS), new.topic(CONSUMER_OFFSETS))
        gone = [(topic_id, topic.name) for topic_id, topic in differences(old.topics, new.topics).gone]
        if gone:
            for shard in self._shards.values():
                shard.topics_deleted(gone)

    def partition_closed(self, partition: Partition) -> None:
        """Its coordinator ends, also one that is being loaded: if the partition comes back, nobody waits for that
        loading.
        """
        loading = self._loading.pop(partition.tp, None)
        if loading is not None:
            loading.task.cancel()
            self._closing.add(loading.task)
            loading.task.add_done_callback(self._closing.discard)
        shard = self._shards.pop(partition.tp, None)
        if shard is not None:
            self._close(shard)

    def end(self) -> None:
        """Whoever waits for one of them is told, and none is loaded any more."""
        for task in self._tasks():
            task.cancel()
        for shard in self._shards.values():
            self._close(shard)
        self._shards.clear()

    async def close(self) -> None:
        """Ends all of them."""
        self.end()
        await asyncio.gather(*self._tasks(), *self._closing, return_exceptions=True)

    def _tasks(self) -> "list[asyncio.Task[None]]":
        return [*(loading.task for loading in self._loading.values()), *self._background]

    async def _shard(self, partition: Partition) -> GroupCoordinatorShard:
        tp = partition.tp
        loop = asyncio.get_running_loop()
        until_s = loop.time() + _LOAD_PATIENCE_S
        while (loading := self._loading.get(tp)) is not None and loop.time() < until_s:
            await loading.waiting.wait()  # where it failed, another who waited may have begun the next one
        if partition.state is not PartitionState.APPENDING:
            raise NotOwner(f"partition {tp.partition} of {CONSUMER_OFFSETS} left this broker meanwhile")
        shard = self._shards.get(tp)
        if shard is not None and shard.failure is None:
            return shard
        if shard is not None:
            del self._shards[tp]
            self._close(shard)
        shard = GroupCoordinatorShard(
            PartitionLog(
                partition, commit=self._commit, segments=self._segments, snapshots=self._snapshots, clock=self._clock
            ),
            tp.partition,
            clock=self._clock,
            rng=self._rng,
            settings=self._values.groups,
            topics=self._names,
            fence_check=self._verify_not_sealed,
            expiry_allowed=self._expiry_allowed,
            is_abandoned=lambda group_id: is_abandoned(self._metadata.image, group_id),
            memory=self._memory,
            turns=self._turns,
            lane_commits=self._lane_commits,
            failed=lambda error: log.warning("group coordinator ended", partition=tp.partition, error=str(error)),
        )
        self._shards[tp] = shard
        loading = _Loading(loop.create_task(self._load(partition, shard), name=f"load coordinator {tp.partition}"))
        self._loading[tp] = loading
        loading.task.add_done_callback(lambda _: self._loaded(tp, loading))
        await loading.waiting.wait()
        return shard

    def _loaded(self, tp: TopicPartition, loading: "_Loading") -> None:
        """It is over, whatever came of it."""
        if self._loading.get(tp) is loading:
            del self._loading[tp]
        loading.waiting.wake()

    async def _load(self, partition: Partition, shard: GroupCoordinatorShard) -> None:
        """A coordinator that cannot be loaded is forgotten: whoever asks next loads it again."""
        tp = partition.tp
        loaded = False
        try:
            await shard.load()
            loaded = True
        except BmqError as error:
            log.warning("group coordinator not loaded", partition=tp.partition, error=str(error))
            if isinstance(error, ObjectMissing):  # an earlier owner may have merged it away
                await self._refresh(partition)
        except Exception as error:  # noqa: BLE001 - a bug: it is told to the loop, and the coordinator is not left half loaded
            asyncio.get_running_loop().call_exception_handler(
                {"message": f"group coordinator {tp.partition} not loaded", "exception": error}
            )
        finally:
            if not loaded and self._shards.get(tp) is shard:
                del self._shards[tp]
                self._close(shard)

    async def _refresh(self, partition: Partition) -> None:
        try:
            async with self._manifests.lock(partition.tp):
                await within(self._manifests.refresh(partition), PATIENCE_S)
        except BmqError as error:
            log.warning("manifest not read again", partition=str(partition.tp), error=str(error))

    def _close(self, shard: GroupCoordinatorShard) -> None:
        task = asyncio.get_running_loop().create_task(shard.close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

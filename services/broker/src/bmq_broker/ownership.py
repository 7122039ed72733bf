"""Which partitions this broker owns, from the image, and opening them: eagerly what recovery found, the others at their first request."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping

import structlog

from bmq.errors import BmqError, Fenced, NotOwner, NotReady, PartitionStopped, StoreError, UnknownTopic
from bmq.log_limit import RateLimited
from bmq.metadata.image import Image, PartitionMeta
from bmq.metadata.records import Range
from bmq.ports import Clock
from bmq.roles.controller import Metadata
from bmq.topic_config import TopicConfig, resolve
from bmq.values import BrokerEpoch, ManifestVersion, NodeId, TopicId, TopicPartition
from bmq_broker.manifests import Manifests
from bmq_broker.partitions.partition import Partition
from bmq_broker.partitions.states import PartitionEvent, PartitionState
from bmq_broker.partitions.tail import Run, TailTotal
from bmq_broker.recovery import Inheritance
from bmq_broker.settings import BrokerSettings

log = structlog.get_logger()

LOG_INTERVAL_S = 10.0
Ranges = Mapping[TopicPartition, tuple[Range, ...]]

CLUSTER_WIDE = ("broker", "")
"""Where the image keeps configurations of the whole cluster."""


class Ownership:
    """The open partitions of one broker incarnation."""

    def __init__(
        self,
        *,
        node_id: NodeId,
        epoch: BrokerEpoch,
        metadata: Metadata,
        manifests: Manifests,
        clock: Clock,
        settings: BrokerSettings,
        total: TailTotal,
        cluster_configs: Mapping[str, str],
        read_ranges: Callable[[Ranges], Awaitable[dict[TopicPartition, Inheritance]]],
    ) -> None:
        """`read_ranges` reads the streams of earlier owners, each once for all partitions."""
        self._node_id = node_id
        self._epoch = epoch
        self._metadata = metadata
        self._manifests = manifests
        self._clock = clock
        self._settings = settings
        self._total = total
        self._cluster_configs = cluster_configs
        self._read_ranges = read_ranges
        self._configs: dict[TopicId, TopicConfig] = {}
        self._inherited: dict[TopicPartition, Inheritance] = {}
        """What the streams held of partitions that are not open yet."""
        self._ranges_read: dict[TopicPartition, tuple[Range, ...]] = {}
        self._reading = asyncio.Lock()
        self._opening: dict[TopicPartition, asyncio.Task[Partition]] = {}
        self._waiting: dict[TopicPartition, deque[tuple[int, Callable[[Partition | BmqError], None]]]] = {}
        self._recovered = asyncio.Event()
        self._slots = asyncio.Semaphore(settings.open_concurrency)
        self._limit = RateLimited(interval_s=LOG_INTERVAL_S)
        self._ended: BmqError | None = None
        self.waiting_bytes = 0
        self.partitions: dict[TopicPartition, Partition] = {}
        """Those that may append."""
        self.closed: Callable[[Partition, list[Run], bool], None] = lambda *_: None
        """Called when a partition has left: with the runs that its tail held, and whether it was deleted."""
        self.inherited: Callable[[Partition], None] = lambda _: None
        """Called when a partition was opened whose manifest does not cover yet what earlier owners left in the WAL."""
        self.fenced: Callable[[BmqError], None] = lambda _: None
        """Called where the store shows that this broker was replaced."""
        self.held_nothing: Callable[[Ranges], None] = lambda _: None
        """Called with ranges that were read and held nothing of their partitions."""

    async def recover(self) -> int:
        """Reads what earlier owners left in the WAL and opens every partition that it held something of; returns how many.

        One that cannot be opened is stopped or tried again later; the others go on.
        """
        await self._inherit()
        self._recovered.set()
        tasks = [self._open_task(tp) for tp in self._inherited]
        await asyncio.gather(*tasks, return_exceptions=True)
        return len(tasks)

    def appending(self, tp: TopicPartition) -> Partition | None:
        """The partition if it is open, None where it has to be opened first. Raises UnknownTopic, NotOwner, Fenced."""
        self.check_alive()
        partition = self.partitions.get(tp)
        if partition is not None:
            return partition
        self._check_owned(tp)
        return None

    @property
    def alive(self) -> bool:
        """Whether this broker may still write."""
        return self._ended is None

    def check_alive(self) -> None:
        """Raises Fenced once another incarnation has taken over."""
        if self._ended is not None:
            raise self._ended.with_traceback(None)

    def when_open(self, tp: TopicPartition, size_bytes: int, then: Callable[[Partition | BmqError], None]) -> None:
        """Calls `then` with the partition, in the order of these calls, once it is open. Raises NotReady where too much waits already."""
        if self.waiting_bytes and self.waiting_bytes + size_bytes > self._settings.pending_bytes_max:
            raise NotReady(f"{self.waiting_bytes} bytes wait for partitions that are being opened")
        self._waiting.setdefault(tp, deque()).append((size_bytes, then))
        self.waiting_bytes += size_bytes
        self._open_task(tp)

    async def open(self, tp: TopicPartition) -> Partition:
        """The open partition. Raises UnknownTopic, NotOwner, NotReady, PartitionStopped, Fenced."""
        partition = self.appending(tp)
        if partition is not None:
            return partition
        task = self._open_task(tp)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if not task.cancelled():
                raise
            raise self._not_opened(tp) from None  # it was the opening that was cancelled, not who waits for it

    def unopened(self) -> list[TopicPartition]:
        """This broker's partitions that nobody has asked for since it began to own them."""
        return [
            tp
            for topic in self._metadata.image.topics.values()
            for index, meta in enumerate(topic.partitions)
            if self._is_owned(meta) and (tp := TopicPartition(topic.topic_id, index)) not in self.partitions
        ]

    def image_changed(self, old: Image, new: Image) -> None:
        """Takes up changed configurations and lets go of what is no longer this broker's."""
        defaults_changed = old.configs.get(CLUSTER_WIDE) != new.configs.get(CLUSTER_WIDE)
        if old.topics is new.topics and not defaults_changed:
            return
        for topic_id in list(self._configs):
            if defaults_changed or new.topics.get(topic_id) is not old.topics.get(topic_id):
                del self._configs[topic_id]
        for tp, partition in list(self.partitions.items()):
            topic = new.topics.get(tp.topic_id)
            if topic is None:
                self._close(partition, deleted=True)
                continue
            if old.topics.get(tp.topic_id) is topic and not defaults_changed:
                continue
            meta = topic.partitions[tp.partition]
            if (meta.node_id, meta.broker_epoch) != (self._node_id, self._epoch):
                self._close(partition, deleted=False)
                continue
            partition.config = self._config(new, tp)
            if partition.ranges and not meta.ranges:
                partition.ranges = ()
            elif partition.ranges:
                partition.ranges = meta.ranges
        for tp in [tp for tp in self._ranges_read if not self._is_owned(new.partition(tp))]:
            del self._ranges_read[tp]
            self._inherited.pop(tp, None)

    def end(self, error: BmqError) -> None:
        """The broker is fenced or stops: whoever waits is told."""
        self._ended = error
        for task in self._opening.values():
            task.cancel()
        for tp in list(self._waiting):
            self._serve_waiting(tp, error)

    async def close(self) -> None:
        """Ends what is being opened."""
        tasks = list(self._opening.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _check_owned(self, tp: TopicPartition) -> PartitionMeta:
        self.check_alive()
        meta = self._metadata.image.partition(tp)
        if meta is None:
            raise UnknownTopic(f"partition {tp} does not exist")
        if not self._is_owned(meta):
            raise NotOwner(
                f"partition {tp} belongs to node {meta.node_id} epoch {meta.broker_epoch}, this is node {self._node_id} epoch {self._epoch}"
            )
        return meta

    def _is_owned(self, meta: PartitionMeta | None) -> bool:
        return meta is not None and meta.node_id == self._node_id and meta.broker_epoch == self._epoch

    def _open_task(self, tp: TopicPartition) -> "asyncio.Task[Partition]":
        task = self._opening.get(tp)
        if task is None:
            task = asyncio.get_running_loop().create_task(self._open(tp), name=f"open {tp}")
            self._opening[tp] = task
            task.add_done_callback(lambda done: self._opened(tp, done))
        return task

    def _opened(self, tp: TopicPartition, task: "asyncio.Task[Partition]") -> None:
        self._opening.pop(tp, None)
        if task.cancelled():
            self._serve_waiting(tp, self._not_opened(tp))
            return
        error = task.exception()
        if error is None:
            self._serve_waiting(tp, task.result())
        elif isinstance(error, BmqError):
            if (left_out := self._limit.due(tp, now=asyncio.get_running_loop().time())) is not None:
                log.warning("partition is not open", partition=str(tp), error=str(error), left_out=left_out)
            self._serve_waiting(tp, error if not isinstance(error, StoreError) else NotReady(f"partition {tp} cannot be opened now: {error}"))
        else:
            self._serve_waiting(tp, NotReady(f"partition {tp} was not opened: {error!r}"))
            raise error

    def _not_opened(self, tp: TopicPartition) -> BmqError:
        return self._ended or NotReady(f"partition {tp} was not opened")

    def _serve_waiting(self, tp: TopicPartition, outcome: Partition | BmqError) -> None:
        for size_bytes, then in self._waiting.pop(tp, ()):
            self.waiting_bytes -= size_bytes
            then(outcome)

    async def _inherit(self) -> None:
        """Reads the ranges of this broker's partitions that were not read yet."""
        async with self._reading:
            unread = {}
            for topic in self._metadata.image.topics.values():
                for index, meta in enumerate(topic.partitions):
                    tp = TopicPartition(topic.topic_id, index)
                    if meta.ranges and self._is_owned(meta) and not self._has_read(tp, meta):
                        unread[tp] = meta.ranges
            if not unread:
                return
            found = await self._read_ranges(unread)
            self._inherited.update(found)
            self._ranges_read.update(unread)
            self.held_nothing({tp: ranges for tp, ranges in unread.items() if tp not in found})

    def _has_read(self, tp: TopicPartition, meta: PartitionMeta) -> bool:
        return set(meta.ranges) <= set(self._ranges_read.get(tp, ()))

    async def _open(self, tp: TopicPartition) -> Partition:
        await self._recovered.wait()  # before that, nobody knows what the streams hold of it
        meta = self._check_owned(tp)
        if not self._has_read(tp, meta):
            await self._inherit()
        async with self._slots:
            meta = self._check_owned(tp)
            if not self._has_read(tp, meta):
                raise NotReady(f"partition {tp} changed while it was being opened")
            partition = Partition(
                tp,
                leader_epoch=meta.leader_epoch,
                config=self._config(self._metadata.image, tp),
                ranges=meta.ranges,
                total=self._total,
            )
            try:
                await self._load(partition)
            except BaseException:
                partition.tail.drop()
                raise
            self._inherited.pop(tp, None)
            self.partitions[tp] = partition
            if not partition.covers_recovered():
                self.inherited(partition)
            self._serve_waiting(tp, partition)  # now: who comes next must not overtake them
            return partition

    async def _load(self, partition: Partition) -> None:
        """From the manifest and what was inherited to a partition that may append."""
        tp = partition.tp
        inheritance = self._inherited.get(tp, Inheritance())
        if inheritance.stopped is not None:
            raise inheritance.stopped
        partition.happen(PartitionEvent.START)
        manifest, entry, rolled = await self._manifests.load(tp, at_least=ManifestVersion(inheritance.manifest_version))
        if entry is not None and entry.epoch > partition.leader_epoch:
            error = Fenced(f"manifest {entry.number} of {tp} is of epoch {entry.epoch}, this broker owned it under {partition.leader_epoch}")
            self.fenced(error)
            raise error
        meta = self._check_owned(tp)
        if meta.leader_epoch != partition.leader_epoch:
            raise NotReady(f"partition {tp} changed while it was being opened")
        try:
            partition.opened(manifest, entry, rolled, inheritance.runs, now_ms=self._clock.now_ms())
        except PartitionStopped as stopped:
            self._inherited[tp] = Inheritance(stopped=stopped)
            raise
        partition.config = self._config(self._metadata.image, tp)
        partition.ranges = meta.ranges
        partition.happen(PartitionEvent.RECOVERED)

    def _close(self, partition: Partition, *, deleted: bool) -> None:
        """Lets go of a partition that was deleted or that the image gives to another."""
        del self.partitions[partition.tp]
        self._manifests.forget(partition.tp)
        self._ranges_read.pop(partition.tp, None)
        self.closed(partition, partition.leave(), deleted)

    def _config(self, image: Image, tp: TopicPartition) -> TopicConfig:
        config = self._configs.get(tp.topic_id)
        if config is None:
            config = resolve(image.topics[tp.topic_id].configs, {**self._cluster_configs, **image.configs.get(CLUSTER_WIDE, {})})
            self._configs[tp.topic_id] = config
        return config

    def is_open(self, tp: TopicPartition) -> bool:
        """Whether it may append."""
        partition = self.partitions.get(tp)
        return self._ended is None and partition is not None and partition.state is PartitionState.APPENDING

"""Which partitions this broker owns, from the image, and opening them: eagerly what recovery found, the others at their first request."""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping

import structlog

from bmq.errors import BmqError, Fenced, NotOwner, NotReady, PartitionStopped, StoreError, UnknownTopic
from bmq.metadata.image import Image
from bmq.metadata.records import Range
from bmq.ports import Clock
from bmq.roles.controller import Metadata
from bmq.topic_config import TopicConfig, resolve
from bmq.values import BrokerEpoch, ManifestVersion, NodeId, TopicId, TopicPartition
from bmq_broker.manifests import Manifests
from bmq_broker.partitions.partition import Partition
from bmq_broker.partitions.states import PartitionEvent, PartitionState
from bmq_broker.partitions.tail import TailTotal
from bmq_broker.recovery import Inheritance
from bmq_broker.settings import BrokerSettings

log = structlog.get_logger()

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
    ) -> None:
        self._node_id = node_id
        self._epoch = epoch
        self._metadata = metadata
        self._manifests = manifests
        self._clock = clock
        self._settings = settings
        self._total = total
        self._cluster_configs = cluster_configs
        self._configs: dict[TopicId, TopicConfig] = {}
        self._inherited: dict[TopicPartition, Inheritance] = {}
        self._opening: dict[TopicPartition, asyncio.Task[Partition]] = {}
        self._waiting: dict[TopicPartition, deque[tuple[int, Callable[[Partition | BmqError], None]]]] = {}
        self._recovered = asyncio.Event()
        self._slots = asyncio.Semaphore(settings.open_concurrency)
        self._ended: BmqError | None = None
        self.waiting_bytes = 0
        self.partitions: dict[TopicPartition, Partition] = {}
        """Those that may append."""
        self.closed: Callable[[Partition], None] = lambda _: None
        """Called when a partition has left."""
        self.opened: Callable[[Partition], None] = lambda _: None
        """Called when a partition may append."""

    def inherited_ranges(self) -> dict[TopicPartition, tuple[Range, ...]]:
        """The partitions that are this broker's by the image and name ranges."""
        found = {}
        for topic in self._metadata.image.topics.values():
            for index, meta in enumerate(topic.partitions):
                if meta.ranges and meta.node_id == self._node_id and meta.broker_epoch == self._epoch:
                    found[TopicPartition(topic.topic_id, index)] = meta.ranges
        return found

    async def recovered(self, found: dict[TopicPartition, Inheritance]) -> None:
        """Opens every partition that the streams held something of. One that cannot be opened is stopped; the others go on."""
        self._inherited = found
        self._recovered.set()
        for tp in list(found):
            self._open_task(tp)
        await asyncio.gather(*self._opening.values(), return_exceptions=True)

    def appending(self, tp: TopicPartition) -> Partition | None:
        """The partition if it is open, None where it has to be opened first. Raises UnknownTopic, NotOwner, Fenced."""
        self.check_alive()
        partition = self.partitions.get(tp)
        if partition is not None:
            return partition
        self._check_owned(tp)
        return None

    def check_alive(self) -> None:
        """Raises Fenced once another incarnation has taken over."""
        if self._ended is not None:
            raise self._ended

    def when_open(self, tp: TopicPartition, size_bytes: int, then: Callable[[Partition | BmqError], None]) -> None:
        """Calls `then` with the partition, in the order of these calls, once it is open. Raises NotReady where too much waits already."""
        if self.waiting_bytes + size_bytes > self._settings.pending_bytes_max:
            raise NotReady(f"{self.waiting_bytes} bytes wait for partitions that are being opened")
        self._waiting.setdefault(tp, deque()).append((size_bytes, then))
        self.waiting_bytes += size_bytes
        self._open_task(tp)

    async def open(self, tp: TopicPartition) -> Partition:
        """The open partition. Raises UnknownTopic, NotOwner, NotReady, PartitionStopped, Fenced."""
        partition = self.appending(tp)
        if partition is not None:
            return partition
        return await asyncio.shield(self._open_task(tp))

    def image_changed(self, old: Image, new: Image) -> None:
        """Takes up changed configurations and lets go of what is no longer this broker's."""
        defaults_changed = old.configs.get(CLUSTER_WIDE) != new.configs.get(CLUSTER_WIDE)
        for topic_id in list(self._configs):
            if defaults_changed or new.topics.get(topic_id) is not old.topics.get(topic_id):
                del self._configs[topic_id]
        for tp, partition in list(self.partitions.items()):
            topic = new.topics.get(tp.topic_id)
            if topic is None:
                self._close(partition)
                continue
            if old.topics.get(tp.topic_id) is topic and not defaults_changed:
                continue
            meta = topic.partitions[tp.partition]
            if (meta.node_id, meta.broker_epoch) != (self._node_id, self._epoch):
                self._close(partition)
                continue
            partition.config = self._config(new, tp)
            if partition.ranges and not meta.ranges:
                partition.ranges = ()
            elif partition.ranges:
                partition.ranges = meta.ranges

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

    def _check_owned(self, tp: TopicPartition) -> None:
        self.check_alive()
        meta = self._metadata.image.partition(tp)
        if meta is None:
            raise UnknownTopic(f"partition {tp} does not exist")
        if meta.node_id != self._node_id or meta.broker_epoch != self._epoch:
            raise NotOwner(
                f"partition {tp} belongs to node {meta.node_id} epoch {meta.broker_epoch}, this is node {self._node_id} epoch {self._epoch}"
            )

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
            self._serve_waiting(tp, self._ended or NotReady(f"partition {tp} was not opened"))
            return
        error = task.exception()
        if error is None:
            self._serve_waiting(tp, task.result())
        elif isinstance(error, BmqError):
            log.warning("partition is not open", partition=str(tp), error=str(error))
            self._serve_waiting(tp, error if not isinstance(error, StoreError) else NotReady(f"partition {tp} cannot be opened now: {error}"))
        else:
            self._serve_waiting(tp, NotReady(f"partition {tp} was not opened: {error!r}"))
            raise error

    def _serve_waiting(self, tp: TopicPartition, outcome: Partition | BmqError) -> None:
        for size_bytes, then in self._waiting.pop(tp, ()):
            self.waiting_bytes -= size_bytes
            then(outcome)

    async def _open(self, tp: TopicPartition) -> Partition:
        await self._recovered.wait()  # before that, nobody knows what the streams hold of it
        async with self._slots:
            self._check_owned(tp)
            image = self._metadata.image
            meta = image.partition(tp)
            assert meta is not None
            inheritance = self._inherited.get(tp, Inheritance())
            if inheritance.stopped is not None:
                raise inheritance.stopped
            partition = Partition(tp, leader_epoch=meta.leader_epoch, config=self._config(image, tp), ranges=meta.ranges, total=self._total)
            partition.happen(PartitionEvent.START)
            manifest, entry, rolled = await self._manifests.load(tp, at_least=ManifestVersion(inheritance.manifest_version))
            if entry is not None and entry.epoch > meta.leader_epoch:
                raise Fenced(f"manifest {entry.number} of {tp} is of epoch {entry.epoch}, this broker owned it under {meta.leader_epoch}")
            try:
                partition.opened(manifest, entry, rolled, inheritance.runs, now_ms=self._clock.now_ms())
            except PartitionStopped as stopped:
                inheritance.stopped = stopped
                self._inherited[tp] = inheritance
                raise
            self._check_owned(tp)
            partition.happen(PartitionEvent.RECOVERED)
            self._inherited.pop(tp, None)
            self.partitions[tp] = partition
            self.opened(partition)
            return partition

    def _close(self, partition: Partition) -> None:
        """Lets go of a partition that was deleted or that the image gives to another. What it had buffered fails with the buffer."""
        partition.happen(PartitionEvent.MOVED_AWAY)
        del self.partitions[partition.tp]
        self._manifests.forget(partition.tp)
        self.closed(partition)

    def _config(self, image: Image, tp: TopicPartition) -> TopicConfig:
        config = self._configs.get(tp.topic_id)
        if config is None:
            config = resolve(image.topics[tp.topic_id].configs, {**self._cluster_configs, **image.configs.get(CLUSTER_WIDE, {})})
            self._configs[tp.topic_id] = config
        return config

    def is_open(self, tp: TopicPartition) -> bool:
        """Whether it may append."""
        partition = self.partitions.get(tp)
        return partition is not None and partition.state is PartitionState.APPENDING

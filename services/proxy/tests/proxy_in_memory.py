"""A proxy over loopback with an owner, a controller and a store that live in memory: small, real, and stoppable at
every point.
"""

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

from tests.bare_client import AsyncBareClient

from bmq.config.cluster_config import PARTITIONS_PER_TOPIC_MAX
from bmq.errors import BmqError, InvalidPartitions, ObjectMissing, OffsetOutOfRange, TopicExists, UnknownTopic
from bmq.fairness.turns import NOBODY, Party
from bmq.metadata.image import Image, PartitionMeta, Topic
from bmq.ports import ObjectMeta
from bmq.roles.controller import ConfigChange, ConfigResource, NewTopic, Reassignment, TopicResult
from bmq.roles.lane_turns import LaneLease, NextTurn, Unconsumed
from bmq.roles.owner import (
    Appended,
    AppendedAlike,
    Caller,
    EpochEnd,
    OffsetForTime,
    PartitionStatus,
    Proved,
    TailAnswer,
    TailRequest,
    TailRoom,
)
from bmq.values import LeaderEpoch, ManifestVersion, NodeId, Nonce, Offset, TopicId, TopicPartition
from bmq.wire.batch_headers import patched, split
from bmq.wire.records import Record, build_batch
from bmq_proxy.main import ProxyRole, start_proxy
from bmq_proxy.settings import ProxySettings


class MemoryClock:
    """Stands still."""

    def now_ms(self) -> int:
        return 1_700_000_000_000


class CountingRng:
    """Unique, and the same in each run."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)

    def nonce(self) -> Nonce:
        return Nonce(next(self._numbers).to_bytes(16, "big"))

    def uuid(self) -> UUID:
        return UUID(int=next(self._numbers) << 64)

    def random(self) -> float:
        return (next(self._numbers) * 0.618033988749) % 1


class MemoryStore:
    """Objects in a dictionary; counts what is got."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.gets: list[tuple[str, int, int | None]] = []
        self.gate: asyncio.Event | None = None

    async def create(self, key: str, parts: Sequence[Any]) -> None:
        self.objects[key] = b"".join(parts)

    async def get(self, key: str, *, start: int = 0, length: int | None = None) -> bytes:
        self.gets.append((key, start, length))
        if self.gate is not None:
            await self.gate.wait()
        else:
            await asyncio.sleep(0)
        if key not in self.objects:
            raise ObjectMissing(key)
        return self.objects[key][start : None if length is None else start + length]

    async def list(self, prefix: str, *, after: str = "") -> AsyncIterator[ObjectMeta]:
        for key in sorted(self.objects):
            if key.startswith(prefix) and key > after:
                yield ObjectMeta(key=key, size_bytes=len(self.objects[key]), modified_ms=0)

    async def delete(self, key: str) -> None:
        self.objects.pop(key, None)

    async def head(self, key: str) -> ObjectMeta:
        return ObjectMeta(key=key, size_bytes=len(self.objects[key]), modified_ms=0)


class MemoryMetadata:
    """An image that tests change."""

    def __init__(self) -> None:
        self.image = Image(position=1, cluster_id="test-cluster", next_producer_id=5_000)
        self._subscribers: list[Callable[[Image, Image], None]] = []

    def subscribe(self, changed: Callable[[Image, Image], None]) -> Callable[[], None]:
        self._subscribers.append(changed)
        return lambda: self._subscribers.remove(changed)

    async def wait_for(self, position: int) -> Image:
        return self.image

    def change(self, **fields: Any) -> None:
        old = self.image
        self.image = replace(old, position=old.position + 1, **fields)
        for subscriber in list(self._subscribers):
            subscriber(old, self.image)

    def add_topic(self, name: str, partitions: int, configs: Mapping[str, str] | None = None) -> Topic:
        number = 1 + len(self.image.topics)
        topic = Topic(
            topic_id=TopicId(UUID(int=number << 64)),
            name=name,
            partitions=tuple(PartitionMeta(node_id=NodeId(1), leader_epoch=LeaderEpoch(3)) for _ in range(partitions)),
            configs=dict(configs or {}),
        )
        self.change(
            topics={**self.image.topics, topic.topic_id: topic},
            topic_ids={**self.image.topic_ids, name: topic.topic_id},
        )
        return topic

    def move(self, tp: TopicPartition, to: NodeId | None) -> None:
        """A move that has begun; None: it leads back to the owner."""
        topic = self.image.topics[tp.topic_id]
        metas = list(topic.partitions)
        moving_to = metas[tp.partition].node_id if to is None else to
        metas[tp.partition] = replace(metas[tp.partition], moving_to=moving_to)
        self.change(
            topics={**self.image.topics, tp.topic_id: replace(topic, partitions=tuple(metas))},
            moving={**self.image.moving, tp: moving_to},
        )


class MemoryController:
    """Changes the image at once; `error` refuses everything."""

    def __init__(self, metadata: MemoryMetadata) -> None:
        self.metadata = metadata
        self.error: BmqError | None = None
        self.allocated = 10_000
        self.calls: list[tuple[Any, ...]] = []
        self.refusals: dict[TopicPartition, BmqError] = {}
        """Moves that are refused."""

    async def consumed(self, topic_ids: Sequence[TopicId]) -> LaneLease:
        self.calls.append(("consumed", *topic_ids))
        if self.error is not None:
            raise self.error
        return LaneLease(lease_ms=10_000, position=self.metadata.image.position)

    async def unconsumed(self, topic_ids: Sequence[TopicId]) -> list[Unconsumed | None]:
        return [None for _ in topic_ids]

    async def turned(self, turns: Sequence[NextTurn]) -> list[BmqError | None]:
        self.calls.append(("turned", *turns))
        return [None for _ in turns]

    async def create_topics(self, topics: Sequence[NewTopic], *, validate_only: bool = False) -> list[TopicResult]:
        self.calls.append(("create_topics", *topics))
        if self.error is not None:
            raise self.error
        results = []
        for topic in topics:
            if self.metadata.image.topic(topic.name) is not None:
                results.append(TopicResult(name=topic.name, error=TopicExists(f"topic {topic.name} exists")))
                continue
            partitions = 1 if topic.partitions == -1 else topic.partitions
            if not 0 < partitions <= PARTITIONS_PER_TOPIC_MAX:
                results.append(TopicResult(name=topic.name, error=InvalidPartitions(f"{partitions} partitions")))
                continue
            configs = {name: value for name, value in topic.configs.items() if value is not None}
            made = None if validate_only else self.metadata.add_topic(topic.name, partitions, configs)
            results.append(
                TopicResult(
                    name=topic.name, topic_id=made.topic_id if made else None, partitions=partitions, configs=configs
                )
            )
        return results

    async def delete_topics(self, topics: Sequence[TopicId]) -> list[TopicResult]:
        image = self.metadata.image
        results = [TopicResult(name=image.topics[topic_id].name, topic_id=topic_id) for topic_id in topics]
        left = {topic_id: topic for topic_id, topic in image.topics.items() if topic_id not in topics}
        self.metadata.change(topics=left, topic_ids={topic.name: topic_id for topic_id, topic in left.items()})
        return results

    async def create_partitions(
        self, topic: str, total: int, *, assignments: Sequence[Sequence[int]] | None = None, validate_only: bool = False
    ) -> TopicResult:
        self.calls.append(("create_partitions", topic, total, assignments, validate_only))
        found = self.metadata.image.topic(topic)
        if found is None:
            return TopicResult(name=topic, error=UnknownTopic(f"topic {topic} does not exist"))
        if not len(found.partitions) < total <= PARTITIONS_PER_TOPIC_MAX:
            return TopicResult(name=topic, error=InvalidPartitions(f"{total} partitions"))
        grown = replace(
            found, partitions=found.partitions + (PartitionMeta(node_id=NodeId(1)),) * (total - len(found.partitions))
        )
        self.metadata.change(topics={**self.metadata.image.topics, found.topic_id: grown})
        return TopicResult(name=topic, topic_id=found.topic_id, partitions=total)

    async def alter_configs(
        self, resource: ConfigResource, changes: Sequence[ConfigChange], *, validate_only: bool = False
    ) -> None:
        self.calls.append(("alter_configs", resource, tuple(changes), validate_only))
        if self.error is not None:
            raise self.error

    async def replace_configs(
        self, resource: ConfigResource, configs: Mapping[str, str | None], *, validate_only: bool = False
    ) -> None:
        self.calls.append(("replace_configs", resource, dict(configs), validate_only))

    async def allocate_producer_ids(self, count: int) -> range:
        self.calls.append(("allocate_producer_ids", count))
        first, self.allocated = self.allocated, self.allocated + count
        return range(first, first + count)

    async def reassign(self, changes: Sequence[Reassignment]) -> list[BmqError | None]:
        self.calls.append(("reassign", *changes))
        if self.error is not None:
            raise self.error
        for change in changes:
            if change.tp not in self.refusals:
                self.metadata.move(change.tp, change.to)
        return [self.refusals.get(change.tp) for change in changes]


@dataclass
class MemoryLog:
    """One partition: batches from `tail_start` on, all durable."""

    batches: list[tuple[int, int, bytes]] = field(default_factory=list)
    """(base offset, last offset, bytes)."""
    log_start: int = 0
    tail_start: int = 0
    end: int = 0
    manifest_version: int = 0


class MemoryOwner:
    """Owns every partition. `hold` keeps appends unfinished until `let_go`; `refuse` fails the next ones."""

    def __init__(self) -> None:
        self.logs: dict[TopicPartition, MemoryLog] = {}
        self.hold = False
        self.alike_max = 0
        """So many batches that come together are taken together."""
        self.held: list[Callable[[], None]] = []
        self.refuse: list[BmqError] = []
        self.appended: list[tuple[TopicPartition, int]] = []
        self.group_calls: list[tuple[int, int, Any, Caller]] = []
        self.on_group_call: Callable[[int, int, Any, Caller], Any] = lambda *_: {}
        self.reads = 0
        self.unreadable: dict[TopicPartition, BmqError] = {}
        """What reading these is answered with."""
        self.gate: asyncio.Event | None = None
        """Records are deleted once it is set."""
        self._news = asyncio.Event()

    def log(self, tp: TopicPartition) -> MemoryLog:
        return self.logs.setdefault(tp, MemoryLog())

    def append(
        self, tp: TopicPartition, records: Any, *, produce_version: int, party: Party = NOBODY
    ) -> "asyncio.Future[Appended]":
        future: asyncio.Future[Appended] = asyncio.get_running_loop().create_future()
        if self.refuse:
            future.set_exception(self.refuse.pop(0))
            return future
        log = self.log(tp)
        base = log.end
        for header in split(records):
            log.batches.append(
                (
                    log.end,
                    log.end + header.last_offset_delta,
                    bytes(patched(records, header, base_offset=log.end, leader_epoch=3)),
                )
            )
            log.end += header.last_offset_delta + 1
        self.appended.append((tp, base))

        def finish() -> None:
            if not future.done():
                future.set_result(
                    Appended(base_offset=Offset(base), log_append_time_ms=-1, log_start=Offset(log.log_start))
                )
            self._news.set()
            self._news = asyncio.Event()

        if self.hold:
            self.held.append(finish)
        else:
            finish()
        return future

    def append_alike(
        self, tp: TopicPartition, batches: Sequence[Proved], *, produce_version: int
    ) -> "tuple[int, asyncio.Future[AppendedAlike]] | None":
        """Takes as many as `alike_max` says, where nothing is refused."""
        taken = batches[: self.alike_max]
        if self.refuse or not taken or any(one.header is None for one in taken):
            return None
        singles = [self.append(tp, one.records, produce_version=produce_version) for one in taken]
        future: asyncio.Future[AppendedAlike] = asyncio.get_running_loop().create_future()

        def finish(_: object) -> None:
            if all(one.done() for one in singles) and not future.done():
                found = [one.result() for one in singles]
                future.set_result(AppendedAlike([one.base_offset for one in found], -1, found[-1].log_start))

        for one in singles:
            one.add_done_callback(finish)
        return len(taken), future

    def let_go(self, count: int = 1) -> None:
        for _ in range(count):
            self.held.pop(0)()

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
        self.reads += 1
        loop = asyncio.get_running_loop()
        until = loop.time() + max_wait_ms / 1000
        while True:
            left = max_bytes
            answers = []
            for request in requests:
                answers.append(self._answer(request, min(left, request.max_bytes), first=left == max_bytes))
                left -= answers[-1].size_bytes
            ready = any(a.error is not None or r.offset < a.tail_start for a, r in zip(answers, requests, strict=True))
            if ready or max_bytes - left >= min_bytes or loop.time() >= until:
                return answers
            try:
                async with asyncio.timeout_at(until):
                    await self._news.wait()
            except TimeoutError:
                pass

    def _answer(self, request: TailRequest, limit: int, *, first: bool) -> TailAnswer:
        if request.tp in self.unreadable:
            return TailAnswer(tp=request.tp, error=self.unreadable[request.tp])
        log = self.log(request.tp)
        facts: dict[str, Any] = {
            "tp": request.tp,
            "leader_epoch": LeaderEpoch(3),
            "manifest_version": ManifestVersion(log.manifest_version),
            "log_start": Offset(log.log_start),
            "tail_start": Offset(log.tail_start),
            "high_watermark": Offset(log.end),
            "last_stable_offset": Offset(log.end),
        }
        if not log.log_start <= request.offset <= log.end:
            return TailAnswer(error=OffsetOutOfRange(f"{request.offset}"), **facts)
        batches: list[bytes] = []
        size = 0
        for _, last, data in log.batches:
            if last >= request.offset >= log.tail_start:
                if size + len(data) > limit and (batches or not first):
                    break
                batches.append(data)
                size += len(data)
        return TailAnswer(batches=tuple(batches), size_bytes=size, **facts)

    async def offset_for_time(
        self,
        tp: TopicPartition,
        timestamp_ms: int,
        *,
        current_leader_epoch: int = -1,
        committed: bool = False,
        address: str = "",
    ) -> OffsetForTime:
        log = self.log(tp)
        offset = {-1: log.end, -2: log.log_start}.get(timestamp_ms, -1)
        return OffsetForTime(offset=Offset(offset), timestamp_ms=-1, leader_epoch=LeaderEpoch(3))

    async def epoch_end(self, tp: TopicPartition, leader_epoch: int, *, current_leader_epoch: int = -1) -> EpochEnd:
        return EpochEnd(leader_epoch=LeaderEpoch(min(leader_epoch, 3)), end_offset=Offset(self.log(tp).end))

    async def delete_records(self, tp: TopicPartition, before: Offset) -> Offset:
        if self.gate is not None:
            await self.gate.wait()
        log = self.log(tp)
        log.log_start = log.end if before == -1 else before
        return Offset(log.log_start)

    async def status(self, tps: Sequence[TopicPartition]) -> list[PartitionStatus]:
        return [
            PartitionStatus(
                tp=tp,
                log_start=Offset(0),
                high_watermark=Offset(self.log(tp).end),
                tail_bytes=7,
                segment_bytes=35,
                segment_count=1,
            )
            for tp in tps
            if tp in self.logs
        ]

    async def group_call(self, partition: int, api_key: int, request: Any, caller: Caller) -> Any:
        self.group_calls.append((partition, api_key, request, caller))
        reply = self.on_group_call(partition, api_key, request, caller)
        if isinstance(reply, BmqError):
            raise reply
        return reply


class Client(AsyncBareClient):
    """One that writes."""

    def send_produce(
        self, topic: str, batches: Mapping[int, bytes], *, version: int = 9, acks: int = -1, timeout_ms: int = 5_000
    ) -> int:
        """Writes a Produce of one topic."""
        partitions = [{"index": index, "records": data} for index, data in batches.items()]
        topics = [{"name": topic, "partition_data": partitions}]
        return self.send(
            0, version, {"transactional_id": None, "acks": acks, "timeout_ms": timeout_ms, "topic_data": topics}
        )


@dataclass
class Running:
    """Everything that a test takes hold of."""

    role: ProxyRole
    owner: MemoryOwner
    controller: MemoryController
    metadata: MemoryMetadata
    store: MemoryStore
    clients: list[Client] = field(default_factory=list)

    async def connect(self, *, listener: str = "", **options: Any) -> Client:
        host, port = self.role.listening[listener] if listener else (self.role.host, self.role.port)
        self.clients.append(await Client.connect(host, port, **options))
        return self.clients[-1]


@asynccontextmanager
async def running_proxy(
    settings: ProxySettings | None = None, *, listeners: Sequence[str] = ()
) -> AsyncIterator[Running]:
    """A proxy on a free port of the loopback, and on one for each of the further listeners."""
    metadata = MemoryMetadata()
    owner, controller, store = MemoryOwner(), MemoryController(metadata), MemoryStore()
    role = await start_proxy(
        store,
        lambda _: owner,
        controller,
        metadata,
        settings or ProxySettings(),
        lane_control=controller,
        clock=MemoryClock(),
        rng=CountingRng(),
    )
    for name in listeners:
        await role.listen(name, "127.0.0.1", 0)
    running = Running(role, owner, controller, metadata, store)
    try:
        yield running
    finally:
        for client in running.clients:
            client.close()
        await role.stop(grace_s=0.5)


def batch(*values: bytes, timestamp_ms: int = 1_000) -> bytes:
    """A record batch as a producer sends it."""
    return build_batch([Record(0, timestamp_ms, None, value) for value in values])


def fetch_request(topic: str, partition: int, offset: int, **options: Any) -> dict[str, Any]:
    """A Fetch of one partition, for versions below 13."""
    one = {
        "partition": partition,
        "fetch_offset": offset,
        "partition_max_bytes": options.pop("partition_max_bytes", 1 << 20),
    }
    one["current_leader_epoch"] = options.pop("current_leader_epoch", -1)
    base = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 50 << 20, "topics": [{"topic": topic, "partitions": [one]}]}
    return {**base, **options}

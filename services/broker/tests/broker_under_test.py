"""A controller and a broker over a simulated store, in virtual time: real parts, started and killed as often as a test
likes.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace

from bmq.clocks.clock_guard import ClockGuard
from bmq.errors import BmqError
from bmq.metadata.fold import apply
from bmq.metadata.image import Image
from bmq.metadata.records import AnyRecord
from bmq.roles.controller import NewTopic, Registration
from bmq.roles.owner import Appended, TailAnswer, TailRequest
from bmq.values import NodeId, Offset, TopicPartition
from bmq.wire.batches import Record, build_batch, iterate_records, read_header
from bmq_audit.audit import AuditOptions, audit_store
from bmq_audit.findings import Level
from bmq_audit.repair import Repaired, Repairer
from bmq_broker.coordinators.groups.durable import DurableState
from bmq_broker.coordinators.groups.settings import GroupSettings
from bmq_broker.coordinators.groups.snapshot import decode_state, encode_state
from bmq_broker.coordinators.log import PartitionLog
from bmq_broker.ended import Ended
from bmq_broker.main import BrokerRole
from bmq_broker.ownership.inheritance import Inheritance
from bmq_broker.ownership.life import Lives, Ranges
from bmq_broker.ownership.passes import Passes
from bmq_broker.partitions.producers import Producers
from bmq_broker.segments.manifests import KEPT_VERSIONS
from bmq_broker.settings import BrokerSettings
from bmq_controller.main import ControllerRole, start_controller
from bmq_sim.clock import SimClock, SimRng
from bmq_sim.store import SimStore

NODE = NodeId(1)
AUDIT = AuditOptions(
    decode_producers=Producers.decode, decode_state=lambda _, data: decode_state(data), versions_kept=KEPT_VERSIONS
)


def reading_alone(
    read_ranges: Callable[[Ranges], Awaitable[dict[TopicPartition, Inheritance]]],
    lives: Lives,
    *,
    ended: Ended | None = None,
) -> Passes:
    """What reads earlier owners' streams, without the broker that opens what it finds."""
    return Passes(
        read_ranges,
        ended=ended or Ended(),
        lives=lives,
        again_s=1,
        found=lambda _: None,
        still_named=lambda _, ranges: ranges,
        held_nothing=lambda: None,
    )


class Cluster:
    """One node that comes and goes; the store stays."""

    def __init__(
        self,
        store: SimStore | None = None,
        *,
        settings: BrokerSettings | None = None,
        groups: GroupSettings | None = None,
        seed: int = 0,
        compared: bool = True,
    ) -> None:
        """`compared`: whether the clock was, before a broker starts."""
        self.store = store or SimStore()
        self.settings = settings or BrokerSettings()
        self.groups = groups or GroupSettings()
        self.rng = SimRng(seed)
        self._compared = compared
        self.clock = SimClock()
        self.fenced: list[BmqError] = []
        self.controller: ControllerRole
        self.broker: BrokerRole
        self._guard: asyncio.Task[None] | None = None

    async def start(self, name: str = "node") -> None:
        """A new incarnation."""
        store = self.store.for_node(name)
        self.controller = await start_controller(store, node_id=NODE, clock=self.clock, rng=self.rng)
        guard = ClockGuard(store, self.clock, self.rng, node_id=NODE)
        if self._compared:
            await guard.check()
        self.broker = BrokerRole(
            store=store,
            control=self.controller.controller,
            metadata=self.controller.metadata,
            registration=Registration(
                node_id=NODE, boot=self.rng.uuid(), roles=("broker",), host="localhost", port=9092
            ),
            rng=self.rng,
            clock_guard=guard,
            settings=self.settings,
            group_settings=self.groups,
            cluster_configs={},
            on_fenced=self.fenced.append,
        )
        await self.broker.start()

    async def kill(self) -> None:
        """As a crash: nothing is handed over."""
        await self.broker.kill()
        await self.controller.stop()

    async def stop(self) -> None:
        """Cleanly."""
        await self.broker.stop()
        await self.controller.stop()

    async def topic(
        self, name: str, *, partitions: int = 1, configs: Mapping[str, str] | None = None
    ) -> list[TopicPartition]:
        """A new topic's partitions."""
        (result,) = await self.controller.controller.create_topics(
            [NewTopic(name=name, partitions=partitions, configs=dict(configs or {}))]
        )
        assert result.error is None
        assert result.topic_id is not None
        return [TopicPartition(result.topic_id, index) for index in range(partitions)]

    def append(self, tp: TopicPartition, *values: bytes, **batch: int) -> "asyncio.Future[Appended]":
        """Submits one batch."""
        records = [
            Record(offset=0, timestamp_ms=self.clock.now_ms(), key=None, value=value, headers=()) for value in values
        ]
        return self.broker.owner.append(tp, build_batch(records, **batch), produce_version=9)  # type: ignore[arg-type]

    async def tail(self, tp: TopicPartition, offset: int, *, max_wait_ms: int = 0) -> TailAnswer:
        """What the owner answers."""
        request = TailRequest(tp=tp, offset=Offset(offset), max_bytes=1 << 20)
        (answer,) = await self.broker.owner.read_tail(
            [request], min_bytes=1, max_bytes=1 << 20, max_wait_ms=max_wait_ms
        )
        return answer

    async def read_all(self, tp: TopicPartition) -> list[tuple[int, bytes]]:
        """(offset, value) of everything below the high watermark, from segments and tail, as a reader would see it."""
        return await records_of(self.broker, tp)

    async def roll(self, tp: TopicPartition) -> None:
        """Everything durable into segments."""
        partition = await self.broker._ownership.open(tp)
        await self.broker._roller.roll_to(partition, partition.high_watermark, "test")


async def records_of(broker: BrokerRole, tp: TopicPartition) -> list[tuple[int, bytes]]:
    """(offset, value) of everything below the high watermark at the owner, from segments and tail."""
    partition = await broker._ownership.open(tp)
    found: list[tuple[int, bytes]] = []
    # with the manifest of this moment: a roll may move it to a segment meanwhile
    tail = partition.tail.durable_batches()
    batches = [batch async for batch in broker.segments.read_batches(tp, partition.manifest, partition.log_start)]
    for batch in [*batches, *tail]:
        for record in iterate_records(batch, read_header(batch)):
            if record.offset >= partition.log_start:
                found.append((record.offset, record.value or b""))
    return found


def small(**changes: int) -> BrokerSettings:
    """Settings with which little data makes much happen."""
    base = BrokerSettings(
        tail_budget_bytes=4000,
        tail_limit_bytes=16000,
        wal_budget_bytes=4000,
        flush_bytes=1000,
        merge_below_bytes=10_000,
    )
    return replace(base, **changes)  # type: ignore[arg-type]


def partition_log(cluster: Cluster, tp: TopicPartition) -> PartitionLog:
    broker = cluster.broker
    return PartitionLog(
        broker._ownership.partitions[tp],
        commit=broker._commit,
        segments=broker.segments,
        snapshots=None,
        clock=cluster.clock,  # type: ignore[arg-type]
    )


def image_with(image: Image, *records: AnyRecord) -> Image:
    """What another controller would have committed."""
    return apply(image, image.position + 1, records)


async def repaired(cluster: Cluster) -> Repaired:
    """What `bmq store check --repair` does to the store of a stopped cluster, in which it finds something wrong."""
    store = cluster.store.for_node("repair")
    report = (await audit_store(store, rng=cluster.rng, options=AUDIT)).report
    assert report.findings[Level.FAULT]
    no_groups = encode_state(DurableState())
    made = Repairer(
        store, rng=cluster.rng, cluster_id=report.cluster_id, no_producers=Producers().encode(), no_groups=no_groups
    )
    return await made.run(report.repairs)

"""Writing rolls: durable batches of one partition, or of several small ones together, as a segment object, and the
manifest versions that name it.

A roll never reaches above the high watermark, and the producer snapshot that it writes is the previous one with the
segment's batches replayed over it, never a copy of live state. Whose turn it is, bmq_broker.segments.rolling says.
"""

import asyncio
from collections.abc import Awaitable, Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import Final, TypeVar

import structlog

from bmq.clocks.clock_guard import ClockGuard
from bmq.errors import BmqError, NotOwner, StoreUnavailable
from bmq.ports import ObjectStore, Rng
from bmq.storage.durable import create_once, together
from bmq.storage.keys import segment_key, shared_segment_key
from bmq.storage.manifest import Manifest
from bmq.storage.segment import SegmentEntry
from bmq.values import StreamId, TopicPartition
from bmq_broker.metrics import ROLLED_BYTES, ROLLS
from bmq_broker.partitions.partition import Partition, RollPlan, UnnamedSegment
from bmq_broker.partitions.producers import Producers
from bmq_broker.segments.building import Building, Rolled, rolled_segment, shared_segment
from bmq_broker.segments.manifests import ManifestMoved, Manifests

log = structlog.get_logger()

T = TypeVar("T")

PATIENCE_S: Final = 60.0
"""A store that refuses the keys of one partition alone (its folder, or requests for that prefix) must not keep what
others wait for."""
NAMING_S: Final = 20.0
"""How long writing one partition's manifest may take among those of a shared segment: what fails together is tried
again alone."""
SLOWEST_BYTES_S: Final = 1 << 20
ATTEMPTS_MAX: Final = 5
COMMITS_AT_ONCE: Final = 8
"""Manifests that are written at a time for one shared segment."""
SHARED_BYTES_MAX: Final = 32 << 20
SHARED_RUNS_MAX: Final = 1_000

Outcomes = dict[TopicPartition, "bool | BmqError"]
"""Whether something of a partition was rolled, or why not."""


class RollWriter:
    """Writes the rolls of one broker incarnation: segments, and the manifest versions that name them."""

    def __init__(
        self,
        *,
        store: ObjectStore,
        cluster_id: str,
        stream: StreamId,
        rng: Rng,
        clock: ClockGuard,
        manifests: Manifests,
    ) -> None:
        self._store = store
        self._cluster_id = cluster_id
        self._stream = stream
        self._rng = rng
        self._clock = clock
        self._manifests = manifests
        self.writing: set[str] = set()
        """Shared segments that a manifest version under way may yet name."""

    async def roll(self, partition: Partition, cause: str) -> bool:
        """One segment and the manifest version that names it; False where there is nothing to roll. Raises BmqError.
        The partition's lock is held.
        """
        for _ in range(ATTEMPTS_MAX):
            plan = partition.plan_roll(target_bytes=partition.config.segment_bytes)
            if plan is None:
                return False
            written = await self._written(partition, plan)
            try:
                await self._name(partition, *written)
            except ManifestMoved:
                continue
            _count(written.plan, cause)
            return True
        raise ManifestMoved(f"the manifest of {partition.tp} moved {ATTEMPTS_MAX} times while it was rolled")

    async def roll_together(self, partitions: Sequence[Partition], cause: str) -> Outcomes:
        """One segment with a run of each, and the manifest versions that name the runs.

        The first one is waited for; others that are busy with a merge or retention are left out.
        """
        outcomes: Outcomes = {partition.tp: False for partition in partitions}
        async with AsyncExitStack() as locks:
            plans = []
            size_bytes = 0
            for partition in partitions[:SHARED_RUNS_MAX]:
                lock = self._manifests.lock(partition.tp)
                if partition is not partitions[0] and (lock.locked() or size_bytes >= SHARED_BYTES_MAX):
                    continue
                await within(
                    locks.enter_async_context(lock), PATIENCE_S
                )  # but for the first one it is free, so nobody waits for a lock while holding others
                plan = partition.plan_roll(target_bytes=min(partition.config.segment_bytes, SHARED_BYTES_MAX))
                if plan is not None:
                    plans.append((partition, plan))
                    size_bytes += plan.size_bytes
            if len(plans) == 1:
                partition, plan = plans[0]
                outcomes[partition.tp] = await within(self.roll(partition, cause), roll_s(partition))
            elif plans:
                outcomes |= await self._write_shared(plans, cause)
        return outcomes

    async def _written(self, partition: Partition, plan: RollPlan) -> UnnamedSegment:
        """The plan as a segment; what was written before for the same offsets, where no version came to name that."""
        earlier = partition.unnamed
        if earlier is None or earlier.plan.base_offset != plan.base_offset:
            partition.unnamed = earlier = await self._write(partition, plan)
        return earlier

    async def _write(self, partition: Partition, plan: RollPlan) -> UnnamedSegment:
        nonce = self._rng.nonce()
        building = Building(
            nonce=nonce, cluster_id=self._cluster_id, tp=partition.tp, leader_epoch=partition.leader_epoch
        )
        producers_of = partition.rolled, partition.live
        build = partial(rolled_segment, building, plan.batches, *producers_of, now_ms=self._clock.now_ms())
        encoded, producers = await asyncio.get_running_loop().run_in_executor(None, build)
        key = segment_key(partition.tp, partition.leader_epoch, plan.base_offset, nonce)
        await create_once(self._store, key, encoded.parts, nonce=nonce, rng=self._rng)
        (entry,) = encoded.entries_at(key)
        return UnnamedSegment(plan, entry, producers)

    async def _write_shared(self, plans: Sequence[tuple[Partition, RollPlan]], cause: str) -> Outcomes:
        nonce = self._rng.nonce()
        rolls = [
            Rolled(partition.tp, partition.leader_epoch, plan.batches, partition.rolled, partition.live)
            for partition, plan in plans
        ]
        build = partial(shared_segment, nonce, self._cluster_id, rolls, now_ms=self._clock.now_ms())
        encoded, producers = await asyncio.get_running_loop().run_in_executor(None, build)
        key = shared_segment_key(self._stream.node_id, self._stream.broker_epoch, nonce)
        self.writing.add(key)
        try:
            size_bytes = sum(plan.size_bytes for _, plan in plans)
            await within(
                create_once(self._store, key, encoded.parts, nonce=nonce, rng=self._rng),
                PATIENCE_S + size_bytes / SLOWEST_BYTES_S,
            )
            places = asyncio.Semaphore(COMMITS_AT_ONCE)

            async def name(pair: tuple[Partition, RollPlan], entry: SegmentEntry, after: Producers) -> bool | BmqError:
                async with places:
                    try:
                        await within(self._name(*pair, entry, after), NAMING_S)
                    except BmqError as error:
                        return error
                    _count(pair[1], cause)
                    return True

            named = await together(name(*each) for each in zip(plans, encoded.entries_at(key), producers, strict=True))
        finally:
            self.writing.discard(key)
        return {partition.tp: outcome for (partition, _), outcome in zip(plans, named, strict=True)}

    async def _name(self, partition: Partition, plan: RollPlan, entry: SegmentEntry, producers: Producers) -> None:
        """The manifest version. Raises ManifestMoved and NotOwner, after which none ever will name the entry, and what
        `commit` raises.
        """
        epochs = [each for each in partition.epochs if each.start_offset < plan.next_offset]

        def edit(manifest: Manifest) -> Manifest:
            if manifest.next_offset != plan.base_offset:
                raise ManifestMoved(
                    f"manifest of {partition.tp} ends at {manifest.next_offset}, the segment begins at "
                    f"{plan.base_offset}"
                )
            for each in epochs:
                if not manifest.leader_epochs or each.epoch > manifest.leader_epochs[-1].epoch:
                    manifest = manifest.note_leader_epoch(each.epoch, each.start_offset)
            return manifest.add_segment(entry, last_stable_offset=plan.next_offset)

        try:
            await self._manifests.commit(partition, edit, rolled=producers)
        except (ManifestMoved, NotOwner):
            partition.unnamed = None
            raise
        partition.unnamed = None


def roll_s(partition: Partition) -> float:
    """How long one segment of it may take."""
    return PATIENCE_S + min(partition.tail.durable_bytes, partition.config.segment_bytes) / SLOWEST_BYTES_S


async def within(work: Awaitable[T], limit_s: float) -> T:
    """What the work returns. Raises StoreUnavailable where it takes longer: it is cancelled, and its outcome
    unknown.
    """
    limit = asyncio.timeout(limit_s)
    try:
        async with limit:
            return await work
    except TimeoutError as error:
        if not limit.expired():
            raise
        raise StoreUnavailable(f"the store has not taken it within {limit_s:.0f} s") from error


def _count(plan: RollPlan, cause: str) -> None:
    ROLLS.labels(cause).inc()
    ROLLED_BYTES.inc(plan.size_bytes)

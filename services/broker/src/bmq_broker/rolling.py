"""Rolls: a partition's oldest durable batches become a segment, and a manifest version names it.

Owns which partition is rolled when (DESIGN section 4): at the segment size or age; the largest tail when the memory budget asks; the
partition that pins the oldest WAL object when the WAL's length asks. A roll never reaches above the high watermark, and the producer
snapshot that it writes is the previous one with the segment's batches replayed over it, never a copy of live state.
"""

import asyncio
from collections.abc import Mapping
from functools import partial

import structlog

from bmq.errors import BmqError, Fenced, NotOwner, StoreError
from bmq.ports import Clock, ObjectStore, Rng
from bmq.storage.durable import create_once
from bmq.storage.keys import segment_key
from bmq.storage.manifest import Manifest
from bmq.values import Offset, TopicPartition
from bmq_broker.commit import GroupCommit
from bmq_broker.manifests import ManifestMoved, Manifests
from bmq_broker.metrics import ROLLED_BYTES, ROLLS
from bmq_broker.partitions.partition import Partition, RollPlan
from bmq_broker.partitions.states import PartitionState
from bmq_broker.partitions.tail import TailTotal
from bmq_broker.segment_building import Building, rolled_segment
from bmq_broker.settings import BrokerSettings

log = structlog.get_logger()

ATTEMPTS_MAX = 5


class Roller:
    """Rolls the partitions of one broker, a few at a time."""

    def __init__(
        self,
        *,
        store: ObjectStore,
        cluster_id: str,
        rng: Rng,
        clock: Clock,
        settings: BrokerSettings,
        partitions: Mapping[TopicPartition, Partition],
        manifests: Manifests,
        commit: GroupCommit,
        total: TailTotal,
    ) -> None:
        self._store = store
        self._cluster_id = cluster_id
        self._rng = rng
        self._clock = clock
        self._settings = settings
        self._partitions = partitions
        self._manifests = manifests
        self._commit = commit
        self._total = total
        self._places = asyncio.Semaphore(settings.roll_concurrency)
        self._rolling: dict[TopicPartition, asyncio.Task[None]] = {}
        self._failed_until_s: dict[TopicPartition, float] = {}

    @property
    def tail_bytes(self) -> int:
        """Bytes in memory of all partitions, buffers included."""
        return self._total.size_bytes

    def consider(self, grown: Partition) -> None:
        """Starts the rolls that are due after a partition grew."""
        if grown.tail.size_bytes >= grown.config.segment_bytes:
            self._start(grown, "size")
        if self._total.size_bytes - self._rolling_bytes() > self._settings.tail_budget_bytes:
            self._start_largest()
        if self._commit.wal_bytes > self._settings.wal_budget_bytes:
            self._start_oldest()

    def start(self, partition: Partition, cause: str) -> None:
        """Rolls what the partition has, in the background."""
        self._start(partition, cause)

    async def roll_to(self, partition: Partition, offset: Offset, cause: str) -> None:
        """Returns when everything below `offset` (not above the high watermark) is in segments. Raises BmqError."""
        assert offset <= partition.high_watermark
        while partition.manifest.next_offset < offset:
            async with self._manifests.lock(partition.tp):
                if not await self._roll(partition, cause):
                    raise NotOwner(f"partition {partition.tp} was let go of")

    async def close(self) -> None:
        """Ends rolls under way."""
        tasks = list(self._rolling.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def drain(self) -> None:
        """Waits for the rolls under way."""
        await asyncio.gather(*self._rolling.values(), return_exceptions=True)

    def _rolling_bytes(self) -> int:
        return sum(self._partitions[tp].tail.size_bytes for tp in self._rolling if tp in self._partitions)

    def _start_largest(self) -> None:
        if len(self._rolling) >= self._settings.roll_concurrency:
            return
        candidates = [partition for tp, partition in self._partitions.items() if tp not in self._rolling]
        if candidates:
            largest = max(candidates, key=lambda partition: partition.tail.size_bytes)
            if largest.tail.size_bytes:
                self._start(largest, "memory")

    def _start_oldest(self) -> None:
        slot = self._commit.oldest_needed()
        if slot is None or not slot.durable:
            return
        for tp in slot.tps:
            if len(self._rolling) >= self._settings.roll_concurrency:
                return
            partition = self._partitions.get(tp)
            if partition is not None and tp not in self._rolling and partition.tail.runs and partition.tail.runs[0].slot is slot:
                self._start(partition, "wal-length")

    def _start(self, partition: Partition, cause: str) -> None:
        tp = partition.tp
        loop = asyncio.get_running_loop()
        if tp in self._rolling or partition.state is not PartitionState.APPENDING or loop.time() < self._failed_until_s.get(tp, 0.0):
            return
        self._rolling[tp] = loop.create_task(self._roll_in_background(partition, cause), name=f"roll {tp}")

    async def _roll_in_background(self, partition: Partition, cause: str) -> None:
        rolled = False
        try:
            async with self._places, self._manifests.lock(partition.tp):
                rolled = await self._roll(partition, cause)
            self._failed_until_s.pop(partition.tp, None)
        except Fenced as error:
            self._commit.end(error)
        except (BmqError, OSError) as error:
            self._failed_until_s[partition.tp] = asyncio.get_running_loop().time() + 1.0
            log.warning("roll failed, tried again later", partition=str(partition.tp), error=str(error))
        finally:
            self._rolling.pop(partition.tp, None)
            self._commit.poke()
        if rolled:  # one roll writes one segment: there may be more to do, though nothing arrives any more
            self.consider(partition)

    async def _roll(self, partition: Partition, cause: str) -> bool:
        """One segment and the manifest version that names it; False where there is nothing to roll. The partition's lock is held."""
        for _ in range(ATTEMPTS_MAX):
            plan = partition.plan_roll(target_bytes=partition.config.segment_bytes)
            if plan is None:
                return False
            try:
                await self._write(partition, plan)
            except ManifestMoved:
                continue
            ROLLS.labels(cause).inc()
            ROLLED_BYTES.inc(plan.size_bytes)
            return True
        raise ManifestMoved(f"the manifest of {partition.tp} moved {ATTEMPTS_MAX} times while it was rolled")

    async def _write(self, partition: Partition, plan: RollPlan) -> None:
        nonce = self._rng.nonce()
        loop = asyncio.get_running_loop()
        building = Building(nonce=nonce, cluster_id=self._cluster_id, tp=partition.tp, leader_epoch=partition.leader_epoch)
        build = partial(rolled_segment, building, plan.batches, partition.rolled, now_ms=self._clock.now_ms())
        encoded, producers = await loop.run_in_executor(None, build)
        key = segment_key(partition.tp, partition.leader_epoch, plan.base_offset, nonce)
        await create_once(self._store, key, encoded.parts, nonce=nonce, rng=self._rng)
        (entry,) = encoded.entries_at(key)
        epochs = [each for each in partition.epochs if each.start_offset < plan.next_offset]

        def edit(manifest: Manifest) -> Manifest:
            if manifest.next_offset != plan.base_offset:
                raise ManifestMoved(f"manifest of {partition.tp} ends at {manifest.next_offset}, the segment begins at {plan.base_offset}")
            for each in epochs:
                if not manifest.leader_epochs or each.epoch > manifest.leader_epochs[-1].epoch:
                    manifest = manifest.note_leader_epoch(each.epoch, each.start_offset)
            return manifest.add_segment(entry, last_stable_offset=plan.next_offset)

        try:
            await self._manifests.commit(partition, edit, rolled=producers)
        except ManifestMoved:
            await self._give_up(key)
            raise
        named = partition.manifest.keys()
        if key not in named:  # its records were deleted meanwhile
            await self._give_up(key)

    async def _give_up(self, key: str) -> None:
        try:
            await self._store.delete(key)
        except StoreError as error:
            log.info("a segment that no manifest names is left behind", key=key, error=str(error))

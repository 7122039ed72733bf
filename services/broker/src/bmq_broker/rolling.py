"""Rolls: a partition's oldest durable batches become a segment, and a manifest version names it.

Owns which partition is rolled when (DESIGN section 4): at the segment size or age; the largest tail when the memory budget asks; the
partition that pins the oldest WAL object when the WAL's length asks. A roll never reaches above the high watermark, and the producer
snapshot that it writes is the previous one with the segment's batches replayed over it, never a copy of live state.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from functools import partial

import structlog

from bmq.errors import BmqError, NotOwner, StoreError
from bmq.ports import Clock, ObjectStore, Rng
from bmq.storage.durable import create_once
from bmq.storage.keys import segment_key
from bmq.storage.manifest import Manifest
from bmq.values import Offset, TopicPartition
from bmq_broker.commit import GroupCommit
from bmq_broker.garbage import Garbage
from bmq_broker.manifests import ManifestMoved, Manifests
from bmq_broker.metrics import RECOVERED_BYTES, ROLLED_BYTES, ROLLS
from bmq_broker.partitions.partition import Partition, RollPlan
from bmq_broker.partitions.states import PartitionState
from bmq_broker.partitions.tail import TailTotal
from bmq_broker.segment_building import Building, rolled_segment
from bmq_broker.settings import BrokerSettings

log = structlog.get_logger()

ATTEMPTS_MAX = 5
RETRY_AFTER_S = 1.0


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
        garbage: Garbage,
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
        self._garbage = garbage
        self._total = total
        self._places = asyncio.Semaphore(settings.roll_concurrency)
        self._rolling: dict[TopicPartition, asyncio.Task[bool]] = {}
        self._retries: dict[TopicPartition, asyncio.TimerHandle] = {}
        """Partitions whose roll failed, and when it is tried again."""
        self._heirs: deque[Partition] = deque()
        """Partitions that hold what was recovered, in the order in which they were opened."""
        self._inherited_bytes = 0
        self._ending = False
        self.covered: Callable[[], None] = lambda: None
        """Called when a partition's manifest covers what it inherited from earlier owners."""

    @property
    def tail_bytes(self) -> int:
        """Bytes in memory of all partitions, buffers included."""
        return self._total.size_bytes

    def grown(self, partition: Partition) -> None:
        """Starts the roll that is due once there is a whole segment."""
        if partition.tail.durable_bytes >= partition.config.segment_bytes:
            self.start(partition, "size")

    def consider(self) -> None:
        """Starts the rolls that the budgets of memory and WAL ask for."""
        while len(self._rolling) < self._settings.roll_concurrency and self._over_budget():
            largest = max(self._startable(), key=lambda partition: partition.tail.durable_bytes, default=None)
            if largest is None or not self.start(largest, "memory"):
                break
        self._forget_covered()
        if self._commit.wal_bytes + self._inherited_bytes > self._settings.wal_budget_bytes:
            for heir in self._heirs:
                if len(self._rolling) >= self._settings.roll_concurrency:
                    return
                if not heir.covers_recovered():
                    self.start(heir, "wal-length")
            self._start_oldest()

    def read(self, size_bytes: int) -> None:
        """So much of earlier owners' WAL was read, and would be again."""
        self._inherited_bytes += size_bytes
        RECOVERED_BYTES.inc(size_bytes)

    def inherited(self, partition: Partition) -> None:
        """Its manifest does not cover yet what an earlier owner left in the WAL."""
        self._heirs.append(partition)

    def _forget_covered(self) -> None:
        while self._heirs and (self._heirs[0].covers_recovered() or self._heirs[0].state is not PartitionState.APPENDING):
            self._heirs.popleft()
        if not self._heirs:
            self._inherited_bytes = 0

    def end(self) -> None:
        """Starts nothing more in the background."""
        self._ending = True
        for retry in self._retries.values():
            retry.cancel()
        self._retries.clear()

    def start(self, partition: Partition, cause: str) -> bool:
        """Rolls what the partition has, in the background; False where that cannot begin now."""
        tp = partition.tp
        if self._ending or tp in self._rolling or tp in self._retries or partition.state is not PartitionState.APPENDING:
            return False
        task = asyncio.get_running_loop().create_task(self._roll_in_background(partition, cause), name=f"roll {tp}")
        self._rolling[tp] = task
        task.add_done_callback(lambda done: self._over(partition, cause, done))
        return True

    async def roll_to(self, partition: Partition, offset: Offset, cause: str) -> None:
        """Returns when everything below `offset` (not above the high watermark) is in segments. Raises BmqError."""
        assert offset <= partition.high_watermark
        while partition.manifest.next_offset < offset:
            async with self._places, self._manifests.lock(partition.tp):
                if partition.manifest.next_offset < offset and not await self._roll(partition, cause):
                    raise NotOwner(f"partition {partition.tp} was let go of")

    async def drain(self) -> None:
        """Starts nothing more in the background and waits for the rolls under way."""
        self.end()
        await asyncio.gather(*self._rolling.values(), return_exceptions=True)

    async def close(self) -> None:
        """Ends rolls under way."""
        for task in self._rolling.values():
            task.cancel()
        await self.drain()

    def _over_budget(self) -> bool:
        rolling_bytes = sum(self._partitions[tp].tail.size_bytes for tp in self._rolling if tp in self._partitions)
        return self._total.size_bytes - rolling_bytes > self._settings.tail_budget_bytes

    def _startable(self) -> Iterator[Partition]:
        return (p for tp, p in self._partitions.items() if p.tail.durable_bytes and tp not in self._rolling and tp not in self._retries)

    def _start_oldest(self) -> None:
        slot = self._commit.oldest_needed()
        if slot is None or not slot.durable:
            return
        for tp in slot.tps:
            if len(self._rolling) >= self._settings.roll_concurrency:
                return
            partition = self._partitions.get(tp)
            if partition is not None and partition.oldest_slot() is slot:
                self.start(partition, "wal-length")

    async def _roll_in_background(self, partition: Partition, cause: str) -> bool:
        async with self._places, self._manifests.lock(partition.tp):
            return await self._roll(partition, cause)

    def _over(self, partition: Partition, cause: str, task: "asyncio.Task[bool]") -> None:
        """After a roll: what waited for room is sent, what else is due begins, and what failed is tried again in a while."""
        del self._rolling[partition.tp]
        if task.cancelled():
            return
        error = task.exception()
        if error is None:
            if task.result():  # one roll writes one segment: there may be more to do, though nothing arrives any more
                self.grown(partition)
            if partition.covers_ranges():
                self.covered()
        elif partition.state is PartitionState.APPENDING and not self._ending:
            log.warning("roll failed, tried again later", partition=str(partition.tp), error=repr(error))
            self._retries[partition.tp] = asyncio.get_running_loop().call_later(RETRY_AFTER_S, self._again, partition, cause)
        self._commit.poke()
        self.consider()
        if error is not None and not isinstance(error, BmqError | OSError):
            raise error  # a bug: the loop's handler says so

    def _again(self, partition: Partition, cause: str) -> None:
        self._retries.pop(partition.tp, None)
        self.start(partition, cause)
        self.consider()

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
        outlived = partition.manifest.producer_snapshot
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
        except (ManifestMoved, NotOwner):
            await self._give_up(key)
            raise
        named = partition.manifest.keys()
        if key not in named:  # its records were deleted meanwhile
            await self._give_up(key)
        if outlived is not None and outlived.key not in named:
            self._garbage.give_up([outlived.key])

    async def _give_up(self, key: str) -> None:
        """Deletes a segment that no manifest names and, its entry having certainly not come to count, none ever will."""
        try:
            await self._store.delete(key)
        except StoreError as error:
            log.info("a segment that no manifest names is left behind", key=key, error=str(error))

"""What a broker does from time to time: rolls by age, retention, merges, forgetting producers, collecting."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial

import structlog

from bmq.clocks.clock_guard import ClockGuard
from bmq.errors import BmqError, ObjectMissing
from bmq.fairness.log_limit import RateLimited
from bmq.metadata.image import stream_of
from bmq.ports import ObjectStore
from bmq.roles.controller import Metadata
from bmq.storage.keys import (
    SHARED_PREFIX,
    coordinator_snapshot_prefix,
    manifest_page_prefix,
    parse_numbered_key,
    segment_prefix,
)
from bmq.storage.segment import SegmentEntry
from bmq.values import TopicPartition
from bmq_broker.cluster_values import ClusterValues
from bmq_broker.metrics import BUFFERED_BYTES, PARTITIONS, TAIL_BYTES
from bmq_broker.ownership.life import Lives
from bmq_broker.ownership.ownership import Ownership
from bmq_broker.partitions.partition import Partition
from bmq_broker.partitions.producers import KEPT_BATCHES, SILENT_MS, at_most
from bmq_broker.partitions.states import PartitionState
from bmq_broker.segments.garbage import Garbage
from bmq_broker.segments.manifests import Manifests
from bmq_broker.segments.merging import Merger
from bmq_broker.segments.reading import Segments
from bmq_broker.segments.retention import Retention
from bmq_broker.segments.roll_writing import within
from bmq_broker.segments.rolling import Roller
from bmq_broker.segments.shared_garbage import SharedGarbage
from bmq_broker.settings import BrokerSettings
from bmq_broker.wal.commit import GroupCommit

log = structlog.get_logger()

LOG_INTERVAL_S = 10.0
INTERVAL_LOOK_S = 60.0
"""How long it may take until a shorter interval is noticed."""
OPENING_S = 60.0
RETAINING_S = 300.0
"""A partition whose keys the store refuses, alone, must not keep the others from their retention, merges and
collection."""
RETAINED_AGAIN_S = 600.0
"""It is let alone for so long then."""
YIELD_EVERY = 100
"""Partitions looked at before other work gets its turn."""


class Upkeep:
    """One loop for all partitions of a broker."""

    def __init__(
        self,
        *,
        store: ObjectStore,
        metadata: Metadata,
        lives: Lives,
        ownership: Ownership,
        manifests: Manifests,
        commit: GroupCommit,
        roller: Roller,
        retention: Retention,
        merger: Merger,
        segments: Segments,
        garbage: Garbage,
        shared: SharedGarbage,
        clock: ClockGuard,
        settings: BrokerSettings,
        values: ClusterValues,
    ) -> None:
        self._store = store
        self._metadata = metadata
        self._lives = lives
        self._ownership = ownership
        self._manifests = manifests
        self._commit = commit
        self._roller = roller
        self._retention = retention
        self._merger = merger
        self._segments = segments
        self._garbage = garbage
        self._shared = shared
        self._clock = clock
        self._settings = settings
        self._values = values
        self._limit = RateLimited(interval_s=LOG_INTERVAL_S)
        self._collect_again_s: dict[TopicPartition, float] = {}
        self._retain_again_s: dict[TopicPartition, float] = {}
        """When upkeep is tried again of partitions, open or not, whose upkeep took too long, in the event loop's
        seconds."""

    def forget(self, tp: TopicPartition) -> None:
        """The partition has left."""
        self._collect_again_s.pop(tp, None)
        self._retain_again_s.pop(tp, None)

    async def run(self) -> None:
        """Rolls by age, deletes what was given up. Until cancelled, or this broker was replaced."""
        while self._ownership.alive:
            for step in (self._roll_old, self._garbage.sweep, self._forget_producers):
                await self._go_on_after(step)
            self._measure()
            await asyncio.sleep(self._settings.upkeep_interval_ms / 1000)

    async def run_retention(self) -> None:
        """Retention, merges and the collection of what earlier owners left, partition by partition. Until cancelled, or
        this broker was replaced.

        Data grows old in partitions, too, that nobody writes to or reads any more: those that have some are opened for
        it, one by one.
        """
        while self._ownership.alive:
            await self._until_retention_is_due()
            for tp in self._ownership.unopened():
                await self._go_on_after(
                    partial(self._limited, tp, partial(self._ownership.open_for_upkeep, tp), OPENING_S)
                )
            for number, partition in enumerate(list(self._ownership.partitions.values())):
                await self._go_on_after(
                    partial(self._limited, partition.tp, partial(self._retain, partition), RETAINING_S)
                )
                if number % YIELD_EVERY == YIELD_EVERY - 1:
                    await asyncio.sleep(0)
            if self._ownership.alive:
                await self._go_on_after(self._shared.sweep_if_due)

    async def _until_retention_is_due(self) -> None:
        """The interval may be changed meanwhile."""
        loop = asyncio.get_running_loop()
        since_s = loop.time()
        while (left_s := since_s + self._values.broker.retention_interval_ms / 1000 - loop.time()) > 0:
            await asyncio.sleep(min(left_s, INTERVAL_LOOK_S))

    async def _go_on_after(self, step: Callable[[], Awaitable[None]]) -> None:
        """Whatever a step fails with, upkeep goes on: it comes again at the next round."""
        loop = asyncio.get_running_loop()
        try:
            await step()
        except (BmqError, OSError) as error:
            if (left_out := self._limit.due(type(error).__name__, now=loop.time())) is not None:
                log.warning("upkeep failed, tried again later", error=str(error), left_out=left_out)
        except Exception as error:  # noqa: BLE001 - a bug: it is told to the loop, and the other partitions have their upkeep
            loop.call_exception_handler({"message": "a step of the broker's upkeep failed", "exception": error})

    async def _limited(self, tp: TopicPartition, step: Callable[[], Awaitable[None]], limit_s: float) -> None:
        """The step, or nothing where one took too long a while ago."""
        loop = asyncio.get_running_loop()
        if loop.time() < self._retain_again_s.get(tp, 0.0):
            return
        self._retain_again_s.pop(tp, None)
        began_s = loop.time()
        try:
            await within(step(), limit_s)
        finally:
            if loop.time() - began_s >= limit_s:
                self._retain_again_s[tp] = loop.time() + RETAINED_AGAIN_S

    async def _forget_producers(self) -> None:
        """Whoever writes makes a partition remember a producer for each id that it makes up: for a day, but for
        this.
        """
        partitions = [
            partition
            for partition in self._ownership.partitions.values()
            if len(partition.live) or len(partition.rolled)
        ]
        counts = [max(len(partition.live), len(partition.rolled)) for partition in partitions]
        further = [max(partition.live.further, partition.rolled.further) for partition in partitions]
        each, together = self._settings.producers_per_partition, self._settings.producers_per_broker
        await asyncio.sleep(0)
        most = at_most(counts, each=each, together=together)
        most_further = at_most(further, each=KEPT_BATCHES * each, together=KEPT_BATCHES * together)
        if max(counts, default=0) <= most and max(further, default=0) <= most_further:
            return
        await asyncio.sleep(0)
        for number, partition in enumerate(partitions):
            if counts[number] > most or further[number] > most_further:
                partition.keep_newest_producers(most, most_further)
                await asyncio.sleep(0)

    async def _roll_old(self) -> None:
        now_ms = self._clock.now_ms()
        old, named, moved = [], [], []
        for number, partition in enumerate(list(self._ownership.partitions.values())):
            runs = partition.tail.runs
            if runs and now_ms - runs[0].since_ms >= partition.config.segment_ms:
                old.append(partition)
            elif runs and len(partition.ranges) >= self._settings.ranges_max and not partition.covers_ranges():
                named.append(partition)
            elif runs and partition.ranges and self._pins_another(partition, now_ms=now_ms):
                moved.append(partition)
            else:
                self._roller.grown(partition)
            if number % YIELD_EVERY == YIELD_EVERY - 1:
                await asyncio.sleep(0)
        self._roller.start_together(old, "age")
        self._roller.carry_or_roll(named, "ranges")
        self._roller.carry_or_roll(moved, "moved")
        self._roller.consider()

    def _pins_another(self, partition: Partition, *, now_ms: int) -> bool:
        """Whether a living broker has had to keep its WAL for this partition for long enough. A sealed stream does not
        grow.
        """
        oldest = partition.tail.runs[0]
        if oldest.slot is not None or now_ms - oldest.since_ms < self._settings.inherited_roll_ms:
            return False
        sealed = self._metadata.image.sealed
        return any(stream_of(found) not in sealed for found in partition.ranges)

    async def _retain(self, partition: Partition) -> None:
        if not self._ownership.is_open(partition.tp):
            return
        partition.forget_turns(lambda producer_id: producer_id not in self._metadata.image.turn_ids)
        now_ms = self._clock.trusted_now_ms()
        if now_ms is not None:
            partition.settle_producers(
                forget_before_ms=now_ms - self._values.broker.producer_expiry_ms, shorten_before_ms=now_ms - SILENT_MS
            )
        try:
            await self._manifests.find_out(partition)
            await self._retention.apply(partition)
            while await self._merger.merge(partition):
                pass
            await self._collect(partition)
        except ObjectMissing:
            async with self._manifests.lock(partition.tp):
                await self._manifests.refresh(partition)
            raise

    async def _collect(self, partition: Partition) -> None:
        """Gives up what no manifest names: once per ownership, after the own claim holds, and again from time to time.

        An earlier owner can commit nothing any more, so what is not named now never will be. Nor will what this owner
        made, while nobody writes for the partition and the outcome of all its commits is known. A create that was on
        its way is found the next time.

        Unless something is missing that the manifest does name: then versions after it may be, which a merge or a
        snapshot made, and what was made from the missing ones is named by nothing any more.
        """
        tp, loop = partition.tp, asyncio.get_running_loop()
        if not partition.claimed or loop.time() < self._collect_again_s.get(tp, 0.0):
            return
        async with self._manifests.lock(tp):
            settled = self._manifests.settled(tp)
            entries = await self._segments.entries(tp, partition.manifest)
            named = {entry.key for entry in entries} | partition.manifest.keys()
            missing = {key for key in named if not key.startswith(SHARED_PREFIX)}
            if partition.unnamed is not None:
                named.add(partition.unnamed.entry.key)
            orphans, pages = [], []
            strays: dict[str, int] = {}
            for prefix in (segment_prefix(tp), coordinator_snapshot_prefix(tp)):
                async for meta in self._store.list(prefix):
                    missing.discard(meta.key)
                    parsed = parse_numbered_key(prefix, meta.key)
                    if parsed is None or meta.key in named:
                        continue
                    if prefix == segment_prefix(tp) and partition.is_stray(parsed.leader_epoch, parsed.offset):
                        strays[meta.key] = parsed.offset
                        continue
                    if parsed.leader_epoch < partition.leader_epoch or (
                        settled and parsed.leader_epoch == partition.leader_epoch
                    ):
                        orphans.append(meta.key)
            async for meta in self._store.list(manifest_page_prefix(tp)):
                missing.discard(meta.key)
                if meta.key not in named and (settled or meta.key not in self._manifests.pages_of(tp)):
                    pages.append(meta.key)
            missing |= await self._missing_shared(tp, entries, orphans)
            # Pages' keys have no epoch: whose they are follows from there having been no heir when they were listed, as
            # is made sure of before any is deleted.
            if not partition.claimed or partition.state is not PartitionState.APPENDING:
                return
            if strays:
                self._keep(partition, strays)
            elif missing:
                log.error(
                    "objects are missing that the manifest names: what it does not name may be all that is left of "
                    "them, and stays",
                    partition=str(tp),
                    key=min(missing),
                    count=len(missing),
                    kept=len(orphans) + len(pages),
                )
            else:
                self._garbage.give_up((*orphans, *pages))
            self._collect_again_s[tp] = loop.time() + self._settings.collect_again_ms / 1000

    async def _missing_shared(
        self, tp: TopicPartition, entries: Sequence[SegmentEntry], orphans: Sequence[str]
    ) -> set[str]:
        """Shared segments that are gone, of those that a merge may have made one of `orphans` from: it begins where the
        first of them did.
        """
        prefix = segment_prefix(tp)
        begins = [parsed.offset for key in orphans if (parsed := parse_numbered_key(prefix, key)) is not None]
        if not begins:
            return set()
        missing: set[str] = set()
        for key in {
            entry.key for entry in entries if entry.key.startswith(SHARED_PREFIX) and entry.last_offset >= min(begins)
        }:
            try:
                await self._store.head(key)
            except ObjectMissing:
                missing.add(key)
        return missing

    def _keep(self, partition: Partition, strays: Mapping[str, int]) -> None:
        """What missing versions of the manifest named stays, and all else that nothing names: some of it may be theirs,
        too.
        """
        in_order = sorted(strays.items(), key=lambda each: each[1])
        # Offsets of those that begin lower were given again already; those of the others must not be.
        key, base_offset = next((each for each in in_order if each[1] >= partition.recovered_next_offset), in_order[0])
        stops = partition.stop_for_stray(key, base_offset)
        log.error(
            "segment of an earlier owner begins above the end that it left: manifest versions are missing",
            partition=str(partition.tp),
            key=key,
            offset=base_offset,
            count=len(strays),
            stopped=stops,
        )

    def _measure(self) -> None:
        TAIL_BYTES.set(self._roller.tail_bytes)
        BUFFERED_BYTES.set(self._commit.buffered_bytes)
        PARTITIONS.labels("appending").set(len(self._ownership.partitions))
        PARTITIONS.labels("leaving").set(self._lives.left_count)
        refusing = sum(
            1 for each in self._ownership.partitions.values() if each.stray is not None and each.cannot_roll is None
        )
        PARTITIONS.labels("stopped").set(self._roller.stopped_count + self._ownership.stopped_count + refusing)

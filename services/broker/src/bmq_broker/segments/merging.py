"""Merging: the small segments that quiet partitions collect become larger ones, each byte a few times in its life."""

import asyncio
from collections.abc import Sequence
from functools import partial
from itertools import islice

from bmq.errors import NotOwner
from bmq.ports import ObjectStore, Rng
from bmq.storage.durable import create_once
from bmq.storage.keys import segment_key
from bmq.storage.manifest import Manifest
from bmq.storage.segment import SegmentEntry, decode_producer_snapshot
from bmq.values import Offset
from bmq_broker.metrics import MERGES
from bmq_broker.partitions.partition import Partition
from bmq_broker.segments.building import Building, merged_segment
from bmq_broker.segments.manifests import ManifestMoved, Manifests
from bmq_broker.segments.reading import Segments
from bmq_broker.settings import BrokerSettings


def plan_merge(
    entries: Sequence[SegmentEntry],
    *,
    merge_below_bytes: int,
    merge_count: int,
    target_bytes: int,
    span_ms_max: int | None = None,
) -> tuple[SegmentEntry, ...]:
    """Neighbours worth merging, or nothing.

    At least `merge_count` of them, each below `merge_below_bytes`, at most `target_bytes` together (a merge holds them
    in memory), none larger than all the others together: so a byte is written again only when its segment at least
    doubles. Nor do they span more time than `span_ms_max`: a segment goes when its newest record is too old.
    """
    for first in range(len(entries) - merge_count + 1):
        chosen: list[SegmentEntry] = []
        size_bytes = 0
        oldest_ms, newest_ms = entries[first].min_timestamp_ms, entries[first].max_timestamp_ms
        for entry in islice(entries, first, None):
            if entry.length >= merge_below_bytes or size_bytes + entry.length > target_bytes:
                break
            oldest_ms = min(oldest_ms, entry.min_timestamp_ms)
            newest_ms = max(newest_ms, entry.max_timestamp_ms)
            if span_ms_max is not None and newest_ms - oldest_ms > span_ms_max:
                break
            chosen.append(entry)
            size_bytes += entry.length
        if len(chosen) >= merge_count and 2 * max(entry.length for entry in chosen) <= size_bytes:
            return tuple(chosen)
    return ()


class Merger:
    """Merges segments of one broker's partitions."""

    def __init__(
        self,
        *,
        store: ObjectStore,
        cluster_id: str,
        rng: Rng,
        manifests: Manifests,
        segments: Segments,
        settings: BrokerSettings,
    ) -> None:
        self._store = store
        self._cluster_id = cluster_id
        self._rng = rng
        self._manifests = manifests
        self._segments = segments
        self._settings = settings

    async def merge(self, partition: Partition) -> bool:
        """Merges once where it is worth it; returns whether it did. Raises BmqError."""
        async with self._manifests.lock(partition.tp):
            chosen = plan_merge(
                partition.manifest.entries,
                merge_below_bytes=self._settings.merge_below_bytes,
                merge_count=self._settings.merge_count,
                target_bytes=min(self._settings.merge_target_bytes, partition.config.segment_bytes),
                span_ms_max=partition.config.segment_ms,
            )
            if not chosen:
                return False
            data = [
                (await self._segments.index(partition.tp, entry), await self._segments.batches(entry))
                for entry in chosen
            ]
            newest = chosen[-1]
            snapshot = await self._store.get(newest.key, start=newest.snapshot_position, length=newest.snapshot_length)
            nonce = self._rng.nonce()
            building = Building(
                nonce=nonce, cluster_id=self._cluster_id, tp=partition.tp, leader_epoch=partition.leader_epoch
            )
            build = partial(merged_segment, building, data, bytes(decode_producer_snapshot(snapshot)))
            encoded = await asyncio.get_running_loop().run_in_executor(None, build)
            key = segment_key(partition.tp, partition.leader_epoch, Offset(chosen[0].base_offset), nonce)
            await create_once(self._store, key, encoded.parts, nonce=nonce, rng=self._rng)
            (entry,) = encoded.entries_at(key)

            def edit(manifest: Manifest) -> Manifest:
                if not set(chosen) <= set(manifest.entries):
                    raise ManifestMoved(f"manifest of {partition.tp} no longer names what was merged")
                return manifest.replace(chosen, entry)

            try:
                await self._manifests.commit(partition, edit)
            except (ManifestMoved, NotOwner):
                return False
            MERGES.inc()
            return True

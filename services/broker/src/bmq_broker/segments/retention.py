"""Retention: the log start rises by time, by size, or because somebody asked; segments wholly below it go."""

from collections.abc import Mapping, Sequence

from bmq.clocks.clock_guard import ClockGuard
from bmq.errors import PolicyViolation
from bmq.storage.manifest import Manifest, PageRef, part_size_bytes, retained_among
from bmq.storage.segment import SegmentEntry
from bmq.values import Offset
from bmq_broker.partitions.partition import Partition
from bmq_broker.segments.manifests import Manifests
from bmq_broker.segments.reading import Segments
from bmq_broker.segments.roll_writing import PATIENCE_S, within
from bmq_broker.segments.rolling import Roller

DAY_MS = 86_400_000
BELOW_SNAPSHOT_BYTES_MAX = 64 * 1024 * 1024
"""What a coordinator's snapshot covers stays in the log for a day, and no more of it than this: whoever overwrites one
offset again and again makes no less of it than who writes new ones."""


class Retention:
    """Raises the log starts of one broker's partitions."""

    def __init__(self, *, manifests: Manifests, segments: Segments, roller: Roller, clock: ClockGuard) -> None:
        self._manifests = manifests
        self._segments = segments
        self._roller = roller
        self._clock = clock

    async def raise_log_start(self, partition: Partition, offset: Offset) -> None:
        """Durable when it returns. Raises BmqError."""
        async with self._manifests.lock(partition.tp):
            await within(self._raise(partition, offset), PATIENCE_S)

    async def apply(self, partition: Partition) -> None:
        """Lets go of segments that are too old or too many; of none for its age where this node's clock is not trusted.
        Raises BmqError.
        """
        config = partition.config
        now_ms = self._clock.trusted_now_ms()
        if config.delete and config.retention_ms >= 0 and now_ms is not None:
            await self._roll_expired_tail(partition, before_ms=now_ms - config.retention_ms)
        async with self._manifests.lock(partition.tp):
            await self._raise(partition, await self._log_start_after(partition))

    async def _raise(self, partition: Partition, offset: Offset) -> None:
        if offset <= partition.log_start:
            return
        loads_from = _loads_from(partition)
        if loads_from is not None and offset > loads_from:
            raise PolicyViolation(
                f"a coordinator loads {partition.tp} from offset {loads_from} on: nothing above it can be deleted"
            )
        await self._manifests.commit(partition, lambda manifest: manifest.raise_log_start(offset))

    async def _roll_expired_tail(self, partition: Partition, *, before_ms: int) -> None:
        runs = partition.tail.runs
        if runs and all(0 <= run.max_timestamp_ms < before_ms for run in runs):
            await self._roller.roll_to(partition, partition.high_watermark, "retention")

    async def _log_start_after(self, partition: Partition) -> Offset:
        """By the partition's configuration and a clock that is trusted when this returns. The partition's lock is
        held.
        """
        read: dict[str, Sequence[SegmentEntry]] = {}
        while True:
            offset, page = self._decided(partition, read)
            if page is None:
                return offset
            # the clock may jump meanwhile: all is decided again
            read[page.key] = await self._segments.page(partition.tp, page)

    def _decided(
        self, partition: Partition, read: Mapping[str, Sequence[SegmentEntry]]
    ) -> tuple[Offset, PageRef | None]:
        """The log start, or which page of the manifest has to be read to know it. In one turn with the look whether the
        clock is trusted.
        """
        config = partition.config
        manifest = partition.manifest
        now_ms = self._clock.trusted_now_ms()
        offset = int(manifest.log_start)
        if config.delete:
            before_ms = now_ms - config.retention_ms if now_ms is not None and config.retention_ms >= 0 else None
            size_bytes_max = config.retention_bytes if config.retention_bytes >= 0 else None
            offset, page = manifest.retained_from(before_ms=before_ms, size_bytes_max=size_bytes_max)
            if page is not None:
                if page.key not in read:
                    return Offset(offset), page
                entries = read[page.key]
                later_bytes = sum(
                    part_size_bytes(part) for part in manifest.parts if part.base_offset >= page.base_offset
                )
                excess_bytes = None if size_bytes_max is None else later_bytes - size_bytes_max
                kept = retained_among(entries, before_ms=before_ms, excess_bytes=excess_bytes)
                offset = max(offset, entries[kept].base_offset if kept < len(entries) else page.last_offset + 1)
        offset = max(offset, _needed_from(manifest, before_ms=None if now_ms is None else now_ms - DAY_MS))
        loads_from = _loads_from(partition)
        return (
            Offset(offset) if loads_from is None else min(Offset(offset), max(partition.log_start, loads_from))
        ), None


def _needed_from(manifest: Manifest, *, before_ms: int | None) -> int:
    """What of the log a coordinator's snapshot covers goes by age, where the clock is trusted, or because there is too
    much of it.
    """
    snapshot = manifest.coordinator_snapshot
    if snapshot is None:
        return int(manifest.log_start)
    covered = [part for part in manifest.parts if part.last_offset < snapshot.offset]
    excess_bytes = sum(map(part_size_bytes, covered)) - BELOW_SNAPSHOT_BYTES_MAX
    offset = int(manifest.log_start)
    for part in covered:
        if excess_bytes <= 0 and (before_ms is None or part.max_timestamp_ms >= before_ms):
            break
        excess_bytes -= part_size_bytes(part)
        offset = max(offset, part.last_offset + 1)
    return offset


def _loads_from(partition: Partition) -> Offset | None:
    """Where what a coordinator needs of the log begins: at its newest snapshot, or at the very beginning. None: no
    coordinator loads from it.
    """
    if not partition.config.holds_state:
        return None
    snapshot = partition.manifest.coordinator_snapshot
    return Offset(0) if snapshot is None else Offset(snapshot.offset)

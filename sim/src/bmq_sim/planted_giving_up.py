"""Bugs to plant around what a manifest version gives up, and around versions that cannot be written: see
bmq_sim.planted.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any, Final
from unittest.mock import patch

from bmq.metadata.records import Range
from bmq.storage.manifest import Manifest
from bmq.values import Offset, TopicPartition
from bmq_broker.ownership import ownership
from bmq_broker.partitions import partition as partitions
from bmq_broker.segments import manifests, retention, stopped_partitions
from bmq_broker.segments.released import PageEntries


def _give_up_page() -> AbstractContextManager[Any]:
    """What a page names that was written again goes, though the new page names most of it."""

    def released(old: Manifest, new: Manifest, entries: PageEntries) -> frozenset[str]:
        gone = [page for page in old.pages if page not in new.pages]
        return (old.keys() | {entry.key for page in gone for entry in entries.get(page.key, ())}) - new.keys()

    return patch("bmq_broker.segments.manifests.released", new=released)


def _give_up_after_move() -> AbstractContextManager[Any]:
    """What a version names no more goes, whoever's the partition is when that comes to stand."""

    async def take_into_force(
        self: manifests.Manifests,
        partition: partitions.Partition,
        manifest: Manifest,
        entry: Any,
        known: PageEntries,
        *,
        rolled: Any,
    ) -> None:
        before = partition.manifest
        self._covered(partition.manifest_changed(manifest, entry, rolled=rolled))
        self._give_up(await self._released(partition.tp, before, manifest, known))  # type: ignore[arg-type]

    return patch.object(manifests.Manifests, "_take_into_force", autospec=True, side_effect=take_into_force)


def _late_version_deletes() -> AbstractContextManager[Any]:
    """Who raised a log start gives up what the version before named, as soon as the new one stands."""
    real = retention.Retention.raise_log_start

    async def raise_log_start(self: retention.Retention, partition: partitions.Partition, offset: Offset) -> None:
        before = partition.manifest
        await real(self, partition, offset)
        self._manifests._give_up(before.keys() - partition.manifest.keys())

    return patch.object(retention.Retention, "raise_log_start", autospec=True, side_effect=raise_log_start)


def _stopped_for_ever() -> AbstractContextManager[Any]:
    """A partition that could not be rolled refuses records for good, though its roll succeeds by now."""

    def rolled(self: stopped_partitions.StoppedPartitions, partition: partitions.Partition) -> None:
        return None

    return patch.object(stopped_partitions.StoppedPartitions, "rolled", autospec=True, side_effect=rolled)


def _newest_there_is_the_newest() -> AbstractContextManager[Any]:
    """What is there of a partition's manifest counts, whatever segments and metadata tell of versions that are
    missing.
    """
    real = manifests.Manifests.load

    async def load(self: manifests.Manifests, tp: TopicPartition, **known: Any) -> manifests.Loaded:
        loaded = await real(self, tp, **{**known, "at_least": 0})
        return loaded._replace(beyond=())

    return patch.object(manifests.Manifests, "load", autospec=True, side_effect=load)


def _restored_reads_covered_ranges() -> AbstractContextManager[Any]:
    """What stopped a partition is read again from ranges that its opening began with, though they were covered since
    and their streams are gone.
    """

    def still_named(self: ownership.Ownership, tp: TopicPartition, ranges: tuple[Range, ...]) -> tuple[Range, ...]:
        return ranges

    return patch.object(ownership.Ownership, "_still_named", autospec=True, side_effect=still_named)


PLANTED_GIVING_UP: Final[Mapping[str, Callable[[], AbstractContextManager[Any]]]] = {
    "give-up-page": _give_up_page,
    "give-up-after-move": _give_up_after_move,
    "late-version-deletes": _late_version_deletes,
    "stopped-for-ever": _stopped_for_ever,
    "newest-there-is-the-newest": _newest_there_is_the_newest,
    "restored-reads-covered-ranges": _restored_reads_covered_ranges,
}

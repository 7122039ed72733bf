"""What the manifests here cover of earlier owners' streams, and which versions there are: told to the controller until
the image shows it.
"""

from collections.abc import Mapping
from typing import Final

from bmq.metadata.records import Range
from bmq.roles.controller import Metadata
from bmq.values import NO_MANIFEST, ManifestVersion, TopicPartition
from bmq_broker.ownership.inheriting import Ranges
from bmq_broker.partitions.partition import Partition

VERSIONS_APART: Final = 16
"""So many newer than the one that the image knows is a version that is told: as many as are kept behind the newest."""

Covered = tuple[tuple[TopicPartition, tuple[Range, ...]], ...]


class Coverage:
    """Knows of one broker's partitions, open or not, what their manifests cover and which versions there are."""

    def __init__(self, *, partitions: Mapping[TopicPartition, Partition], metadata: Metadata) -> None:
        self._partitions = partitions
        self._metadata = metadata
        self._nothing: dict[TopicPartition, tuple[Range, ...]] = {}
        self._left: dict[TopicPartition, tuple[Range, ...]] = {}

    def held_nothing(self, ranges: Ranges) -> None:
        """These ranges were read and hold nothing of their partitions: they are covered as they are."""
        self._nothing.update(ranges)

    def left(self, partition: Partition) -> None:
        """It leaves by plan. What its manifest covers is told with the report that it is closed, so that its heir need
        not read it.
        """
        if partition.ranges and partition.manifest.next_offset >= partition.recovered_next_offset:
            self._left[partition.tp] = partition.ranges

    def forget(self, tp: TopicPartition) -> None:
        """The partition is not this broker's any more."""
        self._nothing.pop(tp, None)

    def current(self, *, count_max: int) -> Covered:
        """What is covered and still in the image, of `count_max` partitions at most."""
        image = self._metadata.image
        for known in (self._nothing, self._left):
            for tp, ranges in list(known.items()):
                meta = image.partition(tp)
                if meta is None or not set(ranges) & set(meta.ranges):
                    del known[tp]
        covered = self._left | self._nothing
        for tp, partition in self._partitions.items():
            if len(covered) >= count_max:
                break
            if partition.ranges and partition.covers_ranges():
                covered[tp] = partition.ranges
        return tuple(covered.items())[:count_max]

    def manifests(self, *, count_max: int) -> tuple[tuple[TopicPartition, ManifestVersion], ...]:
        """The versions in force of which the image has yet to know, of `count_max` partitions at most: of each the
        first, then some.

        Where all versions from the known one on are missing, somebody deleted them, and no heir begins anew.
        """
        image = self._metadata.image
        found: list[tuple[TopicPartition, ManifestVersion]] = []
        for tp, partition in self._partitions.items():
            version = partition.manifest_version
            if version == NO_MANIFEST or (meta := image.partition(tp)) is None:
                continue
            known = meta.manifest_version
            if known == NO_MANIFEST or version >= known + VERSIONS_APART:
                found.append((tp, version))
                if len(found) == count_max:
                    break
        return tuple(found)

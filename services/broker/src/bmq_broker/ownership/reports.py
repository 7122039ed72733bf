"""What is told to the controller of partitions' lives until the image shows it: where the ranges of those that left by
plan end, what manifests cover of earlier owners' streams, and which versions of manifests there are.
"""

from typing import Final

from bmq.metadata.image import PartitionMeta
from bmq.metadata.records import Range
from bmq.roles.controller import ClosedPartition, Metadata
from bmq.values import NO_MANIFEST, ManifestVersion, StreamId, TopicPartition
from bmq_broker.ownership.life import NOT_YET, Lives

VERSIONS_APART: Final = 16
"""So many newer than the one that the image knows is a version that is told: as many as are kept behind the newest."""

Covered = tuple[tuple[TopicPartition, tuple[Range, ...]], ...]


class Reports:
    """What one broker incarnation has to tell the controller of its partitions, until the image shows it."""

    def __init__(self, stream: StreamId, *, lives: Lives, metadata: Metadata) -> None:
        self._stream = stream
        self._lives = lives
        self._metadata = metadata

    def closed(self, *, count_max: int) -> tuple[ClosedPartition, ...]:
        """Those that are closed and that the image still gives to this broker, under the leader epoch under which they
        were closed.
        """
        image = self._metadata.image
        found: list[ClosedPartition] = []
        for tp, lives in self._lives.left():
            if len(found) == count_max:
                break
            meta = image.partition(tp)
            life = lives.get(meta.leader_epoch) if meta is not None and self._is_owned(meta) else None
            if life is not None and life.end != NOT_YET:
                found.append(ClosedPartition(tp=tp, leader_epoch=life.leader_epoch, end=life.end, start=life.start))
        return tuple(found)

    def covered(self, *, count_max: int) -> Covered:
        """What is covered and still in the image, of `count_max` partitions at most."""
        image = self._metadata.image
        for known in (self._lives.held_nothing, self._lives.covered_by_left):
            for tp, ranges in list(known.items()):
                meta = image.partition(tp)
                if meta is None or not set(ranges) & set(meta.ranges):
                    del known[tp]
        covered = self._lives.covered_by_left | self._lives.held_nothing
        for tp, partition in self._lives.appending.items():
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
        for tp, partition in self._lives.appending.items():
            version = partition.manifest_version
            if version == NO_MANIFEST or (meta := image.partition(tp)) is None:
                continue
            known = meta.manifest_version
            if known == NO_MANIFEST or version >= known + VERSIONS_APART:
                found.append((tp, version))
                if len(found) == count_max:
                    break
        return tuple(found)

    def _is_owned(self, meta: PartitionMeta) -> bool:
        return (meta.node_id, meta.broker_epoch) == self._stream

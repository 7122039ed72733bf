"""Audits segments that several partitions share, once all manifests are known: each is read once, for all that name
runs of it.
"""

from array import array
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import msgspec
from crc32c import crc32c

from bmq.errors import ObjectMissing
from bmq.metadata.image import Image
from bmq.storage.durable import together
from bmq.storage.keys import SHARED_PREFIX
from bmq.storage.segment import SegmentEntry
from bmq.values import TopicPartition
from bmq_audit.findings import Kind, Report
from bmq_audit.partitions.state import SharedRun
from bmq_audit.places import PlaceKind, place_of
from bmq_audit.reading import Reader
from bmq_audit.segments.segment import AuditedRun, AuditedSegment, SegmentAudit
from bmq_audit.segments.shared_spares import writer_lives
from bmq_audit.unopenable import MEANS

_FIELDS: Final = 3
"""How many numbers `SharedNames` keeps of a named run: the partition's number here, the run's position, the checksum of
its entry."""


class SharedNames:
    """Which runs of which shared segments manifests name. 24 bytes each, for there may be millions."""

    def __init__(self) -> None:
        self._runs: dict[str, array[int]] = {}
        self._partitions: list[TopicPartition] = []
        self._numbers: dict[TopicPartition, int] = {}
        self._pinned: set[str] = set()

    def add(self, runs: Iterable[SharedRun]) -> None:
        """What one manifest names."""
        for tp, entry in runs:
            number = self._numbers.get(tp)
            if number is None:
                number = self._numbers[tp] = len(self._partitions)
                self._partitions.append(tp)
            self._runs.setdefault(entry.key, array("q")).extend((number, entry.position, _sum_of(entry)))

    def pin(self, key: str) -> None:
        """A manifest without segments names this one for its producer snapshot."""
        self._pinned.add(key)

    def is_pinned(self, key: str) -> bool:
        """Whether one does."""
        return key in self._pinned

    def keys(self) -> set[str]:
        """Every shared segment of which a run is named."""
        return set(self._runs)

    def take(self, key: str) -> list[tuple[TopicPartition, int, int]]:
        """(partition, position, checksum of the entry) of each run of it that is named; forgets them."""
        runs = self._runs.pop(key, array("q"))
        return [(self._partitions[runs[at]], runs[at + 1], runs[at + 2]) for at in range(0, len(runs), _FIELDS)]


class SharedAudit:
    """Audits the shared segments of one store. `lost` has the (key, position) of runs that cannot be read, by
    partition.

    `beyond` has partitions of which there is a run that nothing names, and that is at or above their ends: newer
    versions of their manifests named it, and are missing. Not where who wrote it still runs, by the metadata: this may
    be a copy that was made meanwhile, in which another partition's manifest is newer.
    """

    def __init__(
        self,
        reader: Reader,
        report: Report,
        *,
        image: Image,
        names: SharedNames,
        segments: SegmentAudit,
        epoch_of: Callable[[TopicPartition], int],
        is_beyond: Callable[[TopicPartition, int], bool],
        quick: bool,
    ) -> None:
        """`epoch_of`: the leader epoch of a partition's newest manifest version, -1 without one, or where something is
        wrong with the partition.

        `is_beyond`: whether an offset of a partition is neither below its manifest's end nor in the WAL.
        """
        self._reader = reader
        self._report = report
        self._image = image
        self._names = names
        self._segments = segments
        self._epoch_of = epoch_of
        self._is_beyond = is_beyond
        self._quick = quick
        self.lost: dict[TopicPartition, set[tuple[str, int]]] = {}
        self.beyond: set[TopicPartition] = set()

    async def run(self) -> None:
        """Every object below `shared/`, then what is named and not there. Raises StoreLost."""
        group: list[tuple[str, int]] = []
        async for meta in self._reader.list(SHARED_PREFIX):
            place = place_of(meta.key)
            if place is None or place.kind is not PlaceKind.SHARED_SEGMENT:
                continue
            group.append((meta.key, meta.size_bytes))
            if len(group) >= self._reader.at_once:
                await together(self._audit(key, size_bytes) for key, size_bytes in group)
                group = []
        await together(self._audit(key, size_bytes) for key, size_bytes in group)
        for key in sorted(self._names.keys()):
            self._gone(key)

    async def _audit(self, key: str, size_bytes: int) -> None:
        named = self._names.take(key)
        self._report.checked.objects += 1
        self._report.checked.segments += 1
        if self._quick and (named or self._names.is_pinned(key)):
            return
        try:
            found = await self._segments.run(key, size_bytes)
        except ObjectMissing:  # deleted since it was listed, by its owner, who knows that nobody needs it
            if named:
                self._lose(key, named, Kind.LOST, "a shared segment that is not there")
            return
        self._report.checked.batches += sum(run.batches for run in found.runs)
        self._report.checked.records += sum(run.records for run in found.runs)
        self._compare(key, found, named, size_bytes)
        known = {(tp, position) for tp, position, _ in named}
        if not writer_lives(self._image, key):
            self.beyond |= {
                run.tp
                for run in found.runs
                if (run.tp, run.position) not in known and self._is_beyond(run.tp, run.base_offset)
            }
        if not named and not self._names.is_pinned(key):
            self._unnamed(key, found, size_bytes)

    def _gone(self, key: str) -> None:
        self._lose(key, self._names.take(key), Kind.LOST, "a shared segment that is not there")

    def _compare(
        self, key: str, found: AuditedSegment, named: Sequence[tuple[TopicPartition, int, int]], size_bytes: int
    ) -> None:
        by_position = {position: tp for tp, position, _ in named}
        for problem in found.problems:
            tp = by_position.get(problem.run) if problem.run is not None else None
            if problem.run is not None and tp is None:
                self._report.note(
                    Kind.KEPT, key, f"{problem.text}. No manifest names this run of it", size_bytes=size_bytes
                )
                continue
            self._report.fault(
                problem.kind, key, problem.text, topic=self._label(tp) if tp is not None else "", size_bytes=size_bytes
            )
        for batch in found.unopenable:
            tp = by_position.get(batch.run) if batch.run is not None else None
            if tp is not None:
                self._report.fault(
                    batch.kind, key, f"{batch.text}. It is {MEANS}", topic=self._label(tp), size_bytes=size_bytes
                )
        if found.is_unreadable:
            return  # a newer bmq may read it, or this one tomorrow: nothing is given up for that
        for tp, position, entry_sum in named:
            run = found.run_at(position)
            if run is None and not found.directory:
                self._lose(key, [(tp, position, entry_sum)], Kind.DAMAGED, "its directory cannot be read")
            elif run is None or run.tp != tp:
                self._lose(
                    key,
                    [(tp, position, entry_sum)],
                    Kind.DISAGREES,
                    f"a run at byte {position} is named, and it has none of this partition there",
                )
            elif not run.usable:
                self._lose(key, [(tp, position, entry_sum)], Kind.DAMAGED, f"the run at byte {position} cannot be read")
            elif run.entry is not None and _sum_of(run.entry) != entry_sum:
                self._report.fault(
                    Kind.DISAGREES,
                    key,
                    f"the manifest says otherwise than the run at byte {position}: {run.entry}",
                    topic=self._label(tp),
                )

    def _lose(self, key: str, named: Iterable[tuple[TopicPartition, int, int]], kind: Kind, text: str) -> None:
        for tp, position, _ in named:
            self.lost.setdefault(tp, set()).add((key, position))
            self._report.fault(
                kind,
                key,
                f"{text}: what it holds of the partition cannot be read: restore the object from a backup",
                topic=self._label(tp),
                repair="a gap in its place, or another segment that holds the same",
            )

    def _unnamed(self, key: str, found: AuditedSegment, size_bytes: int) -> None:
        """Nothing can name it once every partition that it has a run of has a manifest version of a higher leader
        epoch, or is deleted.

        Not so where a run is beyond its partition's end: who made that one had named what is below it.
        """
        place = place_of(key)
        writer = place.stream if place is not None else None
        if (
            found.directory
            and not found.is_unreadable
            and writer is not None
            and not writer_lives(self._image, key)
            and all(self._is_over(run) for run in found.runs)
        ):
            self._report.garbage(
                key,
                f"nothing names it, and nothing can: node {writer.node_id} of epoch {writer.broker_epoch} wrote "
                "it, and is gone",
                size_bytes=size_bytes,
                unread=self._quick,
            )
        else:
            self._report.note(
                Kind.UNNAMED,
                key,
                "no manifest names it yet, or any more: its writer may, else bmq deletes it",
                size_bytes=size_bytes,
            )

    def _is_over(self, run: AuditedRun) -> bool:
        if run.tp.topic_id in self._image.deleted:
            return True
        return self._epoch_of(run.tp) > run.leader_epoch and run.tp not in self.beyond

    def _label(self, tp: TopicPartition) -> str:
        topic = self._image.topics.get(tp.topic_id)
        return f"{topic.name if topic is not None else tp.topic_id}-{tp.partition}"


def _sum_of(entry: SegmentEntry) -> int:
    return crc32c(msgspec.msgpack.encode(entry))

"""The audit of a store, from the listing to the last object: what it looks at, in which order, and how much at a time.

The order is what makes it right beside a running cluster: metadata, then the WAL, then manifests, then what these name.
Whatever an owner rolls and deletes meanwhile is explained by the manifest that is read afterwards.
"""

import asyncio
from array import array
from dataclasses import dataclass
from functools import partial
from typing import Final

from bmq.config.topic_config import begins_at, first_offset_of
from bmq.metadata.image import Image
from bmq.ports import ObjectStore, Rng
from bmq.storage.durable import cancelled
from bmq.storage.keys import SHARED_PREFIX, partition_prefix
from bmq.values import TopicId, TopicPartition
from bmq_audit.findings import Level, ManifestRepair, Report
from bmq_audit.held import HeldInWal
from bmq_audit.leftovers import Unknown, tell_leftovers
from bmq_audit.metadata import Metadata, audit_metadata
from bmq_audit.partitions.listing import PartitionListing, list_partition, list_partitions
from bmq_audit.partitions.manifests import ManifestAudit
from bmq_audit.partitions.partition import DecodeState, PartitionAudit
from bmq_audit.places import PlaceKind
from bmq_audit.reading import Progress, Reader
from bmq_audit.segments.segment import DecodeProducers, SegmentAudit
from bmq_audit.segments.shared_spares import runs_of
from bmq_audit.shared import SharedAudit, SharedNames
from bmq_audit.survey import Survey, survey_store
from bmq_audit.wal.streams import WalAudit

AT_ONCE: Final = 8
"""Requests at a time, and partitions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditOptions:
    """`quick`: segments are not read, only looked for. `versions_kept`: how many manifest versions bmq keeps behind the
    newest.
    """

    decode_producers: DecodeProducers
    decode_state: DecodeState
    versions_kept: int
    quick: bool = False
    at_once: int = AT_ONCE


@dataclass(frozen=True, slots=True, kw_only=True)
class Audited:
    """What an audit leaves: the report, and the metadata that it rests on."""

    report: Report
    survey: Survey
    metadata: Metadata


async def audit_store(
    store: ObjectStore, *, rng: Rng, options: AuditOptions, progress: Progress | None = None
) -> Audited:
    """Reads the whole store; changes nothing. Raises NoMetadata (no store of bmq), StoreLost."""
    reader = Reader(store, rng=rng, at_once=options.at_once, progress=progress or Progress())
    return await _Audit(reader, options).run()


class _Audit:
    """One audit."""

    def __init__(self, reader: Reader, options: AuditOptions) -> None:
        self._reader = reader
        self._options = options
        self._report = Report()
        self._names = SharedNames()
        self._epochs: dict[TopicId, array[int]] = {}
        self._ends: dict[TopicId, array[int]] = {}
        self._wounded: set[TopicPartition] = set()
        """Looked at again, and told of only then, when it is known what shared segments have of them."""
        self._found = Unknown()

    async def run(self) -> Audited:
        reader, report, options = self._reader, self._report, self._options
        self._stage("list")
        survey = await survey_store(reader)
        reader.progress.total_bytes = survey.total.size_bytes
        if options.quick:
            reader.progress.total_bytes -= (
                survey.kinds[PlaceKind.SEGMENT].size_bytes + survey.kinds[PlaceKind.SHARED_SEGMENT].size_bytes
            )
        self._stage("metadata")
        metadata = await audit_metadata(reader, report)
        image = metadata.image
        report.cluster_id = image.cluster_id
        self._stage("WAL")
        wal = WalAudit(reader, report, image)
        await wal.run(survey.streams)
        self._stage("partitions")
        segments = SegmentAudit(reader, cluster_id=image.cluster_id, decode_producers=options.decode_producers)
        partitions = PartitionAudit(
            reader,
            image=image,
            held_in_wal=wal.held,
            manifests=ManifestAudit(reader, versions_kept=options.versions_kept, quick=options.quick),
            segments=segments,
            decode_producers=options.decode_producers,
            decode_state=options.decode_state,
            stream_end=lambda stream: survey.stream_ends.get(stream, 0),
            blocked=wal.blocked,
            quick=options.quick,
        )
        await self._partitions(partitions, image, in_wal=wal.held.partitions())
        self._stage("shared segments")
        shared = SharedAudit(
            reader,
            report,
            image=image,
            names=self._names,
            segments=segments,
            epoch_of=self._epoch_of,
            is_beyond=partial(self._is_beyond, image, wal.held),
            quick=options.quick,
        )
        await shared.run()
        await self._partitions_again(partitions, segments, shared)
        self._stage("leftovers")
        latest = await self._latest(metadata)
        self._found.streams = wal.unknown
        tell_leftovers(report, survey, before=image, now=latest, unknown=self._found)
        report.checked.size_bytes = survey.total.size_bytes
        report.checked.objects = survey.total.objects
        report.checked.read_bytes = reader.read_bytes
        if not metadata.whole or report.behind:
            report.doubt()
        report.sort()
        self._stage("")
        return Audited(report=report, survey=survey, metadata=metadata)

    def _stage(self, name: str) -> None:
        self._reader.progress.stage = name
        self._reader.progress.tell()

    async def _partitions(self, audit: PartitionAudit, image: Image, *, in_wal: set[TopicPartition]) -> None:
        """All that have objects, or something in the WAL; a few at a time."""
        queue: asyncio.Queue[PartitionListing | None] = asyncio.Queue(maxsize=self._reader.at_once)
        loop = asyncio.get_running_loop()
        workers = [
            loop.create_task(self._work(queue, audit), name=f"audit partitions {n}")
            for n in range(self._reader.at_once)
        ]
        feeding = loop.create_task(self._feed(queue, image, in_wal), name="list partitions")
        try:
            tasks = [feeding, *workers]
            await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
            for task in tasks:
                if task.done():
                    task.result()
        finally:
            await cancelled([feeding, *workers])

    async def _feed(
        self, queue: "asyncio.Queue[PartitionListing | None]", image: Image, in_wal: set[TopicPartition]
    ) -> None:
        async for listing in list_partitions(self._reader):
            in_wal.discard(listing.tp)
            if image.partition(listing.tp) is None:
                self._without_partition(listing, image)
            else:
                await queue.put(listing)
        for tp in sorted(in_wal):
            await queue.put(PartitionListing(tp))
        for _ in range(self._reader.at_once):
            await queue.put(None)

    async def _work(self, queue: "asyncio.Queue[PartitionListing | None]", audit: PartitionAudit) -> None:
        while (listing := await queue.get()) is not None:
            found = Report()
            facts = await audit.run(listing, found)
            if facts.wounded:
                self._wounded.add(listing.tp)
            else:
                self._report.take(found)
            self._names.add(facts.shared)
            if facts.pinned.startswith(SHARED_PREFIX):
                self._names.pin(facts.pinned)
            _remember(self._epochs, listing.tp, facts.epoch if facts.settled else -1)
            _remember(self._ends, listing.tp, facts.end)

    def _epoch_of(self, tp: TopicPartition) -> int:
        epochs = self._epochs.get(tp.topic_id, ())
        return epochs[tp.partition] if tp.partition < len(epochs) else -1

    def _is_beyond(self, image: Image, held_in_wal: HeldInWal, tp: TopicPartition, offset: int) -> bool:
        """Whether an offset is neither below the end of what the partition's manifest names nor in the WAL."""
        topic = image.topics.get(tp.topic_id)
        if topic is None or tp.partition >= len(topic.partitions):
            return False
        spans = held_in_wal.of(tp).spans
        ends = self._ends.get(tp.topic_id, ())
        end = ends[tp.partition] if tp.partition < len(ends) else -1
        if end < 0:  # nothing was there to look at
            end = begins_at(first_offset_of(topic.configs), (span.base for span in spans))
        return offset >= end and not any(span.base <= offset < span.end for span in spans)

    def _without_partition(self, listing: PartitionListing, image: Image) -> None:
        """A partition that the image does not have; what that means is told at the end."""
        if listing.tp.topic_id in image.topics:
            self._found.partitions[listing.tp] = listing.size_bytes
        else:
            self._found.topics.add(listing.tp.topic_id)

    async def _partitions_again(self, audit: PartitionAudit, segments: SegmentAudit, shared: SharedAudit) -> None:
        """Those of which something is missing: what is to be done about it, and with which runs of shared segments.

        Nothing is garbage any more that may stand in for what they lost.
        """
        again = sorted(self._wounded | shared.lost.keys() | shared.beyond)
        if not again:
            return
        if shared.lost or shared.beyond:
            self._report.keep(SHARED_PREFIX)
        runs = await runs_of(self._reader, segments, frozenset(again))
        for tp in again:
            found = Report()
            await audit.run(
                await list_partition(self._reader, tp),
                found,
                lost_shared=frozenset(shared.lost.get(tp, ())),
                shared_runs=runs.get(tp, ()),
            )
            if tp in self._wounded:
                self._report.take(found)
                continue
            self._report.keep(partition_prefix(tp))
            if tp in shared.beyond:
                for fault in found.findings[Level.FAULT]:
                    self._report.add(fault)
            self._report.repairs += [each for each in found.repairs if isinstance(each, ManifestRepair)]

    async def _latest(self, metadata: Metadata) -> Image:
        """The image as it is now: what was created while this looked is not foreign."""
        if not metadata.whole:
            return metadata.image
        latest = (await audit_metadata(self._reader, Report())).image
        self._report.moved_on = latest.position > metadata.position
        return latest


def _remember(numbers: dict[TopicId, "array[int]"], tp: TopicPartition, number: int) -> None:
    """One number for each partition; -1 where there is none."""
    known = numbers.setdefault(tp.topic_id, array("q"))
    known.extend([-1] * (tp.partition + 1 - len(known)))
    known[tp.partition] = number

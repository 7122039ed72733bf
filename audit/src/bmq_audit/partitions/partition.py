"""Audits one partition: its manifest, every object that this names, what the WAL holds besides, and every object that
nothing names.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Final

from bmq.config.topic_config import begins_at, first_offset_of
from bmq.errors import Corrupt, FormatError, FormatTooNew, ObjectMissing, StoreUnavailable
from bmq.fairness.grouping import in_groups
from bmq.metadata.codec import LOG_PREFIX
from bmq.metadata.image import Image
from bmq.naming.names import is_internal
from bmq.storage import leader_epochs
from bmq.storage.durable import together
from bmq.storage.keys import SHARED_PREFIX, manifest_prefix, parse_numbered_key, segment_prefix
from bmq.storage.manifest import PageRef
from bmq.storage.manifest_format import check_page
from bmq.storage.numbered import numbered_key
from bmq.storage.segment import SegmentEntry, decode_producer_snapshot
from bmq.storage.snapshot import decode_snapshot
from bmq.values import StreamId
from bmq_audit.findings import Kind, Level, Report
from bmq_audit.held import HeldInWal
from bmq_audit.manifest_repair import UnnamedRun
from bmq_audit.partitions.listing import PartitionListing, list_partition
from bmq_audit.partitions.manifests import ManifestAudit
from bmq_audit.partitions.repair import PartitionRepair
from bmq_audit.partitions.state import PartitionFacts, PartitionState, SharedRun
from bmq_audit.reading import Reader
from bmq_audit.segments.segment import AuditedSegment, SegmentAudit, difference
from bmq_audit.unopenable import MEANS

ATTEMPTS_MAX: Final = 3


DecodeState = Callable[[str, bytes], object]
"""Opens the state in a coordinator snapshot of a topic's partition; raises FormatError where it cannot."""


class PartitionAudit:
    """Audits the partitions of one store, one in each call; several may be looked at at a time."""

    def __init__(
        self,
        reader: Reader,
        *,
        image: Image,
        held_in_wal: HeldInWal,
        manifests: ManifestAudit,
        segments: SegmentAudit,
        decode_producers: Callable[[bytes], object],
        decode_state: DecodeState,
        stream_end: Callable[[StreamId], int],
        blocked: AbstractSet[StreamId],
        quick: bool,
    ) -> None:
        """`stream_end`: one above the newest number of a stream when the WAL was read. `blocked`: streams that nobody
        can read to their end.

        `quick`: no segment is read.
        """
        self._reader = reader
        self._image = image
        self._held_in_wal = held_in_wal
        self._manifests = manifests
        self._segments = segments
        self._decode_producers = decode_producers
        self._decode_state = decode_state
        self._repair = PartitionRepair(reader, image=image, segments=segments, stream_end=stream_end, blocked=blocked)
        self._quick = quick

    async def run(
        self,
        listing: PartitionListing,
        report: Report,
        *,
        lost_shared: frozenset[tuple[str, int]] = frozenset(),
        shared_runs: Sequence[UnnamedRun] = (),
    ) -> PartitionFacts:
        """Once more where an owner wrote a manifest version meanwhile.

        `lost_shared`: runs of shared segments, found not to be readable. `shared_runs`: its runs in all of them, for
        where something is missing. Raises StoreLost.
        """
        for attempt in range(ATTEMPTS_MAX):
            found = Report()
            try:
                facts = await self._look(listing, found, lost_shared, shared_runs)
            except ObjectMissing:  # a manifest version that was listed
                facts = None
            if facts is not None and (not found.count(Level.FAULT) or attempt == ATTEMPTS_MAX - 1):
                break
            again = await list_partition(self._reader, listing.tp)
            if facts is not None and max(again.manifests, default=0) == max(listing.manifests, default=0):
                break
            listing = again
        report.take(found)
        return facts if facts is not None else PartitionFacts()

    async def _look(
        self,
        listing: PartitionListing,
        report: Report,
        lost_shared: frozenset[tuple[str, int]],
        shared_runs: Sequence[UnnamedRun],
    ) -> PartitionFacts:
        tp = listing.tp
        topic = self._image.topics[tp.topic_id]
        label = f"{topic.name}-{tp.partition}"
        report.checked.partitions += 1
        report.checked.objects += listing.objects
        held = self._held_in_wal.of(tp)
        held = replace(
            held, manifest_version=max(held.manifest_version, topic.partitions[tp.partition].manifest_version)
        )
        first_offset = begins_at(first_offset_of(topic.configs), (span.base for span in held.spans))
        audited = await self._manifests.run(
            tp, listing.manifests, report, topic=label, written=held.manifest_version, first_offset=first_offset
        )
        owned = topic.partitions[tp.partition].leader_epoch
        if audited.epoch > owned and not await self._is_led_on():
            report.behind = True
            report.fault(
                Kind.DISAGREES,
                numbered_key(manifest_prefix(tp), audited.number),
                f"it is of leader epoch {audited.epoch}, and the metadata has given out {owned} at most: the "
                "newest metadata entries are missing. Do not start bmq, which would give the same epochs and ids "
                "again: restore the metadata log from a backup",
                topic=label,
            )
        state = PartitionState(
            listing=listing, topic=label, report=report, audited=audited, held=held, shared_runs=shared_runs
        )
        await self._pages(state)
        await self._named_segments(state)
        state.lost.update(run.entry for run in state.shared if (run.entry.key, run.entry.position) in lost_shared)
        await self._coordinator_snapshot(state, topic.name)
        await self._producer_snapshot(state)
        state.named |= {ref.key for ref in audited.manifest.pages} | {entry.key for entry in state.entries}
        repaired = await self._repair.run(state)
        if report.has_unreadable:
            report.promise_nothing()
        self._unnamed(
            state, frozenset(entry.key for entry in repaired.adopted) if repaired is not None else frozenset()
        )
        pinned = audited.manifest.producer_snapshot
        return PartitionFacts(
            epoch=audited.epoch,
            shared=state.shared,
            settled=not report.count(Level.FAULT),
            end=max(audited.manifest.next_offset, audited.manifest.log_start),
            wounded=repaired is not None,
            pinned=pinned.key if pinned is not None else "",
        )

    async def _is_led_on(self) -> bool:
        """Whether a controller wrote since the metadata was read."""
        return max(await self._reader.numbers(LOG_PREFIX), default=0) > self._image.position

    async def _pages(self, state: PartitionState) -> None:
        for ref in state.manifest.pages:
            try:
                state.pages.append(check_page(ref, state.listing.tp, await self._reader.get(ref.key)))
            except ObjectMissing:
                state.pages.append(None)
                self._page_lost(state, ref, Kind.LOST, "a manifest page that is not there")
            except (FormatError, StoreUnavailable) as error:
                state.pages.append(None)
                self._page_lost(state, ref, _kind_of(error), str(error))

    def _page_lost(self, state: PartitionState, ref: PageRef, kind: Kind, text: str) -> None:
        state.report.fault(
            kind,
            ref.key,
            f"{text}. It names {ref.entry_count} segments with offsets {ref.base_offset} to {ref.last_offset}, "
            "which cannot be read without it",
            topic=state.topic,
            repair="" if kind is Kind.UNREADABLE else "the segments that are there are named anew",
        )

    async def _named_segments(self, state: PartitionState) -> None:
        own: dict[str, list[SegmentEntry]] = defaultdict(list)
        for entry in state.entries:
            if entry.key.startswith(SHARED_PREFIX):
                state.shared.append(SharedRun(tp=state.listing.tp, entry=entry))
            else:
                own[entry.key].append(entry)
        state.report.checked.segments += len(own)
        for group in in_groups(list(own.items()), self._reader.at_once):
            await together(self._named_segment(state, key, entries) for key, entries in group)

    async def _named_segment(self, state: PartitionState, key: str, entries: list[SegmentEntry]) -> None:
        tp = state.listing.tp
        if any(entry.store_id for entry in entries):
            state.report.fault(
                Kind.UNREADABLE,
                key,
                f"it is in store {entries[0].store_id}, which this bmq does not know",
                topic=state.topic,
            )
            return
        size_bytes = state.listing.segments.get(key)
        promised_bytes = max(entry.snapshot_position + entry.snapshot_length for entry in entries)
        if size_bytes is None:
            size_bytes = promised_bytes  # made after the listing, or lost: reading it tells
        if self._quick and key in state.listing.segments:
            if size_bytes <= promised_bytes:
                self._segment_lost(
                    state,
                    key,
                    entries,
                    Kind.DAMAGED,
                    f"it has {size_bytes} bytes, at least {promised_bytes + 1} are promised",
                )
            return
        try:
            found = await self._segments.run(
                key, size_bytes, dense=state.manifest.kind == "dense", named=[(tp, entry) for entry in entries]
            )
        except ObjectMissing:
            self._segment_lost(state, key, entries, Kind.LOST, "a segment that is not there")
            return
        self._compare(state, found, entries, size_bytes)

    def _compare(
        self, state: PartitionState, found: AuditedSegment, entries: list[SegmentEntry], size_bytes: int
    ) -> None:
        """What the object says against what the manifest says of it."""
        tp, report = state.listing.tp, state.report
        report.checked.batches += sum(run.batches for run in found.runs)
        report.checked.records += sum(run.records for run in found.runs)
        problems = [(problem.kind, problem.text) for problem in found.problems]
        parsed = parse_numbered_key(segment_prefix(tp), found.key)
        if parsed is None:
            problems.append(
                (Kind.DISAGREES, "the manifest names it, and its key is not one of this partition's segments")
            )
        for entry in entries:
            run = found.run_at(entry.position)
            usable = run is not None and run.usable
            if run is None:
                if found.directory:
                    problems.append(
                        (Kind.DISAGREES, f"the manifest names a run of it at byte {entry.position}, where none begins")
                    )
            elif run.tp != tp:
                problems.append((Kind.DISAGREES, f"it is a segment of {run.tp}"))
                usable = False
            elif run.entry is not None and (text := difference(entry, run.entry)) is not None:
                problems.append((Kind.DISAGREES, f"the manifest says otherwise than the segment: {text}"))
            if not usable:
                state.lost.add(entry)
        lost = any(entry in state.lost for entry in entries)
        for kind, text in problems:
            report.fault(
                kind,
                found.key,
                f"{text}. {_served(entries, lost=lost)}",
                topic=state.topic,
                size_bytes=size_bytes,
                repair="a gap in its place, or another segment that holds the same"
                if lost and kind is not Kind.UNREADABLE
                else "",
            )

        for batch in found.unopenable:
            report.fault(
                batch.kind, found.key, f"{batch.text}. It is {MEANS}", topic=state.topic, size_bytes=size_bytes
            )

    def _segment_lost(
        self, state: PartitionState, key: str, entries: list[SegmentEntry], kind: Kind, text: str
    ) -> None:
        state.lost.update(entries)
        state.report.fault(
            kind,
            key,
            f"{text}. {_served(entries, lost=True)}",
            topic=state.topic,
            repair="a gap in its place, or another segment that holds the same",
        )

    async def _coordinator_snapshot(self, state: PartitionState, topic_name: str) -> None:
        named = state.manifest.coordinator_snapshot
        if named is None:
            self._coordinators_beginning(state, topic_name)
            return
        state.named.add(named.key)
        try:
            found = decode_snapshot(await self._reader.get(named.key))
            if found.tp != state.listing.tp or found.offset != named.offset:
                raise Corrupt(f"it is the snapshot of {found.tp} at {found.offset}, the manifest names {named.offset}")
            self._decode_state(topic_name, bytes(found.state))
        except (ObjectMissing, FormatError, StoreUnavailable) as error:
            text = "a coordinator snapshot that is not there" if isinstance(error, ObjectMissing) else str(error)
            kind = Kind.LOST if isinstance(error, ObjectMissing) else _kind_of(error)
            kept = state.manifest.log_start == 0
            state.torn = state.torn or kind is not Kind.UNREADABLE
            state.report.fault(
                kind,
                named.key,
                f"{text}. It holds the groups and their offsets as of offset {named.offset}; without it this "
                "coordinator does not load",
                topic=state.topic,
                repair="the coordinator loads from the log instead"
                + (
                    ""
                    if kept
                    else f", whose records below {state.manifest.log_start} are deleted: what only they said is lost"
                ),
            )
            return
        state.snapshot = named
        self._coordinators_beginning(state, topic_name)

    def _coordinators_beginning(self, state: PartitionState, topic_name: str) -> None:
        """A coordinator loads from its snapshot on, or from the log's very beginning: nothing may be missing there."""
        begins = 0 if state.snapshot is None else state.snapshot.offset
        if not is_internal(topic_name) or state.manifest.log_start <= begins:
            return
        state.torn = True
        state.report.fault(
            Kind.GAP,
            numbered_key(manifest_prefix(state.listing.tp), state.audited.number),
            f"its log starts at offset {state.manifest.log_start}, and the coordinator needs it from offset "
            f"{begins} on: it does not load, because what groups committed in between is in no snapshot. Restore "
            "an older backup",
            topic=state.topic,
            repair="the coordinator goes on without what was in between",
        )

    async def _producer_snapshot(self, state: PartitionState) -> None:
        """That of a log without segments; the others' are looked at with their segments."""
        named = state.manifest.producer_snapshot
        if named is None:
            return
        state.named.add(named.key)
        try:
            stored = await self._reader.get(named.key, start=named.position, length=named.length)
            self._decode_producers(bytes(decode_producer_snapshot(stored)))
        except (ObjectMissing, FormatError, StoreUnavailable) as error:
            text = "the segment is not there" if isinstance(error, ObjectMissing) else str(error)
            state.producers_usable = False
            state.torn = True
            state.report.fault(
                Kind.LOST if isinstance(error, ObjectMissing) else _kind_of(error),
                named.key,
                f"{text}. It is kept for its producer snapshot, without which the partition does not open",
                topic=state.topic,
                repair="the partition forgets its idempotent producers",
            )

    def _unnamed(self, state: PartitionState, adopted: frozenset[str]) -> None:
        """What nothing names: garbage where its writer's leader epoch is over, because the manifest has a version of a
        higher one.
        """
        listing, report = state.listing, state.report
        unsettled = bool(report.count(Level.FAULT))
        kept = kept_bytes = 0
        for key, size_bytes in (*listing.segments.items(), *listing.snapshots.items(), *listing.pages.items()):
            if key in state.named or key in adopted:
                continue
            epoch = listing.epochs.get(key)
            if epoch is not None and epoch < state.audited.epoch and not unsettled and not _is_stray(state, key, epoch):
                report.garbage(
                    key,
                    f"nothing names it, and nothing can: its writer's leader epoch {epoch} is over, the manifest "
                    f"is of epoch {state.audited.epoch}",
                    topic=state.topic,
                    size_bytes=size_bytes,
                    unread=self._quick and key in listing.segments,
                )
            else:
                kept += 1
                kept_bytes += size_bytes
        if kept:
            report.note(
                Kind.UNNAMED,
                segment_prefix(listing.tp).removesuffix("segment/"),
                "no manifest names them yet, or any more: their writer may name them, else the partition's next "
                "owner deletes them",
                topic=state.topic,
                objects=kept,
                size_bytes=kept_bytes,
            )


def _is_stray(state: PartitionState, key: str, epoch: int) -> bool:
    """Whether a segment begins where a later owner found no records any more: versions of the manifest were missing
    then that named it.

    Its offsets were given a second time. It stays, as brokers keep it: what is in it is nowhere else.
    """
    parsed = parse_numbered_key(segment_prefix(state.listing.tp), key)
    _, end = leader_epochs.epoch_end(state.manifest.leader_epochs, epoch, log_end=state.manifest.next_offset)
    return parsed is not None and 0 <= end <= parsed.offset


def _served(entries: Sequence[SegmentEntry], *, lost: bool) -> str:
    first, last = entries[0].base_offset, entries[-1].last_offset
    records = sum(entry.record_count for entry in entries)
    if lost:
        return f"Offsets {first} to {last} ({records} records) cannot be read: restore the object from a backup"
    return (
        f"It holds offsets {first} to {last} ({records} records); what is not damaged is served: restore the "
        "object from a backup"
    )


def _kind_of(error: Exception) -> Kind:
    return Kind.UNREADABLE if isinstance(error, FormatTooNew | StoreUnavailable) else Kind.DAMAGED
